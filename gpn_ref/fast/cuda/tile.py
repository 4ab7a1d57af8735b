"""How M lies in a block, and sums over its rows and its columns.

The columns of M never mix: given key, β and decay, each value channel goes its own way. So a block takes one head of
one sequence and some columns, `piece`, and all of M that it needs lies in its registers: a thread holds `R` × `C`
entries, rows `down`, `down` + HEIGHT, ... and columns `across`, `across` + W, .... From the card's memory M comes once
a step, and goes back once.

                     W threads across, C times
                   ┌───────────────┬───────────────┬─
    HEIGHT threads │ 0  1  2 ... 7 │ 0  1  2 ... 7 │     a warp of 32 threads: 4 rows of 8 neighbours, and 8 float32
    down, R times  │ 8  9 10 ...15 │ 8  9 10 ...15 │     are the 32 bytes that the card's memory moves at once
                   │ ...           │               │

Sums over rows (Mᵀ key) and sums over columns (M d) both end in shared memory: each thread brings the sum over its own
few entries, and one thread adds up those of a column or a row. With a tile of 4 × 4 that is a quarter of the entries
in either direction; it is why the tile is square.
"""

from functools import cache
from types import SimpleNamespace

from numba import cuda

MOST_ROWS = 128  # of M: with more, a block's threads would need more registers than there are


