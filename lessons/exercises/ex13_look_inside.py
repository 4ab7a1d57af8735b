"""Exercises of lesson 13: look inside. Fill in the functions, then: python -m lessons.check 13

Letters: B sequences, T time, D state, H heads. You may import numpy and math, and nothing else.
"""

import numpy as np  # noqa: F401


def participation_ratio(states):
    """How many directions the states fill: (Σ λ_i)² / Σ λ_i², λ_i the eigenvalues of their covariance C (D, D).

    C is the mean of (s - s̄) ⊗ (s - s̄) over the states, s̄ their mean. states (n, D) -> a number. About 4 lines.
    """
    raise NotImplementedError


def head_life(decay):
    """The 1/e life of each head, in tokens: n for which exp(n · mean log decay) = 1/e.

    The mean is over all tokens of all sequences. decay (B, T, H), between 0 and 1 -> lives (H). About 1 line.
    """
    raise NotImplementedError


def centred_cosine(states, lag):
    """How alike two states of a sequence are that are `lag` tokens apart, but for what all of the sequence shares.

    From each state take its own sequence's mean; then take the mean of cos(s_t, s_{t+lag}) over all sequences and all t
    for which both are there. states (B, T, D), lag an integer from 1 to T - 1 -> a number. About 4 lines.
    """
    raise NotImplementedError
