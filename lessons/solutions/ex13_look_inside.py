"""Our answers to the exercises of lesson 13."""

import numpy as np


def left_on_average(decay, lag):
    log_left = np.cumsum(np.log(decay), axis=1)  # (B, T, H): since the first token
    return np.exp(log_left[:, lag:] - log_left[:, :-lag]).mean(axis=(0, 1))


def last_read(key, query, beta, decay):
    weights, back = np.zeros(len(key)), query  # back: A_{j+1} … A_T q
    for j in reversed(range(len(key))):
        weights[j] = beta[j] * (key[j] @ back)
        back = decay[j] * (back - weights[j] * key[j])
    return weights


def effect(differences, sizes, draws):
    change = differences.sum() / sizes.sum()
    drawn = differences[draws].sum(axis=1) / sizes[draws].sum(axis=1)  # (R)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return change, low, high
