"""Heads: shares that add up, reads unrolled into the values written, eigenvalues of the transition itself."""

import numpy as np
import pytest
from strategies import point

from gpn_ref.config import ModelConfig
from gpn_ref.inspect.heads import (
    EIGENVALUE_BINS,
    Eigenvalues,
    Retrievals,
    eigenvalue_along_key,
    parts_of_update,
    quantile_of_counts,
    read_weights,
    retrieved_amounts,
    retrieved_tokens,
    shares,
)
from gpn_ref.model import load_model


def traced(decay_first=False, layers=2):
    """A trace of 3 sequences of 9 tokens from the zero state, in float64, and the parameters."""
    config = ModelConfig(11, 7, 5, 6, n_heads=3, d_key=4, d_value=5, n_layers=layers, decay_first=decay_first)
    drawn = point(config, 4, batch=3, length=9)
    return load_model(config, "numpy").bind(drawn.params).trace(drawn.inputs), drawn.params


def by_head(array):
    """(B, T, H, ...) -> (B, H, T, ...)."""
    return np.moveaxis(array, 1, 2)


@pytest.mark.parametrize("decay_first", [False, True])
def test_weights_times_values_are_what_the_read_retrieves(decay_first):
    trace, _ = traced(decay_first)
    for i in range(2):
        query = by_head(trace.query[:, :, i])
        weights = read_weights(by_head(trace.key), query, by_head(trace.beta), by_head(trace.decay), decay_first)
        found = weights @ by_head(trace.value)  # (B, H, T, U)
        np.testing.assert_allclose(by_head(found), trace.retrieved[:, :, i], atol=1e-9)
        assert not np.triu(weights, 1).any()


def test_weights_leave_their_inputs_alone_and_take_one_head():
    trace, _ = traced(layers=1)
    one = [np.array(part[0, :, 0]) for part in (trace.key, trace.query[:, :, 0], trace.beta, trace.decay)]
    before = [part.copy() for part in one]
    assert read_weights(*one).shape == (9, 9)
    for part, was in zip(one, before, strict=True):
        np.testing.assert_array_equal(part, was)


def test_a_read_retrieves_what_was_written_under_its_key():
    """Three keys at right angles, no decay, β = 1: the query finds exactly the value of its own key."""
    key = np.eye(3)
    query = np.eye(3)[[0, 0, 1]]
    weights = read_weights(key, query, np.ones(3), np.ones(3))
    np.testing.assert_allclose(weights, [[1, 0, 0], [1, 0, 0], [0, 1, 0]], atol=1e-12)
    amounts = retrieved_amounts(weights, np.array([[2.0, 0], [0, 3], [1, 1]]))
    np.testing.assert_allclose(amounts, [[2, 0, 0], [2, 0, 0], [0, 3, 0]], atol=1e-12)
    assert retrieved_tokens(amounts).tolist() == [0, 0, 1]


def test_a_read_that_finds_nothing_counts_as_its_own_token():
    assert retrieved_tokens(np.zeros((2, 4, 4))).tolist() == [[0, 1, 2, 3]] * 2


def test_shares_of_an_update_add_up_to_one():
    trace, params = traced()
    for i in range(2):
        x = trace.layers[:, :, i - 1] if i else trace.grounded
        inside = (part[:, :, i] for part in (trace.layers, trace.gate, trace.ffn, trace.gated))
        parts, whole = parts_of_update(x, *inside, params[f"layers.{i}.read.out.weight"])
        assert parts.shape == (3, 9, 2 + 3)
        found = shares(parts, whole)
        np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-9)
        update = trace.layers[:, :, i] - x
        of_read = np.sum(trace.read[:, :, i] * update, axis=-1) / whole
        np.testing.assert_allclose(found[..., 2:].sum(axis=-1), of_read, atol=1e-9)


def test_the_share_of_one_part_alone_is_one():
    zero, one = np.zeros(2), np.ones(2)
    ffn, gated = np.array([3.0, -4]), np.zeros((1, 2))
    parts, whole = parts_of_update(one, one + ffn, one, ffn, gated, np.eye(2))
    np.testing.assert_allclose(shares(parts, whole), [0, 1, 0])
    parts, whole = parts_of_update(one, one, one, zero, gated, np.eye(2))  # nothing moves
    np.testing.assert_array_equal(shares(parts, whole), [0, 0, 0])


@pytest.mark.parametrize("decay_first", [False, True])
def test_eigenvalues_are_those_of_the_transition(decay_first):
    rng = np.random.default_rng(0)
    key = np.abs(rng.standard_normal((6, 4)))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    beta, decay = rng.uniform(size=(2, 6))
    found = eigenvalue_along_key(key, beta, decay, decay_first)
    for k, b, d, value in zip(key, beta, decay, found, strict=True):
        write = b * np.outer(k, k)
        transition = d * (np.eye(4) - write) if decay_first else d * np.eye(4) - write
        np.testing.assert_allclose(np.linalg.eigvalsh(transition), np.sort([value, d, d, d]), atol=1e-12)
    assert (found < 0).any() != decay_first


def test_a_key_of_length_0_leaves_the_decay():
    assert eigenvalue_along_key(np.zeros(3), 0.9, 0.5) == 0.5


def test_eigenvalues_of_a_text_are_counted_a_head():
    along = np.array([[[-0.5, 0.9], [0.25, 0.9]], [[-1.0, 0.9], [0.25, 1.0000001]]])  # (B, T, H)
    found = Eigenvalues(2)
    found.add(along[:1], np.ones((1, 2, 2)))
    found.add(along[1:], np.ones((1, 2, 2)))
    assert found.negative().tolist() == [0.5, 0]
    np.testing.assert_allclose(found.mean(), [-0.25, 0.925], atol=1e-6)
    assert found.smallest.tolist() == [-1, 0.9]
    assert found.along.sum(axis=1).tolist() == [4, 4] and found.across[:, -1].tolist() == [4, 4]
    zero = np.searchsorted(EIGENVALUE_BINS, 0)
    assert EIGENVALUE_BINS[zero] == 0  # so that no bar holds values of both signs
    assert found.along[0, :zero].sum() == 2


def test_retrievals_count_distances_and_answers():
    inputs, targets = np.array([5, 6, 5, 6]), np.array([6, 5, 6, 9])
    retrieved = np.array([[[0, 0, 1, 0]]])  # (N, H, T): head 0 of layer 0
    found = Retrievals((1, 1), 4)
    found.add(retrieved, inputs, targets)
    assert found.distances[0, 0].tolist() == [1, 2, 0, 1]
    assert found.answers() == [[2 / 4]]  # at 1: the 5 that comes next; at 2: the 6
    assert found.chance() == pytest.approx((0 + 1 / 2 + 1 / 3 + 0) / 4)


def test_quantiles_of_counts():
    assert quantile_of_counts(np.array([5, 0, 5]), 0.5) == 0
    assert quantile_of_counts(np.array([4, 0, 6]), 0.5) == 2
    assert quantile_of_counts(np.array([0, 0, 3]), 0.9) == 2
