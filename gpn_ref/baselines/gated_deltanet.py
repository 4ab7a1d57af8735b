"""Gated DeltaNet (arXiv 2412.06464): layers that each have a matrix memory of their own, and an FFN.

    x = emb[tokens];   each layer   x += mixer(rms(x)),   x += ffn(rms(x));   logits = head rms(x)

The memory is the GPN's, `delta_forward`, but for one thing: it decays BEFORE the error is taken (`decay_first`). Keys,
values and queries come from the tokens of the layer below, not from the layer's own state, so a window's are had at
once, and only the memory goes step by step. Names of shapes: d = d_model, H heads, K and U their widths, W the width
of the convolutions, T tokens of a window.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gpn_ref.reference.memory import (
    DecayCache,
    decay_backward,
    decay_forward,
    delta_backward,
    delta_forward,
    outer,
    recall,
)
from gpn_ref.reference.ops import (
    L2NormCache,
    LinearCache,
    RMSNormCache,
    SwiGLUCache,
    l2_norm_backward,
    l2_norm_forward,
    linear_backward,
    linear_forward,
    rms_norm_backward,
    rms_norm_forward,
    sigmoid,
    swiglu_backward,
    swiglu_forward,
)
from gpn_ref.reference.predict import FFNCache, ffn_backward, ffn_forward

L2_EPSILON = 1e-6  # of the keys and queries here; the GPN has 1e-12


class GDNState(NamedTuple):
    """What the layers carry from token to token, N of them. Its gradient has the same type."""

    memory: np.ndarray  # (N, B, H, K, U)
    recent: np.ndarray  # (N, B, W - 1, 2·H·K + H·U): queries, keys and values that the convolutions still need


def initial_state(config, batch_size, dtype=np.float32):
    """The zero state, in which every text starts."""
    N, B, H, K, U = config.n_layers, batch_size, config.n_heads, config.d_key, config.d_value
    memory = np.zeros((N, B, H, K, U), dtype)
    return GDNState(memory, np.zeros((N, B, config.conv_width - 1, 2 * H * K + H * U), dtype))


# ------------------------------------------------------------------------------ y = silu(causal depthwise convolution)
class ConvCache(NamedTuple):
    x: np.ndarray  # (B, W - 1 + T, C)
    weight: np.ndarray  # (C, W)
    gate: np.ndarray  # (B, T, C): sigmoid(convolution)
    y: np.ndarray  # (B, T, C)


def conv_forward(x, weight):
    """y_t = silu(Σ_w weight[:, w] ⊙ x_{t+w}): each channel sees itself now and W - 1 tokens back.

    x (B, W - 1 + T, C), weight (C, W), whose last column meets the current token -> y (B, T, C).
    """
    W = weight.shape[1]
    T = x.shape[1] - W + 1
    convolved = sum(weight[:, w] * x[:, w : w + T] for w in range(W))  # (B, T, C)
    gate = sigmoid(convolved)
    y = convolved * gate
    return y, ConvCache(x, weight, gate, y)


def conv_backward(d_y, cache):
    """d_y (B, T, C) -> d_x (B, W - 1 + T, C), d_weight (C, W)."""
    x, weight, gate, y = cache
    T = d_y.shape[1]
    # y = convolved * sigmoid(convolved)
    d_convolved = d_y * (gate + y * (1 - gate))
    d_x, d_weight = np.zeros_like(x), np.zeros_like(weight)
    for w in range(weight.shape[1]):
        # convolved += weight[:, w] * x[:, w : w + T]
        d_x[:, w : w + T] += weight[:, w] * d_convolved
        d_weight[:, w] = np.sum(d_convolved * x[:, w : w + T], axis=(0, 1))
    return d_x, d_weight


# --------------------------------------------------------------------------------- the memory, from token to token
def memory_forward(memory, query, key, value, beta, decay):
    """S ← delta(S) with decay first, then o = Sᵀ q, for each token of a window.

    memory (B, H, K, U); query and key (B, T, H, K), value (B, T, H, U), beta and decay (B, T, H)
    -> o (B, T, H, U), the final memory, caches (one a token).
    """
    out, caches = [], []
    for t in range(query.shape[1]):
        memory, cache = delta_forward(memory, key[:, t], value[:, t], beta[:, t], decay[:, t], decay_first=True)
        out.append(recall(memory, query[:, t]))
        caches.append((cache, memory, query[:, t]))
    return np.stack(out, axis=1), memory, caches


def memory_backward(d_out, d_memory, caches):
    """d_out (B, T, H, U), the final d_memory -> the first d_memory, d_query, d_key, d_value, d_beta, d_decay."""
    grads = []
    for t in reversed(range(d_out.shape[1])):
        cache, memory, query = caches[t]
        # out = memoryᵀ query
        d_query = np.einsum("bhku,bhu->bhk", memory, d_out[:, t])
        d_memory = d_memory + outer(query, d_out[:, t])
        d_memory, *d_written = delta_backward(d_memory, cache, decay_first=True)
        grads.append((d_query, *d_written))
    return d_memory, *(np.stack(parts[::-1], axis=1) for parts in zip(*grads, strict=True))


class Recurrence(NamedTuple):
    """How the memory is computed: here, or compiled."""

    forward: Callable
    backward: Callable


REFERENCE = Recurrence(memory_forward, memory_backward)


# ------------------------------------------------------------------------------------------------------- mixer
class MixerCache(NamedTuple):
    norm: RMSNormCache
    projections: list[LinearCache]  # of query, key, value
    conv: ConvCache  # of all three together
    query: L2NormCache
    key: L2NormCache
    beta: np.ndarray  # (B, T, H)
    beta_linear: LinearCache
    decay: DecayCache  # of (B·T, H)
    memory: object  # the recurrence's own
    out_norm: RMSNormCache
    gate: LinearCache
    swiglu: SwiGLUCache
    out: LinearCache


PROJECTED = ("query", "key", "value")


def mixer_forward(params, prefix, config, x, memory, recent, recurrence):
    """mixer = W_o (rms(o; per head) ⊙ silu(W_gate h)), o what the memory returns, h = rms(x).

        q, k, v = silu(conv(W h)), q and k of length 1 per head, q / √K    β = sigmoid(W_β h)    decay as in eq. 9

    x (B, T, d), memory (B, H, K, U), recent (B, W - 1, C) -> mixer (B, T, d), the final memory and recent, cache.
    """
    (B, T, _), H, K, U = x.shape, config.n_heads, config.d_key, config.d_value
    normed, norm_cache = rms_norm_forward(x, params[f"{prefix}.norm.weight"])  # (B, T, d)
    projected, projections = zip(
        *(linear_forward(normed, params[f"{prefix}.{name}.weight"]) for name in PROJECTED), strict=True
    )  # (B, T, H·K or H·U) each
    joint = np.concatenate([recent, np.concatenate(projected, axis=-1)], axis=1)  # (B, W - 1 + T, C)
    kernel = np.concatenate([params[f"{prefix}.{name}_conv.weight"] for name in PROJECTED])  # (C, W)
    convolved, conv_cache = conv_forward(joint, kernel)  # (B, T, C)
    query, key, value = np.split(convolved, [H * K, 2 * H * K], axis=-1)
    query, query_cache = l2_norm_forward(query.reshape(B, T, H, K), L2_EPSILON)  # (B, T, H, K)
    key, key_cache = l2_norm_forward(key.reshape(B, T, H, K), L2_EPSILON)  # (B, T, H, K)
    pre_beta, beta_cache = linear_forward(normed, params[f"{prefix}.beta.weight"])
    beta = sigmoid(pre_beta)  # (B, T, H)
    decay, decay_cache = decay_forward(params, prefix, normed.reshape(B * T, -1))  # (B·T, H)
    remembered, memory, memory_cache = recurrence.forward(
        memory, query * K**-0.5, key, value.reshape(B, T, H, U), beta, decay.reshape(B, T, H)
    )  # (B, T, H, U)
    remembered, out_norm_cache = rms_norm_forward(remembered, params[f"{prefix}.out_norm.weight"])  # (B, T, H, U)
    gate, gate_cache = linear_forward(normed, params[f"{prefix}.gate.weight"])  # (B, T, H·U)
    gated, swiglu_cache = swiglu_forward(gate, remembered.reshape(B, T, H * U))  # (B, T, H·U)
    out, out_cache = linear_forward(gated, params[f"{prefix}.out.weight"])  # (B, T, d)
    cache = MixerCache(
        norm_cache, projections, conv_cache, query_cache, key_cache, beta, beta_cache, decay_cache,
        memory_cache, out_norm_cache, gate_cache, swiglu_cache, out_cache,
    )  # fmt: skip
    return out, memory, joint[:, T:], cache


def mixer_backward(d_out, d_memory, d_recent, cache, prefix, grads, recurrence):
    """d_out (B, T, d) and the gradients of the final memory and recent -> d_x, and those of the first ones."""
    (B, T, _), K = d_out.shape, cache.query.y.shape[-1]

    def linear_back(name, d_y, linear_cache):
        d_x, d_weight = linear_backward(d_y, linear_cache)
        grads[f"{prefix}.{name}.weight"] += d_weight
        return d_x

    # out = W_o (rms(remembered) ⊙ silu(gate))
    d_gate, d_remembered = swiglu_backward(linear_back("out", d_out, cache.out), cache.swiglu)
    d_normed = linear_back("gate", d_gate, cache.gate)
    d_remembered = d_remembered.reshape(cache.out_norm.normalized.shape)  # (B, T, H, U)
    d_remembered, d_weight = rms_norm_backward(d_remembered, cache.out_norm)
    grads[f"{prefix}.out_norm.weight"] += d_weight
    d_memory, d_query, d_key, d_value, d_beta, d_decay = recurrence.backward(d_remembered, d_memory, cache.memory)

    # decay and beta come from the normed state alone
    d_normed += decay_backward(d_decay.reshape(B * T, -1), cache.decay, prefix, grads).reshape(d_normed.shape)
    d_normed += linear_back("beta", d_beta * cache.beta * (1 - cache.beta), cache.beta_linear)

    # queries, keys and values: l2, then the convolution, then the projections
    d_query = l2_norm_backward(d_query * K**-0.5, cache.query)
    d_key = l2_norm_backward(d_key, cache.key)
    d_convolved = np.concatenate([part.reshape(B, T, -1) for part in (d_query, d_key, d_value)], axis=-1)
    d_joint, d_kernel = conv_backward(d_convolved, cache.conv)
    d_joint[:, T:] += d_recent
    widths = np.cumsum([cache.weight.shape[0] for cache in cache.projections])[:-1]
    d_projected = np.split(d_joint[:, d_joint.shape[1] - T :], widths, axis=-1)
    for name, d_y, d_weight, linear_cache in zip(
        PROJECTED, d_projected, np.split(d_kernel, widths), cache.projections, strict=True
    ):
        grads[f"{prefix}.{name}_conv.weight"] += d_weight
        d_normed += linear_back(name, d_y, linear_cache)
    d_x, d_weight = rms_norm_backward(d_normed, cache.norm)
    grads[f"{prefix}.norm.weight"] += d_weight
    return d_x, d_memory, d_joint[:, : d_joint.shape[1] - T]


# ------------------------------------------------------------------------------------------------- the whole model
class WindowCache(NamedTuple):
    tokens: np.ndarray  # (B, T)
    mixer: list[MixerCache]  # one a layer
    ffn: list[FFNCache]
    norm: RMSNormCache
    head: LinearCache


def window_forward(params, config, inputs, state, recurrence=REFERENCE):
    """inputs (B, T), state -> logits (B, T, V), hidden (B, T, d), the final state, cache."""
    x = params["embedding.weight"][inputs]  # (B, T, d)
    memories, recents, mixer_caches, ffn_caches = [], [], [], []
    for i in range(config.n_layers):
        out, memory, recent, cache = mixer_forward(
            params, f"layers.{i}.mixer", config, x, state.memory[i], state.recent[i], recurrence
        )
        x = x + out
        memories.append(memory)
        recents.append(recent)
        mixer_caches.append(cache)
        out, cache = ffn_forward(params, f"layers.{i}.ffn", x)  # (B, T, d)
        x = x + out
        ffn_caches.append(cache)
    normed, norm_cache = rms_norm_forward(x, params["norm.weight"])  # (B, T, d)
    logits, head_cache = linear_forward(normed, params["head.weight"])  # (B, T, V)
    state = GDNState(np.stack(memories), np.stack(recents))
    return logits, x, state, WindowCache(inputs, mixer_caches, ffn_caches, norm_cache, head_cache)


def window_backward(d_logits, d_state, cache, params, config, recurrence=REFERENCE):
    """d_logits (B, T, V), d_state of the final state -> grads by name, d_state of the initial state."""
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    d_normed, d_head = linear_backward(d_logits, cache.head)
    grads["head.weight"] += d_head
    d_x, d_norm = rms_norm_backward(d_normed, cache.norm)
    grads["norm.weight"] += d_norm
    d_states = []
    for i in reversed(range(config.n_layers)):
        # x = x + ffn(x), and before it x = x + mixer(x)
        d_x = d_x + ffn_backward(d_x, cache.ffn[i], f"layers.{i}.ffn", grads)
        d_through, *d_carried = mixer_backward(
            d_x, d_state.memory[i], d_state.recent[i], cache.mixer[i], f"layers.{i}.mixer", grads, recurrence
        )
        d_x = d_x + d_through
        d_states.append(d_carried)
    np.add.at(grads["embedding.weight"], cache.tokens, d_x)  # the same token may stand in many places
    return grads, GDNState(*(np.stack(parts) for parts in zip(*d_states[::-1], strict=True)))
