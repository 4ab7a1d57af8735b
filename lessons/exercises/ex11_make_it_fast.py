"""Exercises of lesson 11: make it fast. Fill in the functions, then: python -m lessons.check 11

Letters: B batch, T time, E and D widths, H heads, K key width, U value width. The grader can't measure time; it looks
at the answers, and at what two given functions are called with. You may import numpy and math, and nothing else.
"""

import numpy as np  # noqa: F401


def hoisted(embedded, gate, start, product):
    """A loop with its product taken out: s_t = gate ⊙ s_{t-1} + W x_t, t = 1 … T, from s_0 = start.

    embedded (B, T, E) is x_1 … x_T, gate (D) is the same at every step, start (B, D). product(x) gives W x for any
    number of vectors x (…, E) -> (…, D); it wants all B T of them in one call. -> all states s_1 … s_T, (B, T, D).
    About 6 lines.
    """
    raise NotImplementedError


def stacked(x, weights, scales, product):
    """What several matrices make of one state, each through a norm of its own, in one product.

        y_i = W_i (w_i ⊙ x̂)        x̂ = x / sqrt(mean(x²) + 1e-6)

    x (B, D); weights: a list of matrices W_i (n_i, D); scales: a list of as many w_i (D). product(W, x) gives W x for
    each row of x: W (n, D), x (B, D) -> (B, n); it wants one W for all of them, n = Σ n_i, with the scales folded in.
    -> the list of y_i, (B, n_i) each. About 5 lines.
    """
    raise NotImplementedError


def write_and_read(memory, key, value, expected, beta, decay, query, next_key):
    """Write, read, and what the memory recalls for the next key, in one pass over M: what you would give to Numba.

        M_t = decay · M + β k ⊗ (v - expected)        recalled = M_tᵀ q        next_expected = M_tᵀ k'

    memory (B, H, K, U) is M; key, query and next_key (B, H, K); value and expected (B, H, U), where `expected` is Mᵀ k,
    known from the step before; beta and decay (B, H). -> the tuple M_t (B, H, K, U), recalled (B, H, U), next_expected
    (B, H, U). Plain loops over b, h, j and u, each entry of M looked at once; of NumPy only np.empty_like and
    np.zeros_like; the grader sees the answers, the loops are on your honour. Must leave its arguments as they are.
    About 13 lines.
    """
    raise NotImplementedError
