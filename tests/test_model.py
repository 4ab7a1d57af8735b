"""The Model interface: a snapshot, and clear errors for what does not fit."""

import numpy as np
import pytest

from gpn_ref import PRESETS, State, init_params, load_model

CONFIG = PRESETS["nano"]
TOKENS = np.array([[1, 2, 3], [4, 5, 6]])


@pytest.fixture(scope="module")
def bound(backend):
    return load_model(CONFIG, backend).bind(init_params(CONFIG))


def test_a_new_model_knows_nothing(bound):
    """The embedding is N(0, 0.02²), so that a new model's logits are nearly equal: the loss is ln V."""
    out = bound.loss_and_grads(TOKENS, TOKENS)
    assert abs(out.loss - np.log(257)) < 0.05
    assert out.loss == pytest.approx(out.nll.mean(), rel=1e-6)


def test_bind_is_a_snapshot(backend):
    params = init_params(CONFIG)
    bound = load_model(CONFIG, backend).bind(params)
    before = bound.forward(TOKENS).logits
    for value in params.values():
        value += 1
    np.testing.assert_array_equal(bound.forward(TOKENS).logits, before)


def test_none_is_the_zero_state_and_zero_gradient(bound):
    zero = load_model(CONFIG).initial_state(2)
    assert zero.memory.shape == (2, 2, 8, 8) and not any(value.any() for value in zero)
    one, other = bound.loss_and_grads(TOKENS, TOKENS), bound.loss_and_grads(TOKENS, TOKENS, zero, zero)
    assert one.loss == other.loss
    for name in one.grads:
        np.testing.assert_array_equal(one.grads[name], other.grads[name])


def test_shorthands_are_bind(bound, backend):
    model, params = load_model(CONFIG, backend), init_params(CONFIG)
    np.testing.assert_array_equal(model.forward(params, TOKENS).logits, bound.forward(TOKENS).logits)
    short = model.loss_and_grads(params, TOKENS, TOKENS, scale=2.0)
    long = bound.loss_and_grads(TOKENS, TOKENS)
    np.testing.assert_allclose(short.grads["decode.proj.weight"], 2 * long.grads["decode.proj.weight"], rtol=1e-5)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_any_integers_lists_and_views_are_tokens(bound, kind):
    expected = bound.forward(TOKENS).logits
    wide = np.zeros((2, 6), kind)
    wide[:, ::2] = TOKENS
    for tokens in (TOKENS.astype(kind), wide[:, ::2], TOKENS.tolist(), np.asfortranarray(TOKENS.astype(kind))):
        np.testing.assert_array_equal(bound.forward(tokens).logits, expected)


def spoiled(value):
    zero = load_model(CONFIG).initial_state(1, np.float64)
    return zero._replace(grounded=zero.grounded + value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.forward([[1.0, 2.0]]), "inputs has type float64; it must hold integers"),
        (lambda b: b.forward([1, 2]), r"inputs has shape \(2,\); it must be \(B, T\)"),
        (lambda b: b.forward(np.zeros((2, 0), int)), r"inputs has shape \(2, 0\); it must be \(B, T\), none of them 0"),
        (lambda b: b.forward([[1, 257]]), r"inputs has token 257 at \(0, 1\); tokens go from 0 to 256"),
        (lambda b: b.forward([[1, 2], [-1, 2]]), r"inputs has token -1 at \(1, 0\)"),
        (
            lambda b: b.loss_and_grads(TOKENS, TOKENS[:, :2]),
            r"targets has shape \(2, 2\), but inputs has shape \(2, 3\)",
        ),
        (lambda b: b.loss_and_grads(TOKENS, TOKENS + 252), r"targets has token 257 at \(1, 1\)"),
        (lambda b: b.step([[1]]), r"tokens has shape \(1, 1\); it must be \(B\)"),
        (lambda b: b.step([1], (0, 0, 0)), "state is a tuple; it must be a State or None"),
        (
            lambda b: b.step([1], load_model(CONFIG).initial_state(2)),
            r"state.predicted has shape \(2, 16\); it must be \(1, 16\)",
        ),
        (
            lambda b: b.loss_and_grads([[1]], [[1]], None, State(np.zeros((1, 16)), np.zeros((1, 16)), np.zeros(0))),
            r"d_state.memory has shape \(0,\); it must be \(1, 2, 8, 8\)",
        ),
        (lambda b: b.forward([[1, 2], [3]]), "inputs has rows of different lengths"),
        (lambda b: b.step([1], spoiled(np.nan)), "state.grounded has entries that are not finite in float32"),
        (lambda b: b.step([1], spoiled(1e300)), "state.grounded has entries that are not finite in float32"),
        (lambda b: b.step([1], spoiled(1j)), "state.grounded is complex128; it must be a float32 or float64 array"),
        (lambda b: b.loss_and_grads([[1]], [[1]], scale=np.nan), "scale is nan; it must be a finite number"),
        (lambda b: b.loss_and_grads([[1]], [[1]], scale=None), "scale is None; it must be a finite number"),
        (lambda b: load_model(CONFIG).bind(None), "params is a NoneType; it must be a dict"),
        (lambda b: load_model(CONFIG).initial_state(0), "batch_size is 0; it must be a whole number, 1 or more"),
        (lambda b: load_model(CONFIG).initial_state(1, int), "dtype is <class 'int'>; it must be float32 or float64"),
        (lambda b: init_params("nano"), "config is a str; it must be one of ModelConfig, TransformerConfig, GDNConfig"),
        (lambda b: init_params(CONFIG, seed=-1), "seed is -1; it must be a whole number, 0 or more"),
        (lambda b: init_params(CONFIG, dtype=np.float16), "it must be float32 or float64"),
        (lambda b: load_model(CONFIG, backend="tpu"), "unknown backend 'tpu'; it must be one of numpy, numba"),
        (lambda b: load_model({"d_state": 3}), "config is a dict; it must be one of ModelConfig, Transf"),
        (lambda b: load_model(CONFIG).bind({}), "parameter 'embedding.weight' is missing"),
    ],
)
def test_bad_input_is_named(bound, call, message):
    with pytest.raises(ValueError, match=message):
        call(bound)
