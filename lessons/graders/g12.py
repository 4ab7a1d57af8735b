"""What is asked in lesson 12, and the wrong answers that we foresee.

Every kernel runs in several orders of threads and with several numbers of them. Races are found whatever the order:
`lessons/little_gpu.py` watches who touches what.
"""

import math

import numpy as np

from lessons.graders.g07 import addresses
from lessons.grading import Foreseen, Part
from lessons.little_gpu import kernel
from lessons.solutions import ex12_on_a_gpu as ours


def unwritten(*shape):
    return np.full(shape, np.nan)


# ------------------------------------------------------------------------------------------------- column_sums
def matrices(rng):
    """More rows than threads, fewer, a single thread, two, and one column."""
    sizes = (6, 3, 4, "forwards"), (3, 2, 8, "backwards"), (5, 2, 1, "forwards"), (4, 3, 2, "shuffled")
    for R, C, threads, order in (*sizes, (9, 1, 4, "backwards")):
        yield C, threads, order, {"matrix": R * C}, rng.standard_normal((R, C)), unwritten(C)


def tree(**planted):
    """column_sums with a bug or two."""
    return kernel(lambda me, matrix, out: _tree(me, matrix, out, **planted))


def _tree(me, matrix, out, stride=True, first=True, inside=False, between=True, all_write=False, all_rows=False):
    sums = me.shared("sums", me.threads)
    rows = range(me.thread, len(matrix), me.threads) if stride else range(me.thread, min(len(matrix), me.thread + 1))
    sums[me.thread] = sum(matrix[r, me.block] for r in (range(len(matrix)) if all_rows else rows))
    if first:
        yield
    half = me.threads // 2
    while half:
        if me.thread < half:
            sums[me.thread] += sums[me.thread + half]
            if inside:
                yield
        if between and not inside:
            yield
        half //= 2
    if me.thread == 0 or all_write:
        out[me.block] = sums[0]


@kernel
def all_add(me, matrix, out):
    for r in range(me.thread, len(matrix), me.threads):
        out[me.block] += matrix[r, me.block]


def first_share(blocks, threads, order, most, matrix, out):
    """What is left without a tree: the sum of thread 0."""
    return matrix, matrix[::threads].sum(axis=0)


# --------------------------------------------------------------------------------------------- weight_gradient
def windows(rng):
    """Several slices, a single one, larger tiles, and tiles of 1 × 1."""
    sizes = (4, 4, 6, 2, "forwards"), (2, 2, 4, 2, "backwards"), (6, 3, 3, 3, "shuffled"), (3, 2, 3, 1, "backwards")
    for rows, m, n, side, order in sizes:
        loads = rows * m * n // side
        arrays = rng.standard_normal((rows, m)), rng.standard_normal((rows, n)), unwritten(m, n)
        yield m * n // side**2, side**2, order, {"d_y": loads, "x": loads}, *arrays


def tiles(**planted):
    return kernel(lambda me, d_y, x, d_W: _tiles(me, d_y, x, d_W, **planted))


