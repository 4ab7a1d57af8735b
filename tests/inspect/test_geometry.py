"""Geometry: states whose rank, correlations and dead dimensions are known."""

import numpy as np
import pytest

from gpn_ref.inspect.geometry import (
    Moments,
    StateMoments,
    components_for,
    correlations,
    cumulative_variance,
    dead_dimensions,
    eigenvalues,
    geometry,
    participation_ratio,
    stable_rank,
)


def geometry_of(*batches):
    moments = StateMoments(batches[0].shape[-1])
    for states in batches:
        moments.add(states)
    return geometry(moments)


def exactly(covariance, n=64):
    """(n, D) states whose covariance is exactly this."""
    D = len(covariance)
    noise = np.random.default_rng(0).standard_normal((n, D))
    whole, _ = np.linalg.qr(noise - noise.mean(axis=0))  # orthonormal columns, each of mean 0
    return np.sqrt(n) * whole @ np.linalg.cholesky(covariance).T


def test_moments_in_batches_are_those_of_all():
    states = 1e4 + np.random.default_rng(0).standard_normal((100, 4))  # far from 0, where sums of squares would lose it
    moments = Moments(4)
    for batch in (states[:1], states[1:40], states[40:]):
        moments.add(batch)
    assert moments.count == 100
    np.testing.assert_allclose(moments.mean, states.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(moments.covariance(), np.cov(states.T, bias=True), atol=1e-10)


def test_states_of_a_built_rank():
    """Three directions of equal variance among ten dimensions: every count of directions is 3."""
    directions, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((10, 3)))
    states = exactly(np.eye(3)) @ directions.T
    found = geometry_of(states[:20], states[20:])
    assert found["components_90"] == 3 and found["components_99"] == 3
    assert found["stable_rank"] == pytest.approx(3) and found["participation_ratio"] == pytest.approx(3)
    np.testing.assert_allclose(found["cumulative_variance"][:4], [1 / 3, 2 / 3, 1, 1])


def test_a_spectrum_by_hand():
    spectrum = np.array([6.0, 3.0, 1.0])
    assert stable_rank(spectrum) == pytest.approx(10 / 6)
    assert participation_ratio(spectrum) == pytest.approx(100 / 46)
    np.testing.assert_allclose(cumulative_variance(spectrum), [0.6, 0.9, 1])
    assert (components_for(spectrum, 0.9), components_for(spectrum, 0.99)) == (2, 3)
    np.testing.assert_allclose(eigenvalues(np.diag([1.0, 6, 3])), spectrum)


def test_states_of_a_built_correlation():
    covariance = np.array([[4.0, 1.2, 0], [1.2, 1, -0.25], [0, -0.25, 0.25]])  # r = 0.6, -0.5 and 0
    found = geometry_of(exactly(covariance))
    assert found["correlation_mean"] == pytest.approx(1.1 / 3)
    assert found["correlation_largest"] == pytest.approx(0.6)
    assert found["correlation_histogram"].sum() == 3
    np.testing.assert_allclose(found["sd_sorted"], [2, 1, 0.5])
    assert (found["sd_largest"], found["sd_smallest"]) == (pytest.approx(2), pytest.approx(0.5))


def test_white_noise_fills_all_dimensions():
    D, n = 20, 20_000
    found = geometry_of(np.random.default_rng(2).standard_normal((n, D)).astype(np.float32))
    assert found["states"] == n and found["dead_dimensions"] == 0
    assert found["norm_mean"] == pytest.approx(np.sqrt(D), rel=0.02) and found["norm_sd"] == pytest.approx(
        0.7, rel=0.03
    )
    assert found["correlation_mean"] < 0.01 and found["correlation_largest"] < 0.04
    assert found["participation_ratio"] == pytest.approx(D, rel=0.01)
    assert (found["components_90"], found["components_99"]) == (18, 20)


def test_one_dead_dimension_is_counted_and_left_out_of_correlations():
    states = exactly(np.eye(4))
    states[:, 2] = 7 + 0.009 * states[:, 2]  # under 1 % of the median sd
    found = geometry_of(states)
    assert found["dead_dimensions"] == 1
    assert found["correlation_histogram"].sum() == 3  # pairs of the three others
    states[:, 2] *= 2
    assert geometry_of(states)["dead_dimensions"] == 0
    assert dead_dimensions(np.array([1.0, 1, 1, 0])).tolist() == [False, False, False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_states_that_stand_still_are_all_dead_and_nothing_else_is_told(dtype):
    found = geometry_of(np.full((7, 5), 0.1, dtype), np.full((3, 5), 0.1, dtype))
    assert found["dead_dimensions"] == 5
    assert found["norm_mean"] == pytest.approx(0.1 * np.sqrt(5)) and found["norm_sd"] < 1e-8
    for name in ("correlation_mean", "correlation_largest", "components_90", "stable_rank", "participation_ratio"):
        assert np.isnan(found[name])
    assert geometry_of(np.zeros((2, 3)))["dead_dimensions"] == 3


def test_fewer_states_than_dimensions():
    found = geometry_of(np.random.default_rng(3).standard_normal((5, 12)))
    assert found["components_99"] <= 4 and found["participation_ratio"] < 4.01  # 5 points span 4 directions
    assert np.isfinite(found["correlation_mean"])
    assert geometry_of(np.ones((1, 12)))["dead_dimensions"] == 12


def test_norms_have_their_own_mean_and_sd():
    found = geometry_of(np.array([[3.0, 4.0], [0, 1]]), np.array([[6.0, 8.0]]))
    assert found["norm_mean"] == pytest.approx(16 / 3)
    assert found["norm_sd"] == pytest.approx(np.std([5, 1, 10]))


def test_correlations_of_one_live_dimension_are_none():
    assert len(correlations(np.diag([1.0, 0]), np.array([False, True]))) == 0
