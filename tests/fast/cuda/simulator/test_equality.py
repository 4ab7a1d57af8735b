"""The whole path is the reference: every output and every gradient, for every kind of model."""

from functools import partial

import numpy as np
import pytest
from fast.cpu.test_equality import Count, calm, disguised, disguises
from fast.cuda.simulator import turns
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import assert_equal, cast, configs, differences, is_measurable, point, results, results_of, seeds

from gpn_ref.config import ModelConfig
from gpn_ref.fast.cuda import engine
from gpn_ref.fast.cuda.card import SMALL, the_card
from gpn_ref.model import State, load_model

OTHER = SMALL._replace(threads=8, blocks=3, rows=3, columns=1, width=4, micro=3, logits=1 << 20, pieces=1)
BARE = ModelConfig(11, 5, 6, 7)
MEMORY = ModelConfig(11, 5, 6, 7, n_heads=2, d_key=5, d_value=7)
DEEP = ModelConfig(11, 6, 5, 9, n_heads=3, d_key=4, d_value=5, n_layers=2, decode_bias=True)
CASES = {  # model, B, T; between them every branch, and windows that end before, at and after a segment's border
    "GPN": (BARE, 2, 3),
    "GPN, 2 layers, bias": (ModelConfig(11, 5, 6, 7, n_layers=2, decode_bias=True), 2, 3),
    "GPN+M": (MEMORY, 2, 4),
    "GPN+M, decay first": (ModelConfig(11, 5, 6, 7, n_heads=2, d_key=5, d_value=7, decay_first=True), 2, 2),
    "GPN+M, 2 layers, bias": (DEEP, 2, 5),
    "GPN+M, T 1": (MEMORY, 2, 1),
    "GPN+M, B 1": (MEMORY, 1, 3),
    "GPN+M, B 1, T 1": (MEMORY, 1, 1),
    "GPN+M, 3 segments": (MEMORY, 1, 7),
}


@pytest.fixture(autouse=True)
def order():
    """One order of threads and blocks is enough where others look at that."""


def equal(config, at, dtype, scale=1.0):
    """The tested backend has the reference's results, of a point where that can be told."""
    at = cast(at, dtype)
    there, compute = cast(at, np.float64), partial(results, "numpy", config, scale=scale)
    exact = compute(there)
    assert is_measurable(compute, there, exact, np.dtype(dtype))
    assert_equal(results("cuda", config, at, scale), exact, dtype)


@pytest.mark.parametrize("tuning", [SMALL, OTHER], ids=["small blocks", "other blocks"])
@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_model(name, tuning, dtype, monkeypatch):
    monkeypatch.setattr(the_card(), "tuning", tuning)
    config, batch, length = CASES[name]
    equal(config, calm(point(config, 0, batch, length)), dtype, scale=0.7)


@st.composite
def models_and_points(draw, dtype):
    smallest, largest = (4, 7) if dtype == "float64" else (8, 10)
    config = draw(configs(smallest=smallest, largest=largest, layers=2, heads=2))
    at = point(config, draw(seeds), draw(st.integers(1, 3)), draw(st.integers(1, 5)))
    return config, cast(at if dtype == "float64" else calm(at), dtype)


def test_any_model(dtype, capsys, monkeypatch):
    count = Count()

    @settings(max_examples=20)
    @given(models_and_points(dtype), disguises(), st.sampled_from([SMALL, OTHER]), st.booleans())
    def check(model_and_point, disguise, tuning, backwards):
        monkeypatch.setattr(the_card(), "tuning", tuning)
        monkeypatch.setattr(turns, "BACKWARDS", backwards)
        config, at = model_and_point
        there, compute = cast(at, np.float64), partial(results, "numpy", config)
        exact = compute(there)
        if count.tells(compute, there, exact, np.dtype(dtype)):
            assert_equal(results("cuda", config, disguised(at, disguise)), exact, dtype)

    check()
    count.report(capsys, dtype)


AT, BOTH = calm(point(MEMORY, 0, 1, 2)), ("numpy", "cuda")


def scaled(factor, end="", dimensions=(1, 2)):
    """AT with the parameters of this end and these dimensions times a factor."""
    chosen = [name for name, value in AT.params.items() if name.endswith(end) and value.ndim in dimensions]
    return AT._replace(params=AT.params | {name: AT.params[name] * factor for name in chosen})


def filled(value, *ends):
    params = {name: np.full_like(old, value) if name.endswith(ends) else old for name, old in AT.params.items()}
    return AT._replace(params=params)


EXTREMES = {f"all parameters × {factor:g}": scaled(factor) for factor in (0, 1e-10)}
for factor in (1e-10, 1e15):
    EXTREMES[f"state × {factor:g}"] = AT._replace(state=State(*(value * factor for value in AT.state)))
    EXTREMES[f"embedding × {factor:g}"] = scaled(factor, "embedding.weight")
    EXTREMES[f"logits × {factor:g}"] = scaled(factor, "decode.proj.weight")
    EXTREMES[f"norms × {factor:g}"] = scaled(factor, "norm.weight")
    EXTREMES[f"matrices × {factor:g}"] = scaled(factor, "weight", (2,))
for value in (-1e4, -40, 40, 1e4):
    EXTREMES[f"bias of the gates {value:g}"] = filled(value, "gate.bias")
    EXTREMES[f"bias of the decay {value:g}"] = filled(value, "decay.bias")
    EXTREMES[f"log_rate {value:g}"] = filled(min(value, 100), "log_rate")