class Tile:
    """How M (K, U) is cut: into `pieces` blocks of HEIGHT × W threads, R × C entries a thread."""

    def __init__(self, K, U, tuning):
        self.R, self.C, self.W = tuning.rows, tuning.columns, tuning.width
        self.height = -(-K // self.R)
        self.threads = self.height * self.W
        self.across = self.C * self.W  # columns of a piece
        self.pieces = -(-U // self.across)
        if K > MOST_ROWS:
            raise ValueError(f"d_key is {K}; backend 'cuda' has memories with at most {MOST_ROWS}")


@cache
def tile_functions(H, K, U, decay_first, real, tuning):
    """What all kernels of a memory of H heads of K × U do with their tile: the gated delta rule, there and back."""
    tile = Tile(K, U, tuning)
    R, C, W, HEIGHT, ACROSS, THREADS = tile.R, tile.C, tile.W, tile.height, tile.across, tile.threads
    WHOLE_ROWS, WHOLE_COLUMNS = K == R * HEIGHT, U == tile.pieces * ACROSS  # then no entry needs a check
    ZERO = real(0)

    @cuda.jit(device=True)
    def load(matrix, b, h, piece, out):
        """A thread's entries of M; what lies outside of M is 0."""
        down, across = cuda.threadIdx.x // W, piece * ACROSS + cuda.threadIdx.x % W
        start = (h * K + down) * U + across
        for i in range(R):
            for j in range(C):
                inside = (WHOLE_ROWS or down + HEIGHT * i < K) and (WHOLE_COLUMNS or across + W * j < U)
                out[i, j] = matrix[b, start + HEIGHT * i * U + W * j] if inside else ZERO

    @cuda.jit(device=True)
    def store(values, matrix, b, h, piece):
        down, across = cuda.threadIdx.x // W, piece * ACROSS + cuda.threadIdx.x % W
        start = (h * K + down) * U + across
        for i in range(R):
            for j in range(C):
                if (WHOLE_ROWS or down + HEIGHT * i < K) and (WHOLE_COLUMNS or across + W * j < U):
                    matrix[b, start + HEIGHT * i * U + W * j] = values[i, j]

    @cuda.jit(device=True)
    def column_sums(m, address, sums):
        """Each thread's share of mᵀ address, to be added up over `down`. sums: shared, (HEIGHT, LINE)."""
        down, across = cuda.threadIdx.x // W, cuda.threadIdx.x % W
        for j in range(C):
            total = ZERO
            for i in range(R):
                total += m[i, j] * address[i]
            sums[down, across + W * j] = total

    @cuda.jit(device=True)
    def added_up(sums, column):
        total = ZERO
        for y in range(HEIGHT):
            total += sums[y, column]
        return total

    @cuda.jit(device=True)
    def across_row(sums, row):
        total = ZERO
        for x in range(W):
            total += sums[row, x]
        return total

    # -------------------------------------------------------------------------------------------------- there
    @cuda.jit(device=True)
    def errors(sums, inverse, decay, values, r, start, piece, expected, error):
        """expected = Mᵀ key, error = value - expected, for the columns of a piece; with GDN's order value - decay ·
        expected. `sums` are those of the key, `inverse` is 1 / its length; values of row r, from column start on."""
        for c in range(cuda.threadIdx.x, ACROSS, THREADS):
            u = piece * ACROSS + c
            expected[c] = added_up(sums, c) * inverse
            remains = decay * expected[c] if decay_first else expected[c]
            error[c] = values[r, start + u] - remains if u < U else ZERO

    @cuda.jit(device=True)
    def write(m, key, inverse, beta, decay, error):
        """M = decay · M + β · key ⊗ error, for a key of length 1 / inverse."""
        across = cuda.threadIdx.x % W
        for i in range(R):
            for j in range(C):
                m[i, j] = decay * m[i, j] + beta * inverse * key[i] * error[across + W * j]

    @cuda.jit(device=True)
    def recall(sums, inverse, out, r, start, piece):
        """Mᵀ query, into row r: `sums` are those of the query, `inverse` is 1 / its length."""
        for c in range(cuda.threadIdx.x, ACROSS, THREADS):
            u = piece * ACROSS + c
            if u < U:
                out[r, start + u] = added_up(sums, c) * inverse

    # --------------------------------------------------------------------------------------------------- back
    @cuda.jit(device=True)
    def write_and_read_back(
        m, d_m, key, query, beta, decay, expected, error, h, piece, d_recalled, d_values, r, start,
        d_key, d_query, d_beta, d_decay, out, sums, key_sums, query_sums, d_written,
    ):  # fmt: skip
        """From the gradient d_m of M_t to that of M, the memory m before the write; key and query of length 1.

        d_recalled of row r, from column h · U on. The value's gradient goes to row r of d_values, from `start` on; the
        piece's share of all others to row `out`: key and query (·, H · K), β and decay (·, H). `expected` and `error`
        are used up; the last four arrays are shared scratch.
        """
        thread = cuda.threadIdx.x
        down, across = thread // W, thread % W
        d_row = cuda.local.array(R, real)

        # M_t = decay * M + beta * key ⊗ error, recalled = M_tᵀ query
        d_decay_here = ZERO
        for i in range(R):
            d_query_here = ZERO
            d_row[i] = ZERO
            for j in range(C):
                c = across + W * j
                u = piece * ACROSS + c
                d_read = d_recalled[r, h * U + u] if WHOLE_COLUMNS or u < U else ZERO
                d_query_here += (decay * m[i, j] + beta * key[i] * error[c]) * d_read
                d_m[i, j] += query[i] * d_read
                d_decay_here += d_m[i, j] * m[i, j]
                d_row[i] += d_m[i, j] * error[c]
            d_row[i] *= beta
            if WHOLE_ROWS or down + HEIGHT * i < K:
                query_sums[down + HEIGHT * i, across] = d_query_here
        column_sums(d_m, key, sums)
        cuda.syncthreads()

        # error = value - expected; the sums are the gradient of beta * error, and `expected` becomes its own
        for c in range(thread, ACROSS, THREADS):
            u = piece * ACROSS + c
            d_error = added_up(sums, c)
            d_written[c] = d_error * error[c]  # their sum is d_beta
            d_error *= beta
            if u < U:
                d_values[r, start + u] = d_error
            if decay_first:
                error[c] = -d_error * expected[c]  # their sum is a share of d_decay
                expected[c] = -decay * d_error
            else:
                expected[c] = -d_error
        cuda.syncthreads()

        # expected = Mᵀ key
        for i in range(R):
            for j in range(C):
                d_expected = expected[across + W * j]
                d_row[i] += m[i, j] * d_expected
                d_m[i, j] = decay * d_m[i, j] + key[i] * d_expected
            if WHOLE_ROWS or down + HEIGHT * i < K:
                key_sums[down + HEIGHT * i, across] = d_row[i]
        sums[down, across] = d_decay_here
        cuda.syncthreads()

        # sums over columns: this piece's share
        for k in range(thread, K, THREADS):
            d_key[out, h * K + k] = across_row(key_sums, k)
            d_query[out, h * K + k] = across_row(query_sums, k)
        if thread < HEIGHT:
            sums[thread, ACROSS] = across_row(sums, thread)
        cuda.syncthreads()
        if thread == 0:
            total_beta, total_decay = ZERO, added_up(sums, ACROSS)
            for c in range(ACROSS):
                total_beta += d_written[c]
                if decay_first:
                    total_decay += error[c]
            d_beta[out, h] = total_beta
            d_decay[out, h] = total_decay

    return SimpleNamespace(
        tile=tile,
        load=load,
        store=store,
        column_sums=column_sums,
        added_up=added_up,
        across_row=across_row,
        errors=errors,
        write=write,
        recall=recall,
        write_and_read_back=write_and_read_back,
    )