def _tiles(me, d_y, x, d_W, first=True, last=True, moves=True, turned=False, restarts=False, turned_out=False):
    side = math.isqrt(me.threads)
    here, there = me.shared("d_y", side, side), me.shared("x", side, side)
    (up, across), (i, j) = divmod(me.block, x.shape[1] // side), divmod(me.thread, side)
    total = 0.0
    for start in range(0, len(x), side):
        row = (start if moves else 0) + i
        here[i, j] = d_y[row, up * side + j]
        there[i, j] = x[row, across * side + j]
        if first:
            yield
        total = 0.0 if restarts else total
        total += sum((here[i, r] if turned else here[r, i]) * there[r, j] for r in range(side))
        if last:
            yield
    i, j = (j, i) if turned_out else (i, j)
    d_W[up * side + i, across * side + j] = total


@kernel
def without_tiles(me, d_y, x, d_W):
    side = math.isqrt(me.threads)
    (up, across), (i, j) = divmod(me.block, x.shape[1] // side), divmod(me.thread, side)
    a, b = up * side + i, across * side + j
    d_W[a, b] = sum(d_y[r, a] * x[r, b] for r in range(len(x)))


# ---------------------------------------------------------------------------------------------- write_and_read
def steps(rng):
    """Pieces that don't divide U, a memory of 2 × 2, and more threads than columns."""
    for heads, K, U, threads, order in ((2, 3, 5, 2, "forwards"), (1, 2, 2, 2, "backwards"), (3, 2, 3, 4, "shuffled")):
        memory, (key, query) = rng.standard_normal((heads, K, U)), addresses(rng, 2, heads, K)
        value, (beta, decay) = rng.standard_normal((heads, U)), rng.uniform(0.1, 0.9, (2, heads))
        blocks, most = heads * -(-U // threads), {"memory": memory.size}
        yield blocks, threads, order, most, memory, key, query, value, beta, decay, unwritten(heads, U)


NAMES = "memory key query value beta decay recalled".split()


def answer(change):
    """Ours, with the arrays that `change` makes of them: by name, for those that are not as they were."""

    def wrong(blocks, threads, order, most, *arrays):
        given = dict(zip(NAMES, arrays, strict=True))
        after = ours.write_and_read(blocks, threads, order, most, *(given | change(**given)).values())
        return tuple(
            now if name in ("memory", "recalled") else given[name] for name, now in zip(NAMES, after, strict=True)
        )

    return wrong


def recalls(memory, key):
    return np.einsum("hku,hk->hu", memory, key)


def error_against_the_faded(memory, key, value, decay, **others):
    return {"value": value + (1 - decay[:, None]) * recalls(memory, key)}


def hebb(memory, key, value, **others):
    return {"value": value + recalls(memory, key)}


def reads_first(blocks, threads, order, most, memory, key, query, *others):
    *after, _ = ours.write_and_read(blocks, threads, order, most, memory, key, query, *others)
    return *after, recalls(memory, query)


def never_stores(blocks, threads, order, most, memory, *others):
    _, *after = ours.write_and_read(blocks, threads, order, most, memory, *others)
    return memory, *after


def adds_to_what_is_there(*arguments):
    *after, recalled = ours.write_and_read(*arguments)
    return *after, np.full_like(recalled, np.nan)


def columns(**planted):
    def planted_kernel(me, memory, key, query, value, beta, decay, recalled):
        _columns(me, memory, key, query, value, beta, decay, recalled, **planted)

    return kernel(planted_kernel)


def _columns(me, memory, key, query, value, beta, decay, recalled, guard=True, pieces=True, registers=True):
    heads, K, U = memory.shape
    h, piece = divmod(me.block, me.blocks // heads) if pieces else (me.block, 0)
    u = piece * me.threads + me.thread
    if guard and u >= U:
        return
    column = [memory[h, j, u] for j in range(K)]
    error = value[h, u] - sum(column[j] * key[h, j] for j in range(K))
    total = 0.0
    for j in range(K):
        m = decay[h] * (column[j] if registers else memory[h, j, u]) + beta[h] * key[h, j] * error
        memory[h, j, u] = m
        total += m * query[h, j]
    recalled[h, u] = total


PARTS = [
    Part(
        "column_sums",
        matrices,
        [
            Foreseen(
                "there may be more rows than threads: each thread goes on, me.threads further", tree(stride=False)
            ),
            Foreseen("that is the sum of thread 0 alone: where is the tree?", first_share),
            Foreseen("a barrier is missing between the threads' sums and the tree", tree(first=False)),
            Foreseen("a barrier is missing between one level of the tree and the next", tree(between=False)),
            Foreseen("the barrier stands inside an if: all threads must come to it", tree(inside=True)),
            Foreseen("all threads add to out[c]: that is a race, and it is not even 0 at first", all_add),
            Foreseen(
                "several threads store to out[c], which is a race: let one do it, at the end", tree(all_write=True)
            ),
            Foreseen("each thread adds up a share of the rows, not all of them", tree(all_rows=True)),
        ],
    ),
    Part(
        "weight_gradient",
        windows,
        [
            Foreseen("that is d_y x: the sum runs over the rows of both tiles", tiles(turned=True)),
            Foreseen("a barrier is missing between loading the tiles and using them", tiles(first=False)),
            Foreseen("a barrier is missing between using the tiles and loading the next ones", tiles(last=False)),
            Foreseen("each slice must begin where the last one ended", tiles(moves=False)),
            Foreseen("the sum goes on from slice to slice: set it to 0 before the first", tiles(restarts=True)),
            Foreseen("thread row · side + column writes the entry (row, column) of its square", tiles(turned_out=True)),
            Foreseen("each thread loads for itself alone: bring tiles to shared memory first", without_tiles),
        ],
    ),
    Part(
        "write_and_read",
        steps,
        [
            Foreseen(
                "that is the other order: the error is against the memory before its decay",
                answer(error_against_the_faded),
            ),
            Foreseen("what is recalled for the key must be taken from the value first", answer(hebb)),
            Foreseen("the read comes after the write", reads_first),
            Foreseen("where is β?", answer(lambda beta, **others: {"beta": np.ones_like(beta)})),
            Foreseen("where is the decay?", answer(lambda decay, **others: {"decay": np.ones_like(decay)})),
            Foreseen("key and query are exchanged", answer(lambda key, query, **others: {"key": query, "query": key})),
            Foreseen("the new column must be stored, too", never_stores),
            Foreseen("`recalled` is not 0 at first: add up in a variable, and store that", adds_to_what_is_there),
            Foreseen("M is loaded more than once: keep the column in a list", columns(registers=False)),
            Foreseen("the last piece may have fewer columns than there are threads", columns(guard=False)),
            Foreseen("a head has several blocks, one for each piece", columns(pieces=False)),
        ],
    ),
]
