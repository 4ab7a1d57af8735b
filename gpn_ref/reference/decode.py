"""Decode (eq. 6): from the predicted state to the next token, through the embedding that also reads the tokens in."""

from typing import NamedTuple

from gpn_ref.reference.ops import (
    LinearCache,
    RMSNormCache,
    bias_backward,
    linear_backward,
    linear_forward,
    rms_norm_backward,
    rms_norm_forward,
)


class DecodeCache(NamedTuple):
    norm: RMSNormCache
    proj: LinearCache
    tied: LinearCache


def decode_forward(params, predicted):
    """Eq. 6: logits = embedding (W_dec rms(predicted; w_dec) + b_dec), the bias only where the model has one.

    predicted (..., D): s^p_t, of one step or of a whole window -> logits (..., V).
    """
    normed, norm_cache = rms_norm_forward(predicted, params["decode.norm.weight"])  # (..., D)
    projected, proj_cache = linear_forward(normed, params["decode.proj.weight"])  # (..., E)
    if "decode.bias" in params:
        projected = projected + params["decode.bias"]
    logits, tied_cache = linear_forward(projected, params["embedding.weight"])  # (..., V)
    return logits, DecodeCache(norm_cache, proj_cache, tied_cache)


def decode_backward(d_logits, cache, grads):
    """d_logits (..., V) -> d_predicted (..., D); adds the gradients of embedding.weight and decode.* to `grads`."""
    d_projected, d_embedding = linear_backward(d_logits, cache.tied)
    grads["embedding.weight"] += d_embedding
    if "decode.bias" in grads:
        grads["decode.bias"] += bias_backward(d_projected)
    d_normed, d_weight = linear_backward(d_projected, cache.proj)
    grads["decode.proj.weight"] += d_weight
    d_predicted, d_norm = rms_norm_backward(d_normed, cache.norm)
    grads["decode.norm.weight"] += d_norm
    return d_predicted
