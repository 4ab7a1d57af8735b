"""The gated delta rule over a whole window, for a memory whose keys, values and queries are all known beforehand.

That is Gated DeltaNet's. A block takes its piece of M into its registers once, and goes through all tokens with it: M
comes from the card's memory once a window, not once a step. On the way back the gradient of M stays there likewise; M
itself is made once more, √T tokens at a time, from what was kept of it. The arithmetic is tile.py's, as for the GPN's
memory, with the decay first; keys and queries come with length 1.

`memory_forward` and `memory_backward` take and give arrays of the host: the rest of a GDN runs in NumPy, and only its
recurrence is here.
"""

from functools import cache
from math import isqrt
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from numba import cuda

from gpn_ref.fast.cuda.card import kernel, the_card
from gpn_ref.fast.cuda.tile import tile_functions


@cache
def delta_kernels(H, K, U, real, tuning):
    """The kernels for a memory of H heads of K × U. Row b · T + t of an array is token t of sequence b."""
    tiles = tile_functions(H, K, U, True, real, tuning)
    load, store, column_sums, errors = tiles.load, tiles.store, tiles.column_sums, tiles.errors
    write, recall, delta_back = tiles.write, tiles.recall, tiles.write_and_read_back
    tile = tiles.tile
    R, C, W, HEIGHT, ACROSS = tile.R, tile.C, tile.W, tile.height, tile.across
    LINE, APART = ACROSS + W, W + 1  # rows of shared sums lie so far apart: see memory.py
    ONE, ZERO = real(1), real(0)

    @cuda.jit(device=True)
    def load_address(addresses, r, h, out):
        """A thread's entries of a key or query."""
        down = cuda.threadIdx.x // W
        for i in range(R):
            out[i] = addresses[r, h * K + down + HEIGHT * i] if down + HEIGHT * i < K else ZERO

    @kernel
    def forward_tokens(n_tokens, every, batch, query, key, value, beta, decay, memory, kept, out):
        """Every token of a window: out = Mᵀ query after its write. memory (B, H · K · U) ends as the last one.

        kept: the memory before each `every` tokens, rows segment · B + b. Block (b · H + h, piece).
        """
        sums = cuda.shared.array((HEIGHT, LINE), real)
        query_sums = cuda.shared.array((HEIGHT, LINE), real)
        expected = cuda.shared.array(ACROSS, real)
        error = cuda.shared.array(ACROSS, real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        m = cuda.local.array((R, C), real)
        address = cuda.local.array(R, real)
        load(memory, b, h, piece, m)
        for t in range(n_tokens):
            r = b * n_tokens + t
            if t % every == 0:
                store(m, kept, t // every * batch + b, h, piece)
            load_address(key, r, h, address)
            column_sums(m, address, sums)
            cuda.syncthreads()
            errors(sums, ONE, decay[r, h], value, r, h * U, piece, expected, error)
            cuda.syncthreads()
            write(m, address, ONE, beta[r, h], decay[r, h], error)
            load_address(query, r, h, address)
            column_sums(m, address, query_sums)
            cuda.syncthreads()
            recall(query_sums, ONE, out, r, h * U, piece)
        store(m, memory, b, h, piece)

    @kernel
    def backward_tokens(
        n_tokens, every, batch, query, key, value, beta, decay, kept, states, d_out, d_memory,
        d_query, d_key, d_value, d_beta, d_decay,
    ):  # fmt: skip
        """What undoes `forward_tokens`: the last token first. d_memory comes as the final one and ends as the first.

        states: room for the memories of one segment, rows step · B + b. The gradients of query, key, β and decay get
        this piece's share, in rows (piece · B + b) · T + t.
        """
        sums = cuda.shared.array((HEIGHT, LINE), real)
        key_sums = cuda.shared.array((K, APART), real)
        query_sums = cuda.shared.array((K, APART), real)
        expected = cuda.shared.array(ACROSS, real)
        error = cuda.shared.array(ACROSS, real)
        d_written = cuda.shared.array(ACROSS, real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        m = cuda.local.array((R, C), real)
        d_m = cuda.local.array((R, C), real)
        address = cuda.local.array(R, real)
        asked = cuda.local.array(R, real)
        load(d_memory, b, h, piece, d_m)
        for segment in range((n_tokens - 1) // every, -1, -1):
            first, stop = segment * every, min(segment * every + every, n_tokens)
            load(kept, segment * batch + b, h, piece, m)
            for t in range(first, stop):  # each memory of the segment once more; a thread reads what it wrote itself
                r = b * n_tokens + t
                store(m, states, (t - first) * batch + b, h, piece)
                load_address(key, r, h, address)
                column_sums(m, address, sums)
                cuda.syncthreads()
                errors(sums, ONE, decay[r, h], value, r, h * U, piece, expected, error)
                cuda.syncthreads()
                write(m, address, ONE, beta[r, h], decay[r, h], error)
            for t in range(stop - 1, first - 1, -1):
                r = b * n_tokens + t
                load(states, (t - first) * batch + b, h, piece, m)
                load_address(key, r, h, address)
                load_address(query, r, h, asked)
                column_sums(m, address, sums)
                cuda.syncthreads()
                errors(sums, ONE, decay[r, h], value, r, h * U, piece, expected, error)
                cuda.syncthreads()
                delta_back(
                    m, d_m, address, asked, beta[r, h], decay[r, h], expected, error, h, piece, d_out, d_value, r,
                    h * U, d_key, d_query, d_beta, d_decay, (piece * batch + b) * n_tokens + t, sums, key_sums,
                    query_sums, d_written,
                )  # fmt: skip
                cuda.syncthreads()  # the shared arrays serve the next token
        store(d_m, d_memory, b, h, piece)

    @kernel
    def add_pieces(n_rows, n_pieces, parts):
        """The first n_rows rows become the sum over all pieces, in order. A row a block."""
        for c in range(cuda.threadIdx.x, parts.shape[1], cuda.blockDim.x):
            total = ZERO
            for piece in range(n_pieces):
                total += parts[piece * n_rows + cuda.blockIdx.x, c]
            parts[cuda.blockIdx.x, c] = total

    return SimpleNamespace(
        tile=tile, forward_tokens=forward_tokens, backward_tokens=backward_tokens, add_pieces=add_pieces
    )


class Cache(NamedTuple):
    """What the way there leaves on the card for the way back."""

    sizes: tuple  # B, T, H, K, U
    inputs: list  # query, key, value, beta, decay: (B · T, ·) each
    kept: object  # (segments · B, H · K · U)


def memory_forward(memory, query, key, value, beta, decay, card=None):
    """memory (B, H, K, U); query and key (B, T, H, K), value (B, T, H, U), beta and decay (B, T, H)
    -> out (B, T, H, U), the final memory, a Cache."""
    card, (B, T, H, K), U, kind = card or the_card(), key.shape, value.shape[-1], value.dtype
    kernels, every = delta_kernels(H, K, U, kind.type, card.tuning), isqrt(T - 1) + 1
    inputs = [on_card(card, array.reshape(B * T, -1), kind) for array in (query, key, value, beta, decay)]
    state = on_card(card, memory.reshape(B, -1), kind)
    kept, out = card.empty((-(-T // every) * B, H * K * U), kind), card.empty((B * T, H * U), kind)
    grid = B * H, kernels.tile.pieces
    card.launch(kernels.forward_tokens, grid, kernels.tile.threads, T, every, B, *inputs, state, kept, out)
    return (
        card.get(out).reshape(B, T, H, U),
        card.get(state).reshape(memory.shape),
        Cache((B, T, H, K, U), inputs, kept),
    )


def memory_backward(d_out, d_memory, cache, card=None):
    """d_out (B, T, H, U), the final d_memory -> the first d_memory, d_query, d_key, d_value, d_beta, d_decay."""
    card, (B, T, H, K, U), kind = card or the_card(), cache.sizes, d_out.dtype
    kernels, every = delta_kernels(H, K, U, kind.type, card.tuning), isqrt(T - 1) + 1
    n_pieces, rows = kernels.tile.pieces, B * T
    d_outs, d_state = on_card(card, d_out.reshape(rows, -1), kind), on_card(card, d_memory.reshape(B, -1), kind)
    states = card.empty((every * B, H * K * U), kind)
    d_value = card.empty((rows, H * U), kind)
    d_query, d_key, d_beta, d_decay = (card.empty((n_pieces * rows, width), kind) for width in (H * K, H * K, H, H))
    card.launch(
        kernels.backward_tokens, (B * H, n_pieces), kernels.tile.threads, T, every, B, *cache.inputs, cache.kept,
        states, d_outs, d_state, d_query, d_key, d_value, d_beta, d_decay,
    )  # fmt: skip
    for parts in (d_query, d_key, d_beta, d_decay):
        card.launch(kernels.add_pieces, rows, card.tuning.threads, rows, n_pieces, parts)
    d_query, d_key = (card.get(parts)[:rows].reshape(B, T, H, K) for parts in (d_query, d_key))
    d_beta, d_decay = (card.get(parts)[:rows].reshape(B, T, H) for parts in (d_beta, d_decay))
    d_first = card.get(d_state).reshape(d_memory.shape)
    return d_first, d_query, d_key, card.get(d_value).reshape(B, T, H, U), d_beta, d_decay


def on_card(card, value, dtype):
    array = card.empty(value.shape, dtype)
    card.put(array, value)
    return array


def launches(card, dtype):
    """What the engine does not launch, once, at GDN's size in the paper: for the report of registers."""
    shapes = [(1, 2, 6, 128), (1, 2, 6, 128), (1, 2, 6, 256), (1, 2, 6), (1, 2, 6)]
    inputs = [np.zeros(shape, dtype) for shape in shapes]
    memory = np.zeros((1, 6, 128, 256), dtype)
    out, memory, cache = memory_forward(memory, *inputs, card=card)
    memory_backward(out, memory, cache, card)