EXTREMES["dead keys and queries"] = filled(-1e4, "key.bias", "query.bias")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes(name, dtype):
    """In float64 the reference's results; in float32 as near to them as the reference comes in float32."""
    at = cast(EXTREMES[name], dtype)
    exact, plain, found = results("numpy", MEMORY, cast(at, np.float64)), *(results(b, MEMORY, at) for b in BOTH)
    assert np.isfinite(found["loss"]) == np.isfinite(plain["loss"])
    if dtype == "float64":
        assert_equal(found, exact, dtype)
        return
    expected, ratios = differences(plain, exact), differences(found, exact)
    if max(ratio for tensor, ratio in expected.items() if not tensor.startswith("gradient")) < 0.1:
        for tensor in [tensor for tensor, value in plain.items() if np.isfinite(value).all()]:
            assert ratios[tensor] <= max(2e-4, 10 * expected[tensor]), tensor


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("factor", [1e3, 1e8, 1e15])
def test_what_overflows_inside_shows_in_the_loss(factor, dtype):
    """A huge log_rate, times a softplus of nothing, is not a number; and neither is then the loss."""
    at = cast(point(MEMORY, 1), dtype)
    at = at._replace(params={name: value * np.dtype(dtype).type(factor) for name, value in at.params.items()})
    assert not np.isfinite(results("cuda", MEMORY, at)["loss"])


def test_with_our_own_products(dtype, monkeypatch):
    monkeypatch.setenv("GPN_REF_PRODUCTS", "own")
    equal(DEEP, calm(point(DEEP, 0, 2, 2)), dtype)


def test_a_forward_pass_in_parts(monkeypatch):
    monkeypatch.setattr(engine, "FORWARD_STEPS", 2)
    equal(MEMORY, point(MEMORY, 0, 2, 5), "float64")


def test_the_decoder_in_as_many_parts_as_there_are_tokens(monkeypatch):
    monkeypatch.setattr(the_card(), "tuning", SMALL._replace(logits=1))
    equal(DEEP, point(DEEP, 0, 2, 3), "float64")


def test_windows_that_follow_each_other_are_one(dtype):
    """The gradient of the loss and of the final state goes back through both."""
    at = cast(calm(point(MEMORY, 0, 2, 5)), dtype)
    bound = load_model(MEMORY, "cuda").bind(at.params)
    (first, second), whole = (np.s_[:, :2], np.s_[:, 2:]), bound.loss_and_grads(*at[1:])
    start = bound.loss_and_grads(at.inputs[first], at.targets[first], at.state, scale=2 / 5)
    end = bound.loss_and_grads(at.inputs[second], at.targets[second], start.state, at.d_state, scale=3 / 5)
    start = bound.loss_and_grads(at.inputs[first], at.targets[first], at.state, end.d_state, scale=2 / 5)

    def named(nll, grads, state, d_state):
        found = {"nll": nll} | {f"gradient of {name}": grad for name, grad in grads.items()}
        found |= {f"gradient of state.{name}": value for name, value in d_state._asdict().items()}
        return found | {f"state.{name}": value for name, value in state._asdict().items()}

    grads = {name: start.grads[name] + end.grads[name] for name in start.grads}
    found = named(np.concatenate([start.nll, end.nll], axis=1), grads, end.state, start.d_state)
    exact = named(whole.nll, whole.grads, whole.state, whole.d_state)
    assert max(differences(found, exact).values()) < (1e-12 if dtype == "float64" else 1e-5)


def bits(found):
    return {name: np.asarray(value).tobytes() for name, value in found.items()}


def test_the_order_of_threads_and_blocks_changes_no_bit(monkeypatch):
    """No barrier is missing, and no two blocks write to one place."""
    at, found = cast(point(DEEP, 0, 2, 5), np.float32), []
    for backwards in (False, True):
        monkeypatch.setattr(turns, "BACKWARDS", backwards)
        found.append(bits(results("cuda", DEEP, at)))
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("config", [BARE, DEEP], ids=["GPN", "GPN+M"])
def test_one_window_after_another_leaves_nothing_behind(config):
    """The arrays that a bound model keeps from call to call: other sizes, and a loss that overflowed, between."""
    at, larger = point(config, 2, 2, 3), point(config, 3, 3, 5)
    bound = load_model(config, "cuda").bind(at.params)
    first = bits(results_of(bound, at))
    flooded = at.state._replace(predicted=np.full_like(at.state.predicted, 1e200))
    for state in (at.state, flooded):
        bound.loss_and_grads(*at[1:3], state, at.d_state)
        bound.loss_and_grads(*larger[1:])
        bound.forward(larger.inputs, larger.state)
        assert bits(results_of(bound, at)) == first


def test_the_inputs_are_not_changed():
    at = point(DEEP, 0, 2, 3)
    arrays = [*at.params.values(), at.inputs, at.targets, *at.state, *at.d_state]
    before = [array.copy() for array in arrays]
    results("cuda", DEEP, at)
    for array, kept in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_the_results_are_the_callers():
    """Whoever changes them changes nothing else."""
    at = point(DEEP, 0, 2, 3)
    bound = load_model(DEEP, "cuda").bind(at.params)
    first = results_of(bound, at)
    kept = bits(first)
    for value in first.values():
        value[...] = 0
    assert bits(results_of(bound, at)) == kept


def test_a_state_of_zeros_is_the_state_of_none():
    at = point(DEEP, 0, 2, 3)
    bound = load_model(DEEP, "cuda").bind(at.params)
    zeros = State(*(np.zeros_like(value) for value in at.state))
    assert bits(results_of(bound, at._replace(state=None))) == bits(results_of(bound, at._replace(state=zeros)))
