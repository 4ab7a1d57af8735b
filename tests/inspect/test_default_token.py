"""The default token: planted mean directions, noise, and rank correlations that are known."""

import numpy as np
import pytest

from gpn_ref.inspect.default_token import (
    PairCosines,
    RunningMean,
    frequency_ranks,
    marks_up_to,
    ranks,
    spearman,
    top_tokens,
)


def test_equal_values_share_the_mean_of_their_ranks():
    assert ranks(np.array([10, 30, 20, 20])).tolist() == [1, 4, 2.5, 2.5]
    assert ranks(np.array([5, 5, 5])).tolist() == [2, 2, 2]


def test_spearman_of_known_orders():
    assert spearman([1, 2, 3, 4], [10, 100, 1000, 1001]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # 1 - 6 Σd² / (n (n² - 1)), with d = 1, 1, 1, 1, 0
    assert spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / (5 * 24))
    # ties: Pearson's of (1, 2.5, 2.5, 4) and (1, 2, 3, 4)
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert np.isnan(spearman([1, 2, 3], [7, 7, 7]))


def test_frequency_ranks_begin_with_the_commonest():
    assert frequency_ranks(np.array([5, 100, 0, 5])).tolist() == [2, 1, 4, 2]


def test_top_tokens_take_the_smaller_of_equal_ones():
    assert top_tokens(np.array([1.0, 3, 3, 2]), 3).tolist() == [1, 2, 3]
    assert top_tokens(np.zeros(4)).tolist() == [0, 1, 2, 3]


def test_pair_cosines_are_those_of_all_pairs():
    vectors = np.random.default_rng(0).standard_normal((6, 4)) + 1
    found = PairCosines(4)
    for vector in vectors:
        found.add(vector)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    wanted = (unit @ unit.T)[np.triu_indices(6, 1)]
    np.testing.assert_allclose(found.mean_and_sd(), [wanted.mean(), wanted.std()], rtol=1e-10)


def test_equal_vectors_and_one_alone():
    found = PairCosines(3)
    found.add(np.array([1.0, 2, 3]))
    assert np.isnan(found.mean_and_sd()).all()
    found.add(np.array([2.0, 4, 6]))
    np.testing.assert_allclose(found.mean_and_sd(), [1, 0], atol=1e-7)


def test_marks():
    assert marks_up_to(1).tolist() == [1]
    assert marks_up_to(256).tolist() == [1, 2, 5, 10, 20, 50, 100, 200]


def test_a_planted_mean_direction_is_reached_as_noise_averages_out():
    """States m + noise: the mean of n has the cosine ‖m‖ / sqrt(‖m‖² + ‖noise‖² / n) with m."""
    mean, D = np.eye(50)[3] * 2, 50
    states = mean + np.random.default_rng(1).standard_normal((300, 100, D)) / np.sqrt(D)
    found = RunningMean(mean, 100)
    found.add(states[:100].astype(np.float32))
    found.add(states[100:])
    np.testing.assert_allclose(found.means(), 2 / np.sqrt(4 + 1 / found.marks), atol=3e-3)


def test_random_states_have_no_default():
    states = np.random.default_rng(2).standard_normal((200, 20, 64))
    found = RunningMean(np.eye(64)[0], 20)
    found.add(states)
    np.testing.assert_allclose(found.means(), 0, atol=0.03)


def test_shorter_sequences_count_where_they_reach():
    found = RunningMean(np.array([1.0, 0]), 5)
    found.add(np.tile([1.0, 0], (1, 5, 1)))
    found.add(np.tile([0.0, 1], (3, 2, 1)))
    np.testing.assert_allclose(found.means(), [0.25, 0.25, 1])  # at 1, 2 and 5 states
