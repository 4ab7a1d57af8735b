"""The baselines against numbers from independent programs, and against themselves: windows, steps, backends."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.test_golden import group
from strategies import largest_difference, seeds

from gpn_ref.baselines.transformer import mix_forward, rotate
from gpn_ref.config import GDNConfig, TransformerConfig, config_from_dict
from gpn_ref.files import DATA
from gpn_ref.gradcheck import draw_point
from gpn_ref.model import State, load_model
from gpn_ref.random_state import generator

KINDS = {"transformer": TransformerConfig, "gdn": GDNConfig}
CONFIGS = {
    "transformer": TransformerConfig(vocab_size=9, d_model=12, n_layers=2, n_heads=3, d_ffn=7),
    "gdn": GDNConfig(vocab_size=9, d_model=7, n_layers=2, n_heads=3, d_key=4, d_value=5, d_ffn=6),
}


def load_case(name):
    with np.load(DATA / "golden" / f"{name}.npz") as file:
        arrays = dict(file)
    sizes = json.loads(str(arrays["config"]))
    assert sizes.pop("model") == name
    return arrays, config_from_dict(KINDS[name], sizes), group(arrays, "param/")


def drawn(config, seed=0, batch=2, length=7):
    return draw_point(config, generator(seed, "test"), batch, length)


@pytest.mark.parametrize("name", KINDS)
def test_golden(name, backend):
    arrays, config, params = load_case(name)
    model = load_model(config, backend)
    out = model.loss_and_grads(params, arrays["inputs"], arrays["targets"])
    forward = model.forward(params, arrays["inputs"])
    found = {"loss": out.loss, "nll": out.nll, "logits": forward.logits}
    found |= {f"grad/{name}": grad for name, grad in out.grads.items()}
    expected = {name: value for name, value in arrays.items() if name.startswith(("loss", "nll", "logits", "grad/"))}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert largest_difference(found[name], value) < 1e-9, name


@pytest.mark.parametrize("name", KINDS)
def test_token_by_token_is_the_window(name, backend):
    at = drawn(CONFIGS[name])
    bound = load_model(CONFIGS[name], backend).bind(at.params)
    window, state = bound.forward(at.inputs, at.state), at.state
    for t in range(at.inputs.shape[1]):
        logits, state = bound.step(at.inputs[:, t], state)
        assert largest_difference(logits, window.logits[:, t]) < 1e-9
    for found, wanted in zip(state, window.state, strict=True):
        assert largest_difference(found, wanted) < 1e-9


def test_the_state_of_a_gdn_does_not_grow_and_that_of_a_transformer_does():
    for name, grows in (("gdn", False), ("transformer", True)):
        at = drawn(CONFIGS[name])
        bound = load_model(CONFIGS[name]).bind(at.params)
        sizes = [sum(part.size for part in bound.forward(at.inputs[:, :n]).state) for n in (1, 5)]
        assert (sizes[0] < sizes[1]) == grows, name


def test_windows_of_a_gdn_chain_with_their_gradients(backend):
    at = drawn(CONFIGS["gdn"], length=8)
    bound = load_model(CONFIGS["gdn"], backend).bind(at.params)
    whole = bound.loss_and_grads(at.inputs, at.targets, at.state, at.d_state)
    first = bound.loss_and_grads(at.inputs[:, :3], at.targets[:, :3], at.state, scale=3 / 8)
    second = bound.loss_and_grads(at.inputs[:, 3:], at.targets[:, 3:], first.state, at.d_state, scale=5 / 8)
    first = bound.loss_and_grads(at.inputs[:, :3], at.targets[:, :3], at.state, second.d_state, scale=3 / 8)
    for name, grad in whole.grads.items():
        assert largest_difference(first.grads[name] + second.grads[name], grad) < 1e-9, name
    for found, wanted in zip(first.d_state, whole.d_state, strict=True):
        assert largest_difference(found, wanted) < 1e-9


def test_a_transformer_sees_the_tokens_before_the_window_but_sends_them_no_gradient():
    at = drawn(CONFIGS["transformer"], length=8)
    bound = load_model(CONFIGS["transformer"]).bind(at.params)
    whole, first = bound.forward(at.inputs), bound.forward(at.inputs[:, :3])
    second = bound.loss_and_grads(at.inputs[:, 3:], at.targets[:, 3:], first.state)
    assert second.d_state is None
    nll = bound.loss_and_grads(at.inputs, at.targets).nll
    assert largest_difference(second.nll, nll[:, 3:]) < 1e-9
    assert largest_difference(second.state.key, whole.state.key) < 1e-9


def test_no_later_token_is_seen():
    for config in CONFIGS.values():
        at = drawn(config)
        bound = load_model(config).bind(at.params)
        changed = at.inputs.copy()
        changed[:, 4] = (changed[:, 4] + 1) % config.vocab_size
        one, other = bound.forward(at.inputs).logits, bound.forward(changed).logits
        np.testing.assert_allclose(one[:, :4], other[:, :4], atol=1e-12)
        assert np.abs(one[:, 4:] - other[:, 4:]).max(axis=-1).min() > 1e-6


def test_attention_depends_on_distances_alone():
    """The same tokens, a hundred positions later, with nothing before them that they could see."""
    query, key, value = np.random.default_rng(0).normal(size=(3, 1, 2, 6, 8))
    mixed = [mix_forward(rotate(query, first), rotate(key, first), value)[0] for first in (0, 100)]
    assert largest_difference(*mixed) < 1e-12
    np.testing.assert_allclose(rotate(rotate(query, 5), 5, -1), query)


@settings(max_examples=15)
@given(seeds, st.integers(1, 20), st.sampled_from([np.float32, np.float64]), st.integers(1, 5))
def test_the_compiled_recurrence_is_the_reference(seed, length, dtype, width):
    config = replace(CONFIGS["gdn"], conv_width=width)
    at = drawn(config, seed, length=length)
    exact = load_model(config, "numpy").loss_and_grads(*at)
    params = {name: value.astype(dtype) for name, value in at.params.items()}
    bound = load_model(config, "numba").bind(params)
    out = bound.loss_and_grads(*at[1:])
    again = bound.loss_and_grads(*at[1:])
    largest = max(np.abs(grad).max() for grad in exact.grads.values())
    tolerance = 1e-9 if dtype == np.float64 else 2e-3
    for name, grad in exact.grads.items():
        assert out.grads[name].dtype == dtype
        assert np.abs(out.grads[name] - grad).max() <= tolerance * max(np.abs(grad).max(), largest / 1000), name
        np.testing.assert_array_equal(out.grads[name], again.grads[name])
    for found, wanted in zip((*out.state, *out.d_state), (*exact.state, *exact.d_state), strict=True):
        assert largest_difference(found, wanted) < tolerance


def test_bad_states_are_named():
    at, bound = {}, {}
    for name, config in CONFIGS.items():
        at[name] = drawn(config)
        bound[name] = load_model(config, "numpy").bind(at[name].params)
    tokens, state = at["transformer"].inputs, at["transformer"].state
    with pytest.raises(ValueError, match="d_state must be None: the state of a transformer gets no gradient"):
        bound["transformer"].loss_and_grads(tokens, tokens, state, state)
    with pytest.raises(ValueError, match="state is a State; it must be a TransformerState or None"):
        bound["transformer"].forward(tokens, State(*np.zeros((3, 1))))
    with pytest.raises(ValueError, match=r"state.value has shape \(2, 2, 3, 2, 4\); it must be \(2, 2, 3, 3, 4\)"):
        bound["transformer"].forward(tokens, state._replace(value=state.value[:, :, :, :2]))
    with pytest.raises(ValueError, match=r"state.key has shape \(2, 1, 3, 3, 4\); it must be \(2, 2, 3, 3, 4\)"):
        bound["transformer"].forward(tokens, state._replace(key=state.key[:, :1]))
    state = at["gdn"].state
    with pytest.raises(ValueError, match=r"state.recent has shape \(2, 2, 2, 39\); it must be \(2, 2, 3, 39\)"):
        bound["gdn"].forward(at["gdn"].inputs, state._replace(recent=state.recent[:, :, :2]))
    for name in CONFIGS:
        with pytest.raises(ValueError, match=f"trace looks inside a GPN; this model is a {name}"):
            bound[name].trace(at[name].inputs)
        with pytest.raises(ValueError, match=f"decode looks inside a GPN; this model is a {name}"):
            bound[name].decode(np.zeros(7))


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="d_model is 10; it must be a multiple of 2 · n_heads, 6"):
        TransformerConfig(vocab_size=9, d_model=10, n_layers=2, n_heads=3, d_ffn=7)
    with pytest.raises(ValueError, match="conv_width is 0; it must be a whole number, 1 or more"):
        replace(CONFIGS["gdn"], conv_width=0)
