"""The compiled path is the reference: every output and every gradient, for every kind of model."""

from functools import partial

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import assert_equal, cast, configs, forward_results, is_measurable, point, results, seeds

from gpn_ref.config import ModelConfig
from gpn_ref.fast.cpu import decode, engine
from gpn_ref.gradcheck import Point
from gpn_ref.model import State, load_model

SLOW = bool(numba.config.DISABLE_JIT)  # every loop is Python's: fewer and smaller draws
EXAMPLES, LONGEST, LARGEST = (5, 6, 3) if SLOW else (80, 20, 17)


@pytest.fixture(autouse=True, params=["as large", "as small"])
def threads(request, monkeypatch):
    """Every model here is small: once as it comes, and once as one that is worth all threads and prefetches."""
    if request.param == "as large":
        monkeypatch.setattr(engine, "SMALL", 1)
        monkeypatch.setattr(engine, "FAR", 0)
        monkeypatch.setattr(decode, "SMALL", 0)


@st.composite
def disguises(draw):
    """A function that gives an array as another one of the same values: strided, reversed, column-major, read-only."""
    how, read_only = draw(st.sampled_from(["plain", "strided", "reversed", "column-major"])), draw(st.booleans())

    def disguise(value):
        if how == "strided":
            wide = np.zeros((*value.shape[:-1], 2 * value.shape[-1]), value.dtype)
            wide[..., ::2] = value
            value = wide[..., ::2]
        elif how == "reversed":
            value = value[::-1].copy()[::-1]
        elif how == "column-major":
            value = np.asfortranarray(value)
        value = value.view()
        value.flags.writeable = not read_only
        return value

    return disguise


def calm(at):
    """A point where float32 tells a mistake from a rounding: small matrices, and keys of more than one entry."""
    params = {name: 0.4 * value if value.ndim == 2 else value for name, value in at.params.items()}
    params |= {name: abs(value) for name, value in params.items() if name.endswith(("key.bias", "query.bias"))}
    return at._replace(params=params)


@st.composite
def cases(draw, dtype):
    """A model and a point at which it is tried, its scale, and the disguise in which the tested backend meets it."""
    double = dtype == np.float64
    config = draw(configs(smallest=4 if double else 8, largest=9 if double else 20, heads=4))
    batch, length = draw(st.integers(1, LARGEST)), draw(st.integers(1, LONGEST))
    at = point(config, draw(seeds), batch, length)
    at = at if double else calm(at)
    if not draw(st.booleans()):
        at = at._replace(state=State(*(np.zeros_like(value) for value in at.state)))
    if not draw(st.booleans()):
        at = at._replace(d_state=State(*(np.zeros_like(value) for value in at.d_state)))
    tokens = draw(st.sampled_from([np.int32, np.int64, np.uint8]))
    at = at._replace(inputs=at.inputs.astype(tokens), targets=at.targets.astype(tokens))
    return config, at, draw(st.sampled_from([1.0, 0.25, -3.0])), draw(disguises())


def disguised(at, disguise):
    state, d_state = (State(*map(disguise, value)) for value in (at.state, at.d_state))
    params = {name: disguise(value) for name, value in at.params.items()}
    return Point(params, disguise(at.inputs), disguise(at.targets), state, d_state)


class Count:
    """How many points were drawn, and how many of them tell nothing: said at the end, and not to be many."""

    def __init__(self):
        self.drawn = self.discarded = 0

    def tells(self, compute, at, exact, dtype):
        measurable = is_measurable(compute, at, exact, dtype)
        self.drawn, self.discarded = self.drawn + 1, self.discarded + (not measurable)
        return measurable

    def report(self, capsys, name):
        with capsys.disabled():
            print(f" [{name}: {self.discarded} of {self.drawn} draws discarded] ", end="")
        assert self.discarded <= self.drawn / 4


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_output_and_every_gradient(dtype, capsys):
    count = Count()

    @settings(max_examples=EXAMPLES)
    @given(cases(dtype))
    def check(case):
        config, at, scale, disguise = case
        at = cast(at, dtype)
        there, compute = cast(at, np.float64), partial(results, "numpy", config, scale=scale)
        exact = compute(there)
        if count.tells(compute, there, exact, dtype):
            assert_equal(results("numba", config, disguised(at, disguise), scale), exact, dtype)

    check()
    count.report(capsys, np.dtype(dtype))


def test_the_smallest_sizes_forward(capsys):
    """Widths of 1 to 3: their gradients are steps, but what they are steps of is the same."""
    count = Count()

    @settings(max_examples=EXAMPLES)
    @given(configs(smallest=1, largest=3, heads=4), st.integers(1, 3), st.integers(1, 5), seeds)
    def check(config, batch, length, seed):
        at = point(config, seed, batch, length)
        compute = partial(forward_results, "numpy", config)
        exact = compute(at)
        if count.tells(compute, at, exact, np.float64):
            assert_equal(forward_results("numba", config, at), exact, np.float64)

    check()
    count.report(capsys, "sizes of 1 to 3")


@pytest.mark.parametrize("root", [2, 3, 5])
@pytest.mark.parametrize("beside", [-1, 0, 1])
@pytest.mark.parametrize("layers", [1, 2])
def test_memories_made_again_at_the_border_of_a_segment(root, beside, layers):
    """The way back keeps the memory every √T steps, and makes it again between."""
    config = ModelConfig(7, 6, 5, 7, n_heads=2, d_key=4, d_value=5, n_layers=layers)
    at = point(config, root, batch=2, length=root**2 + beside)
    exact = results("numpy", config, at)
    assert is_measurable(partial(results, "numpy", config), at, exact, np.float64)
    assert_equal(results("numba", config, at), exact, np.float64)


def test_windows_longer_than_those_that_a_forward_pass_takes_at_once():
    config = ModelConfig(7, 6, 5, 7, n_heads=2, d_key=4, d_value=5)
    at = calm(point(config, 0, batch=2, length=2 * engine.FORWARD_STEPS + 3))
    exact = forward_results("numpy", config, at)
    assert is_measurable(partial(forward_results, "numpy", config), at, exact, np.float64)
    assert_equal(forward_results("numba", config, at), exact, np.float64)


def test_more_tokens_than_the_decoder_takes_at_once(monkeypatch):
    monkeypatch.setattr(decode, "TOKENS", 4)
    config = ModelConfig(7, 6, 5, 7, decode_bias=True)
    at = point(config, 1, batch=3, length=5)
    assert_equal(results("numba", config, at), results("numpy", config, at), np.float64)


def test_one_window_after_another_leaves_nothing_behind():
    """The arrays that a bound model keeps from call to call: other sizes, and a loss that overflowed, between."""
    config = ModelConfig(7, 6, 5, 7, n_heads=2, d_key=4, d_value=5, n_layers=2)
    at, larger = point(config, 2), point(config, 3, batch=4, length=9)
    bound = load_model(config, "numba").bind(at.params)
    first = bound.loss_and_grads(*at[1:])
    flooded = at.state._replace(predicted=np.full_like(at.state.predicted, 1e200))
    for state in (at.state, flooded):
        with np.errstate(all="ignore"):
            bound.loss_and_grads(*at[1:3], state, at.d_state)
            bound.loss_and_grads(*larger[1:])
            bound.forward(larger.inputs)
        again = bound.loss_and_grads(*at[1:])
        assert again.loss == first.loss
        for name in first.grads:
            np.testing.assert_array_equal(again.grads[name], first.grads[name])
        for one, other in zip(again.state + again.d_state, first.state + first.d_state, strict=True):
            np.testing.assert_array_equal(one, other)
