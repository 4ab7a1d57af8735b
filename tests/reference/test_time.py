"""What the loop over time promises: chaining, truncation, causality, independence, streaming, and no side effects."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import configs, largest_difference, point, seeds

from gpn_ref.model import State, load_model
from gpn_ref.reference import gpn


def same(one, other, tolerance=1e-10):
    """Two states, or two dicts of gradients, equal by name."""
    one, other = (x._asdict() if isinstance(x, State) else x for x in (one, other))
    assert one.keys() == other.keys()
    scale = max((np.abs(value).max(initial=0) for value in other.values()), default=0) / 1000
    for name in other:
        assert one[name].shape == other[name].shape, name
        bound = tolerance * max(np.abs(other[name]).max(initial=0), scale)
        assert np.abs(one[name] - other[name]).max(initial=0) <= bound, name


def added(*grads):
    return {name: sum(g[name] for g in grads) for name in grads[0]}


@settings(max_examples=25)
@given(configs(), seeds)
def test_two_chained_windows_are_one(backend, config, seed):
    at, T1, T = point(config, seed, length=7), 3, 7
    bound = load_model(config, backend).bind(at.params)
    whole = bound.loss_and_grads(at.inputs, at.targets, at.state, at.d_state)
    first = bound.forward(at.inputs[:, :T1], at.state)
    second = bound.loss_and_grads(at.inputs[:, T1:], at.targets[:, T1:], first.state, at.d_state, scale=(T - T1) / T)
    chained = bound.loss_and_grads(at.inputs[:, :T1], at.targets[:, :T1], at.state, second.d_state, scale=T1 / T)
    assert abs(chained.loss * T1 / T + second.loss * (T - T1) / T - whole.loss) < 1e-12
    np.testing.assert_allclose(np.concatenate([chained.nll, second.nll], axis=1), whole.nll, rtol=0, atol=1e-12)
    same(added(chained.grads, second.grads), whole.grads)
    same(chained.d_state, whole.d_state)
    same(second.state, whole.state)

    truncated = bound.loss_and_grads(at.inputs[:, :T1], at.targets[:, :T1], at.state, None, scale=T1 / T)
    with pytest.raises(AssertionError):
        same(added(truncated.grads, second.grads), whole.grads, 1e-6)


@settings(max_examples=25)
@given(configs(), seeds)
def test_the_future_changes_nothing_before_it(backend, config, seed):
    at = point(config, seed, length=6)
    bound = load_model(config, backend).bind(at.params)
    changed = at.inputs.copy()
    changed[:, 3] = (changed[:, 3] + 1) % config.vocab_size
    before, after = bound.forward(at.inputs, at.state), bound.forward(changed, at.state)
    np.testing.assert_array_equal(before.logits[:, :3], after.logits[:, :3])
    assert np.abs(before.logits[:, 3:] - after.logits[:, 3:]).max(axis=(0, 2)).min() > 0


@settings(max_examples=25)
@given(configs(), seeds)
def test_sequences_of_a_batch_are_independent(backend, config, seed):
    at = point(config, seed, batch=3)
    bound = load_model(config, backend).bind(at.params)
    together = bound.forward(at.inputs, at.state)
    for row in range(3):
        here = slice(row, row + 1)
        alone = bound.forward(at.inputs[here], State(*(value[here] for value in at.state)))
        np.testing.assert_allclose(alone.logits, together.logits[here], rtol=0, atol=1e-10)


@settings(max_examples=25)
@given(configs(), seeds)
def test_streaming_is_the_window(backend, config, seed):
    at = point(config, seed)
    bound = load_model(config, backend).bind(at.params)
    for start in (None, at.state):
        window = bound.forward(at.inputs, start)
        state = start
        for t in range(at.inputs.shape[1]):
            logits, state = bound.step(at.inputs[:, t], state)
            np.testing.assert_allclose(logits, window.logits[:, t], rtol=0, atol=1e-10)
        same(state, window.state)


@settings(max_examples=15)
@given(configs(), seeds)
def test_parts_of_a_batch_add_up(backend, config, seed):
    at = point(config, seed, batch=3)
    bound = load_model(config, backend).bind(at.params)
    whole = bound.loss_and_grads(at.inputs, at.targets, at.state, at.d_state)
    parts = []
    for here, share in ((slice(0, 1), 1 / 3), (slice(1, 3), 2 / 3)):
        state, d_state = (State(*(value[here] for value in s)) for s in (at.state, at.d_state))
        parts.append(bound.loss_and_grads(at.inputs[here], at.targets[here], state, d_state, scale=share))
    same(added(*(part.grads for part in parts)), whole.grads)
    for field in State._fields:
        d_field = np.concatenate([getattr(part.d_state, field) for part in parts])
        assert largest_difference(d_field, getattr(whole.d_state, field)) < 1e-10


@settings(max_examples=15)
@given(configs(), seeds)
def test_backward_twice_is_once_and_nothing_is_changed(config, seed):
    at = point(config, seed)
    logits, _, _, cache = gpn.window_forward(at.params, config, at.inputs, at.state)
    d_logits = np.cos(logits)
    kept = copy.deepcopy((at, d_logits, cache))
    first = gpn.window_backward(d_logits, at.d_state, cache, at.params, config)
    second = gpn.window_backward(d_logits, at.d_state, cache, at.params, config)
    for one, other in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(leaves((at, d_logits, cache)), leaves(kept), strict=True):
        np.testing.assert_array_equal(one, other)
    gpn.loss_and_grads(at.params, config, *at[1:])
    for one, other in zip(leaves(at), leaves(kept[0]), strict=True):
        np.testing.assert_array_equal(one, other)


def leaves(tree):
    """All arrays and numbers inside nested tuples, lists and dicts, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (tuple, list)):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [] if tree is None else [tree]
