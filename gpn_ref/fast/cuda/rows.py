"""What happens between two products, each kernel's way there directly above its way back: norms, gates, SwiGLU.

A block has one sequence: block b works on row `first` + b, with first = t · B for step t.
"""

import math
from functools import cache
from types import SimpleNamespace

from numba import cuda

from gpn_ref.fast.cuda.card import kernel
from gpn_ref.fast.cuda.layout import look
from gpn_ref.fast.cuda.maths import maths
from gpn_ref.reference.ops import RMS_EPSILON


@cache
def row_kernels(s, real, threads):
    """The kernels for these Sizes, this type and blocks of so many threads."""
    D, F, HU = s.D, s.F, s.HU
    columns = {name: part.start for name, part in look(s, 0).items()}
    FFN_GATE, FFN_VALUE, READ_GATE = columns["ffn_gate"], columns["ffn_value"], columns.get("read_gate", 0)
    ONE, ZERO, EPSILON = real(1), real(0), real(RMS_EPSILON)
    WIDTH, READ_WIDTH = real(D), real(max(1, HU))
    functions = maths(real, threads)
    sigmoid, block_sum = functions.sigmoid, functions.block_sum

    # ------------------------------------------------------------------------------------- rms: y = x / rms(x)
    @cuda.jit(device=True)
    def normalize_row(r, squares, x, normalized, inverse, scratch):
        """normalized = x / sqrt(mean(x²) + 1e-6), of one row; `squares` is this thread's share of Σ x²."""
        scale = ONE / real(math.sqrt(block_sum(squares, scratch) / WIDTH + EPSILON))
        for d in range(cuda.threadIdx.x, D, threads):
            normalized[r, d] = x[r, d] * scale
        if cuda.threadIdx.x == 0:
            inverse[r, 0] = scale

    @kernel
    def normalize(first, x, normalized, inverse):
        """normalized = x / rms(x)."""
        scratch = cuda.shared.array(threads, real)
        r, squares = first + cuda.blockIdx.x, ZERO
        for d in range(cuda.threadIdx.x, D, threads):
            squares += x[r, d] * x[r, d]
        normalize_row(r, squares, x, normalized, inverse, scratch)

    @kernel
    def normalize_back(first, d_first, d_normalized, normalized, inverse, d_x):
        """d_x += inverse · (d_normalized - normalized · mean(d_normalized ⊙ normalized))."""
        scratch = cuda.shared.array(threads, real)
        r, d_r, along = first + cuda.blockIdx.x, d_first + cuda.blockIdx.x, ZERO
        for d in range(cuda.threadIdx.x, D, threads):
            along += d_normalized[d_r, d] * normalized[r, d]
        along = block_sum(along, scratch) / WIDTH
        for d in range(cuda.threadIdx.x, D, threads):
            d_x[r, d] += inverse[r, 0] * (d_normalized[d_r, d] - normalized[r, d] * along)

    # -------------------------------------------------------- ground (eq. 4): grounded = gate * predicted + seen
    @kernel
    def ground(first, batch, pre, bias, predicted, grounded, normalized, inverse):
        """grounded comes as what is seen; `predicted` is of the step before."""
        scratch = cuda.shared.array(threads, real)
        r, squares = first + cuda.blockIdx.x, ZERO
        for d in range(cuda.threadIdx.x, D, threads):
            x = sigmoid(pre[r, d] + bias[0, d]) * predicted[r - batch, d] + grounded[r, d]
            grounded[r, d] = x
            squares += x * x
        normalize_row(r, squares, grounded, normalized, inverse, scratch)

    @kernel
    def ground_back(first, batch, d_normalized, normalized, inverse, pre, bias, predicted, d_grounded, d_predicted):
        """Completes d_grounded with what came through its norm; then pre becomes its gradient; adds to d_predicted."""
        scratch = cuda.shared.array(threads, real)
        b, along = cuda.blockIdx.x, ZERO
        r = first + b
        for d in range(cuda.threadIdx.x, D, threads):
            along += d_normalized[b, d] * normalized[r, d]
        along = block_sum(along, scratch) / WIDTH
        for d in range(cuda.threadIdx.x, D, threads):
            d_x = d_grounded[r, d] + inverse[r, 0] * (d_normalized[b, d] - normalized[r, d] * along)
            gate = sigmoid(pre[r, d] + bias[0, d])
            d_grounded[r, d] = d_x
            d_predicted[r - batch, d] += d_x * gate
            pre[r, d] = d_x * predicted[r - batch, d] * gate * (ONE - gate)

    # ---------------------------- mix (eq. 7, 11): mixed = silu(ffn_gate) ffn_value | silu(read_gate) rms(recalled)
    @kernel
    def mix(first, pre, recalled, out_norm, mixed, inverse_recalled):
        """What W_2 and W_o take, side by side."""
        scratch = cuda.shared.array(threads, real)
        thread, r = cuda.threadIdx.x, first + cuda.blockIdx.x
        for f in range(thread, F, threads):
            gate = pre[r, FFN_GATE + f]
            mixed[r, f] = gate * sigmoid(gate) * pre[r, FFN_VALUE + f]
        if HU > 0:
            squares = ZERO
            for u in range(thread, HU, threads):
                squares += recalled[r, u] * recalled[r, u]
            inverse = ONE / real(math.sqrt(block_sum(squares, scratch) / READ_WIDTH + EPSILON))
            for u in range(thread, HU, threads):
                gate = pre[r, READ_GATE + u]
                mixed[r, F + u] = gate * sigmoid(gate) * recalled[r, u] * inverse * out_norm[0, u]
            if thread == 0:
                inverse_recalled[r, 0] = inverse

    @kernel
    def mix_back(
        first, d_mixed, pre, bias, recalled, inverse_recalled, out_norm, below, d_above, d_below, d_out_norm
    ):  # fmt: skip
        """All that d_above meets first: predicted = gate * below + W_2, W_o (mixed).

        pre becomes its gradient where gate, FFN and read gate made it, recalled its own; adds to d_below, d_out_norm.
        """
        scratch = cuda.shared.array(threads, real)
        thread, b = cuda.threadIdx.x, cuda.blockIdx.x
        r = first + b
        for d in range(thread, D, threads):
            gate, d_x = sigmoid(pre[r, d] + bias[0, d]), d_above[r, d]
            d_below[r, d] += d_x * gate
            pre[r, d] = d_x * below[r, d] * gate * (ONE - gate)
        for f in range(thread, F, threads):
            gate, value, d_hidden = pre[r, FFN_GATE + f], pre[r, FFN_VALUE + f], d_mixed[b, f]
            share = sigmoid(gate)
            silu = gate * share
            pre[r, FFN_GATE + f] = d_hidden * value * (share + silu * (ONE - share))
            pre[r, FFN_VALUE + f] = d_hidden * silu
        if HU > 0:
            inverse, along = inverse_recalled[r, 0], ZERO
            for u in range(thread, HU, threads):
                gate, d_read, normalized = pre[r, READ_GATE + u], d_mixed[b, F + u], recalled[r, u] * inverse
                share = sigmoid(gate)
                silu = gate * share
                pre[r, READ_GATE + u] = d_read * normalized * out_norm[0, u] * (share + silu * (ONE - share))
                d_out_norm[b, u] += d_read * silu * normalized
                d_mixed[b, F + u] = d_read * silu * out_norm[0, u]  # from here on the gradient of `normalized`
                along += d_mixed[b, F + u] * normalized
            along = block_sum(along, scratch) / READ_WIDTH
            for u in range(thread, HU, threads):
                recalled[r, u] = inverse * (d_mixed[b, F + u] - recalled[r, u] * inverse * along)

    # ----------------------------------------------------- predict (eq. 7): above = gate * below + W_2, W_o (mixed)
    @kernel
    def predict(first, pre, bias, below, above, normalized, inverse):
        """above comes as what W_2 and W_o made."""
        scratch = cuda.shared.array(threads, real)
        r, squares = first + cuda.blockIdx.x, ZERO
        for d in range(cuda.threadIdx.x, D, threads):
            x = sigmoid(pre[r, d] + bias[0, d]) * below[r, d] + above[r, d]
            above[r, d] = x
            squares += x * x
        normalize_row(r, squares, above, normalized, inverse, scratch)

    return SimpleNamespace(
        normalize=normalize,
        normalize_back=normalize_back,
        ground=ground,
        ground_back=ground_back,
        mix=mix,
        mix_back=mix_back,
        predict=predict,
    )
