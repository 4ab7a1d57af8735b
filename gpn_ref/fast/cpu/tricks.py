"""What each trick of the compiled path is worth here: pairs of one thing done in two ways, and how many times faster.

README.md, in this folder, tells what they are. Each time is the best of several runs that take turns, in the same
process. Two threads are two cores where the machine has two.
"""

import math
import os
import sys
from time import perf_counter, sleep

import numpy as np
from tqdm import tqdm

from gpn_ref import cli

try:
    from numba import njit, prange
except ImportError as error:
    print(f"python -m gpn_ref.fast.cpu.tricks: needs numba (pip install numba): {error}", file=sys.stderr)
    sys.exit(2)

from gpn_ref.config import PRESETS
from gpn_ref.fast.cpu import compiled, products, threads
from gpn_ref.fast.cpu.engine import Engine
from gpn_ref.fast.cpu.layout import zeros
from gpn_ref.fast.cpu.threads import N_THREADS
from gpn_ref.parameters import init_params
from gpn_ref.reference.gpn import initial_state

PROG = "python -m gpn_ref.fast.cpu.tricks"
REAL = np.float32


def best_times(*works, rounds=15, pause=0):
    """Seconds of each work, called without arguments: the best of `rounds`, taking turns, after a pause each."""
    best = [math.inf] * len(works)
    for _ in range(rounds + 1):  # the first round compiles
        for i, work in enumerate(works):
            if pause:
                sleep(pause)
                work()  # wakes the cores
            began = perf_counter()
            work()
            best[i] = min(best[i], perf_counter() - began)
    return best


