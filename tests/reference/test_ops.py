"""Every operation: its values by an independent formula, and its gradient by centred differences."""

import numpy as np
import pytest

from gpn_ref.random_state import generator
from gpn_ref.reference import ops
from gpn_ref.reference.memory import address_backward, address_forward, delta_backward, delta_forward

H = 1e-4


def numeric_gradient(f, x):
    """The gradient of the scalar f at the array x, with an error of order H⁴."""
    gradient = np.zeros_like(x)
    for at in np.ndindex(x.shape):

        def moved(h, at=at):
            y = x.copy()
            y[at] += h
            return f(y)

        gradient[at] = (8 * (moved(H) - moved(-H)) - (moved(2 * H) - moved(-2 * H))) / (12 * H)
    return gradient


def check_gradients(forward, backward, arrays, rng):
    """`backward(d_y, cache)` against differences of Σ d_y · forward(arrays), for every array, to 1e-6."""
    y, cache = forward(*arrays)
    d_y = rng.normal(size=y.shape)
    gradients = backward(d_y, cache)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    assert len(gradients) == len(arrays)
    for i, gradient in enumerate(gradients):
        f = lambda x, i=i: np.sum(d_y * forward(*arrays[:i], x, *arrays[i + 1 :])[0])  # noqa: E731
        expected = numeric_gradient(f, arrays[i])
        assert np.abs(gradient).max() > 0
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def with_bias_forward(x, weight, bias):
    y, cache = ops.linear_forward(x, weight)
    return y + bias, cache


def with_bias_backward(d_y, cache):
    return *ops.linear_backward(d_y, cache), ops.bias_backward(d_y)


def delta(decay_first):
    forward = lambda *arrays: delta_forward(*arrays, decay_first)  # noqa: E731
    backward = lambda d_y, cache: delta_backward(d_y, cache, decay_first)  # noqa: E731
    shapes = [(2, 3, 4, 5), (2, 3, 4), (2, 3, 5), (2, 3), (2, 3)]
    return forward, backward, shapes


OPS = {
    "linear": (ops.linear_forward, ops.linear_backward, [(2, 3, 4), (5, 4)]),
    "bias": (with_bias_forward, with_bias_backward, [(2, 3, 4), (5, 4), (5,)]),
    "rms_norm": (ops.rms_norm_forward, ops.rms_norm_backward, [(2, 3, 6), (6,)]),
    "l2_norm": (ops.l2_norm_forward, ops.l2_norm_backward, [(2, 3, 5)]),
    "gate": (ops.gate_forward, ops.gate_backward, [(3, 4), (4,), (4, 4), (4,)]),
    "swiglu": (ops.swiglu_forward, ops.swiglu_backward, [(2, 5), (2, 5)]),
    "address": (lambda x, w, b: address_forward(x, w, b, 2), address_backward, [(3, 4), (10, 4), (10,)]),
    "delta": delta(False),
    "delta, decay first": delta(True),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("seed", range(3))
def test_gradient(name, seed):
    forward, backward, shapes = OPS[name]
    rng = generator(seed, name)
    check_gradients(forward, backward, [rng.normal(size=shape) for shape in shapes], rng)


def test_cross_entropy_gradient():
    rng = generator(0, "cross entropy")
    logits, targets = rng.normal(size=(2, 3, 7)), rng.integers(0, 7, (2, 3))
    check_gradients(lambda x: ops.cross_entropy_forward(x, targets), ops.cross_entropy_backward, [logits], rng)


def test_values_by_hand():
    y, _ = ops.linear_forward(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(y, [[11.0, 17.0, 2.0]])
    y, _ = ops.rms_norm_forward(np.array([3.0, 4.0]), np.array([1.0, 10.0]))
    np.testing.assert_allclose(y, np.array([3.0, 40.0]) / np.sqrt(12.5 + 1e-6), rtol=1e-15)
    y, _ = ops.l2_norm_forward(np.array([3.0, 4.0]))
    np.testing.assert_allclose(y, [0.6, 0.8], rtol=1e-13)
    y, _ = ops.swiglu_forward(np.array([0.0, np.log(3.0)]), np.array([5.0, 2.0]))
    np.testing.assert_allclose(y, [0.0, np.log(3.0) * 0.75 * 2.0], rtol=1e-15)
    nll, _ = ops.cross_entropy_forward(np.log([[0.5, 0.25, 0.25]]), np.array([1]))
    np.testing.assert_allclose(nll, [np.log(4.0)], rtol=1e-15)


def test_norms_of_zero_are_zero_with_finite_gradients():
    zero, ones = np.zeros((1, 4)), np.ones((1, 4))
    y, cache = ops.rms_norm_forward(zero, np.ones(4))
    np.testing.assert_array_equal(y, zero)
    np.testing.assert_allclose(ops.rms_norm_backward(ones, cache)[0], 1e3 * ones, rtol=1e-12)  # 1 / sqrt(1e-6)
    y, cache = ops.l2_norm_forward(zero)
    np.testing.assert_array_equal(y, zero)
    np.testing.assert_allclose(ops.l2_norm_backward(ones, cache), 1e6 * ones, rtol=1e-12)  # 1 / sqrt(1e-12)


def test_relu_has_no_gradient_at_its_kink():
    """With b_k = 0 every text starts there: the zero state gives a key of zeros, and must give no gradient."""
    address, cache = address_forward(np.zeros((1, 3)), np.ones((8, 3)), np.zeros(8), 2)
    np.testing.assert_array_equal(address, np.zeros((1, 2, 4)))
    for gradient in address_backward(np.ones((1, 2, 4)), cache):
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_inputs_stay_finite(dtype):
    x = np.array([[-1e4, -100.0, 0.0, 100.0, 1e4]], dtype)
    np.testing.assert_allclose(ops.sigmoid(x), [[0, 0, 0.5, 1, 1]], atol=1e-7)
    nll, cache = ops.cross_entropy_forward(x, np.array([0]))
    np.testing.assert_allclose(nll, [2e4], rtol=1e-6)
    np.testing.assert_allclose(ops.cross_entropy_backward(np.ones(1, dtype), cache), [[-1, 0, 0, 0, 1]], atol=1e-7)
    for array in (ops.sigmoid(x), nll):
        assert array.dtype == dtype
