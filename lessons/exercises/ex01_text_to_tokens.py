"""Exercises of lesson 01: a merge, a price, a smoothed bigram. Fill in the functions, then: python -m lessons.check 01

Letters: B batch, T time, V vocabulary, n tokens. You may import numpy and math, and nothing else.
"""

import math  # noqa: F401

import numpy as np  # noqa: F401


def join_pair(tokens, left, right, new):
    """One merge of byte-pair encoding: wherever `left` and then `right` stand, put `new`, going from left to right.

    tokens (n) integers; left, right, new integers -> an array (m) of integers, m ≤ n, not a list. With left = right = 5
    the tokens 5 5 5 become new 5. About 8 lines.
    """
    raise NotImplementedError


def bits_per_byte(nll, n_bytes):
    """What a text costs: its nats / ln 2 / its bytes.

    nll (B, T), the nats of each token; n_bytes (B, T), the bytes that each token stands for, 0 for some -> one number.
    About 1 line.
    """
    raise NotImplementedError


def bigram(tokens, shorter, d):
    """A smoothed bigram, from the counts c of the tokens:

        p[v, w] = (max(c(v w) - d, 0) + d · kinds(v ·) · shorter[w]) / c(v ·)

    and p[v] = shorter where c(v ·) = 0. c(v ·) = Σ_w c(v w) counts v as a context, which the last token is not;
    kinds(v ·) is the number of different tokens that followed v.

    tokens (n) integers below V; shorter (V), the unigram's probabilities; d a number from 0 to 1 -> p (V, V), whose
    row v holds the probabilities of the token after v. About 7 lines; np.add.at counts what an index names twice.
    """
    raise NotImplementedError
