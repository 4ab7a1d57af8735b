"""The operations that the equations share. Each forward stands directly above the backward that undoes it.

A forward returns its result and a cache; the backward takes the gradient of the result (`d_y` for `y`) and the cache,
and returns the gradient of each input. Leading axes, written `...`, are batch, time or heads; weights are (out, in).
"""

from typing import NamedTuple

import numpy as np

RMS_EPSILON = 1e-6
L2_EPSILON = 1e-12


# ------------------------------------------------------------------------------------------ linear: y = W x
class LinearCache(NamedTuple):
    x: np.ndarray  # (..., in)
    weight: np.ndarray  # (out, in)


def linear_forward(x, weight):
    """y = W x.  x (..., in), weight (out, in) -> y (..., out)."""
    return x @ weight.T, LinearCache(x, weight)


def linear_backward(d_y, cache):
    """d_y (..., out) -> d_x (..., in), d_weight (out, in)."""
    # y = x @ weight.T
    d_x = d_y @ cache.weight
    d_weight = flat(d_y).T @ flat(cache.x)
    return d_x, d_weight


def bias_backward(d_y):
    """For y = W x + b:  d_y (..., out) -> d_bias (out), the sum over all that the bias was added to."""
    return flat(d_y).sum(axis=0)


def flat(x):
    """(..., n) -> (rows, n)."""
    return x.reshape(-1, x.shape[-1])


# ------------------------------------------------------------- RMS norm: y = x / sqrt(mean(x²) + 1e-6) ⊙ weight
class RMSNormCache(NamedTuple):
    normalized: np.ndarray  # (..., n), before the weight
    inverse_rms: np.ndarray  # (..., 1)
    weight: np.ndarray  # (n)


def rms_norm_forward(x, weight):
    """y = x / sqrt(mean(x²) + 1e-6) ⊙ weight.  x (..., n), weight (n) -> y (..., n)."""
    inverse_rms = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + RMS_EPSILON)  # (..., 1)
    normalized = x * inverse_rms  # (..., n)
    return normalized * weight, RMSNormCache(normalized, inverse_rms, weight)


def rms_norm_backward(d_y, cache):
    """d_y (..., n) -> d_x (..., n), d_weight (n)."""
    # y = normalized * weight
    d_weight = flat(d_y * cache.normalized).sum(axis=0)
    d_normalized = d_y * cache.weight
    # normalized = x * inverse_rms, and inverse_rms itself falls as x grows along `normalized`
    along = np.mean(d_normalized * cache.normalized, axis=-1, keepdims=True)
    d_x = cache.inverse_rms * (d_normalized - cache.normalized * along)
    return d_x, d_weight


# ------------------------------------------------------------------------ l2 norm: y = x / sqrt(sum(x²) + 1e-12)
class L2NormCache(NamedTuple):
    y: np.ndarray  # (..., n)
    inverse_norm: np.ndarray  # (..., 1)


def l2_norm_forward(x, epsilon=L2_EPSILON):
    """y = x / sqrt(sum(x²) + 1e-12), a vector of length 1 (or 0 from 0).  x (..., n) -> y (..., n)."""
    inverse_norm = 1 / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + epsilon)  # (..., 1)
    y = x * inverse_norm
    return y, L2NormCache(y, inverse_norm)


def l2_norm_backward(d_y, cache):
    """d_y (..., n) -> d_x (..., n)."""
    # y = x * inverse_norm; what lies along y only changes the length, which the norm takes away
    along = np.sum(d_y * cache.y, axis=-1, keepdims=True)
    return cache.inverse_norm * (d_y - cache.y * along)


# -------------------------------------------------------------------------------------------- gate and SwiGLU
def sigmoid(x):
    """1 / (1 + exp(-x)), written with tanh so that no exponential can overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


class GateCache(NamedTuple):
    gate: np.ndarray  # (..., D)
    norm: RMSNormCache
    linear: LinearCache


def gate_forward(x, norm_weight, weight, bias):
    """gate = sigmoid(W rms(x; w) + b), between 0 and 1.  x (..., D) -> gate (..., D)."""
    normed, norm_cache = rms_norm_forward(x, norm_weight)
    pre, linear_cache = linear_forward(normed, weight)
    gate = sigmoid(pre + bias)
    return gate, GateCache(gate, norm_cache, linear_cache)


def gate_backward(d_gate, cache):
    """d_gate (..., D) -> d_x (..., D), d_norm_weight (D), d_weight (D, D), d_bias (D)."""
    # gate = sigmoid(pre + bias)
    d_pre = d_gate * cache.gate * (1 - cache.gate)
    d_normed, d_weight = linear_backward(d_pre, cache.linear)
    d_x, d_norm_weight = rms_norm_backward(d_normed, cache.norm)
    return d_x, d_norm_weight, d_weight, bias_backward(d_pre)


class SwiGLUCache(NamedTuple):
    gate: np.ndarray  # (..., n)
    value: np.ndarray  # (..., n)
    sigmoid: np.ndarray  # (..., n)


def swiglu_forward(gate, value):
    """y = silu(gate) ⊙ value with silu(z) = z sigmoid(z).  gate, value (..., n) -> y (..., n)."""
    sigmoid_gate = sigmoid(gate)
    return gate * sigmoid_gate * value, SwiGLUCache(gate, value, sigmoid_gate)


def swiglu_backward(d_y, cache):
    """d_y (..., n) -> d_gate (..., n), d_value (..., n)."""
    # y = gate * sigmoid(gate) * value
    silu = cache.gate * cache.sigmoid
    d_silu = cache.sigmoid + silu * (1 - cache.sigmoid)
    return d_y * cache.value * d_silu, d_y * silu


# ------------------------------------------------------------------------------------------------ cross entropy
class CrossEntropyCache(NamedTuple):
    probabilities: np.ndarray  # (..., V)
    targets: np.ndarray  # (...)


def cross_entropy_forward(logits, targets):
    """nll = log sum exp(logits) - logits[target], in nats.  logits (..., V), targets (...) -> nll (...)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)  # so that no exponential overflows
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=-1, keepdims=True)  # (..., 1)
    at_target = np.take_along_axis(shifted, targets[..., None], axis=-1)  # (..., 1)
    nll = (np.log(total) - at_target)[..., 0]
    return nll, CrossEntropyCache(exponentials / total, targets)


def cross_entropy_backward(d_nll, cache):
    """d_nll (...) -> d_logits (..., V): the probabilities less one at the target, times d_nll."""
    d_logits = cache.probabilities * d_nll[..., None]
    at = cache.targets[..., None]
    np.put_along_axis(d_logits, at, np.take_along_axis(d_logits, at, axis=-1) - d_nll[..., None], axis=-1)
    return d_logits
