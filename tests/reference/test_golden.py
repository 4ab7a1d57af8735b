"""Every backend against numbers from independent programs: data/golden/README.md says from where."""

import json

import numpy as np
import pytest
from strategies import largest_difference

from gpn_ref.config import ModelConfig, config_from_dict
from gpn_ref.files import DATA
from gpn_ref.model import State, load_model

CASES = sorted(path.stem for path in (DATA / "golden").glob("gpn*.npz"))
TOLERANCE = 1e-9


def load_case(name):
    """The arrays of a golden file, its configuration and its parameters."""
    with np.load(DATA / "golden" / f"{name}.npz") as file:
        arrays = dict(file)
    config = config_from_dict(ModelConfig, json.loads(str(arrays["config"])))
    return arrays, config, group(arrays, "param/")


def group(arrays, prefix):
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def state_of(arrays, kind):
    """`kind`.predicted and so on as a State; None, the zero state, where the file has none."""
    parts = group(arrays, f"{kind}.")
    return State(**parts) if parts else None


def results(bound, arrays):
    """All that the file can hold of what the model computes, by the file's names."""
    state, d_state = state_of(arrays, "initial"), state_of(arrays, "d_final")
    out = bound.loss_and_grads(arrays["inputs"], arrays["targets"], state, d_state)
    forward = bound.forward(arrays["inputs"], state)
    found = {"loss": out.loss, "nll": out.nll, "logits": forward.logits, "predicted": forward.hidden}
    found |= {f"grad/{name}": grad for name, grad in out.grads.items()}
    found |= {f"final.{name}": value for name, value in out.state._asdict().items()}
    found |= {f"d_initial.{name}": value for name, value in out.d_state._asdict().items()}
    return found


def test_all_cases_are_here():
    without_memory = ["gpn", "gpn_2layer", "gpn_bias"]
    with_memory = ["gpn_m", "gpn_m_2layer", "gpn_m_3layer_bias", "gpn_m_chained", "gpn_m_decay_first"]
    assert without_memory + with_memory == CASES


@pytest.mark.parametrize("case", CASES)
def test_golden(case, backend):
    arrays, config, params = load_case(case)
    found = results(load_model(config, backend).bind(params), arrays)
    given = ("config", "inputs", "targets", "param/", "initial.", "d_final.")
    expected = {name: value for name, value in arrays.items() if not name.startswith(given)}
    assert {f"grad/{name}" for name in params} < expected.keys() <= found.keys()
    for name, value in expected.items():
        assert np.asarray(found[name]).dtype == np.float64, name
        assert largest_difference(found[name], value) < TOLERANCE, name


@pytest.mark.parametrize("case", CASES)
def test_float32_stays_float32_and_near(case, backend):
    """Near: within 2e-4, or where a case is steeper, ten times what roundings of the parameters to float32 can do."""
    arrays, config, params = load_case(case)
    models = {name: load_model(config, name) for name in ("numpy", backend)}
    exact = results(models["numpy"].bind(params), arrays)
    names = (arrays.keys() & exact.keys()) - {"loss"}
    largest_gradient = max(np.abs(value).max(initial=0) for name, value in exact.items() if name.startswith("grad/"))

    def ratio(found, name):
        floor = largest_gradient / 1000 if name.startswith(("grad/", "d_initial")) else 0
        scale = max(np.abs(exact[name]).max(initial=0), floor)
        return np.abs(found[name] - exact[name]).max(initial=0) / scale if scale else 0

    rng, rounding = np.random.default_rng(0), np.finfo(np.float32).eps / 2
    steepness = 0.0
    for _ in range(3):
        moved = {name: value * (1 + rounding * rng.choice([-1, 1], value.shape)) for name, value in params.items()}
        found = results(models["numpy"].bind(moved), arrays)
        steepness = max(steepness, *(ratio(found, name) for name in names))
    assert steepness < 2e-4

    found = results(models[backend].bind({name: value.astype(np.float32) for name, value in params.items()}), arrays)
    for name in exact.keys() - {"loss"}:
        assert found[name].dtype == np.float32, name
    for name in names:
        assert ratio(found, name) <= max(2e-4, 10 * steepness), name
