"""Horizons: lives of heads that are known, and cosines of states that are known."""

import numpy as np
import pytest

from gpn_ref.inspect.horizons import EFOLD, FAST, HALF, Retention, StateCosines, head_lives, is_fast, lags_up_to, life


def retention_of(decay, lags):
    found = Retention(lags, decay.shape[-1])
    found.add(decay)
    return found.means()


def test_lags_are_dense_then_a_tenth_apart_and_never_too_long():
    lags = lags_up_to(300)
    assert lags[:33].tolist() == [*range(1, 33), 35]
    assert (np.diff(lags) > 0).all() and 270 < lags[-1] <= 300
    assert lags_up_to(3).tolist() == [1, 2, 3]
    assert lags_up_to(0).tolist() == []


@pytest.mark.parametrize("share", [EFOLD, HALF])
def test_the_life_of_a_steady_decay_comes_out_whatever_it_is(share):
    """From far below a token to far above the sequence: to 1 % is asked, and much better it is."""
    lives = np.array([0.02, 0.1, 0.5, 0.99, 1.0, 1.5, 3.7, 4.0, 12.3, 40.0, 63.0, 100.0, 1e3, 1e6])
    decay = np.broadcast_to(share ** (1 / lives), (2, 64, len(lives)))
    lags = lags_up_to(63)
    retention = retention_of(decay, lags)
    found = [life(lags, of_head, share) for of_head in retention.T]
    np.testing.assert_allclose([tokens for tokens, _ in found], lives, rtol=1e-6)
    measured = lives < 0.99 * lags[-1]
    assert [known for _, known in found][: len(measured)] == measured.tolist()


def test_lives_in_float32_come_out_to_a_hundredth():
    lives = np.array([0.3, 2.0, 40.0, 5000.0])
    decay = np.broadcast_to(np.exp(-1 / lives), (3, 256, 4)).astype(np.float32)
    lags = lags_up_to(255)
    np.testing.assert_allclose(head_lives(lags, retention_of(decay, lags)), lives, rtol=1e-2)


def test_the_half_life_is_ln_2_of_the_other():
    lags = np.arange(1, 50)
    retention = np.exp(-lags / 10.0)
    assert life(lags, retention, EFOLD) == (pytest.approx(10), True)
    assert life(lags, retention, HALF) == (pytest.approx(10 * np.log(2)), True)


def test_a_head_that_never_forgets_and_one_that_forgets_all():
    decay = np.stack([np.ones((1, 8)), np.zeros((1, 8))], axis=-1)
    lags = lags_up_to(7)
    retention = retention_of(decay, lags)
    assert np.isfinite(retention).all() and (retention[:, 0] == 1).all() and (retention[:, 1] < 1e-300).all()
    never, at_once = head_lives(lags, retention)
    assert never == np.inf and 0 <= at_once < 0.01
    assert life(lags, retention[:, 0], EFOLD) == (np.inf, False)


def test_one_forgetful_step_among_many():
    """Decay .5 at one step and 1 elsewhere: of the products over a lag, those that hold the step are .5."""
    decay = np.ones((1, 11, 1))
    decay[0, 4] = 0.5
    found = retention_of(decay, np.array([1, 2, 10]))[:, 0]
    np.testing.assert_allclose(found, [1 - 0.5 / 10, 1 - 0.5 * 2 / 9, 0.5])


def test_batches_of_different_lengths_count_by_their_pairs():
    lags = np.array([1, 2, 5])
    found = Retention(lags, 1)
    found.add(np.full((1, 3, 1), 0.5))  # lag 1: 2 pairs, lag 2: 1 pair
    found.add(np.full((2, 2, 1), 0.25))  # lag 1: 2 pairs
    means = found.means()[:, 0]
    np.testing.assert_allclose(means[:2], [(2 * 0.5 + 2 * 0.25) / 4, 0.25])
    assert np.isnan(means[2])


def test_a_token_alone_has_no_life():
    lags = lags_up_to(0)
    retention = retention_of(np.full((2, 1, 3), 0.5), lags)
    assert retention.shape == (0, 3)
    assert np.isnan(head_lives(lags, retention)).all()
    assert not is_fast(head_lives(lags, retention)).any()


def test_fast_is_below_four_tokens():
    assert is_fast([0.1, FAST - 1e-9, FAST, np.inf]).tolist() == [True, True, False, False]


# ------------------------------------------------------------------------------------------------ of the states
def cosines_of(*batches, lags):
    found = StateCosines(np.asarray(lags))
    for states in batches:
        found.add(states)
    return found.raw(), found.centred()


def test_white_noise_is_0_raw_and_a_little_below_centred():
    T = 16
    states = np.random.default_rng(0).standard_normal((400, T, 50)).astype(np.float32)
    raw, centred = cosines_of(states[:150], states[150:], lags=[1, 5, 15])
    np.testing.assert_allclose(raw, 0, atol=5e-3)
    np.testing.assert_allclose(centred, -1 / (T - 1), atol=5e-3)


def test_a_constant_direction_is_raw_and_not_centred():
    rng = np.random.default_rng(1)
    states = 3 * np.eye(40)[0] + rng.standard_normal((200, 32, 40)) / np.sqrt(40)
    raw, centred = cosines_of(states, lags=[1, 10])
    np.testing.assert_allclose(raw, 9 / 10, atol=5e-3)  # ‖m‖² / (‖m‖² + 1)
    np.testing.assert_allclose(centred, -1 / 31, atol=5e-3)


def test_states_that_turn_have_the_cosine_of_their_angle():
    angle = 2 * np.pi / 12 * np.arange(24)
    states = np.stack([np.cos(angle), np.sin(angle)], axis=-1)[None]  # two whole turns: their mean is 0
    raw, centred = cosines_of(states, lags=[1, 3, 6])
    np.testing.assert_allclose(raw, np.cos(2 * np.pi / 12 * np.array([1, 3, 6])), atol=1e-12)
    np.testing.assert_allclose(centred, raw, atol=1e-12)


def test_states_that_stand_still_are_alike_and_have_no_centred_cosine():
    raw, centred = cosines_of(np.full((2, 5, 3), 0.1, np.float32), lags=[1, 4])
    np.testing.assert_allclose(raw, 1)
    assert np.isnan(centred).all()


def test_lags_longer_than_a_sequence_have_no_pairs():
    raw, _ = cosines_of(np.ones((1, 3, 2)), lags=[1, 2, 3, 9])
    assert np.isfinite(raw).tolist() == [True, True, False, False]
    assert StateCosines(lags_up_to(0)).raw().shape == (0,)
