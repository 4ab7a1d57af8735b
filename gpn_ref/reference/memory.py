"""The matrix memory: write (eq. 8 to 10) and read (eq. 11).

Each head h holds a matrix M_h (K, U), which maps a key to the value stored under it: Mᵀ k is what the memory recalls
for k. A write compares that with the value to be stored and adds the difference. Heads are laid out head-major.
"""

from typing import NamedTuple

import numpy as np

from gpn_ref.reference.ops import (
    L2NormCache,
    LinearCache,
    RMSNormCache,
    SwiGLUCache,
    bias_backward,
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


def recall(memory, key):
    """Mᵀ k per head.  memory (B, H, K, U), key (B, H, K) -> (B, H, U)."""
    return np.einsum("bhku,bhk->bhu", memory, key)


def outer(key, value):
    """k ⊗ v per head.  key (B, H, K), value (B, H, U) -> (B, H, K, U)."""
    return np.einsum("bhk,bhu->bhku", key, value)


# ------------------------------------------------------------------- keys and queries: l2(relu(W x + b)) per head
class AddressCache(NamedTuple):
    active: np.ndarray  # (B, H, K) bool
    linear: LinearCache
    l2_norm: L2NormCache


def address_forward(x, weight, bias, n_heads):
    """address = l2(relu(W x + b)) per head: where to write (a key) or to look (a query).

    x (B, D), weight (H·K, D), bias (H·K) -> address (B, H, K), non-negative, of length 1 (0 if no entry is active).
    """
    pre, linear_cache = linear_forward(x, weight)
    pre = (pre + bias).reshape(len(x), n_heads, -1)  # (B, H, K)
    address, l2_cache = l2_norm_forward(np.maximum(pre, 0))  # (B, H, K)
    return address, AddressCache(pre > 0, linear_cache, l2_cache)


def address_backward(d_address, cache):
    """d_address (B, H, K) -> d_x (B, D), d_weight (H·K, D), d_bias (H·K)."""
    d_pre = l2_norm_backward(d_address, cache.l2_norm) * cache.active  # relu'(0) = 0
    d_pre = d_pre.reshape(len(d_pre), -1)  # (B, H·K)
    d_x, d_weight = linear_backward(d_pre, cache.linear)
    return d_x, d_weight, bias_backward(d_pre)


# ------------------------------------------------------------------------------- the gated delta rule (eq. 10)
class DeltaCache(NamedTuple):
    memory: np.ndarray  # (B, H, K, U), before the write
    key: np.ndarray  # (B, H, K)
    beta: np.ndarray  # (B, H)
    decay: np.ndarray  # (B, H)
    recalled: np.ndarray  # (B, H, U)
    error: np.ndarray  # (B, H, U)


def delta_forward(memory, key, value, beta, decay, decay_first):
    """Eq. 10: M_t = decay · M + β · k ⊗ (v - Mᵀ k): the error is taken against the memory BEFORE its decay.

    With `decay_first` it is taken against the decayed memory, v - decay · Mᵀ k, as in Gated DeltaNet.
    memory (B, H, K, U), key (B, H, K), value (B, H, U), beta and decay (B, H) -> memory (B, H, K, U).
    """
    recalled = recall(memory, key)  # (B, H, U)
    error = value - (decay[..., None] * recalled if decay_first else recalled)  # (B, H, U)
    written = decay[..., None, None] * memory + outer(beta[..., None] * key, error)  # (B, H, K, U)
    return written, DeltaCache(memory, key, beta, decay, recalled, error)


def delta_backward(d_written, cache, decay_first):
    """d_written (B, H, K, U) -> d_memory, d_key, d_value, d_beta, d_decay, each shaped as its forward's input."""
    memory, key, beta, decay, recalled, error = cache

    # written = decay * memory + beta * key ⊗ error
    d_memory = decay[..., None, None] * d_written
    d_decay = np.einsum("bhku,bhku->bh", d_written, memory)
    d_beta_error = recall(d_written, key)  # (B, H, U), the gradient of beta * error
    d_beta = np.sum(d_beta_error * error, axis=-1)
    d_error = beta[..., None] * d_beta_error
    d_key = beta[..., None] * np.einsum("bhku,bhu->bhk", d_written, error)

    # error = value - recalled, or value - decay * recalled
    d_value = d_error
    d_recalled = -d_error
    if decay_first:
        d_decay += np.sum(d_recalled * recalled, axis=-1)
        d_recalled = decay[..., None] * d_recalled

    # recalled = memoryᵀ key
    d_memory += outer(key, d_recalled)
    d_key += np.einsum("bhku,bhu->bhk", memory, d_recalled)
    return d_memory, d_key, d_value, d_beta, d_decay


# ------------------------------------------------------------------------------------------------- decay (eq. 9)
class DecayCache(NamedTuple):
    linear: LinearCache
    pre: np.ndarray  # (B, H), what softplus takes
    rate: np.ndarray  # (H)
    log_decay: np.ndarray  # (B, H)


def decay_forward(params, prefix, x):
    """Eq. 9: decay = exp(log_decay), log_decay = -exp(log_rate) ⊙ softplus(W_a x + b_a).  x (B, D) -> decay (B, H)."""
    pre, linear_cache = linear_forward(x, params[f"{prefix}.decay.weight"])
    pre = pre + params[f"{prefix}.decay.bias"]  # (B, H)
    rate = np.exp(params[f"{prefix}.log_rate"])  # (H)
    log_decay = -rate * np.logaddexp(0, pre)  # (B, H); softplus(x) = log(1 + exp(x))
    return np.exp(log_decay), DecayCache(linear_cache, pre, rate, log_decay)


def decay_backward(d_decay, cache, prefix, grads):
    """d_decay (B, H) -> d_x (B, D); adds the gradients of prefix.decay.* and prefix.log_rate to `grads`."""
    # decay = exp(log_decay), and log_decay is proportional to exp(log_rate)
    d_log_decay = d_decay * np.exp(cache.log_decay)
    grads[f"{prefix}.log_rate"] += np.sum(d_log_decay * cache.log_decay, axis=0)
    # log_decay = -rate * softplus(pre), and softplus' = sigmoid
    d_pre = -d_log_decay * cache.rate * sigmoid(cache.pre)
    d_x, d_weight = linear_backward(d_pre, cache.linear)
    grads[f"{prefix}.decay.weight"] += d_weight
    grads[f"{prefix}.decay.bias"] += bias_backward(d_pre)
    return d_x


# -------------------------------------------------------------------------------------------- write (eq. 8 to 10)
class WriteCache(NamedTuple):
    key_norm: RMSNormCache
    key: AddressCache
    norm: RMSNormCache
    value: LinearCache
    beta: LinearCache
    decay: DecayCache
    delta: DeltaCache


def write_forward(params, config, previous, grounded, memory):
    """Eq. 8 to 10: store what was seen now under the state in which it was awaited.

        k = l2(relu(W_k rms(previous; w) + b_k))    v = W_v rms(grounded; w)    β = sigmoid(W_β rms(grounded; w))
        M_t = delta(M_{t-1}, k, v, β, decay(rms(grounded; w)))

    previous (B, D): s^g_{t-1}; grounded (B, D): s^g_t; memory (B, H, K, U): M_{t-1} -> memory (B, H, K, U): M_t.
    """
    H, scale = config.n_heads, params["write.norm.weight"]
    normed, key_norm_cache = rms_norm_forward(previous, scale)  # (B, D)
    key, key_cache = address_forward(normed, params["write.key.weight"], params["write.key.bias"], H)  # (B, H, K)
    normed, norm_cache = rms_norm_forward(grounded, scale)  # (B, D)
    value, value_cache = linear_forward(normed, params["write.value.weight"])  # (B, H·U)
    pre_beta, beta_cache = linear_forward(normed, params["write.beta.weight"])  # (B, H)
    decay, decay_cache = decay_forward(params, "write", normed)  # (B, H)
    value, beta = value.reshape(len(value), H, -1), sigmoid(pre_beta)  # (B, H, U), (B, H)
    memory, delta_cache = delta_forward(memory, key, value, beta, decay, config.decay_first)
    return memory, WriteCache(key_norm_cache, key_cache, norm_cache, value_cache, beta_cache, decay_cache, delta_cache)


def write_backward(d_memory, cache, config, grads):
    """d_memory (B, H, K, U), of M_t -> d_previous (B, D), d_grounded (B, D), d_memory (B, H, K, U), of M_{t-1}.

    Adds the gradients of write.* to `grads`.
    """
    d_memory, d_key, d_value, d_beta, d_decay = delta_backward(d_memory, cache.delta, config.decay_first)

    # value, β and decay come from the grounded state
    d_normed = decay_backward(d_decay, cache.decay, "write", grads)
    beta = cache.delta.beta
    d_x, d_weight = linear_backward(d_beta * beta * (1 - beta), cache.beta)
    d_normed += d_x
    grads["write.beta.weight"] += d_weight
    d_x, d_weight = linear_backward(flat_heads(d_value), cache.value)
    d_normed += d_x
    grads["write.value.weight"] += d_weight
    d_grounded, d_scale = rms_norm_backward(d_normed, cache.norm)
    grads["write.norm.weight"] += d_scale

    # the key comes from the one before, through the same norm scale
    d_normed, d_weight, d_bias = address_backward(d_key, cache.key)
    grads["write.key.weight"] += d_weight
    grads["write.key.bias"] += d_bias
    d_previous, d_scale = rms_norm_backward(d_normed, cache.key_norm)
    grads["write.norm.weight"] += d_scale
    return d_previous, d_grounded, d_memory


def flat_heads(x):
    """(B, H, n) -> (B, H·n)."""
    return x.reshape(len(x), -1)


# --------------------------------------------------------------------------------------------------- read (eq. 11)
class ReadCache(NamedTuple):
    norm: RMSNormCache
    address: AddressCache
    memory: np.ndarray  # (B, H, K, U)
    query: np.ndarray  # (B, H, K)
    out_norm: RMSNormCache
    gate: LinearCache
    swiglu: SwiGLUCache
    out: LinearCache


def read_forward(params, config, i, x, memory):
    """Eq. 11, the read of layer i: what the memory holds for the state x, gated by x.

        q = l2(relu(W_q rms(x; w) + b_q))    r = rms(Mᵀ q, all heads together; w_out)
        read = W_o (silu(W_rg rms(x; w)) ⊙ r)

    x (B, D), memory (B, H, K, U): M_t, after the write -> read (B, D).
    """
    layer = f"layers.{i}.read"
    normed, norm_cache = rms_norm_forward(x, params[f"{layer}.norm.weight"])  # (B, D)
    query, address_cache = address_forward(
        normed, params[f"{layer}.query.weight"], params[f"{layer}.query.bias"], config.n_heads
    )  # (B, H, K)
    recalled = flat_heads(recall(memory, query))  # (B, H·U)
    recalled, out_norm_cache = rms_norm_forward(recalled, params[f"{layer}.out_norm.weight"])  # (B, H·U)
    gate, gate_cache = linear_forward(normed, params[f"{layer}.gate.weight"])  # (B, H·U)
    gated, swiglu_cache = swiglu_forward(gate, recalled)  # (B, H·U)
    read, out_cache = linear_forward(gated, params[f"{layer}.out.weight"])  # (B, D)
    return read, ReadCache(
        norm_cache, address_cache, memory, query, out_norm_cache, gate_cache, swiglu_cache, out_cache
    )


def read_backward(d_read, cache, i, grads):
    """d_read (B, D) -> d_x (B, D), d_memory (B, H, K, U); adds the gradients of layers.i.read.* to `grads`."""
    layer = f"layers.{i}.read"
    # read = W_o (silu(gate) ⊙ recalled)
    d_gated, d_weight = linear_backward(d_read, cache.out)
    grads[f"{layer}.out.weight"] += d_weight
    d_gate, d_recalled = swiglu_backward(d_gated, cache.swiglu)
    d_normed, d_weight = linear_backward(d_gate, cache.gate)
    grads[f"{layer}.gate.weight"] += d_weight

    # recalled = rms(memoryᵀ query)
    d_recalled, d_weight = rms_norm_backward(d_recalled, cache.out_norm)
    grads[f"{layer}.out_norm.weight"] += d_weight
    d_recalled = d_recalled.reshape(len(d_recalled), cache.query.shape[1], -1)  # (B, H, U)
    d_memory = outer(cache.query, d_recalled)
    d_query = np.einsum("bhku,bhu->bhk", cache.memory, d_recalled)

    # query = l2(relu(W_q normed + b_q))
    d_x, d_weight, d_bias = address_backward(d_query, cache.address)
    d_normed += d_x
    grads[f"{layer}.query.weight"] += d_weight
    grads[f"{layer}.query.bias"] += d_bias
    d_x, d_weight = rms_norm_backward(d_normed, cache.norm)
    grads[f"{layer}.norm.weight"] += d_weight
    return d_x, d_memory
