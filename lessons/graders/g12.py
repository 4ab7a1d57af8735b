"""What is asked in lesson 12, and the wrong answers that we foresee.

Every kernel runs in several orders of threads and with several numbers of them. Races are found whatever the order:
`lessons/little_gpu.py` watches who touches what. And it counts: no thread may load more than its share, so that none
does the work of others.
"""

import math

import numpy as np

from lessons.graders.g07 import addresses
from lessons.grading import Foreseen, Part
from lessons.little_gpu import kernel
from lessons.solutions import ex12_on_a_gpu as ours

KERNEL = "lessons.little_gpu.kernel"  # plain functions would not be watched


def unwritten(*shape):
    return np.full(shape, np.nan)


# ------------------------------------------------------------------------------------------------- column_sums
def matrices(rng):
    """More rows than threads, fewer, a single thread, two, one column, and more threads than a tree has loads."""
    sizes = (6, 3, 4, "forwards"), (3, 2, 8, "backwards"), (5, 2, 1, "forwards"), (4, 3, 2, "shuffled")
    for R, C, threads, order in (*sizes, (9, 1, 4, "backwards"), (20, 2, 16, "shuffled")):
        share = -(-R // threads)
        each = {"matrix": share, "shared": share + 2 * int(math.log2(threads)) + 1}
        yield C, threads, order, {"matrix": R * C}, each, rng.standard_normal((R, C)), unwritten(C)


def tree(**planted):
    """column_sums with a bug or two."""
    return kernel(lambda me, matrix, out: _tree(me, matrix, out, **planted))


def every_so_often(me, R):
    return range(me.thread, R, me.threads)


def only_the_first(me, R):
    return range(me.thread, min(R, me.thread + 1))


def without_the_rest(me, R):
    n = R // me.threads
    return range(me.thread * n, me.thread * n + n)


def all_of_them(me, R):
    return range(R)


def _tree(me, matrix, out, rows=every_so_often, first=True, inside=False, between=True, all_write=False):
    sums = me.shared("sums", me.threads)
    sums[me.thread] = sum(matrix[r, me.block] for r in rows(me, len(matrix)))
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


@kernel
def in_a_row(me, matrix, out):
    sums = me.shared("sums", me.threads)
    sums[me.thread] = sum(matrix[r, me.block] for r in every_so_often(me, len(matrix)))
    yield
    if me.thread == 0:
        out[me.block] = sum(sums[thread] for thread in range(me.threads))


def first_share(blocks, threads, order, most, each, matrix, out):
    """What is left without a tree: the sum of thread 0."""
    return matrix, matrix[::threads].sum(axis=0)


# --------------------------------------------------------------------------------------------- weight_gradient
def windows(rng):
    """Several slices, a single one, larger tiles, and tiles of 1 × 1."""
    sizes = (4, 4, 6, 2, "forwards"), (2, 2, 4, 2, "backwards"), (6, 3, 3, 3, "shuffled"), (3, 2, 3, 1, "backwards")
    for rows, m, n, side, order in sizes:
        loads = rows * m * n // side
        most, each = {"d_y": loads, "x": loads}, {"d_y": rows // side, "x": rows // side, "shared": 3 * rows + 1}
        arrays = rng.standard_normal((rows, m)), rng.standard_normal((rows, n)), unwritten(m, n)
        yield m * n // side**2, side**2, order, most, each, *arrays


def tiles(**planted):
    return kernel(lambda me, d_y, x, d_W: _tiles(me, d_y, x, d_W, **planted))


def _tiles(me, d_y, x, d_W, first=True, last=True, moves=True, turned="", restarts=False, turned_out=False):
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
        for r in range(side):
            total += (here[i, r] if "d_y" in turned else here[r, i]) * (there[j, r] if "x" in turned else there[r, j])
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


@kernel
def first_of_the_block(me, d_y, x, d_W):
    """Thread 0 adds up the whole square."""
    side = math.isqrt(me.threads)
    here, there, sums = me.shared("d_y", side, side), me.shared("x", side, side), np.zeros((side, side))
    (up, across), (i, j) = divmod(me.block, x.shape[1] // side), divmod(me.thread, side)
    for start in range(0, len(x), side):
        here[i, j] = d_y[start + i, up * side + j]
        there[i, j] = x[start + i, across * side + j]
        yield
        if me.thread == 0:
            for r, a, b in np.ndindex(side, side, side):
                sums[a, b] += here[r, a] * there[r, b]
        yield
    if me.thread == 0:
        for a, b in np.ndindex(side, side):
            d_W[up * side + a, across * side + b] = sums[a, b]


@kernel
def first_of_all(me, d_y, x, d_W):
    if me.block == me.thread == 0:
        for a, b in np.ndindex(d_W.shape):
            d_W[a, b] = sum(d_y[r, a] * x[r, b] for r in range(len(x)))


# ---------------------------------------------------------------------------------------------- write_and_read
def steps(rng):
    """Pieces that don't divide U, a memory of 2 × 2, more threads than columns, and a single column and thread."""
    sizes = (2, 3, 5, 2, "forwards"), (1, 2, 2, 2, "backwards"), (3, 2, 3, 4, "shuffled"), (1, 2, 1, 1, "forwards")
    for heads, K, U, threads, order in sizes:
        memory, (key, query) = rng.standard_normal((heads, K, U)), addresses(rng, 2, heads, K)
        value, (beta, decay) = rng.standard_normal((heads, U)), rng.uniform(0.1, 0.9, (2, heads))
        blocks, most, each = heads * -(-U // threads), {"memory": memory.size}, {"memory": K}
        yield blocks, threads, order, most, each, memory, key, query, value, beta, decay, unwritten(heads, U)


NAMES = tuple("memory key query value beta decay recalled".split())


def answer(change):
    """Ours, with the arrays that `change` makes of them: by name, for those that are not as they were."""

    def wrong(blocks, threads, order, most, each, *arrays):
        given = dict(zip(NAMES, arrays, strict=True))
        after = ours.write_and_read(blocks, threads, order, most, each, *(given | change(**given)).values())
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


def reads_first(*arguments):
    *after, _ = ours.write_and_read(*arguments)
    memory, key, query, *_ = arguments[-len(NAMES) :]
    return *after, recalls(memory, query)


def reads_the_key(*arguments):
    memory, key, *others, _ = ours.write_and_read(*arguments)
    return memory, key, *others, recalls(memory, key)


def never_stores(*arguments):
    _, *after = ours.write_and_read(*arguments)
    return arguments[-len(NAMES)], *after


def adds_to_what_is_there(*arguments):
    *after, recalled = ours.write_and_read(*arguments)
    return *after, np.full_like(recalled, np.nan)


@kernel
def first_of_the_piece(me, memory, key, query, value, beta, decay, recalled):
    """Thread 0 takes all columns of its block."""
    heads, K, U = memory.shape
    h, piece = divmod(me.block, me.blocks // heads)
    for u in range(piece * me.threads, min(piece * me.threads + me.threads, U)) if me.thread == 0 else ():
        column = [memory[h, j, u] for j in range(K)]
        error = value[h, u] - sum(column[j] * key[h, j] for j in range(K))
        column = [decay[h] * column[j] + beta[h] * key[h, j] * error for j in range(K)]
        for j in range(K):
            memory[h, j, u] = column[j]
        recalled[h, u] = sum(column[j] * query[h, j] for j in range(K))


def columns(**planted):
    def planted_kernel(me, memory, key, query, value, beta, decay, recalled):
        _columns(me, memory, key, query, value, beta, decay, recalled, **planted)

    return kernel(planted_kernel)


def _columns(me, memory, key, query, value, beta, decay, recalled, guard=True, pieces=True, registers=True, down=False):
    heads, K, U = memory.shape
    of_a_head = U // me.threads if down else me.blocks // heads  # the first raises, where there is a rest
    h, piece = divmod(me.block, of_a_head) if pieces else (me.block, 0)
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
                "there may be more rows than threads: each thread goes on, me.threads further",
                tree(rows=only_the_first),
            ),
            Foreseen("R / me.threads has a remainder, and these rows nobody adds", tree(rows=without_the_rest)),
            Foreseen("that is the sum of thread 0 alone: where is the tree?", first_share),
            Foreseen("a barrier is missing between the threads' sums and the tree", tree(first=False)),
            Foreseen("a barrier is missing between one level of the tree and the next", tree(between=False)),
            Foreseen("the barrier stands inside an if: all threads must come to it", tree(inside=True)),
            Foreseen("all threads add to out[c]: that is a race, and it is not even 0 at first", all_add),
            Foreseen(
                "several threads store to out[c], which is a race: let one do it, at the end", tree(all_write=True)
            ),
            Foreseen(
                "a thread loads more than its share of the rows, R / me.threads, rounded up", tree(rows=all_of_them)
            ),
            Foreseen("one thread adds all the sums in a row: where is the tree?", in_a_row),
        ],
        names=("matrix", "out"),
        made_by=KERNEL,
    ),
    Part(
        "weight_gradient",
        windows,
        [
            Foreseen("d_y's tile is turned: the sum runs over the rows of both tiles", tiles(turned="d_y")),
            Foreseen("x's tile is turned: the sum runs over the rows of both tiles", tiles(turned="x")),
            Foreseen("that is part 4's A Bᵀ, with sums along rows; here they go down columns", tiles(turned="d_y, x")),
            Foreseen("a barrier is missing between loading the tiles and using them", tiles(first=False)),
            Foreseen("a barrier is missing between using the tiles and loading the next ones", tiles(last=False)),
            Foreseen("each slice must begin where the last one ended", tiles(moves=False)),
            Foreseen("the sum goes on from slice to slice: set it to 0 before the first", tiles(restarts=True)),
            Foreseen("thread row · side + column writes the entry (row, column) of its square", tiles(turned_out=True)),
            Foreseen(
                "a thread loads rows / side numbers of each: others bring it the rest of the tiles", without_tiles
            ),
            Foreseen("thread 0 does the sums of the whole square: each thread has an entry", first_of_the_block),
            Foreseen("one thread does all the work: each block has a square, each thread an entry", first_of_all),
        ],
        names=("d_y", "x", "d_W"),
        made_by=KERNEL,
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
            Foreseen("what is read with the key? The read has an address of its own", reads_the_key),
            Foreseen("where is β?", answer(lambda beta, **others: {"beta": np.ones_like(beta)})),
            Foreseen("where is the decay?", answer(lambda decay, **others: {"decay": np.ones_like(decay)})),
            Foreseen("key and query are exchanged", answer(lambda key, query, **others: {"key": query, "query": key})),
            Foreseen("the new column must be stored, too", never_stores),
            Foreseen("`recalled` is not 0 at first: add up in a variable, and store that", adds_to_what_is_there),
            Foreseen("M is loaded more than once: keep the column in a list", columns(registers=False)),
            Foreseen("the last piece may have fewer columns than there are threads", columns(guard=False)),
            Foreseen("a head's last piece may not be full: round the number of pieces up", columns(down=True)),
            Foreseen("a head has several blocks, one for each piece", columns(pieces=False)),
            Foreseen("one thread does the work of its block: each has a column of its own", first_of_the_piece),
        ],
        names=NAMES,
        made_by=KERNEL,
    ),
]
