"""Predict (eq. 7 and 11): one layer turns the grounded state into a prediction of the next one."""

from typing import NamedTuple

import numpy as np

from gpn_ref.reference.memory import ReadCache, read_backward, read_forward
from gpn_ref.reference.ops import (
    GateCache,
    LinearCache,
    RMSNormCache,
    SwiGLUCache,
    gate_backward,
    gate_forward,
    linear_backward,
    linear_forward,
    rms_norm_backward,
    rms_norm_forward,
    swiglu_backward,
    swiglu_forward,
)


# ------------------------------------------------------------------------------------ the feed-forward network
class FFNCache(NamedTuple):
    norm: RMSNormCache
    gate: LinearCache
    value: LinearCache
    swiglu: SwiGLUCache
    out: LinearCache


def ffn_forward(params, prefix, x):
    """ffn = W_2 (silu(W_g rms(x; w)) ⊙ W_u rms(x; w)).  x (..., D) -> ffn (..., D); `prefix` names its parameters."""
    normed, norm_cache = rms_norm_forward(x, params[f"{prefix}.norm.weight"])  # (..., D)
    gate, gate_cache = linear_forward(normed, params[f"{prefix}.gate.weight"])  # (..., F)
    value, value_cache = linear_forward(normed, params[f"{prefix}.value.weight"])  # (..., F)
    hidden, swiglu_cache = swiglu_forward(gate, value)  # (..., F)
    out, out_cache = linear_forward(hidden, params[f"{prefix}.out.weight"])  # (..., D)
    return out, FFNCache(norm_cache, gate_cache, value_cache, swiglu_cache, out_cache)


def ffn_backward(d_out, cache, prefix, grads):
    """d_out (..., D) -> d_x (..., D); adds the gradients of prefix.* to `grads`."""
    d_hidden, d_weight = linear_backward(d_out, cache.out)
    grads[f"{prefix}.out.weight"] += d_weight
    d_gate, d_value = swiglu_backward(d_hidden, cache.swiglu)
    d_normed, d_weight = linear_backward(d_gate, cache.gate)
    grads[f"{prefix}.gate.weight"] += d_weight
    d_through_value, d_weight = linear_backward(d_value, cache.value)
    grads[f"{prefix}.value.weight"] += d_weight
    d_x, d_weight = rms_norm_backward(d_normed + d_through_value, cache.norm)
    grads[f"{prefix}.norm.weight"] += d_weight
    return d_x


# -------------------------------------------------------------------------------------------------- one layer
class PredictCache(NamedTuple):
    x: np.ndarray  # (B, D)
    gate: GateCache
    ffn: FFNCache
    read: ReadCache | None  # None without a memory


def predict_forward(params, config, i, x, memory):
    """Eq. 7 and 11, layer i: x' = gate_p(x) ⊙ x + ffn(x) + read(x, M_t).

    x (B, D): the grounded state, or what the layer before predicted; memory (B, H, K, U) -> x' (B, D).
    """
    layer = f"layers.{i}"
    gate, gate_cache = gate_forward(
        x, params[f"{layer}.gate.norm.weight"], params[f"{layer}.gate.weight"], params[f"{layer}.gate.bias"]
    )  # (B, D)
    ffn, ffn_cache = ffn_forward(params, f"{layer}.ffn", x)  # (B, D)
    predicted = gate * x + ffn  # (B, D)
    read_cache = None
    if config.n_heads:
        read, read_cache = read_forward(params, config, i, x, memory)  # (B, D)
        predicted = predicted + read
    return predicted, PredictCache(x, gate_cache, ffn_cache, read_cache)


def predict_backward(d_predicted, cache, i, grads):
    """d_predicted (B, D) -> d_x (B, D), d_memory (B, H, K, U), or 0 without one; adds the gradients of layers.i.*."""
    layer = f"layers.{i}"
    # predicted = gate * x + ffn(x) + read(x, memory)
    d_x = d_predicted * cache.gate.gate
    d_x = d_x + ffn_backward(d_predicted, cache.ffn, f"{layer}.ffn", grads)
    d_through_gate, d_norm, d_weight, d_bias = gate_backward(d_predicted * cache.x, cache.gate)
    grads[f"{layer}.gate.norm.weight"] += d_norm
    grads[f"{layer}.gate.weight"] += d_weight
    grads[f"{layer}.gate.bias"] += d_bias
    d_x = d_x + d_through_gate
    if cache.read is None:
        return d_x, 0
    d_through_read, d_memory = read_backward(d_predicted, cache.read, i, grads)
    return d_x + d_through_read, d_memory
