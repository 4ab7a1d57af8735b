"""Our answers to the exercises of lesson 12."""

import math

from lessons.little_gpu import kernel


@kernel
def column_sums(me, matrix, out):
    sums = me.shared("sums", me.threads)
    total = 0.0
    for r in range(me.thread, len(matrix), me.threads):
        total += matrix[r, me.block]
    sums[me.thread] = total
    yield
    half = me.threads // 2
    while half:
        if me.thread < half:
            sums[me.thread] += sums[me.thread + half]
        yield
        half //= 2
    if me.thread == 0:
        out[me.block] = sums[0]


@kernel
def weight_gradient(me, d_y, x, d_W):
    side = math.isqrt(me.threads)
    here, there = me.shared("d_y", side, side), me.shared("x", side, side)  # (rows, m), (rows, n)
    (up, across), (i, j) = divmod(me.block, x.shape[1] // side), divmod(me.thread, side)
    total = 0.0
    for start in range(0, len(x), side):
        here[i, j] = d_y[start + i, up * side + j]
        there[i, j] = x[start + i, across * side + j]
        yield
        for r in range(side):
            total += here[r, i] * there[r, j]
        yield
    d_W[up * side + i, across * side + j] = total


@kernel
def write_and_read(me, memory, key, query, value, beta, decay, recalled):
    heads, K, U = memory.shape
    h, piece = divmod(me.block, me.blocks // heads)
    u = piece * me.threads + me.thread
    if u < U:
        column = [memory[h, j, u] for j in range(K)]
        error = value[h, u] - sum(column[j] * key[h, j] for j in range(K))
        total = 0.0
        for j in range(K):
            m = decay[h] * column[j] + beta[h] * key[h, j] * error
            memory[h, j, u] = m
            total += m * query[h, j]
        recalled[h, u] = total
