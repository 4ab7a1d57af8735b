"""A card for tests, stricter and quicker than numba's simulator: the threads of a block take turns.

Each runs to its next barrier, then the next one does. They begin with the first thread or with the last, as a test
wants it, and so do the blocks: where a barrier is missing, or two blocks write to one place, the two orders differ, on
every run. What nobody has written is NaN: shared memory, which is new for each block, a thread's own arrays, and all
arrays that the card makes. A barrier that only some threads of a block come to is an error.

`install()` puts this in the place of a Card's launches; it needs NUMBA_ENABLE_CUDASIM=1.
"""

import math
import sys
import threading
from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda.simulator.kernel import FakeCUDAKernel

BACKWARDS = False  # whether the last thread of the last block comes first


def in_turn(them):
    return reversed(them) if BACKWARDS else iter(them)


def poisoned(shape, dtype):
    """An array of NaN, or of numbers that are no row of anything."""
    dtype = np.dtype(dtype)
    return np.full(shape, np.nan if dtype.kind == "f" else np.iinfo(dtype).max, dtype)


class Thread:
    """A thread of a block. It lives as long as the tests, and takes its turn in one block after another."""

    def __init__(self):
        self._turn = threading.Lock()
        self._turn.acquire()
        threading.Thread(target=self._live, daemon=True).start()

    def begin(self, block, x, work):
        self._block, self._x, self._work, self.ended = block, x, work, False

    def take_turn(self):
        """Go on, to the next barrier or the end; then it is the next thread's turn."""
        cuda.threadIdx.x, Thread.now = self._x, self
        self._turn.release()

    def wait(self):
        """At a barrier."""
        self._block.next()
        self._turn.acquire()

    def _live(self):
        while True:
            self._turn.acquire()
            try:
                self._work()
                self.ended = True
                self._block.next()
            except Exception as error:
                self._block.end(error)


class Block:
    """The block that runs now."""

    threads = []  # of all blocks, the first ones for each

    def __init__(self, grid, n_threads, at):
        self._shared, self._end, self._error = {}, threading.Lock(), None
        self._running = Block.threads[:n_threads]
        cuda.gridDim.x, cuda.gridDim.y = grid
        cuda.blockIdx.x, cuda.blockIdx.y = at
        cuda.blockDim.x = n_threads

    def run(self, work):
        """work() in each thread."""
        settings = np.geterr()

        def with_settings():
            with np.errstate(**settings):
                work()

        for x, thread in enumerate(self._running):
            thread.begin(self, x, with_settings)
        self._end.acquire()
        self._round = in_turn(self._running)
        self.next()
        self._end.acquire()
        if self._error:
            Block.threads = []  # some of them wait at a barrier for ever
            raise self._error

    def next(self):
        """It is the next thread's turn. After the last of them all have come to a barrier, or have ended."""
        thread = next(self._round, None)
        if thread is None:
            ended = sum(thread.ended for thread in self._running)
            if ended == len(self._running):
                return self.end()
            if ended:
                raise RuntimeError(f"{ended} threads have ended, and the others wait for them at a barrier")
            self._round = in_turn(self._running)
            thread = next(self._round)
        thread.take_turn()

    def end(self, error=None):
        self._error = error
        self._end.release()

    def shared(self, shape, dtype):
        frame = sys._getframe(1)
        place = frame.f_code, frame.f_lasti
        if place not in self._shared:
            self._shared[place] = poisoned(shape, dtype)
        return self._shared[place]


def launch(function, grid, n_threads, *arguments):
    """Run a kernel's function on arrays of NumPy."""
    grid = grid if isinstance(grid, tuple) else (grid, 1)
    Block.threads += [Thread() for _ in range(n_threads - len(Block.threads))]
    for y in in_turn(range(grid[1])):
        for x in in_turn(range(grid[0])):
            block = Block(grid, n_threads, (x, y))
            if has_barriers(function):
                cuda.shared.array = block.shared
                block.run(lambda: function(*arguments))
            else:
                Thread.now = None  # who comes to a barrier after all is an error
                for cuda.threadIdx.x in in_turn(range(n_threads)):
                    function(*arguments)


def has_barriers(function):
    """Whether the function, or one that it calls, has any."""
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    called = [value.fn for value in inside if isinstance(value, FakeCUDAKernel)]
    return "syncthreads" in function.__code__.co_names or any(map(has_barriers, called))


def quiet(function):
    """A function of math as a card has it: out of its range there is an infinity or NaN, and no error."""

    def of(x):
        with np.errstate(all="ignore"):
            return float(function(np.float64(x)))

    return of


CARDS_MATH = SimpleNamespace(
    **vars(math) | {name: quiet(getattr(np, name)) for name in ("exp", "log", "log1p", "sqrt")}
)


def install():
    """From now on every Card launches like this. Once more after the package was imported anew."""
    from gpn_ref.fast.cuda import card

    def launched(_, kernel, grid, n_threads, *arguments):
        launch(kernel.function, grid, n_threads, *(getattr(value, "_ary", value) for value in arguments))

    def empty(_, shape, dtype):
        return cuda.to_device(poisoned(shape, dtype))

    card.Card.launch, card.Card.empty = launched, empty
    for name, module in sys.modules.items():
        if name.startswith("gpn_ref.fast.cuda.") and hasattr(module, "math"):
            module.math = CARDS_MATH


for index in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
    setattr(cuda, index, SimpleNamespace(x=0, y=0))
cuda.grid = lambda _: cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
cuda.gridsize = lambda _: cuda.gridDim.x * cuda.blockDim.x
cuda.local, cuda.shared = SimpleNamespace(array=poisoned), SimpleNamespace()
cuda.syncthreads = lambda: Thread.now.wait()
FakeCUDAKernel.__call__ = lambda self, *arguments: self.fn(*arguments)
