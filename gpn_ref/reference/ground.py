"""Ground (eq. 4): correct the last prediction with the token that was seen."""

from typing import NamedTuple

import numpy as np

from gpn_ref.reference.ops import (
    GateCache,
    LinearCache,
    RMSNormCache,
    gate_backward,
    gate_forward,
    linear_backward,
    linear_forward,
    rms_norm_backward,
    rms_norm_forward,
)


class GroundCache(NamedTuple):
    predicted: np.ndarray  # (B, D)
    tokens: np.ndarray  # (B)
    gate: GateCache
    norm: RMSNormCache
    proj: LinearCache


def ground_forward(params, predicted, tokens):
    """Eq. 4: grounded = gate_f(predicted) ⊙ predicted + W_fuse rms(embedding[token]; w_fuse).

    predicted (B, D): s^p_{t-1}; tokens (B) integers: x_t -> grounded (B, D): s^g_t.
    """
    gate, gate_cache = gate_forward(
        predicted, params["ground.gate.norm.weight"], params["ground.gate.weight"], params["ground.gate.bias"]
    )  # (B, D)
    embedded = params["embedding.weight"][tokens]  # (B, E)
    normed, norm_cache = rms_norm_forward(embedded, params["ground.norm.weight"])  # (B, E)
    seen, proj_cache = linear_forward(normed, params["ground.proj.weight"])  # (B, D)
    grounded = gate * predicted + seen  # (B, D)
    return grounded, GroundCache(predicted, tokens, gate_cache, norm_cache, proj_cache)


def ground_backward(d_grounded, cache, grads):
    """d_grounded (B, D) -> d_predicted (B, D); adds the gradients of embedding.* and ground.* to `grads`."""
    # grounded = gate * predicted + seen
    d_gate = d_grounded * cache.predicted
    d_predicted = d_grounded * cache.gate.gate

    # seen = W_fuse rms(embedding[token])
    d_normed, d_proj = linear_backward(d_grounded, cache.proj)
    d_embedded, d_norm = rms_norm_backward(d_normed, cache.norm)
    np.add.at(grads["embedding.weight"], cache.tokens, d_embedded)  # the same token may stand in many rows
    grads["ground.norm.weight"] += d_norm
    grads["ground.proj.weight"] += d_proj

    # gate = gate_f(predicted)
    d_through_gate, d_norm, d_weight, d_bias = gate_backward(d_gate, cache.gate)
    grads["ground.gate.norm.weight"] += d_norm
    grads["ground.gate.weight"] += d_weight
    grads["ground.gate.bias"] += d_bias
    return d_predicted + d_through_gate
