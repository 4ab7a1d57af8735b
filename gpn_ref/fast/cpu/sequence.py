"""What happens between two products, per sequence: norms, gates, SwiGLU, each forward directly above its backward.

Vectors are of one sequence at one step. Gradients take the place of what they are the gradient of: a forward leaves
in `gate` the gate, the backward leaves there the gradient of what came in.
"""

import numpy as np

from gpn_ref.fast.cpu.compiled import compiled, sigmoid, summing
from gpn_ref.reference.ops import RMS_EPSILON


@compiled
def add_up(pieces, b):
    """pieces (P, B, n), what each thread has of a sum: the sum for one sequence takes the place of the first."""
    first = pieces[0, b]
    for piece in range(1, len(pieces)):
        other = pieces[piece, b]
        for i in range(len(first)):
            first[i] += other[i]


# --------------------------------------------------------------------------------------------------- RMS norm
@summing
def inverse_rms(x):
    """1 / sqrt(mean(x²) + 1e-6)."""
    total = x.dtype.type(0)
    for d in range(len(x)):
        total += x[d] * x[d]
    return x.dtype.type(1 / np.sqrt(total / len(x) + RMS_EPSILON))


@compiled
def scale(x, inverse, weight, out):
    """out = rms(x; weight), given 1 / rms."""
    for d in range(len(x)):
        out[d] = x[d] * inverse * weight[d]


@compiled
def scale_back(d_out, x, inverse, weight, d_weight, d_normalized):
    """d_normalized += d_out ⊙ weight;  d_weight += d_out ⊙ normalized."""
    for d in range(len(x)):
        d_normalized[d] += d_out[d] * weight[d]
        d_weight[d] += d_out[d] * (x[d] * inverse)


@summing
def norm_back(d_normalized, x, inverse, d_x):
    """d_x += inverse · (d_normalized - normalized · mean(d_normalized ⊙ normalized))."""
    along = x.dtype.type(0)
    for d in range(len(x)):
        along += d_normalized[d] * (x[d] * inverse)
    along /= x.dtype.type(len(x))
    for d in range(len(x)):
        d_x[d] += inverse * (d_normalized[d] - x[d] * inverse * along)


# ----------------------------------------------------------------------------------------------------- gates
@compiled
def gated(pre, bias, x, out):
    """out += sigmoid(pre + bias) ⊙ x;  pre becomes the gate."""
    for d in range(len(x)):
        gate = sigmoid(pre[d] + bias[d])
        pre[d] = gate
        out[d] += gate * x[d]


@compiled
def gated_back(d_out, gate, x, d_x):
    """d_x += d_out ⊙ gate;  gate becomes d_pre = d_out ⊙ x ⊙ gate ⊙ (1 - gate)."""
    one = x.dtype.type(1)
    for d in range(len(x)):
        through = d_out[d] * gate[d]
        d_x[d] += through
        gate[d] = through * x[d] * (one - gate[d])


# --------------------------------------------------------------------------------------------------- SwiGLU
@compiled
def swiglu(gate, value, out):
    """out = silu(gate) ⊙ value."""
    for f in range(len(out)):
        out[f] = gate[f] * sigmoid(gate[f]) * value[f]


@compiled
def swiglu_back(d_out, gate, value):
    """gate and value become their gradients."""
    one = gate.dtype.type(1)
    for f in range(len(gate)):
        s = sigmoid(gate[f])
        silu = gate[f] * s
        gate[f] = d_out[f] * value[f] * (s + silu * (one - s))
        value[f] = d_out[f] * silu


@summing
def read_gated(gate, recalled, weight, out):
    """out = silu(gate) ⊙ rms(recalled; weight).  Returns 1 / rms."""
    inverse = inverse_rms(recalled)
    for u in range(len(out)):
        out[u] = gate[u] * sigmoid(gate[u]) * recalled[u] * inverse * weight[u]
    return inverse


@summing
def read_gated_back(d_out, gate, recalled, inverse, weight, d_weight):
    """gate and recalled become their gradients; d_out is used up."""
    one = gate.dtype.type(1)
    along = gate.dtype.type(0)
    for u in range(len(gate)):
        s = sigmoid(gate[u])
        silu = gate[u] * s
        normalized = recalled[u] * inverse
        gate[u] = d_out[u] * normalized * weight[u] * (s + silu * (one - s))
        d_weight[u] += d_out[u] * silu * normalized
        d_out[u] *= silu * weight[u]  # the gradient of `normalized`
        along += d_out[u] * normalized
    along /= gate.dtype.type(len(gate))
    for u in range(len(gate)):
        recalled[u] = inverse * (d_out[u] - recalled[u] * inverse * along)
