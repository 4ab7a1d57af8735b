"""Backends agree before they are timed, and a planted difference is found by name."""

import numpy as np
import pytest

from gpn_ref.bench import BACKENDS
from gpn_ref.benchmarks.agreement import TOLERANCE, Worst, agreement, jittered, take_steps, worst
from gpn_ref.config import PRESETS

REFERENCE = {
    "logits": np.array([1.0, -4.0]),
    "gradient of a": np.array([[100.0, 1.0]]),
    "gradient of b": np.array([1e-3]),
    "empty state": np.zeros(0),
}


def test_every_backend_agrees_with_the_reference():
    found = agreement(PRESETS["nano"], list(BACKENDS), peer=None)
    assert list(found) == list(BACKENDS)
    assert all(0 < error <= TOLERANCE for _, error in found.values()), found


@pytest.mark.parametrize(
    "name, planted, expected",
    [
        ("logits", [1.0, -3.0], Worst("logits", 0.25)),
        ("gradient of a", [[100.0, 51.0]], Worst("gradient of a", 0.5)),
        ("gradient of b", [2e-3], Worst("gradient of b", 0.01)),  # of a thousandth of the largest gradient
        ("logits", [1.0, np.nan], Worst("logits", np.inf)),
        ("logits", [1.0], Worst("the shape of logits", np.inf)),
    ],
)
def test_a_planted_difference_is_found(name, planted, expected):
    tensor, error = worst(REFERENCE, REFERENCE | {name: np.array(planted)})
    assert tensor == expected.tensor and error == pytest.approx(expected.error)


def test_nothing_differs_from_itself():
    assert worst(REFERENCE, REFERENCE) == Worst("none", 0.0)


def test_no_parameter_stays_where_its_gradients_would_be_zero():
    params = jittered(PRESETS["nano"])
    assert all(value.dtype == np.float32 and np.all(value != 0) for value in params.values())


def test_the_second_step_gets_a_tenth_of_the_gradients():
    params, given = {"a": np.zeros(2, np.float32)}, []
    norms, after = take_steps(
        lambda grads: given.append(grads["a"]) or 3.0, lambda: params, {"a": np.array([10.0, 20])}
    )
    assert [grad.tolist() for grad in given] == [[10, 20], [1, 2]] and given[0].dtype == np.float32
    assert norms.tolist() == [3, 3] and after is params
