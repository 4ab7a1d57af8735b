"""Our answers to the exercises of lesson 02, and what was given with them."""

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
    seen = rms(params["embedding.weight"][tokens], params["ground.norm.weight"])  # (B, E)
    return gate(params, "ground.gate", predicted) * predicted + seen @ params["ground.proj.weight"].T


def predict(params, n_layers, grounded):
    x = grounded
    for layer in (f"layers.{i}" for i in range(n_layers)):
        z = rms(x, params[f"{layer}.ffn.norm.weight"])  # (B, D)
        opens = z @ params[f"{layer}.ffn.gate.weight"].T  # (B, F)
        value = z @ params[f"{layer}.ffn.value.weight"].T  # (B, F)
        added = (opens * sigmoid(opens) * value) @ params[f"{layer}.ffn.out.weight"].T  # (B, D)
        x = gate(params, f"{layer}.gate", x) * x + added
    return x


def forward(params, n_layers, inputs, predicted):
    logits = []
    for tokens in inputs.T:  # (B), one step after the other
        grounded = ground(params, predicted, tokens)
        predicted = predict(params, n_layers, grounded)
        logits.append(decode(params, predicted))
    return np.stack(logits, axis=1), predicted
