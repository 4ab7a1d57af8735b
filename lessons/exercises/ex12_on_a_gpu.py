"""Exercises of lesson 12: kernels. Fill in the functions, then: python -m lessons.check 12

Each is what one thread does. me.block and me.thread say which one it is, me.blocks and me.threads how many blocks there
are, and how many threads in each; me.shared("name", *shape) is an array that the block's threads share, full of NaN at
first; `yield` is a barrier, and a kernel without one needs no `yield`. A thread loads and stores one number at a time.
The grader runs them with several numbers of threads, in several orders, looks for races, and lets no thread load more
than is said here: each does its share.
You may import numpy and math, and nothing else but what is imported here.
"""

import math  # noqa: F401

from lessons.little_gpu import kernel


@kernel
def column_sums(me, matrix, out):
    """The sum of each column, with a tree: block c adds up column c.

    matrix (R, C), C blocks -> out (C). me.threads is a power of two, and R may be more or less. Each number is loaded
    once, and by each thread n = R / me.threads of them, rounded up, or fewer. From shared memory a thread loads
    n + 2 · log₂ me.threads + 1 numbers at most. About 13 lines.
    """
    raise NotImplementedError


@kernel
def weight_gradient(me, d_y, x, d_W):
    """d_W = d_yᵀ x, the gradient of a matrix over all rows of a window, with tiles.

    d_y (rows, m), x (rows, n) -> d_W (m, n). A block has side · side threads and makes side × side entries of d_W:
    block up · (n / side) + across those from (up · side, across · side) on. `side` divides rows, m and n. With tiles,
    a thread loads rows / side numbers of d_y, as many of x, and from shared memory 3 · rows + 1 at most.
    About 12 lines.
    """
    raise NotImplementedError


@kernel
def write_and_read(me, memory, key, query, value, beta, decay, recalled):
    """Write, then read, for one column of a memory, which is loaded once and stored once.

        M ← decay · M + β k ⊗ (v - Mᵀ k)        recalled = Mᵀ q, after the write

    memory (heads, K, U), changed in place; key and query (heads, K), value (heads, U), beta and decay (heads)
    -> recalled (heads, U). A head is cut into pieces of me.threads columns, and the last may have fewer: there are
    heads · pieces blocks, and block h · pieces + p has piece p of head h. Thread i takes column i of its piece, and
    keeps it in a list: its registers. About 13 lines.
    """
    raise NotImplementedError
