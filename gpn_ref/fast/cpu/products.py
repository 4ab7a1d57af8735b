"""Products of a large matrix and a few vectors, as they come at every step of a recurrence.

BLAS is built for square products: it copies its input into tiles first, which pays when every tile is used hundreds
of times. Here each entry of W meets one batch, 8 or 16 vectors, and is gone until the next step. So: read W once, in
order, as it lies; keep the sums in registers; and say early which part of W comes next.

Each kernel does the rows `lo` to `hi` of W, so that the threads can share them out.
"""

from gpn_ref.fast.cpu.compiled import LINE, compiled, multiplying, prefetch

CHUNK = 256  # columns between two prefetches


@compiled
def rows(piece, n_pieces, far, W, X, Y):
    """Y = X Wᵀ, for a thread's share of the rows of W."""
    lo, hi = first_row(piece, n_pieces, len(W)), first_row(piece + 1, n_pieces, len(W))
    Y[:, lo:hi] = 0
    product(W, X, Y, lo, hi, far)


@compiled
def add_rows(piece, n_pieces, far, W, X, Y):
    """Y += X Wᵀ, for a thread's share of the rows of W."""
    product(W, X, Y, first_row(piece, n_pieces, len(W)), first_row(piece + 1, n_pieces, len(W)), far)


@compiled
def rows_back(piece, n_pieces, far, W, d_Y, d_X):
    """d_X += d_Y W, for a thread's share of the rows of W."""
    product_back(W, d_Y, d_X, first_row(piece, n_pieces, len(W)), first_row(piece + 1, n_pieces, len(W)), far)


@compiled
def first_row(piece, n_pieces, n_rows):
    """Where a share begins: no two threads write to one cache line; the last one ends with the rows."""
    return n_rows if piece == n_pieces else n_rows // LINE * piece // n_pieces * LINE


@multiplying
def product(W, X, Y, lo, hi, far):
    """Y += X Wᵀ for the rows lo to hi of W.  W (rows, n), X (B, n), Y (B, rows).

    Two rows of W meet eight vectors in sixteen sums, each of which the compiler makes a register of sixteen numbers:
    ten loads for sixteen multiply-adds. What is left of the batch goes one vector at a time, and is slower.
    """
    B, n = X.shape
    zero = W.dtype.type(0)
    chunk = CHUNK if far else n
    for r in range(lo, hi, 2):
        s = min(r + 1, hi - 1)  # the second row; the first once more where there is no second
        for start in range(0, n, chunk):
            stop = min(start + chunk, n)
            if far:
                prefetch(W, min(r + 2, hi - 1), start, stop)
            w, v = W[r, start:stop], W[s, start:stop]
            for b in range(0, B - 7, 8):
                if far and b == (B - 8) // 8 * 8:  # the last eight: not both rows at once
                    prefetch(W, min(r + 3, hi - 1), start, stop)
                x0, x1, x2, x3 = X[b, start:stop], X[b + 1, start:stop], X[b + 2, start:stop], X[b + 3, start:stop]
                x4, x5, x6, x7 = X[b + 4, start:stop], X[b + 5, start:stop], X[b + 6, start:stop], X[b + 7, start:stop]
                w0 = w1 = w2 = w3 = w4 = w5 = w6 = w7 = zero
                v0 = v1 = v2 = v3 = v4 = v5 = v6 = v7 = zero
                for c in range(stop - start):
                    w0, v0 = w0 + w[c] * x0[c], v0 + v[c] * x0[c]
                    w1, v1 = w1 + w[c] * x1[c], v1 + v[c] * x1[c]
                    w2, v2 = w2 + w[c] * x2[c], v2 + v[c] * x2[c]
                    w3, v3 = w3 + w[c] * x3[c], v3 + v[c] * x3[c]
                    w4, v4 = w4 + w[c] * x4[c], v4 + v[c] * x4[c]
                    w5, v5 = w5 + w[c] * x5[c], v5 + v[c] * x5[c]
                    w6, v6 = w6 + w[c] * x6[c], v6 + v[c] * x6[c]
                    w7, v7 = w7 + w[c] * x7[c], v7 + v[c] * x7[c]
                add_eight(Y, b, r, w0, w1, w2, w3, w4, w5, w6, w7)
                if s > r:
                    add_eight(Y, b, s, v0, v1, v2, v3, v4, v5, v6, v7)
            if far and B < 8:
                prefetch(W, min(r + 3, hi - 1), start, stop)
            for b in range(B // 8 * 8, B):
                x = X[b, start:stop]
                w0 = v0 = zero
                for c in range(stop - start):
                    w0, v0 = w0 + w[c] * x[c], v0 + v[c] * x[c]
                Y[b, r] += w0
                if s > r:
                    Y[b, s] += v0


@compiled
def add_eight(Y, b, r, y0, y1, y2, y3, y4, y5, y6, y7):
    """Y[b : b + 8, r] += y."""
    Y[b, r] += y0
    Y[b + 1, r] += y1
    Y[b + 2, r] += y2
    Y[b + 3, r] += y3
    Y[b + 4, r] += y4
    Y[b + 5, r] += y5
    Y[b + 6, r] += y6
    Y[b + 7, r] += y7


@multiplying
def product_back(W, d_Y, d_X, lo, hi, far):
    """d_X += d_Y W for the rows lo to hi of W: what undoes `product`, without a transposed copy of W.

    W (rows, n), d_Y (B, rows), d_X (B, n). Eight rows of W are added to one vector at a time, and meet the whole batch
    while they are in the nearest cache. More vectors at a time would need fewer loads, but the compiler cannot know
    that they don't overlap, and asks anew at each loop. Threads need a d_X each, to be added up afterwards.
    """
    B, n = d_X.shape
    end = lo + (hi - lo) // 8 * 8
    for r in range(lo, end, 8):
        for start in range(0, n, CHUNK):
            stop = min(start + CHUNK, n)
            w0, w1, w2, w3 = W[r, start:stop], W[r + 1, start:stop], W[r + 2, start:stop], W[r + 3, start:stop]
            w4, w5, w6, w7 = W[r + 4, start:stop], W[r + 5, start:stop], W[r + 6, start:stop], W[r + 7, start:stop]
            for b in range(B):
                if far:  # a part of the eight rows that come next; all at once would have to wait for each other
                    for k in range(8 * b // B, 8 * (b + 1) // B):
                        prefetch(W, min(r + 8 + k, hi - 1), start, stop)
                y0, y1, y2, y3 = d_Y[b, r], d_Y[b, r + 1], d_Y[b, r + 2], d_Y[b, r + 3]
                y4, y5, y6, y7 = d_Y[b, r + 4], d_Y[b, r + 5], d_Y[b, r + 6], d_Y[b, r + 7]
                x = d_X[b, start:stop]
                for c in range(stop - start):
                    x[c] += (
                        y0 * w0[c] + y1 * w1[c] + y2 * w2[c] + y3 * w3[c]
                        + y4 * w4[c] + y5 * w5[c] + y6 * w6[c] + y7 * w7[c]
                    )  # fmt: skip
    for r in range(end, hi):
        for b in range(B):
            y, w, x = d_Y[b, r], W[r], d_X[b]
            for c in range(n):
                x[c] += y * w[c]
