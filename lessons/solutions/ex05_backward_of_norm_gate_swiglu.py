"""Our answers to the exercises of lesson 05."""

import numpy as np


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def rms_norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def rms_norm_backward(d_y, x, weight):
    r = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)  # (..., 1)
    n = x / r
    d_n = d_y * weight
    d_x = (d_n - n * np.mean(d_n * n, axis=-1, keepdims=True)) / r
    return d_x, np.sum((d_y * n).reshape(-1, len(weight)), axis=0)


def bare_gate_backward(d_gate, x, weight, bias):
    gate = sigmoid(x @ weight.T + bias)  # (B, D)
    d_z = d_gate * gate * (1 - gate)
    return d_z @ weight, d_z.T @ x, d_z.sum(axis=0)


def ffn_backward(d_out, x, norm_weight, gate_weight, value_weight, out_weight):
    n = rms_norm(x, norm_weight)  # (B, D)
    gate, value = n @ gate_weight.T, n @ value_weight.T  # (B, F)
    silu = gate * sigmoid(gate)
    # out = hidden out_weightᵀ, hidden = silu ⊙ value
    d_hidden = d_out @ out_weight
    d_value = d_hidden * silu
    d_gate = d_hidden * value * (sigmoid(gate) + silu * (1 - sigmoid(gate)))
    # gate = n gate_weightᵀ, value = n value_weightᵀ
    d_n = d_gate @ gate_weight + d_value @ value_weight
    d_x, d_norm_weight = rms_norm_backward(d_n, x, norm_weight)
    return d_x, d_norm_weight, d_gate.T @ n, d_value.T @ n, d_out.T @ (silu * value)
