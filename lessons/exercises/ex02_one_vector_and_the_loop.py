"""Exercises of lesson 02: the model without memory. Fill in the functions, then: python -m lessons.check 02

Letters: B batch, T time, V vocabulary, D state, E embedding, F hidden width of the feed-forward network, N layers.
`params` is a dict of arrays with the package's names, as in the lesson. Matrices are (out, in) and vectors are rows, so
W x becomes x @ W.T. `rms`, `sigmoid`, `gate` and `decode` are given. You may import numpy and math, and nothing else.
"""

import numpy as np


def rms(x, weight):
    """x / sqrt(mean(x²) + 1e-6) ⊙ weight.  x (..., n), weight (n) -> (..., n)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def sigmoid(x):
    """1 / (1 + exp(-x)), of any shape."""
    return 1 / (1 + np.exp(-x))


def gate(params, name, x):
    """sigmoid(W rms(x) + b), whose parameters are `name`.norm.weight, .weight and .bias.  x (B, D) -> (B, D)."""
    normed = rms(x, params[f"{name}.norm.weight"])
    return sigmoid(normed @ params[f"{name}.weight"].T + params[f"{name}.bias"])


def decode(params, predicted):
    """Equation 6: logits = emb (W_dec rms(s^p)).  predicted (..., D) -> logits (..., V)."""
    return rms(predicted, params["decode.norm.weight"]) @ params["decode.proj.weight"].T @ params["embedding.weight"].T


def ground(params, predicted, tokens):
    """Equation 4: s^g_t = gate_f(s^p_{t-1}) ⊙ s^p_{t-1} + W_fuse rms(emb[x_t]).

    predicted (B, D): s^p_{t-1}; tokens (B): x_t -> grounded (B, D): s^g_t. About 2 lines.
    Parameters: embedding.weight (V, E), ground.norm.weight (E), ground.proj.weight (D, E), and the gate ground.gate.
    """
    raise NotImplementedError


def predict(params, n_layers, grounded):
    """Equation 7, layer upon layer. The first layer starts from x = s^g_t, each other from the x of the one before:

        x = gate_p(x) ⊙ x + W_2 (silu(W_g z) ⊙ W_u z),   z = rms(x),   silu(a) = a · sigmoid(a)

    grounded (B, D) -> predicted (B, D): s^p_t, the last x. About 8 lines.
    Parameters of layer i, from 0 to n_layers - 1: the gate layers.i.gate; layers.i.ffn.norm.weight (D), and W_g, W_u,
    W_2: layers.i.ffn.gate.weight (F, D), layers.i.ffn.value.weight (F, D), layers.i.ffn.out.weight (D, F).
    """
    raise NotImplementedError


def forward(params, n_layers, inputs, predicted):
    """The loop: for each token x_t ground, predict, decode; logits_t scores the token x_{t+1}.

    inputs (B, T); predicted (B, D): s^p in which the text so far left the model -> logits (B, T, V), and
    predicted (B, D) after the last token. About 7 lines, with your `ground` and `predict`.
    """
    raise NotImplementedError
