"""Exercises of lesson 05: the backward pass of norm, gate and SwiGLU. Fill in, then: python -m lessons.check 05

Letters: B batch, D and `in` widths, F hidden width of the FFN. Each d_x has the shape of x; what serves a whole batch
gets the sum over it. You may import numpy and math, and nothing else. Don't change what you are given.
"""

import numpy as np


def sigmoid(x):
    """1 / (1 + exp(-x)), given: use it below."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def rms_norm(x, weight):
    """y = n ⊙ weight, where n = x / sqrt(mean(x²) + 1e-6), given.  x (..., D), weight (D) -> y (..., D)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def rms_norm_backward(d_y, x, weight):
    """Undo y = rms_norm(x, weight) for a row (D), a batch (B, D) or a window (B, T, D): whatever stands before D.

    d_y, x (..., D), weight (D) -> d_x (..., D), d_weight (D). About 5 lines.
    """
    raise NotImplementedError


def bare_gate_backward(d_gate, x, weight, bias):
    """Undo gate = sigmoid(z), z = x weightᵀ + bias: the gate of lesson 05 without its norm, so three gradients.

    d_gate (B, D), x (B, in), weight (D, in), bias (D) -> d_x (B, in), d_weight (D, in), d_bias (D). About 3 lines.
    """
    raise NotImplementedError


def ffn_backward(d_out, x, norm_weight, gate_weight, value_weight, out_weight):
    """Undo the whole FFN. Go back from its last line to the first; what is used twice gets two gradients.

        n = rms_norm(x, norm_weight)                                    (B, D)
        gate = n gate_weightᵀ,   value = n value_weightᵀ                (B, F)
        hidden = silu(gate) ⊙ value,   silu(z) = z sigmoid(z)           (B, F)
        out = hidden out_weightᵀ                                        (B, D)

    d_out, x (B, D), norm_weight (D), gate_weight and value_weight (F, D), out_weight (D, F) -> d_x, d_norm_weight,
    d_gate_weight, d_value_weight, d_out_weight, each shaped as its name says. About 10 lines, with rms_norm_backward.
    """
    raise NotImplementedError
