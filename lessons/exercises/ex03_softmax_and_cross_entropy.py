"""Exercises of lesson 03: softmax and cross entropy. Fill in the functions, then: python -m lessons.check 03

Letters: B batch, T time, V vocabulary. You may import numpy and math, and nothing else.
"""

import numpy as np  # noqa: F401


def log_softmax(logits):
    """log softmax(z)_i = z_i - log Σ_j exp(z_j), along the last axis.

    logits (..., V) -> (..., V). Must be right for logits of ±1e4 too, with no overflow. About 2 lines.
    """
    raise NotImplementedError


def cross_entropy(logits, targets):
    """The surprise at each token that came, in nats: nll = -log softmax(logits)[target].

    logits (B, T, V), targets (B, T) integers -> nll (B, T). Must be right for logits of ±1e4 too. About 2 lines, with
    your log_softmax; np.take_along_axis helps.
    """
    raise NotImplementedError


def mean_loss_backward(logits, targets):
    """The gradient of loss = mean of nll over the B · T tokens.

    logits (B, T, V), targets (B, T) -> d_logits (B, T, V). Must be right for logits of ±1e4 too. About 4 lines.
    """
    raise NotImplementedError
