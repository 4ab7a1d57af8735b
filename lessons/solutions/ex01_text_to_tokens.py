"""Our answers to the exercises of lesson 01."""

import math

import numpy as np


def join_pair(tokens, left, right, new):
    joined, i = [], 0
    while i < len(tokens):
        here = i + 1 < len(tokens) and tokens[i] == left and tokens[i + 1] == right
        joined.append(new if here else tokens[i])
        i += 2 if here else 1
    return np.array(joined, dtype=int)


def bits_per_byte(nll, n_bytes):
    return nll.sum() / math.log(2) / n_bytes.sum()


def bigram(tokens, shorter, d):
    counts = np.zeros((len(shorter), len(shorter)))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)  # (V, V): c(v w)
    total = counts.sum(axis=1, keepdims=True)  # (V, 1): c(v ·)
    kinds = (counts > 0).sum(axis=1, keepdims=True)  # (V, 1)
    smoothed = (np.maximum(counts - d, 0) + d * kinds * shorter) / np.maximum(total, 1)
    return np.where(total > 0, smoothed, shorter)
