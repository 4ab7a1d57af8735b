"""Our answers to the exercises of lesson 14."""

import numpy as np


def attention_forward(query, key, value):
    T, K = query.shape[1:]
    scores = query @ key.swapaxes(1, 2) / np.sqrt(K)  # (B, T, T)
    scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def transformer_params(V, d, N, F):
    layer = 4 * d * d + 3 * d * F + 2 * d
    return V * d + N * layer + d


def matched_width(wanted, V, N):
    def miss(d):
        return abs(transformer_params(V, d, N, round(8 * d / 3)) - wanted)

    d = 8
    while miss(d + 8) < miss(d):
        d += 8
    return d
