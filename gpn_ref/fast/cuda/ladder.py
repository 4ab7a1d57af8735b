"""The memory kernel in three versions, each a step up from the one before: write and read of one token.

1. `naive`: a thread a column, M where it lies. Each of the three things that a step does, Mᵀ key, the write and
   Mᵀ query, goes through M in the card's memory: three times there and once back. Neighbouring threads take
   neighbouring columns, so at least each access is whole lines. Few threads, each with long loops of loads that wait.
2. `shared`: the block first brings its columns of M to shared memory, works there, and brings them back: once there
   and once back. But a block's 48 KiB hold 96 columns of 128 rows at most, so that few blocks fit on a multiprocessor,
   and each multiply-add waits for its own load from shared memory.
3. `registers`: M lies in the registers, 4 × 4 entries a thread (tile.py), and only sums go through shared memory. Once
   there and once back, many more threads, and several blocks on a multiprocessor. The model's kernels are this one,
   with the making of keys and queries joined to it (memory.py).

All take M (B, H · K · U), key and query (B, H · K) of length 1, value (B, H · U), beta and decay (B, H); they change M
and fill `out` (B, H · U). What each measures on a card is printed by `python -m gpn_ref.fast.cuda.device_check`.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda

from gpn_ref.fast.cuda.card import Kernel, kernel
from gpn_ref.fast.cuda.delta import on_card
from gpn_ref.fast.cuda.tile import tile_functions


class Version(NamedTuple):
    kernel: Kernel
    columns: int  # of M that a block takes
    threads: int  # of a block
    passes: int  # over M in the card's memory, there and back

    def launch(self, card, U, M, key, query, value, beta, decay, out):
        n_heads = beta.shape[0] * beta.shape[1]
        grid = n_heads, -(-U // self.columns)
        card.launch(self.kernel, grid, self.threads, M, key, query, value, beta, decay, out)


@cache
def versions(H, K, U, real, tuning):
    """Name -> Version, in order."""
    return {
        "naive": naive(H, K, U, real, tuning),
        "shared": shared(H, K, U, real, tuning),
        "registers": registers(H, K, U, real, tuning),
    }


def naive(H, K, U, real, tuning):
    """A thread a column; M stays where it is."""
    ZERO, COLUMNS = real(0), min(tuning.threads, U)

    @kernel
    def write_and_read_naive(M, key, query, value, beta, decay, out):
        b, h = cuda.blockIdx.x // H, cuda.blockIdx.x % H
        u = cuda.blockIdx.y * COLUMNS + cuda.threadIdx.x
        if u >= U:
            return
        expected = ZERO
        for k in range(K):
            expected += M[b, (h * K + k) * U + u] * key[b, h * K + k]
        change = beta[b, h] * (value[b, h * U + u] - expected)
        for k in range(K):
            M[b, (h * K + k) * U + u] = decay[b, h] * M[b, (h * K + k) * U + u] + key[b, h * K + k] * change
        recalled = ZERO
        for k in range(K):
            recalled += M[b, (h * K + k) * U + u] * query[b, h * K + k]
        out[b, h * U + u] = recalled

    return Version(write_and_read_naive, COLUMNS, COLUMNS, passes=4)


def shared(H, K, U, real, tuning):
    """A thread a column; the block's columns of M in shared memory while it works on them."""
    most = 3 * 2**14 // np.dtype(real).itemsize // (K + 2)  # columns that fit, with a key and a query beside them
    ZERO, COLUMNS = real(0), max(1, min(most, tuning.width * tuning.columns, U))
    THREADS = COLUMNS

    @kernel
    def write_and_read_shared(M, key, query, value, beta, decay, out):
        m = cuda.shared.array((K, COLUMNS), real)
        k_shared = cuda.shared.array(K, real)
        q_shared = cuda.shared.array(K, real)
        b, h, c = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.threadIdx.x
        u = cuda.blockIdx.y * COLUMNS + c
        for k in range(c, K, THREADS):
            k_shared[k] = key[b, h * K + k]
            q_shared[k] = query[b, h * K + k]
        cuda.syncthreads()
        if u >= U:
            return
        expected = ZERO
        for k in range(K):
            m[k, c] = M[b, (h * K + k) * U + u]
            expected += m[k, c] * k_shared[k]
        change = beta[b, h] * (value[b, h * U + u] - expected)
        recalled = ZERO
        for k in range(K):
            m[k, c] = decay[b, h] * m[k, c] + k_shared[k] * change
            recalled += m[k, c] * q_shared[k]
            M[b, (h * K + k) * U + u] = m[k, c]
        out[b, h * U + u] = recalled

    return Version(write_and_read_shared, COLUMNS, THREADS, passes=2)


def registers(H, K, U, real, tuning):
    """The block's columns of M in its registers."""
    tiles = tile_functions(H, K, U, False, real, tuning)
    load, store, column_sums, errors = tiles.load, tiles.store, tiles.column_sums, tiles.errors
    write, recall, tile = tiles.write, tiles.recall, tiles.tile
    R, C, W, HEIGHT, ACROSS = tile.R, tile.C, tile.W, tile.height, tile.across
    LINE, ONE, ZERO = ACROSS + W, real(1), real(0)

    @kernel
    def write_and_read_registers(M, key, query, value, beta, decay, out):
        sums = cuda.shared.array((HEIGHT, LINE), real)
        query_sums = cuda.shared.array((HEIGHT, LINE), real)
        expected = cuda.shared.array(ACROSS, real)
        error = cuda.shared.array(ACROSS, real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        down = cuda.threadIdx.x // W
        m = cuda.local.array((R, C), real)
        k_here = cuda.local.array(R, real)
        q_here = cuda.local.array(R, real)
        load(M, b, h, piece, m)
        for i in range(R):
            inside = down + HEIGHT * i < K
            k_here[i] = key[b, h * K + down + HEIGHT * i] if inside else ZERO
            q_here[i] = query[b, h * K + down + HEIGHT * i] if inside else ZERO
        column_sums(m, k_here, sums)
        cuda.syncthreads()
        errors(sums, ONE, decay[b, h], value, b, h * U, piece, expected, error)
        cuda.syncthreads()
        write(m, k_here, ONE, beta[b, h], decay[b, h], error)
        store(m, M, b, h, piece)
        column_sums(m, q_here, query_sums)
        cuda.syncthreads()
        recall(query_sums, ONE, out, b, h * U, piece)

    return Version(write_and_read_registers, tile.across, tile.threads, passes=2)


def bytes_moved(version, B, H, K, U, itemsize):
    """What a launch moves between the card's memory and its multiprocessors: M, and the vectors once."""
    return (version.passes * B * H * K * U + B * H * (2 * K + 2 * U + 2)) * itemsize


def random_arrays(card, B, H, K, U, dtype, seed=0):
    """M, key, query, value, beta, decay and an empty out, on the card; keys and queries of length 1."""
    rng = np.random.default_rng(seed)
    key, query = rng.random((2, B, H, K))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    query /= np.linalg.norm(query, axis=-1, keepdims=True)
    values = rng.standard_normal((B, H * K * U)), key.reshape(B, -1), query.reshape(B, -1)
    values += rng.standard_normal((B, H * U)), rng.random((B, H)), rng.random((B, H))
    return [on_card(card, value, np.dtype(dtype)) for value in values] + [card.empty((B, H * U), dtype)]


def launches(card, dtype):
    """Each version once, at the size of the paper's memory: for the report of registers."""
    H, K, U = 15, 128, 256
    for version in versions(H, K, U, dtype.type, card.tuning).values():
        version.launch(card, U, *random_arrays(card, 1, H, K, U, dtype))
