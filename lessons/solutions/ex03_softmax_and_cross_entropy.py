"""Our answers to the exercises of lesson 03."""

import numpy as np


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def cross_entropy(logits, targets):
    at_target = np.take_along_axis(log_softmax(logits), targets[..., None], axis=-1)
    return -at_target[..., 0]


def mean_loss_backward(logits, targets):
    d_logits = np.exp(log_softmax(logits))
    at = targets[..., None]
    np.put_along_axis(d_logits, at, np.take_along_axis(d_logits, at, axis=-1) - 1, axis=-1)
    return d_logits / targets.size
