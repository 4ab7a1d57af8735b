"""Huge, tiny and saturated values: the same results as the reference, or the same refusal."""

import numpy as np
import pytest
from strategies import assert_equal, cast, differences, is_measurable, point, results

from gpn_ref import init_params, load_model
from gpn_ref.config import ModelConfig
from gpn_ref.model import State

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # to overflow is what these are for

CONFIG = ModelConfig(7, 8, 6, 9, n_heads=2, d_key=6, d_value=5, n_layers=2, decode_bias=True)
AT = point(CONFIG, 0)


def scaled(factor, end="", dimensions=(1, 2)):
    """AT with the parameters of this end and these dimensions, all of them where none is given, times a factor."""
    chosen = [name for name, value in AT.params.items() if name.endswith(end) and value.ndim in dimensions]
    return AT._replace(params=AT.params | {name: AT.params[name] * factor for name in chosen})


def filled(value, *ends):
    params = {name: np.full_like(old, value) if name.endswith(ends) else old for name, old in AT.params.items()}
    return AT._replace(params=params)


def state(factor):
    return AT._replace(state=State(*(value * factor for value in AT.state)))


CASES = {f"all parameters × {factor:g}": scaled(factor) for factor in (0, 1e-20, 1e-10, 1e-5)}
for factor in (1e-20, 1e-10, 1e-5, 1e5, 1e15):
    CASES[f"state × {factor:g}"] = state(factor)
    CASES[f"embedding × {factor:g}"] = scaled(factor, "embedding.weight")
    CASES[f"logits × {factor:g}"] = scaled(factor, "decode.proj.weight")
for factor in (1e-20, 1e-10, 1e-5, 1e5, 1e8, 1e10, 1e15):
    CASES[f"norms × {factor:g}"] = scaled(factor, "norm.weight")
    CASES[f"matrices × {factor:g}"] = scaled(factor, "weight", (2,))
for value in (-1e4, -100, -40, 40, 100, 1e4):
    CASES[f"bias of the gates {value:g}"] = filled(value, "gate.bias")
    CASES[f"bias of the decay {value:g}"] = filled(value, "decay.bias")
    CASES[f"bias of the keys {value:g}"] = filled(value, "key.bias")
    CASES[f"bias of the queries {value:g}"] = filled(value, "query.bias")
for value in (-1e4, -40, 40, 100):
    CASES[f"log_rate {value:g}"] = filled(value, "log_rate")
_loud = scaled(1e26, "decode.proj.weight").params | {"ground.proj.weight": 1e17 * AT.params["ground.proj.weight"]}
CASES["a huge state under huge logits"] = AT._replace(params=_loud)
CASES["zero state"] = state(0)
CASES["zero state and dead keys"] = filled(0, "key.bias")._replace(state=state(0).state)
CASES["dead keys and queries"] = filled(-1e4, "key.bias", "query.bias")


def reference(at):
    return results("numpy", CONFIG, at)


@pytest.mark.parametrize("name", CASES)
def test_float64(name):
    at = CASES[name]
    exact = reference(at)
    assert is_measurable(reference, at, exact, np.float64)
    assert_equal(results("numba", CONFIG, at), exact, np.float64)


@pytest.mark.parametrize("name", CASES)
def test_float32(name):
    """As near to the float64 reference as the reference itself comes in float32, unless that is lost in an overflow."""
    at = cast(CASES[name], np.float32)
    exact, plain, found = reference(cast(at, np.float64)), reference(at), results("numba", CONFIG, at)
    assert np.isfinite(found["loss"]) == np.isfinite(plain["loss"])
    expected, ratios = differences(plain, exact), differences(found, exact)
    if max(ratio for tensor, ratio in expected.items() if not tensor.startswith("gradient")) < 0.1:
        for tensor in [tensor for tensor, value in plain.items() if np.isfinite(value).all()]:
            assert ratios[tensor] <= max(2e-4, 10 * expected[tensor]), tensor


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("factor", [1e3, 1e8, 1e15])
def test_what_overflows_inside_shows_in_the_loss(factor, dtype, backend):
    """A huge log_rate, times a softplus of nothing, is not a number; and neither is then the loss."""
    at = cast(point(CONFIG, 1), dtype)
    at = at._replace(params={name: value * dtype(factor) for name, value in at.params.items()})
    assert not np.isfinite(results(backend, CONFIG, at)["loss"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["embedding.weight", "write.log_rate", "layers.1.read.out.weight", "decode.bias"])
def test_a_parameter_that_is_no_number_is_refused(name, bad, backend):
    params = init_params(CONFIG)
    params[name].flat[-1] = bad
    with pytest.raises(ValueError, match=f"parameter '{name}' has {bad} at .*; every entry must be finite"):
        load_model(CONFIG, backend).bind(params)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("field", State._fields)
def test_a_state_that_is_no_number_is_refused(field, bad, backend):
    poisoned = getattr(AT.state, field).copy()
    poisoned.flat[3] = bad
    bound = load_model(CONFIG, backend).bind(AT.params)
    with pytest.raises(ValueError, match=f"state.{field} has entries that are not finite in float64"):
        bound.loss_and_grads(AT.inputs, AT.targets, AT.state._replace(**{field: poisoned}))
