"""Exercises of lesson 14: against the stack. Fill in the functions, then: python -m lessons.check 14

Letters: B batch, T time, K and U the widths of keys and values, V vocabulary, d the width of a Transformer, N its
layers, F the hidden width of its feed-forward networks. You may import numpy and math, and nothing else.
"""

import numpy as np  # noqa: F401


def attention_forward(query, key, value):
    """Causal attention of one head: the mean of the values so far, weighted by the softmax of the scores.

        attention_t = Σ_{j ≤ t} w_tj v_j,    w_t = softmax over j ≤ t of (q_t · k_j / √K)

    query, key (B, T, K), value (B, T, U) -> (B, T, U). Must be right for scores of ±1e4 too. About 6 lines.
    """
    raise NotImplementedError


def transformer_params(V, d, N, F):
    """How many parameters a Transformer++ has: V, d, N, F integers -> an integer. About 2 lines.

    An embedding (V, d), which also decodes. In each of N layers a norm (d), the matrices of query, key, value and out,
    (d, d) each; and a norm (d), the matrices W_g and W_u (F, d) and W_2 (d, F). A last norm (d). Nothing has a bias.
    """
    raise NotImplementedError


def matched_width(wanted, V, N):
    """The width d for which a Transformer++ of N layers has as nearly as possible `wanted` parameters.

    d is a multiple of 8, at least 8, and F = round(8 d / 3). If two are equally near, the smaller.
    wanted, V, N integers -> d, an integer. About 5 lines, with your `transformer_params`.
    """
    raise NotImplementedError
