"""AdamW and clipping of every backend, and the schedule, by golden numbers and by hand."""

import json

import numpy as np
import pytest
from reference.test_golden import group, load_case
from strategies import largest_difference

from gpn_ref.architectures import ARCHITECTURES
from gpn_ref.config import ModelConfig, TrainConfig
from gpn_ref.model import load_model
from gpn_ref.training.optimizer import learning_rate_at


@pytest.fixture
def new_optimizer(backend):
    return ARCHITECTURES[ModelConfig].engines[backend]().AdamW


def test_ten_golden_steps(backend):
    arrays, config, params = load_case("training")
    given = json.loads(str(arrays["optimizer"]))
    train_config = TrainConfig(
        beta1=given["beta1"],
        beta2=given["beta2"],
        epsilon=given["eps"],
        weight_decay=given["weight_decay"],
        clip_norm=given["clip_norm"],
    )
    learner = load_model(config, backend).learner(params, train_config)
    for tokens, rate, loss, norm in zip(
        arrays["tokens"], arrays["lr"], arrays["losses"], arrays["grad_norms"], strict=True
    ):
        found = learner.step(tokens[:, :-1], tokens[:, 1:], float(rate))
        np.testing.assert_allclose(found, (loss, norm), rtol=1e-9)
    assert arrays["grad_norms"].min() < given["clip_norm"] < arrays["grad_norms"].max()
    final, expected = learner.params(), group(arrays, "final/")
    assert final.keys() == expected.keys()
    for name in expected:
        assert largest_difference(final[name], expected[name]) < 1e-9, name


def test_one_step_by_hand(new_optimizer):
    """After one update m̂ = g and v̂ = g², so that every entry moves by η (g / (|g| + ε) + λ p)."""
    params = {"x.weight": np.array([[2.0, -1.0]]), "x.bias": np.array([5.0])}
    grads = {"x.weight": np.array([[3.0, -4.0]]), "x.bias": np.array([12.0])}
    optimizer = new_optimizer(params, TrainConfig(clip_norm=6.5))
    assert optimizer.update(params, grads, 0.1) == 13.0  # √(3² + 4² + 12²), clipped to 6.5: all gradients halved
    np.testing.assert_allclose(params["x.weight"], [[2 - 0.1 * (1 + 0.2), -1 - 0.1 * (-1 - 0.1)]], rtol=1e-8)
    np.testing.assert_allclose(params["x.bias"], [4.9], rtol=1e-8)  # a bias does not decay
    np.testing.assert_allclose(optimizer.first["x.bias"], [0.1 * 6.0], rtol=1e-12)
    np.testing.assert_allclose(optimizer.second["x.bias"], [0.05 * 36.0], rtol=1e-12)
    np.testing.assert_array_equal(grads["x.bias"], [12.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(new_optimizer, bad):
    params = {"x.weight": np.ones((1, 2))}
    optimizer = new_optimizer(params, TrainConfig())
    assert not np.isfinite(optimizer.update(params, {"x.weight": np.array([[1.0, bad]])}, 0.1))
    np.testing.assert_array_equal(params["x.weight"], [[1.0, 1.0]])
    assert optimizer.updates == 0 and not optimizer.first["x.weight"].any()


def test_a_gradient_of_zero_is_no_division_by_zero(new_optimizer):
    params = {"x.bias": np.ones(2)}
    assert new_optimizer(params, TrainConfig()).update(params, {"x.bias": np.zeros(2)}, 0.1) == 0.0
    np.testing.assert_array_equal(params["x.bias"], [1.0, 1.0])


def test_the_norm_of_float32_does_not_overflow(new_optimizer):
    params, grads = {"a.bias": np.ones(4, np.float32)}, {"a.bias": np.full(4, 1e30, np.float32)}
    assert new_optimizer(params, TrainConfig()).update(params, grads, 0.1) == pytest.approx(2e30, rel=1e-6)
    np.testing.assert_allclose(params["a.bias"], 0.9, rtol=1e-6)  # clipped to 1/2 each: a step of one learning rate


def test_schedule():
    config = TrainConfig(steps=1100, warmup_steps=100, learning_rate=2.0, final_learning_rate=0.1)
    rates = [learning_rate_at(step, config) for step in range(1101)]
    np.testing.assert_allclose(rates[:3], [0.02, 0.04, 0.06])
    assert rates[99] == rates[100] == 2.0
    assert rates[600] == pytest.approx(0.2 + 1.8 * 0.5)
    assert rates[1100] == pytest.approx(0.2)
    assert all(one > other for one, other in zip(rates[100:], rates[101:], strict=False))
    assert learning_rate_at(5, TrainConfig(steps=3, warmup_steps=0)) == pytest.approx(0.1 * 6e-4)  # past the end
