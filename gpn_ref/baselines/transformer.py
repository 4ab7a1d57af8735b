"""Transformer++: causal attention with rotary positions and SwiGLU, before each an RMS norm.

    x = emb[tokens];   each layer   x += W_o attention(rms(x)),   x += ffn(rms(x));   logits = emb rms(x)

Where the GPN carries a state of fixed size, this keeps the keys and values of all tokens so far: its state grows. In a
window all positions are computed at once, layer by layer. Names of shapes: d = d_model, H heads of width D = d / H, T
tokens of a window, S = P + T with the P tokens before it.
"""

from typing import NamedTuple

import numpy as np

from gpn_ref.reference.ops import (
    LinearCache,
    RMSNormCache,
    linear_backward,
    linear_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from gpn_ref.reference.predict import FFNCache, ffn_backward, ffn_forward

ROTARY_BASE = 10000.0


class TransformerState(NamedTuple):
    """What the attention of later tokens needs of the earlier ones, for each of N layers."""

    key: np.ndarray  # (N, B, H, P, D), rotated
    value: np.ndarray  # (N, B, H, P, D)


def initial_state(config, batch_size, dtype=np.float32):
    """No tokens yet."""
    shape = (config.n_layers, batch_size, config.n_heads, 0, config.d_model // config.n_heads)
    return TransformerState(np.zeros(shape, dtype), np.zeros(shape, dtype))


# ------------------------------------------------------------------------------------------------ rotary positions
def rotate(x, first, direction=1):
    """Turn pair j, (x_j, x_{j + D/2}), of the token at position t by the angle t · 10000^(-2j / D).

    x (..., T, D), the first token at position `first` -> (..., T, D). Direction -1 turns back, which is also what a
    gradient needs. The product of a turned query and key depends on the distance of their tokens alone.
    """
    T, half = x.shape[-2], x.shape[-1] // 2
    angle = np.arange(first, first + T)[:, None] * ROTARY_BASE ** (-np.arange(half) / half)  # (T, D/2)
    cos, sin = np.cos(angle).astype(x.dtype), (direction * np.sin(angle)).astype(x.dtype)
    one, other = x[..., :half], x[..., half:]
    return np.concatenate([one * cos - other * sin, one * sin + other * cos], axis=-1)


# ---------------------------------------------------------------------------- softmax(query keyᵀ / √D) value, causal
class MixCache(NamedTuple):
    query: np.ndarray  # (B, H, T, D)
    key: np.ndarray  # (B, H, S, D)
    value: np.ndarray  # (B, H, S, D)
    weights: np.ndarray  # (B, H, T, S)


def mix_forward(query, key, value):
    """Each query's mean of the values so far, weighted by softmax(query · key / √D).

    query (B, H, T, D), key and value (B, H, S, D), of which the last T are the queries' own -> mixed (B, H, T, D).
    """
    T, S = query.shape[2], key.shape[2]
    later = np.arange(S) > np.arange(S - T, S)[:, None]  # (T, S): what a token must not see
    weights = query @ key.swapaxes(-1, -2)  # (B, H, T, S): the scores, then in place what becomes of them
    weights *= query.shape[3] ** -0.5
    weights += np.where(later, -np.inf, 0).astype(query.dtype)
    weights -= weights.max(axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ value, MixCache(query, key, value, weights)


def mix_backward(d_mixed, cache):
    """d_mixed (B, H, T, D) -> d_query (B, H, T, D), d_key and d_value (B, H, S, D)."""
    query, key, value, weights = cache
    # mixed = weights @ value
    d_value = weights.swapaxes(-1, -2) @ d_mixed
    d_scores = d_mixed @ value.swapaxes(-1, -2)  # (B, H, T, S): first of the weights, then of the scores
    # weights = softmax(scores): what all of a query's weights share changes nothing
    d_scores -= np.einsum("bhts,bhts->bht", d_scores, weights)[..., None]
    d_scores *= weights
    # scores = query @ keyᵀ / √D
    d_scores *= query.shape[3] ** -0.5
    return d_scores @ key, d_scores.swapaxes(-1, -2) @ query, d_value


# --------------------------------------------------------------------------------------------------- attention
class AttentionCache(NamedTuple):
    norm: RMSNormCache
    query: LinearCache
    key: LinearCache
    value: LinearCache
    mix: MixCache
    out: LinearCache


def attention_forward(params, prefix, n_heads, x, past_key, past_value):
    """attention = W_o mix(rotate(W_q h), rotate(W_k h), W_v h) with h = rms(x).

    x (B, T, d), past_key and past_value (B, H, P, D) -> attention (B, T, d), key and value (B, H, S, D).
    """
    P = past_key.shape[2]
    normed, norm_cache = rms_norm_forward(x, params[f"{prefix}.norm.weight"])  # (B, T, d)
    query, query_cache = linear_forward(normed, params[f"{prefix}.query.weight"])  # (B, T, d)
    key, key_cache = linear_forward(normed, params[f"{prefix}.key.weight"])  # (B, T, d)
    value, value_cache = linear_forward(normed, params[f"{prefix}.value.weight"])  # (B, T, d)
    query, key = rotate(to_heads(query, n_heads), P), rotate(to_heads(key, n_heads), P)  # (B, H, T, D)
    key = np.concatenate([past_key, key], axis=2)  # (B, H, S, D)
    value = np.concatenate([past_value, to_heads(value, n_heads)], axis=2)  # (B, H, S, D)
    mixed, mix_cache = mix_forward(query, key, value)  # (B, H, T, D)
    out, out_cache = linear_forward(from_heads(mixed), params[f"{prefix}.out.weight"])  # (B, T, d)
    return out, key, value, AttentionCache(norm_cache, query_cache, key_cache, value_cache, mix_cache, out_cache)


def attention_backward(d_out, cache, prefix, grads):
    """d_out (B, T, d) -> d_x (B, T, d); adds the gradients of prefix.* to `grads`. The past gets no gradient."""
    T, S = cache.mix.query.shape[2], cache.mix.key.shape[2]
    d_mixed, d_weight = linear_backward(d_out, cache.out)
    grads[f"{prefix}.out.weight"] += d_weight
    d_query, d_key, d_value = mix_backward(to_heads(d_mixed, cache.mix.query.shape[1]), cache.mix)
    d_heads = {
        "query": rotate(d_query, S - T, -1),
        "key": rotate(d_key[:, :, S - T :], S - T, -1),
        "value": d_value[:, :, S - T :],
    }
    d_normed = 0
    for name, d_head in d_heads.items():
        d_through, d_weight = linear_backward(from_heads(d_head), getattr(cache, name))
        grads[f"{prefix}.{name}.weight"] += d_weight
        d_normed = d_normed + d_through
    d_x, d_weight = rms_norm_backward(d_normed, cache.norm)
    grads[f"{prefix}.norm.weight"] += d_weight
    return d_x


def to_heads(x, n_heads):
    """(B, T, H·D) -> (B, H, T, D)."""
    B, T, _ = x.shape
    return x.reshape(B, T, n_heads, -1).swapaxes(1, 2)


def from_heads(x):
    """(B, H, T, D) -> (B, T, H·D)."""
    B, _, T, _ = x.shape
    return x.swapaxes(1, 2).reshape(B, T, -1)


# ------------------------------------------------------------------------------------------------- the whole model
class WindowCache(NamedTuple):
    tokens: np.ndarray  # (B, T)
    attention: list[AttentionCache]  # one a layer
    ffn: list[FFNCache]
    norm: RMSNormCache
    tied: LinearCache


def window_forward(params, config, inputs, state):
    """inputs (B, T), state -> logits (B, T, V), hidden (B, T, d), the final state, cache."""
    x = params["embedding.weight"][inputs]  # (B, T, d)
    keys, values, attention_caches, ffn_caches = [], [], [], []
    for i in range(config.n_layers):
        out, key, value, cache = attention_forward(
            params, f"layers.{i}.attention", config.n_heads, x, state.key[i], state.value[i]
        )
        x = x + out
        keys.append(key)
        values.append(value)
        attention_caches.append(cache)
        out, cache = ffn_forward(params, f"layers.{i}.ffn", x)  # (B, T, d)
        x = x + out
        ffn_caches.append(cache)
    normed, norm_cache = rms_norm_forward(x, params["norm.weight"])  # (B, T, d)
    logits, tied_cache = linear_forward(normed, params["embedding.weight"])  # (B, T, V)
    state = TransformerState(np.stack(keys), np.stack(values))
    return logits, x, state, WindowCache(inputs, attention_caches, ffn_caches, norm_cache, tied_cache)


def window_backward(d_logits, cache, params, config):
    """d_logits (B, T, V) -> grads, name -> array shaped as the parameter. The tokens before the window get none."""
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    d_normed, d_tied = linear_backward(d_logits, cache.tied)
    d_x, d_norm = rms_norm_backward(d_normed, cache.norm)
    grads["norm.weight"] += d_norm
    for i in reversed(range(config.n_layers)):
        # x = x + ffn(x), and before it x = x + attention(x)
        d_x = d_x + ffn_backward(d_x, cache.ffn[i], f"layers.{i}.ffn", grads)
        d_x = d_x + attention_backward(d_x, cache.attention[i], f"layers.{i}.attention", grads)
    np.add.at(grads["embedding.weight"], cache.tokens, d_x)  # the same token may stand in many places
    grads["embedding.weight"] += d_tied
    return grads
