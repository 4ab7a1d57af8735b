"""What is done for a whole window, or for all parameters, at once: embedding, loss, sums, folding, AdamW."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
from numba import cuda

from gpn_ref.fast.cuda.card import kernel
from gpn_ref.fast.cuda.maths import maths
from gpn_ref.reference.ops import RMS_EPSILON


@cache
def whole_kernels(real, threads):
    """The kernels for this type and blocks of so many threads."""
    ONE, ZERO, EPSILON = real(1), real(0), real(RMS_EPSILON)
    LOWEST, TINY = real(np.finfo(real).min), real(1e-30)
    block_sum, block_max = maths(real, threads).block_sum, maths(real, threads).block_max

    # --------------------------------------------------------------------------------------------- simple moves
    @kernel
    def fill(x, value):
        """x = value, everywhere. x has one axis."""
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            x[i] = value

    @kernel
    def copy(x, first, y, y_first):
        """Rows of y = rows of x; block b copies its row."""
        r, y_r = first + cuda.blockIdx.x, y_first + cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, x.shape[1], threads):
            y[y_r, c] = x[r, c]

    @kernel
    def add(x, first, y, y_first):
        """Rows of y += rows of x."""
        r, y_r = first + cuda.blockIdx.x, y_first + cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, x.shape[1], threads):
            y[y_r, c] += x[r, c]

    @kernel
    def fill_columns(x, first, column, n_columns, value):
        """Some columns of a row a block = value."""
        r = first + cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, n_columns, threads):
            x[r, column + c] = value

    @kernel
    def add_bias(x, first, bias):
        """Rows += bias; a row a block."""
        for c in range(cuda.threadIdx.x, x.shape[1], threads):
            x[first + cuda.blockIdx.x, c] += bias[0, c]

    @kernel
    def column_sums(x, first, n_rows, column, n_columns, out, out_first):
        """Σ over rows of some columns. Block (i, piece) sums its piece of the rows into row out_first + piece of out.

        Adds to what is there. Long sums take two launches: into pieces, then of the pieces.
        """
        c, piece = cuda.blockIdx.x * threads + cuda.threadIdx.x, cuda.blockIdx.y
        if c < n_columns:
            total = ZERO
            for r in range(first + n_rows * piece // cuda.gridDim.y, first + n_rows * (piece + 1) // cuda.gridDim.y):
                total += x[r, column + c]
            out[out_first + piece, c] += total

    # ------------------------------------------------------------------- norm scales folded into their matrices
    @kernel
    def fold(weight, norm, stack, first):
        """stack = weight ⊙ norm: W rms(x; w) is (W ⊙ w) applied to what is only normalized. A row a block."""
        r = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, weight.shape[1], threads):
            stack[first + r, c] = weight[r, c] * norm[0, c]

    @kernel
    def unfold(d_stack, first, weight, norm, d_weight, sums):
        """d_weight = d_stack ⊙ norm, and d_norm = Σ over rows of d_stack ⊙ weight, in pieces, rows of `sums`."""
        c, piece = cuda.blockIdx.x * threads + cuda.threadIdx.x, cuda.blockIdx.y
        n_rows = weight.shape[0]
        if c < weight.shape[1]:
            total = ZERO
            for r in range(n_rows * piece // cuda.gridDim.y, n_rows * (piece + 1) // cuda.gridDim.y):
                d_weight[r, c] = d_stack[first + r, c] * norm[0, c]
                total += d_stack[first + r, c] * weight[r, c]
            sums[piece, c] = total

    @kernel
    def join(weight, stack, column):
        """Some columns of stack = weight. A row a block."""
        r = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, weight.shape[1], threads):
            stack[r, column + c] = weight[r, c]

    # ---------------------------------------------------------------------------------------------- embedding
    @kernel
    def embed(tokens, embedding, normalized, inverse):
        """normalized = the token's embedding, its root mean square taken away. A token a block."""
        scratch = cuda.shared.array(threads, real)
        r = cuda.blockIdx.x
        token, width, squares = tokens[0, r], embedding.shape[1], ZERO
        for e in range(cuda.threadIdx.x, width, threads):
            squares += embedding[token, e] * embedding[token, e]
        scale = ONE / real(math.sqrt(block_sum(squares, scratch) / real(width) + EPSILON))
        for e in range(cuda.threadIdx.x, width, threads):
            normalized[r, e] = embedding[token, e] * scale
        if cuda.threadIdx.x == 0:
            inverse[r, 0] = scale

    @kernel
    def embed_back(d_normalized, normalized, inverse):
        """d_normalized becomes the gradient of the token's embedding. A token a block."""
        scratch = cuda.shared.array(threads, real)
        r, along, width = cuda.blockIdx.x, ZERO, normalized.shape[1]
        for e in range(cuda.threadIdx.x, width, threads):
            along += d_normalized[r, e] * normalized[r, e]
        along = block_sum(along, scratch) / real(width)
        for e in range(cuda.threadIdx.x, width, threads):
            d_normalized[r, e] = inverse[r, 0] * (d_normalized[r, e] - normalized[r, e] * along)

    @kernel
    def add_embedded(order, starts, d_embedded, d_embedding):
        """Adds the rows of each token to its row of d_embedding, in their order. A token of the vocabulary a block.

        `order` has the rows of d_embedded sorted by token, so that no two blocks add to one row.
        """
        v = cuda.blockIdx.x
        for e in range(cuda.threadIdx.x, d_embedded.shape[1], threads):
            total = ZERO
            for i in range(starts[0, v], starts[0, v + 1]):
                total += d_embedded[order[0, i], e]
            d_embedding[v, e] += total

    # ------------------------------------------------------------------------------- softmax and cross entropy
    @kernel
    def cross_entropy(logits, targets, first, scale, nll):
        """nll = log Σ exp(logits) - logits[target]; the logits become the gradient of scale · Σ nll. A token a block.

        One pass over the logits for the largest of them and the sum of exponentials together: when a larger one comes,
        what was summed so far shrinks to its measure. So no exponential can overflow. A second pass writes.
        """
        largest = cuda.shared.array(threads, real)
        total = cuda.shared.array(threads, real)
        thread, r = cuda.threadIdx.x, cuda.blockIdx.x
        vocabulary, target = logits.shape[1], targets[0, first + r]
        at_target = logits[r, target]
        top, s = LOWEST, ZERO
        for v in range(thread, vocabulary, threads):
            x = logits[r, v]
            if x > top:
                s = s * real(math.exp(top - x)) + ONE
                top = x
            else:
                s += real(math.exp(x - top))
        largest[thread], total[thread] = top, s
        half = threads // 2
        while half > 0:
            cuda.syncthreads()
            if thread < half:
                a, b = largest[thread], largest[thread + half]
                high = b if b > a else a
                total[thread] = total[thread] * real(math.exp(a - high)) + total[thread + half] * real(
                    math.exp(b - high)
                )
                largest[thread] = high
            half //= 2
        cuda.syncthreads()
        top, s = largest[0], total[0]
        if thread == 0:
            nll[0, first + r] = real(math.log(s)) - (at_target - top)
        for v in range(thread, vocabulary, threads):
            share = real(math.exp(logits[r, v] - top)) / s
            logits[r, v] = scale * (share - ONE if v == target else share)

    @kernel
    def add_loss(nll, share, results):
        """results[2] += share · mean(nll). One block."""
        scratch = cuda.shared.array(threads, real)
        total = ZERO
        for i in range(cuda.threadIdx.x, nll.shape[1], threads):
            total += nll[0, i]
        total = block_sum(total, scratch)
        if cuda.threadIdx.x == 0:
            results[2] += share * (total / real(nll.shape[1]))

    # --------------------------------------------------------------------------------- the norm of all gradients
    @kernel
    def largest_of(grads, parts):
        """The largest |g| of each block's share. A NaN is passed over: the sum of squares finds it."""
        scratch = cuda.shared.array(threads, real)
        top = ZERO
        for i in range(cuda.grid(1), grads.size, cuda.gridsize(1)):
            x = abs(grads[i])
            top = x if x > top else top
        top = block_max(top, scratch)
        if cuda.threadIdx.x == 0:
            parts[0, cuda.blockIdx.x] = top

    @cuda.jit(device=True)
    def largest(parts, scratch):
        """The largest of all blocks; 1 where that is so small that dividing by it would overflow."""
        top = ZERO
        for i in range(cuda.threadIdx.x, parts.shape[1], threads):
            top = parts[0, i] if parts[0, i] > top else top
        top = block_max(top, scratch)
        return top if top > TINY else ONE

    @kernel
    def squares_of(grads, parts):
        """Σ (g / largest)² of each block's share: no square can overflow."""
        scratch = cuda.shared.array(threads, real)
        scale, total = ONE / largest(parts, scratch), ZERO
        for i in range(cuda.grid(1), grads.size, cuda.gridsize(1)):
            x = grads[i] * scale
            total += x * x
        total = block_sum(total, scratch)
        if cuda.threadIdx.x == 0:
            parts[1, cuda.blockIdx.x] = total

    @kernel
    def clip_of(parts, clip_norm, results):
        """results[0] = the norm of all gradients, results[1] = min(1, clip_norm / norm). One block."""
        scratch = cuda.shared.array(threads, real)
        top, total = largest(parts, scratch), ZERO
        for i in range(cuda.threadIdx.x, parts.shape[1], threads):
            total += parts[1, i]
        norm = top * real(math.sqrt(block_sum(total, scratch)))
        if cuda.threadIdx.x == 0:
            results[0] = norm
            results[1] = clip_norm / norm if norm > clip_norm else ONE

    @kernel
    def adamw(params, grads, first, second, n_decayed, rates, results):
        """p ← p - η (m̂ / (√v̂ + ε) + λ p), λ only for the first n_decayed. Nothing if norm or loss is not finite.

        rates: 1 - β₁, 1 - β₂, 1 / (1 - β₁ᵗ), 1 / (1 - β₂ᵗ), ε, η, λ.
        """
        if not (results[0] - results[0] == ZERO and results[2] - results[2] == ZERO):
            return
        clip = results[1]
        for i in range(cuda.grid(1), params.size, cuda.gridsize(1)):
            g, p = grads[i] * clip, params[i]
            m = first[i] + rates[0] * (g - first[i])
            v = second[i] + rates[1] * (g * g - second[i])
            first[i], second[i] = m, v
            change = m * rates[2] / (real(math.sqrt(v * rates[3])) + rates[4])
            if i < n_decayed:
                change += rates[6] * p
            params[i] = p - rates[5] * change

    return SimpleNamespace(
        fill=fill,
        copy=copy,
        add=add,
        fill_columns=fill_columns,
        add_bias=add_bias,
        column_sums=column_sums,
        fold=fold,
        unfold=unfold,
        join=join,
        embed=embed,
        embed_back=embed_back,
        add_embedded=add_embedded,
        cross_entropy=cross_entropy,
        add_loss=add_loss,
        largest_of=largest_of,
        squares_of=squares_of,
        clip_of=clip_of,
        adamw=adamw,
    )
