"""Hypothesis strategies, random inputs, and what "equal" means, for all the tests that need them."""

import numpy as np
from hypothesis import strategies as st

from gpn_ref.config import ModelConfig
from gpn_ref.gradcheck import draw_point
from gpn_ref.model import State, load_model
from gpn_ref.random_state import generator

BACKENDS = ("numpy", "numba")  # that every test of the interface runs through
seeds = st.integers(0, 2**32 - 1)


@st.composite
def configs(draw, memory=st.booleans(), smallest=4, largest=9, layers=3, heads=3):
    """Small models of every kind; widths of 4 and more, because a key with one active entry is a step function."""
    size = st.integers(smallest, largest)
    sizes = {"d_state": draw(size), "d_emb": draw(size), "d_ffn": draw(size)}
    if draw(memory):
        sizes |= {"n_heads": draw(st.integers(1, heads)), "d_key": draw(size), "d_value": draw(size)}
        sizes["decay_first"] = draw(st.booleans())
    return ModelConfig(
        vocab_size=draw(st.integers(2, 12)),
        n_layers=draw(st.integers(1, layers)),
        decode_bias=draw(st.booleans()),
        **sizes,
    )


def point(config, seed, batch=2, length=5):
    """Jittered parameters, tokens, a state and a gradient of the final state."""
    return draw_point(config, generator(seed, "test"), batch, length)


def cast(at, dtype):
    """The point with all its numbers rounded to `dtype`."""
    round_all = lambda state: State(*(value.astype(dtype) for value in state))  # noqa: E731
    params = {name: value.astype(dtype) for name, value in at.params.items()}
    return at._replace(params=params, state=round_all(at.state), d_state=round_all(at.d_state))


def largest_difference(one, other):
    """max |one - other| over max |other|, 0 for empty arrays; shapes must agree."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape
    scale = np.abs(other).max(initial=0)
    return float(np.abs(one - other).max(initial=0) / scale) if scale else float(np.abs(one).max(initial=0))


# ------------------------------------------------------------------------------------------ one backend and another
TOLERANCE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 2e-4}


def forward_results(backend, config, at):
    """All that a backend computes at a point without a gradient, by name."""
    return forward_results_of(load_model(config, backend).bind(at.params), at)


def results(backend, config, at, scale=1.0):
    """All that a backend computes at a point, by name; gradients are named "gradient of ..."."""
    return results_of(load_model(config, backend).bind(at.params), at, scale)


def forward_results_of(bound, at):
    forward, (logits, state) = bound.forward(at.inputs, at.state), bound.step(at.inputs[:, 0], at.state)
    found = {"logits": forward.logits, "hidden": forward.hidden, "step, logits": logits}
    return found | by_name("state", forward.state) | by_name("step, state", state)


def results_of(bound, at, scale=1.0):
    out = bound.loss_and_grads(*at[1:], scale)
    found = {"loss": np.asarray(out.loss, out.nll.dtype), "nll": out.nll} | by_name("training, state", out.state)
    found |= {f"gradient of {name}": grad for name, grad in out.grads.items()}
    return found | by_name("gradient of state", out.d_state) | forward_results_of(bound, at)


def by_name(name, state):
    return {f"{name}.{field}": value for field, value in state._asdict().items()}


def differences(found, exact):
    """name -> max |found - exact| over max |exact|, for a gradient over G / 1000 if that is more.

    G is the largest entry of all gradients. Equal are two results whose differences are all within TOLERANCE.
    """
    assert found.keys() == exact.keys()
    gradients = [value for name, value in exact.items() if name.startswith("gradient")]
    floor = max((np.abs(value).max(initial=0) for value in gradients), default=0) / 1000
    ratios = {}
    for name, value in exact.items():
        assert np.shape(found[name]) == np.shape(value), name
        difference = np.abs(found[name] - value).max(initial=0)
        scale = max(np.abs(value).max(initial=0), floor if name.startswith("gradient") else 0)
        ratios[name] = difference / scale if scale else difference
    return ratios


def assert_equal(found, exact, dtype):
    """Every result of `found`, in `dtype`, is that of the float64 reference, as far as its precision goes."""
    assert {value.dtype for value in found.values()} == {np.dtype(dtype)}
    tolerance = TOLERANCE[np.dtype(dtype)]
    wrong = {name: ratio for name, ratio in differences(found, exact).items() if not ratio <= tolerance}
    assert not wrong, wrong


def is_measurable(compute, at, exact, dtype):
    """Whether exact = compute(at), of the float64 reference, stands still when the parameters move by one rounding.

    A rounding of `dtype`; and it may move by a hundredth of its tolerance. Where it moves by more, no program of that
    precision can be held to it.
    """
    rng = generator(0, "roundings")
    rounding = np.finfo(dtype).eps / 2
    moved = {name: value * (1 + rounding * rng.choice([-1, 1], value.shape)) for name, value in at.params.items()}
    ratios = differences(compute(at._replace(params=moved)), exact)
    return max(ratios.values()) <= TOLERANCE[np.dtype(dtype)] / 100