def random(*shape, offset=0):
    """An array that begins `offset` bytes after the beginning of a cache line."""
    padded = zeros((math.prod(shape) + 16,), REAL)[offset // 4 :][: math.prod(shape)].reshape(shape)
    padded[...] = np.random.default_rng(0).standard_normal(shape) / 10
    return padded


# ------------------------------------------------------------------------------------------------- products
@compiled.compiled
def many_rows(piece, n_pieces, barrier, times, far, W, X, Y):
    for _ in range(times):
        for i in range(len(W)):
            products.rows(piece, n_pieces, far, W[i], X, Y[i])


@compiled.compiled
def many_rows_back(piece, n_pieces, barrier, times, far, W, d_Y, d_X):
    for _ in range(times):
        for i in range(len(W)):
            products.rows_back(piece, n_pieces, far, W[i], d_Y[i], d_X[piece])


def against_blas(count, rows, columns, batch_size, far, times):
    """`count` matrices (rows, columns), one after the other, as at every step, times `batch_size` vectors."""
    W, X, Y = random(count, rows, columns), random(batch_size, columns), random(count, batch_size, rows)
    S = np.ascontiguousarray(X.T)
    return best_times(
        lambda: [W[i] @ S for _ in range(times) for i in range(count)],
        lambda: threads.run(N_THREADS, many_rows, times, far, W, X, Y),
        rounds=8,
        pause=0.2,  # until BLAS's threads have stopped spinning
    )


def prefetching():
    W, X, Y = random(4, 4096, 2496), random(8, 2496), random(4, 8, 4096)
    return best_times(
        lambda: threads.run(N_THREADS, many_rows, 1, False, W, X, Y),
        lambda: threads.run(N_THREADS, many_rows, 1, True, W, X, Y),
    )


def alignment():
    works = []
    for offset in (16, 0):
        W, d_Y = random(2, 688, 256, offset=offset), random(2, 16, 688, offset=offset)
        d_X = random(N_THREADS, 16, 256, offset=offset)
        works.append(lambda W=W, d_Y=d_Y, d_X=d_X: threads.run(1, many_rows_back, 1, False, W, d_Y, d_X))
    return best_times(*works, rounds=200)


@njit(**compiled.OPTIONS)
def four_by_four(W, d_Y, d_X):
    """d_X += d_Y W, four rows of W to four vectors at a time."""
    for r in range(0, len(W), 4):
        w0, w1, w2, w3 = W[r], W[r + 1], W[r + 2], W[r + 3]
        for b in range(0, len(d_X), 4):
            y00, y01, y02, y03 = d_Y[b, r], d_Y[b, r + 1], d_Y[b, r + 2], d_Y[b, r + 3]
            y10, y11, y12, y13 = d_Y[b + 1, r], d_Y[b + 1, r + 1], d_Y[b + 1, r + 2], d_Y[b + 1, r + 3]
            y20, y21, y22, y23 = d_Y[b + 2, r], d_Y[b + 2, r + 1], d_Y[b + 2, r + 2], d_Y[b + 2, r + 3]
            y30, y31, y32, y33 = d_Y[b + 3, r], d_Y[b + 3, r + 1], d_Y[b + 3, r + 2], d_Y[b + 3, r + 3]
            x0, x1, x2, x3 = d_X[b], d_X[b + 1], d_X[b + 2], d_X[b + 3]
            for c in range(W.shape[1]):
                x0[c] += y00 * w0[c] + y01 * w1[c] + y02 * w2[c] + y03 * w3[c]
                x1[c] += y10 * w0[c] + y11 * w1[c] + y12 * w2[c] + y13 * w3[c]
                x2[c] += y20 * w0[c] + y21 * w1[c] + y22 * w2[c] + y23 * w3[c]
                x3[c] += y30 * w0[c] + y31 * w1[c] + y32 * w2[c] + y33 * w3[c]


def tiles():
    W, d_Y, d_X = random(688, 256), random(16, 688), random(16, 256)
    return best_times(
        lambda: four_by_four(W, d_Y, d_X), lambda: products.product_back(W, d_Y, d_X, 0, 688, False), rounds=200
    )


# --------------------------------------------------------------------------------------------------- the rest
@njit(**compiled.OPTIONS)
def exp_of_the_library(x, y):
    for i in range(len(x)):
        y[i] = math.exp(x[i])


@njit(**compiled.OPTIONS)
def exp_of_ours(x, y):
    for i in range(len(x)):
        y[i] = compiled.exp(x[i])


def exponentials():
    x, y = random(1 << 14), random(1 << 14)
    return best_times(lambda: exp_of_the_library(x, y), lambda: exp_of_ours(x, y), rounds=200)


HANDOVERS = 2000


@njit(parallel=True)
def regions(x):
    for _ in range(HANDOVERS):
        for i in prange(N_THREADS):
            x[16 * i] += 1


@compiled.compiled
def barriers(piece, n_pieces, barrier, x):
    for _ in range(HANDOVERS):
        x[16 * piece] += 1
        threads.wait(barrier, n_pieces)


def handovers():
    x = np.zeros(16 * N_THREADS)
    return best_times(lambda: regions(x), lambda: threads.run(N_THREADS, barriers, x))


def fresh_memory():
    kept = np.zeros(1 << 24, REAL)

    def fill_fresh():
        np.zeros(1 << 24, REAL)[:] = 1

    return best_times(fill_fresh, lambda: kept.fill(1))


def spinning_blas():
    """A window's forward pass right after a product by BLAS's own threads, and after one by a single thread."""
    config = PRESETS["tiny"]
    engine, state = Engine(config, init_params(config)), initial_state(config, 16)
    inputs, square = np.zeros((16, 64), np.int64), random(1024, 1024)
    seconds = [math.inf, math.inf]
    multiply = [square.__matmul__, threads.single_threaded_blas()(square.__matmul__)]
    for _ in range(6):
        for i in range(2):
            sleep(0.3)  # until whoever spins has stopped
            multiply[i](square)
            began = perf_counter()
            engine.forward(inputs, state)
            seconds[i] = min(seconds[i], perf_counter() - began)
    return seconds


TRICKS = {
    "W x for 16 vectors, 1 MB of W: BLAS | ours": lambda: against_blas(2, 512, 256, 16, False, 50),
    "W x for 16 vectors, 25 MB of W: BLAS | ours": lambda: against_blas(4, 2048, 768, 16, True, 2),
    "W x for 8 vectors, 160 MB of W: BLAS | ours": lambda: against_blas(4, 4096, 2496, 8, True, 1),
    "the same: no prefetch | prefetch": prefetching,
    "rows begin anywhere | at a cache line": alignment,
    "x += y W: 4 rows, 4 vectors | 8 rows, 1 vector": tiles,
    "exp: the library's | a polynomial": exponentials,
    f"{HANDOVERS} hand-overs: prange | our barrier": handovers,
    "64 MB written: fresh | kept": fresh_memory,
    "a window after BLAS: many threads | one": spinning_blas,
}


def main(arguments=None):
    cli.Parser(prog=PROG, description=__doc__).parse_args(arguments)
    rows = []
    for name, measure in tqdm(TRICKS.items(), unit="trick", leave=False, disable=None):
        slow, fast = measure()
        rows.append(f"{name:50} {1e3 * slow:10.3f} {1e3 * fast:10.3f} {slow / fast:7.2f}")
    print(f"{N_THREADS} threads, {os.cpu_count()} cores, float32, milliseconds", file=sys.stdout)
    print(f"{'first way | second way':50} {'first':>10} {'second':>10} {'ratio':>7}")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    cli.run(main, PROG)
