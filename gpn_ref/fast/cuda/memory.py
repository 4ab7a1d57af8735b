"""The matrix memory (eq. 8 to 11): write and read in one pass over M, and the way back in one pass over M and its
gradient. How M lies in the registers of a block, and how sums over it are taken, is told in tile.py.

Keys and queries come as the product made them: relu and length are done here. As M is linear in them, the length
can wait: the sums are taken with relu(pre + bias), and the inverse norm is multiplied in afterwards.

Sums over all columns go through the pieces of M: each block writes its share, and `addresses_back` adds these up in
order.
"""

import math
from functools import cache
from types import SimpleNamespace

from numba import cuda

from gpn_ref.fast.cuda.card import kernel
from gpn_ref.fast.cuda.layout import look
from gpn_ref.fast.cuda.maths import maths
from gpn_ref.fast.cuda.tile import tile_functions
from gpn_ref.reference.ops import L2_EPSILON


@cache
def memory_kernels(s, real, tuning):
    """The kernels for these Sizes and this type; `.tile` says with how many blocks and threads."""
    H, K, U = s.H, s.K, s.U
    tiles = tile_functions(H, K, U, s.decay_first, real, tuning)
    load, store, column_sums, added_up, across_row = (
        tiles.load, tiles.store, tiles.column_sums, tiles.added_up, tiles.across_row
    )  # fmt: skip
    errors, write, recall, delta_back = tiles.errors, tiles.write, tiles.recall, tiles.write_and_read_back
    tile = tiles.tile
    R, C, W, HEIGHT, ACROSS, THREADS = tile.R, tile.C, tile.W, tile.height, tile.across, tile.threads
    LINE = ACROSS + W  # of shared sums: a warp's 4 rows then lie in different banks; the rest has the norms
    APART = W + 1  # rows of shared sums over columns lie so far apart
    WHOLE_ROWS = K == R * HEIGHT  # then no entry needs a check
    columns = {name: part.start for name, part in look(s, 0).items()}
    QUERY, VALUE, KEY, BETA, DECAY = (columns[name] for name in ("query", "value", "key", "beta", "decay"))
    ONE, ZERO, EPSILON = real(1), real(0), real(L2_EPSILON)
    functions = maths(real, tuning.threads)
    sigmoid, softplus, block_sum, threads = functions.sigmoid, functions.softplus, functions.block_sum, tuning.threads

    @cuda.jit(device=True)
    def load_address(pre, r, start, bias, h, out):
        """A thread's entries of relu(pre + bias), a key or query of length not yet 1. NaN stays NaN."""
        down = cuda.threadIdx.x // W
        for i in range(R):
            k = h * K + down + HEIGHT * i
            x = pre[r, start + k] + bias[0, k] if WHOLE_ROWS or down + HEIGHT * i < K else ZERO
            out[i] = ZERO if x <= ZERO else x

    @cuda.jit(device=True)
    def squares(address, sums, column):
        """Each thread's share of Σ address², in a spare column of the sums."""
        if cuda.threadIdx.x % W == 0:
            total = ZERO
            for i in range(R):
                total += address[i] * address[i]
            sums[cuda.threadIdx.x // W, ACROSS + column] = total

    @cuda.jit(device=True)
    def inverse_norm(sums, column):
        return ONE / real(math.sqrt(added_up(sums, ACROSS + column) + EPSILON))

    @cuda.jit(device=True)
    def decay_of(pre, r, h, bias, log_rate):
        """Eq. 9: exp(-exp(log_rate) · softplus(pre + bias))."""
        return real(math.exp(-real(math.exp(log_rate[0, h])) * softplus(pre[r, DECAY + h] + bias[0, h])))

    # -------------------------------------------------------------------------------------------------- there
    @kernel
    def write_and_read(first, batch, pre, key_bias, query_bias, decay_bias, log_rate, memory, recalled):
        """Eq. 8 to 11: M ← decay · M + β · key ⊗ (value - Mᵀ key), recalled = Mᵀ query. Key of the slot before.

        Block (b · H + h, piece).
        """
        sums = cuda.shared.array((HEIGHT, LINE), real)
        expected = cuda.shared.array(ACROSS, real)
        error = cuda.shared.array(ACROSS, real)
        inverse = cuda.shared.array(2, real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        thread, r = cuda.threadIdx.x, first + b
        m = cuda.local.array((R, C), real)
        key = cuda.local.array(R, real)
        query = cuda.local.array(R, real)
        load(memory, b, h, piece, m)
        load_address(pre, r - batch, KEY, key_bias, h, key)
        load_address(pre, r, QUERY, query_bias, h, query)
        beta, decay = sigmoid(pre[r, BETA + h]), decay_of(pre, r, h, decay_bias, log_rate)

        # error = value - Mᵀ key
        column_sums(m, key, sums)
        squares(key, sums, 0)
        squares(query, sums, 1)
        cuda.syncthreads()
        errors(sums, inverse_norm(sums, 0), decay, pre, r, VALUE + h * U, piece, expected, error)
        if thread < 2:
            inverse[thread] = inverse_norm(sums, thread)
        cuda.syncthreads()

        # M = decay * M + beta * key ⊗ error, recalled = Mᵀ query
        write(m, key, inverse[0], beta, decay, error)
        store(m, memory, b, h, piece)
        column_sums(m, query, sums)
        cuda.syncthreads()
        recall(sums, inverse[1], recalled, r, h * U, piece)

    @kernel
    def read(first, pre, query_bias, memory, recalled):
        """recalled = Mᵀ query, for the layers after the first. Block (b · H + h, piece)."""
        sums = cuda.shared.array((HEIGHT, LINE), real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        m = cuda.local.array((R, C), real)
        query = cuda.local.array(R, real)
        load(memory, b, h, piece, m)
        load_address(pre, first + b, QUERY, query_bias, h, query)
        column_sums(m, query, sums)
        squares(query, sums, 1)
        cuda.syncthreads()
        recall(sums, inverse_norm(sums, 1), recalled, first + b, h * U, piece)

    @kernel
    def replay(first, n_steps, batch, pre, key_bias, decay_bias, log_rate, kept, kept_first, states):
        """The memory before and after each step of a segment, once more: states[s] is it after s steps.

        It begins with row `kept_first` + b of `kept`; M stays in the registers throughout.
        """
        sums = cuda.shared.array((HEIGHT, LINE), real)
        expected = cuda.shared.array(ACROSS, real)
        error = cuda.shared.array(ACROSS, real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        m = cuda.local.array((R, C), real)
        key = cuda.local.array(R, real)
        load(kept, kept_first + b, h, piece, m)
        store(m, states, b, h, piece)
        for step in range(n_steps):
            r = first + step * batch + b
            load_address(pre, r - batch, KEY, key_bias, h, key)
            beta, decay = sigmoid(pre[r, BETA + h]), decay_of(pre, r, h, decay_bias, log_rate)
            column_sums(m, key, sums)
            squares(key, sums, 0)
            cuda.syncthreads()
            inverse = inverse_norm(sums, 0)
            errors(sums, inverse, decay, pre, r, VALUE + h * U, piece, expected, error)
            cuda.syncthreads()
            write(m, key, inverse, beta, decay, error)
            store(m, states, (step + 1) * batch + b, h, piece)

    # --------------------------------------------------------------------------------------------------- back
    @kernel
    def write_and_read_back(
        first, step, batch, pre, key_bias, query_bias, decay_bias, log_rate, states, recalled, d_memory,
        d_key, d_query, d_beta, d_decay,
    ):  # fmt: skip
        """What undoes `write_and_read`. states[step] is M before the write; `recalled` has become its gradient.

        d_memory comes as the gradient of M_t and leaves as that of M. The value becomes its gradient; d_key, d_query,
        d_beta and d_decay get this piece's share, in rows piece · B + b.
        """
        sums = cuda.shared.array((HEIGHT, LINE), real)
        key_sums = cuda.shared.array((K, APART), real)
        query_sums = cuda.shared.array((K, APART), real)
        error = cuda.shared.array(ACROSS, real)
        expected = cuda.shared.array(ACROSS, real)
        d_written = cuda.shared.array(ACROSS, real)
        inverse = cuda.shared.array(2, real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        thread, r = cuda.threadIdx.x, first + b
        m = cuda.local.array((R, C), real)
        d_m = cuda.local.array((R, C), real)
        key = cuda.local.array(R, real)
        query = cuda.local.array(R, real)
        load(states, step * batch + b, h, piece, m)
        load(d_memory, b, h, piece, d_m)
        load_address(pre, r - batch, KEY, key_bias, h, key)
        load_address(pre, r, QUERY, query_bias, h, query)
        beta, decay = sigmoid(pre[r, BETA + h]), decay_of(pre, r, h, decay_bias, log_rate)

        # error = value - Mᵀ key, once more
        column_sums(m, key, sums)
        squares(key, sums, 0)
        squares(query, sums, 1)
        cuda.syncthreads()
        errors(sums, inverse_norm(sums, 0), decay, pre, r, VALUE + h * U, piece, expected, error)
        if thread < 2:
            inverse[thread] = inverse_norm(sums, thread)
        cuda.syncthreads()
        for i in range(R):
            key[i] *= inverse[0]
            query[i] *= inverse[1]
        delta_back(
            m, d_m, key, query, beta, decay, expected, error, h, piece, recalled, pre, r, VALUE + h * U,
            d_key, d_query, d_beta, d_decay, piece * batch + b, sums, key_sums, query_sums, d_written,
        )  # fmt: skip
        store(d_m, d_memory, b, h, piece)

    @kernel
    def read_back(first, step, batch, pre, query_bias, states, recalled, d_memory, d_query):
        """What undoes `read`: adds to d_memory; d_query gets this piece's share. states[step + 1] is M."""
        sums = cuda.shared.array((HEIGHT, LINE), real)
        query_sums = cuda.shared.array((K, APART), real)
        b, h, piece = cuda.blockIdx.x // H, cuda.blockIdx.x % H, cuda.blockIdx.y
        thread, r = cuda.threadIdx.x, first + b
        down, across = thread // W, thread % W
        m = cuda.local.array((R, C), real)
        d_m = cuda.local.array((R, C), real)
        query = cuda.local.array(R, real)
        load(states, (step + 1) * batch + b, h, piece, m)
        load(d_memory, b, h, piece, d_m)
        load_address(pre, r, QUERY, query_bias, h, query)
        squares(query, sums, 1)
        cuda.syncthreads()
        inverse = inverse_norm(sums, 1)
        for i in range(R):
            total = ZERO
            for j in range(C):
                u = piece * ACROSS + across + W * j
                d_recalled = recalled[r, h * U + u] if u < U else ZERO
                total += m[i, j] * d_recalled
                d_m[i, j] += query[i] * inverse * d_recalled
            if down + HEIGHT * i < K:
                query_sums[down + HEIGHT * i, across] = total
        store(d_m, d_memory, b, h, piece)
        cuda.syncthreads()
        for k in range(thread, K, THREADS):
            d_query[piece * batch + b, h * K + k] = across_row(query_sums, k)

    @cuda.jit(device=True)
    def address_back(d_address, n_pieces, batch, b, h, pre, r, start, bias, scratch):
        """Adds up the pieces; pre becomes the gradient through l2(relu(pre + bias)): no way through relu's zeros."""
        squared = ZERO
        for k in range(cuda.threadIdx.x, K, threads):
            x = pre[r, start + h * K + k] + bias[0, h * K + k]
            x = ZERO if x <= ZERO else x
            squared += x * x
        inverse = ONE / real(math.sqrt(block_sum(squared, scratch) + EPSILON))
        along = ZERO
        for k in range(cuda.threadIdx.x, K, threads):
            total = ZERO
            for piece in range(n_pieces):
                total += d_address[piece * batch + b, h * K + k]
            d_address[b, h * K + k] = total
            x = pre[r, start + h * K + k] + bias[0, h * K + k]
            along += total * (ZERO if x <= ZERO else x) * inverse
        along = block_sum(along, scratch)
        for k in range(cuda.threadIdx.x, K, threads):
            x = pre[r, start + h * K + k] + bias[0, h * K + k]
            inside = inverse * (d_address[b, h * K + k] - x * inverse * along)
            pre[r, start + h * K + k] = inside if x > ZERO else ZERO

    @kernel
    def query_back(first, batch, n_pieces, pre, query_bias, d_query):
        """The query becomes its gradient. Block b · H + h."""
        scratch = cuda.shared.array(threads, real)
        b, h = cuda.blockIdx.x // H, cuda.blockIdx.x % H
        address_back(d_query, n_pieces, batch, b, h, pre, first + b, QUERY, query_bias, scratch)

    @kernel
    def addresses_back(
        first, batch, n_pieces, pre, key_bias, query_bias, decay_bias, log_rate, d_key, d_query, d_beta, d_decay,
        d_log_rate,
    ):  # fmt: skip
        """Query, the key of the slot before, β and decay become their gradients. Block b · H + h."""
        scratch = cuda.shared.array(threads, real)
        b, h = cuda.blockIdx.x // H, cuda.blockIdx.x % H
        r = first + b
        address_back(d_query, n_pieces, batch, b, h, pre, r, QUERY, query_bias, scratch)
        address_back(d_key, n_pieces, batch, b, h, pre, r - batch, KEY, key_bias, scratch)
        if cuda.threadIdx.x == 0:
            d_b, d_d = ZERO, ZERO
            for piece in range(n_pieces):
                d_b += d_beta[piece * batch + b, h]
                d_d += d_decay[piece * batch + b, h]
            # beta = sigmoid(pre)
            beta = sigmoid(pre[r, BETA + h])
            pre[r, BETA + h] = d_b * beta * (ONE - beta)
            # decay = exp(log_decay), log_decay = -rate * softplus(pre + bias)
            x, rate = pre[r, DECAY + h] + decay_bias[0, h], real(math.exp(log_rate[0, h]))
            log_decay = -rate * softplus(x)
            d_log_decay = d_d * real(math.exp(log_decay))
            d_log_rate[b, h] += d_log_decay * log_decay
            pre[r, DECAY + h] = -d_log_decay * rate * sigmoid(x)

    return SimpleNamespace(
        tile=tile,
        write_and_read=write_and_read,
        read=read,
        replay=replay,
        write_and_read_back=write_and_read_back,
        read_back=read_back,
        query_back=query_back,
        addresses_back=addresses_back,
    )
