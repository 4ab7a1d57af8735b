"""A GPU in plain Python: its threads are generators, and a barrier is `yield`. Lesson 12 begins with it in ten lines.

A kernel is what every thread does. It gets `me`, which says which thread it is, and arrays, of which a thread loads and
stores one number at a time:

    @kernel
    def double(me, x, out):
        i = me.block * me.threads + me.thread
        if i < len(x):
            out[i] = 2 * x[i]

    launch(double, 3, 4, x, out)  # 3 blocks of 4 threads; `out` has changed

It is stricter than a card. An index outside of an array is an error; so is a barrier that only some threads of a block
come to; and so is a race: two threads at one number, one of which stores, with no barrier between them, whichever comes
first, and whether the answer is right this time or not. Shared memory that nobody has written is NaN.
"""

import inspect
import operator
import random
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

ORDERS = {
    "forwards": list,
    "backwards": lambda them: list(them)[::-1],
    "shuffled": lambda them: random.Random(0).sample(list(them), len(them)),
}
ENDED = object()


class SharedRace(RuntimeError):
    """Two threads of a block at one number of shared memory."""


class GlobalRace(RuntimeError):
    """Two threads at one number of an array."""


class Deadlock(RuntimeError):
    """A barrier that only some threads come to."""


class TooManyLoads(RuntimeError):
    """More loads from an array than are allowed."""


class TooManySharedLoads(RuntimeError):
    """More loads by one thread from the shared memory of its block than are allowed."""


class Touch(NamedTuple):
    """Who loaded or stored a number, and between which barriers."""

    block: int
    stretch: int
    thread: int
    stores: bool


class Loads:
    """How often an array is loaded from, or all shared memory, and may be: `most` by all threads, `each` by one."""

    def __init__(self, name, now, most=None, each=None, error=TooManyLoads):
        self.count, self._of_thread = 0, Counter()
        self._name, self._now, self._most, self._each, self._error = name, now, most, each, error

    def one_more(self):
        block, thread = who = self._now.block, self._now.thread
        self.count += 1
        self._of_thread[who] += 1
        if self._each is not None and self._of_thread[who] > self._each:
            alone = f"by thread {thread} of block {block} alone"
            raise self._error(f"more than {self._each} loads from {self._name} {alone}")
        if self._most is not None and self.count > self._most:
            raise self._error(f"more than {self._most} loads from {self._name}")


class Memory:
    """An array as threads see it: one number at a time, and all that they do is watched."""

    def __init__(self, name, array, now, loads, is_shared=False):
        self.name, self.shape, self.loads, self.stores = name, array.shape, loads, 0
        self._now, self._is_shared, self._touched = now, is_shared, {}
        self._number, self._put = array.item, array.__setitem__  # not the array: what takes it whole is not watched

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        at = self._touch(index, stores=False)
        self.loads.one_more()
        return self._number(*at)

    def __setitem__(self, index, value):
        at = self._touch(index, stores=True)
        self.stores += 1
        self._put(at, value)

    def _touch(self, index, stores):
        """Refuse what is no number of the array, and a race -> the index."""
        at = tuple(map(operator.index, index if isinstance(index, tuple) else (index,)))
        place = f"{self.name}[{', '.join(map(str, at))}]"
        if len(at) != len(self.shape) or not all(0 <= i < n for i, n in zip(at, self.shape, strict=True)):
            raise IndexError(f"{place} is outside: the shape is {self.shape}")
        now = Touch(self._now.block, self._now.stretch, self._now.thread, stores)
        for other in self._touched.setdefault(at, set()):
            if not (stores or other.stores):
                continue
            if other.block != now.block:
                both = f"blocks {other.block} and {now.block} both come to {place}, one of them to store"
                raise GlobalRace(f"{both}; and blocks never wait for each other")
            if other.stretch == now.stretch and other.thread != now.thread:
                both = f"threads {other.thread} and {now.thread} both come to {place}, one of them to store"
                raise (SharedRace if self._is_shared else GlobalRace)(f"{both}; and there is no barrier between them")
        self._touched[at].add(now)
        return at


class Me:
    """What a thread knows of itself."""

    def __init__(self, block, thread, blocks, threads, now, shared, shared_loads):
        self.block, self.thread, self.blocks, self.threads = block, thread, blocks, threads
        self._now, self._shared, self._shared_loads = now, shared, shared_loads

    def shared(self, name, *shape):
        """Shared memory of this block: all its threads that say this name get the same."""
        if name not in self._shared:
            self._shared[name] = Memory(name, np.full(shape, np.nan), self._now, self._shared_loads, is_shared=True)
        if self._shared[name].shape != shape:
            raise ValueError(f"shared {name} has the shape {self._shared[name].shape}, and {shape} is asked for")
        return self._shared[name]


def launch(kernel, blocks, threads, *arrays, order="forwards", most=None, each=None):
    """Run the kernel in blocks · threads threads; arrays are changed in place. -> loads, stores, by array's name.

    order: of the blocks, and of the threads between two barriers: "forwards", "backwards" or "shuffled". most: name ->
    how many loads from that array are allowed. each: name -> how many of them to each thread; under "shared", how many
    from all shared memory.
    """
    function, in_turn, most, each = getattr(kernel, "function", kernel), ORDERS[order], most or {}, each or {}
    now = SimpleNamespace(block=0, stretch=0, thread=0)  # whose turn it is; a stretch lies between two barriers
    taken = list(inspect.signature(function).parameters.values())[1:]  # without `me`
    if not sum(one.default is one.empty for one in taken) <= len(arrays) <= len(taken):
        names = ", ".join(one.name for one in taken)
        raise TypeError(f"the kernel takes {len(taken)} arrays after me: {names}; it gets {len(arrays)}")
    names = [one.name for one in taken[: len(arrays)]]
    memories = [
        Memory(name, array, now, Loads(name, now, most.get(name), each.get(name)))
        for name, array in zip(names, arrays, strict=True)
    ]
    shared_loads = Loads("shared memory", now, each=each.get("shared"), error=TooManySharedLoads)
    for now.block in in_turn(range(blocks)):
        shared, running = {}, []
        now.stretch = 0
        for now.thread in in_turn(range(threads)):
            me = Me(now.block, now.thread, blocks, threads, now, shared, shared_loads)
            running.append((now.thread, function(me, *memories)))  # one without a barrier has ended by now
        running = [(thread, work) for thread, work in running if inspect.isgenerator(work)]
        while running:
            waiting = []
            for now.thread, work in running:
                if next(work, ENDED) is not ENDED:
                    waiting.append((now.thread, work))
            if 0 < len(waiting) < len(running):
                raise Deadlock(f"{len(waiting)} of {len(running)} threads wait at a barrier, and the others have ended")
            running = waiting
            now.stretch += 1
    loads = {memory.name: memory.loads.count for memory in memories}
    return loads, {memory.name: memory.stores for memory in memories}


def kernel(function):
    """Make a kernel a function that graders call: name(blocks, threads, order, most, each, *arrays) -> the arrays."""

    def launched(blocks, threads, order, most, each, *arrays):
        after = [np.array(array) for array in arrays]
        launch(function, blocks, threads, *after, order=order, most=most, each=each)
        return tuple(after)

    names = ["blocks", "threads", "order", "most", "each", *list(inspect.signature(function).parameters)[1:]]
    kinds = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
    launched.__name__, launched.__doc__, launched.function = function.__name__, function.__doc__, function
    launched.__signature__ = inspect.Signature(kinds)
    return launched
