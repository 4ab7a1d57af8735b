from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpn_ref.text.trigram import Trigram

A, B, C = 0, 1, 2
TEXT = [A, B, A, B, C]  # targets B A B C


def test_by_hand():
    d, n = 0.75, 4
    p1 = {A: (1 - d) / n + d * 3 / n / 3, B: (2 - d) / n + d * 3 / n / 3, C: (1 - d) / n + d * 3 / n / 3}
    p2_b_after_a = (2 - d) / 2 + d * 1 / 2 * p1[B]
    p2_c_after_b = (1 - d) / 2 + d * 2 / 2 * p1[C]
    p3_c_after_ab = (1 - d) / 2 + d * 2 / 2 * p2_c_after_b
    nll = Trigram(TEXT, 3).nll([A, B, C])
    np.testing.assert_allclose(nll, [-log(p2_b_after_a), -log(p3_c_after_ab)], rtol=1e-12)


def test_an_unseen_context_leaves_it_to_the_shorter_one():
    model = Trigram(TEXT, 3)
    p1_b = (2 - 0.75) / 4 + 0.75 * 3 / 4 / 3
    np.testing.assert_allclose(model.nll([C, B]), [-log(p1_b)], rtol=1e-12)  # nothing follows C
    np.testing.assert_allclose(model.nll([C, A, B])[1], model.nll([A, B])[0], rtol=1e-12)  # C A was never seen


@given(st.lists(st.integers(0, 4), min_size=2, max_size=40), st.lists(st.integers(0, 4), min_size=2, max_size=2))
def test_probabilities_sum_to_one_in_any_context(text, context):
    model = Trigram(text, 5)
    total = sum(np.exp(-model.nll([*context, token])[1]) for token in range(5))
    assert total == pytest.approx(1, rel=1e-12)


def test_rows_know_nothing_of_each_other():
    model = Trigram(TEXT, 3)
    rows = np.array([[A, B, C], [C, A, B]])
    np.testing.assert_array_equal(model.nll(rows), [model.nll(rows[0]), model.nll(rows[1])])


def test_random_tokens_cost_the_logarithm_of_their_number():
    tokens = np.random.default_rng(0).integers(0, 8, 40_000)
    assert Trigram(tokens[:30_000], 8).nll(tokens[30_000:]).mean() == pytest.approx(log(8), abs=0.01)


def test_a_repeated_text_costs_almost_nothing():
    tokens = np.tile([3, 1, 4, 1, 5], 200)
    assert Trigram(tokens, 6).nll(tokens)[2:].mean() < 0.02


def test_large_vocabularies_do_not_overflow():
    V = 200_000
    tokens = np.array([V - 1, V - 2, V - 1, V - 2, V - 1], np.int32)
    nll = Trigram(tokens, V).nll(tokens)
    assert nll[-1] == pytest.approx(-log(0.625 + 0.375 * (0.625 + 0.375 * (1.25 / 4 + 1.5 / 4 / V))), rel=1e-6)
