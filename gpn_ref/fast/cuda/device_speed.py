"""How fast the card is, and how near its memory's bandwidth the kernels of the model's memory come."""

from time import perf_counter

import numpy as np
from numba import cuda

from gpn_ref.benchmarks.agreement import jittered
from gpn_ref.config import ModelConfig
from gpn_ref.fast.cuda import ladder
from gpn_ref.fast.cuda.card import SIMULATED
from gpn_ref.fast.cuda.engine import Engine
from gpn_ref.fast.cuda.layout import steps_of_a_segment
from gpn_ref.fast.cuda.products import block, products

FLOAT = 4  # bytes
LAUNCHES = 1 if SIMULATED else 20  # of a kernel, in one timing
REPEAT = 1 if SIMULATED else 5  # timings, of which the best counts: other programs only ever make one longer


# -------------------------------------------------------------------------------------------------------- clocks
class EventClock:
    """The card's own time between two points of its stream."""

    def __init__(self, card):
        self._stream = card.stream

    def seconds(self, work):
        start, end = cuda.event(), cuda.event()
        start.record(self._stream)
        work()
        end.record(self._stream)
        end.synchronize()
        return cuda.event_elapsed_time(start, end) / 1000  # it counts milliseconds


class WallClock:
    """This process's time until the card is done: what there is in the simulator, and what a user waits."""

    def __init__(self, card):
        self._card = card

    def seconds(self, work):
        self._card.wait()
        began = perf_counter()
        work()
        self._card.wait()
        return perf_counter() - began


def clock(card):
    return WallClock(card) if card.simulated else EventClock(card)


def best(clock, work, repeat=REPEAT):
    """Seconds of the fastest call of work(); a first one, which may compile, does not count."""
    work()
    return min(clock.seconds(work) for _ in range(repeat))


def as_graph(card, work, times=1):
    """A function that does work() so many times, as one graph where there are graphs: no time goes to Python then."""

    def several():
        for _ in range(times):
            work()

    work()  # compiles its kernels, which a graph can't
    graph = card.capture(several)
    return graph.launch if graph else several


# ------------------------------------------------------------------------------------------------- what the card can
def limits(card, n_bytes, size):
    """Bytes/s of a copy on the card, and operations/s of a product of two float32 matrices (size, size)."""
    multiply = products(card, np.dtype(np.float32))
    return {
        "bandwidth": copy_bandwidth(card, n_bytes),
        "product rate": product_rate(card, multiply, size),
        "products": multiply.name,
        "product size": size,
    }


def copy_bandwidth(card, n_bytes):
    """Each byte is read and written."""
    source, target = (card.empty(n_bytes // FLOAT, np.float32) for _ in range(2))
    seconds = best(clock(card), lambda: target.copy_to_device(source, stream=card.stream))
    return 2 * n_bytes / seconds


def product_rate(card, multiply, size):
    """2 · size³ operations, over their time."""
    a, b, c = (card.empty((size, size), np.float32) for _ in range(3))
    for array in (a, b):
        card.put(array, np.random.default_rng(0).standard_normal((size, size), np.float32))
    return 2 * size**3 / best(clock(card), lambda: multiply.by_rows(block(a), block(b), block(c)))


# ------------------------------------------------------------------------------------------------ the memory kernels
def memory_bytes(kernel, B, H, K, U, n_pieces, n_steps):
    """Bytes that a launch moves at the least, float32: each array that it takes once, each that it makes once.

    write_and_read: M there and back; key, query and value; what it recalled.
    write_and_read_back: M, the gradient of M there and back; key, query and value, the gradient of what was recalled;
    the gradient of the value, and of key and query a share of each piece.
    replay, of n_steps: M once, and each of n_steps + 1 memories; a key and a value a step.
    β and decay, two numbers a head, are left out.
    """
    M, address, value = B * H * K * U, B * H * K, B * H * U
    numbers = {
        "write_and_read": 2 * M + 2 * address + 2 * value,
        "write_and_read_back": 3 * M + 2 * address + 2 * value + value + 2 * n_pieces * address,
        "replay": (n_steps + 2) * M + n_steps * (address + value),
    }
    return FLOAT * numbers[kernel]


def memory_kernels(card, B, H, K, U, n_steps):
    """Yields (kernel, seconds of a launch, bytes that it moves), in a model that is small but for its memory."""
    config = ModelConfig(vocab_size=32, d_state=32, d_emb=32, d_ffn=32, n_heads=H, d_key=K, d_value=U)
    engine = Engine(config, jittered(config), card)
    window = engine.new_window(B, n_steps**2, training=True)
    inputs, targets = np.random.default_rng(0).integers(0, config.vocab_size, (2, B, n_steps**2))
    engine.put_inputs(window, inputs)
    engine.put_targets(window, inputs, targets)
    window.start_from_zero()
    window.begin()
    window.forward(kept=True)
    window.clear_back()
    window.loss_and_back(engine.grads(), 1.0)
    window.backward()  # from here on all arrays have numbers as in training

    z, d, kernels = window.trace, window.back, window.memory
    params = [engine.weights[name] for name in ("write.key.bias", "layers.0.read.query.bias")]
    params += [engine.weights[name] for name in ("write.decay.bias", "write.log_rate")]
    key_bias, _, *decay_params = params
    shares = d.key, d.query, d.beta, d.decay
    assert steps_of_a_segment(window.T) == n_steps
    arguments = {
        "write_and_read": (B, B, z.looks[0], *params, z.memory, z.recalled[0]),
        "write_and_read_back": (B, 0, B, z.looks[0], *params, d.states, z.recalled[0], d.memory, *shares),
        "replay": (B, n_steps, B, z.looks[0], key_bias, *decay_params, d.kept, 0, d.states),
    }
    grid, threads = (B * H, kernels.tile.pieces), kernels.tile.threads
    for name, values in arguments.items():
        kernel = getattr(kernels, name)
        seconds = launch_seconds(card, lambda kernel=kernel, values=values: card.launch(kernel, grid, threads, *values))
        yield name, seconds, memory_bytes(name, B, H, K, U, kernels.tile.pieces, n_steps)


def ladder_kernels(card, B, H, K, U):
    """The same of each version of the ladder. What it moves is told by the version itself."""
    for name, version in ladder.versions(H, K, U, np.float32, card.tuning).items():
        arrays = ladder.random_arrays(card, B, H, K, U, np.float32)
        seconds = launch_seconds(card, lambda version=version, arrays=arrays: version.launch(card, U, *arrays))
        yield f"ladder, {name}", seconds, ladder.bytes_moved(version, B, H, K, U, FLOAT)


def launch_seconds(card, launch):
    """Seconds of a launch, of many in a row."""
    return best(clock(card), as_graph(card, launch, LAUNCHES)) / LAUNCHES
