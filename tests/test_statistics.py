"""Intervals: as wide as theory says, whole sequences at a time, the same for the same numbers."""

import numpy as np
import pytest

from gpn_ref.statistics import interval


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(3, 2, 400)
    low, high = interval(values)
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)


def test_sequences_are_drawn_whole_and_weigh_what_they_hold():
    sums, sizes = np.array([10.0, 0.0]), np.array([10, 30])  # the mean is .25; a draw has 1, .25 or 0
    assert interval(sums, sizes) == (0, 1)
    same = interval(np.full(50, 6.0), np.full(50, 3))
    assert same == pytest.approx((2, 2))
    dependent = np.repeat(np.random.default_rng(0).normal(size=40), 10)  # ten tokens of a sequence, all alike
    together = interval(dependent.reshape(40, 10).sum(axis=1), np.full(40, 10))
    apart = interval(dependent)
    assert together[1] - together[0] > 2.5 * (apart[1] - apart[0])


def test_it_is_seeded():
    values = np.random.default_rng(0).normal(size=30)
    assert interval(values, seed=1) == interval(values, seed=1) != interval(values, seed=2)


def test_one_sequence_or_none_tells_nothing():
    assert np.isnan(interval([1.0])).all() and np.isnan(interval([])).all()
    assert interval([1.0, 0.0, 0.0], [0, 0, 5])[0] == 0  # a draw of only empty ones is left out


def test_many_sequences_are_no_trouble():
    values = np.random.default_rng(0).normal(size=3_000_000)
    low, high = interval(values)
    assert low < values.mean() < high and high - low == pytest.approx(2 * 1.96 / 3_000_000**0.5, rel=0.1)
