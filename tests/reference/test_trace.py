"""Traces: what they name is what the model does, and each intervention is what it says, known in another way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, largest_difference, point, seeds

from gpn_ref.config import ModelConfig
from gpn_ref.model import Interventions, State, load_model
from gpn_ref.reference.ops import rms_norm_forward

CONFIG = ModelConfig(9, 7, 5, 6, n_heads=3, d_key=4, d_value=5, n_layers=2, decode_bias=True)


def at(config=CONFIG, seed=0, length=6):
    drawn = point(config, seed, batch=3, length=length)
    return drawn, load_model(config, "numpy").bind(drawn.params)


def zero(config, batch=3):
    return load_model(config, "numpy").initial_state(batch, np.float64)


def mask(*heads):
    return np.isin(np.arange(CONFIG.n_heads), heads)


@given(configs(), seeds, st.sampled_from(["numpy", "numba"]))
def test_without_interventions_it_is_the_forward_pass(config, seed, backend):
    drawn = point(config, seed)
    bound = load_model(config, backend).bind(drawn.params)
    trace, forward = bound.trace(drawn.inputs, drawn.state), bound.forward(drawn.inputs, drawn.state)
    for found, wanted in ((trace.logits, forward.logits), (trace.predicted, forward.hidden)):
        assert largest_difference(found, wanted) < 1e-9
    for found, wanted in zip(trace.state, forward.state, strict=True):
        assert largest_difference(found, wanted) < 1e-9


@given(configs(), seeds)
def test_the_arrays_have_the_shapes_that_they_are_said_to_have_and_obey_the_equations(config, seed):
    drawn = point(config, seed, batch=2, length=5)
    trace = load_model(config, "numpy").bind(drawn.params).trace(drawn.inputs, drawn.state)
    D, N, H, K, U = config.d_state, config.n_layers, config.n_heads, config.d_key, config.d_value
    shapes = {name: getattr(trace, name).shape[2:] for name in trace._fields if name != "state"}
    assert shapes == {
        **dict.fromkeys(("grounded", "predicted", "ground_gate"), (D,)),
        **dict.fromkeys(("layers", "gate", "ffn", "read"), (N, D)),
        **{"key": (H, K), "value": (H, U), "recalled": (H, U), "beta": (H,), "decay": (H,)},
        **{"query": (N, H, K), "retrieved": (N, H, U), "gated": (N, H, U), "logits": (config.vocab_size,)},
    }
    x = np.concatenate([trace.grounded[:, :, None], trace.layers[:, :, :-1]], axis=2)  # what each layer starts from
    np.testing.assert_allclose(trace.layers, trace.gate * x + trace.ffn + trace.read, atol=1e-12)
    np.testing.assert_array_equal(trace.layers[:, :, -1], trace.predicted)
    memory = drawn.state.memory
    for t in range(5):
        key, beta, decay = trace.key[:, t], trace.beta[:, t, :, None, None], trace.decay[:, t, :, None, None]
        recalled = np.einsum("bhku,bhk->bhu", memory, key)
        np.testing.assert_allclose(trace.recalled[:, t], recalled, atol=1e-12)
        error = trace.value[:, t] - (decay[..., 0] * recalled if config.decay_first else recalled)
        memory = decay * memory + beta * key[..., None] * error[:, :, None]
        found = np.einsum("bhku,bnhk->bnhu", memory, trace.query[:, t])
        np.testing.assert_allclose(trace.retrieved[:, t], found, atol=1e-12)
    np.testing.assert_allclose(trace.state.memory, memory, atol=1e-12)


def test_only_what_is_asked_for_is_kept():
    drawn, bound = at()
    trace = bound.trace(drawn.inputs, keep=("beta",))
    assert [name for name, value in trace._asdict().items() if value is not None] == ["beta", "state"]


def test_windows_chain():
    drawn, bound = at(length=8)
    whole = bound.trace(drawn.inputs, drawn.state)
    first = bound.trace(drawn.inputs[:, :3], drawn.state)
    second = bound.trace(drawn.inputs[:, 3:], first.state)
    for name in whole._fields[:-1]:
        parts = np.concatenate([getattr(first, name), getattr(second, name)], axis=1)
        np.testing.assert_allclose(parts, getattr(whole, name), atol=1e-12)


# ------------------------------------------------------------------------------------------------- interventions
def test_an_offset_before_decoding_changes_the_logits_only():
    drawn, bound = at()
    offset = np.linspace(-1, 1, CONFIG.d_state)
    plain, changed = bound.trace(drawn.inputs), bound.trace(drawn.inputs, None, Interventions(decode_offset=offset))
    np.testing.assert_array_equal(changed.predicted, plain.predicted)
    np.testing.assert_allclose(changed.logits, bound.decode(plain.predicted - offset), atol=1e-12)
    assert largest_difference(changed.logits, plain.logits) > 0.01


def test_an_offset_before_grounding_is_taken_from_every_prediction_but_not_from_the_zero_state():
    drawn, bound = at()
    offset = np.linspace(-1, 1, CONFIG.d_state)
    trace = bound.trace(drawn.inputs, None, Interventions(ground_offset=offset))
    state = zero(CONFIG)
    for t in range(drawn.inputs.shape[1]):
        changed = state if t == 0 else state._replace(predicted=state.predicted - offset)
        logits, state = bound.step(drawn.inputs[:, t], changed)
        np.testing.assert_allclose(trace.logits[:, t], logits, atol=1e-12)
    np.testing.assert_allclose(trace.state.predicted, state.predicted, atol=1e-12)


def test_heads_that_never_write_are_those_whose_values_and_memory_are_empty():
    drawn, bound = at()
    params = dict(drawn.params) | {"write.value.weight": drawn.params["write.value.weight"].copy()}
    params["write.value.weight"].reshape(3, 5, -1)[1:] = 0  # from the zero state, nothing is then ever written
    found = bound.trace(drawn.inputs, None, Interventions(no_write=mask(1, 2)))
    wanted = load_model(CONFIG, "numpy").bind(params).forward(drawn.inputs)
    np.testing.assert_allclose(found.logits, wanted.logits, atol=1e-12)
    assert not found.state.memory[:, 1:].any() and found.state.memory[:, 0].any()


def test_what_heads_hold_decays_when_they_do_not_write():
    drawn, bound = at()
    trace = bound.trace(drawn.inputs, drawn.state, Interventions(no_write=mask(0)))
    kept = np.prod(trace.decay[:, :, 0], axis=1)[:, None, None]
    np.testing.assert_allclose(trace.state.memory[:, 0], kept * drawn.state.memory[:, 0], atol=1e-12)


def test_heads_that_are_not_read_are_those_that_w_o_does_not_see():
    drawn, bound = at()
    params = dict(drawn.params)
    for name in ("layers.0.read.out.weight", "layers.1.read.out.weight"):
        params[name] = params[name].copy()
        params[name].reshape(-1, 3, 5)[:, 2] = 0
    found = bound.trace(drawn.inputs, drawn.state, Interventions(no_read=mask(2)))
    wanted = load_model(CONFIG, "numpy").bind(params).forward(drawn.inputs, drawn.state)
    np.testing.assert_allclose(found.logits, wanted.logits, atol=1e-12)
    assert not found.gated[:, :, :, 2].any()
    x = np.concatenate([found.grounded[:, :, None], found.layers[:, :, :-1]], axis=2)
    np.testing.assert_allclose(found.layers, found.gate * x + found.ffn + found.read, atol=1e-12)


def test_heads_without_a_past_hold_the_last_write_alone():
    drawn, bound = at()
    trace = bound.trace(drawn.inputs, drawn.state, Interventions(no_past=mask(0, 2)))
    write = trace.beta[..., None, None] * trace.key[..., None] * trace.value[..., None, :]
    np.testing.assert_allclose(trace.state.memory[:, [0, 2]], write[:, -1, [0, 2]], atol=1e-12)
    assert not trace.recalled[:, :, [0, 2]].any() and trace.recalled[:, :, 1].any()


def test_the_memory_of_each_sequence_is_cleared_at_its_step():
    drawn, bound = at()
    trace = bound.trace(drawn.inputs, drawn.state, Interventions(clear_at=np.array([2, -1, 0])))
    state, clear = drawn.state, np.array([2, -1, 0])
    for t in range(drawn.inputs.shape[1]):
        memory = np.where((clear == t)[:, None, None, None], 0, state.memory)
        logits, state = bound.step(drawn.inputs[:, t], state._replace(memory=memory))
        np.testing.assert_allclose(trace.logits[:, t], logits, atol=1e-12)


def test_without_a_memory_the_arrays_of_heads_are_empty():
    config = ModelConfig(9, 7, 5, 6)
    drawn, bound = at(config)
    trace = bound.trace(drawn.inputs, None, Interventions(no_write=np.zeros(0, bool), clear_at=np.zeros(3, int)))
    np.testing.assert_array_equal(trace.logits, bound.trace(drawn.inputs).logits)
    assert trace.query.shape == (3, 6, 1, 0, 0) and trace.key.shape == (3, 6, 0, 0)
    assert not trace.read.any() and trace.read.shape == (3, 6, 1, 7)


def test_decode_is_the_decoder():
    drawn, bound = at()
    forward = bound.forward(drawn.inputs)
    np.testing.assert_array_equal(bound.decode(forward.hidden), forward.logits)
    vector = np.arange(7.0)
    normed = rms_norm_forward(vector, drawn.params["decode.norm.weight"])[0]
    projected = drawn.params["decode.proj.weight"] @ normed + drawn.params["decode.bias"]
    np.testing.assert_allclose(bound.decode(vector), drawn.params["embedding.weight"] @ projected, atol=1e-12)


@pytest.mark.parametrize(
    "change, message",
    [
        (Interventions(no_read=[True]), r"no_read is bool of shape \(1,\); it must be bool, shape \(3,\)"),
        (Interventions(no_past=[0, 1, 2]), r"no_past is int64 of shape \(3,\); it must be bool"),
        (
            Interventions(ground_offset=[0.0]),
            r"ground_offset is float64 of shape \(1,\); .* numbers of float64, shape \(7,\)",
        ),
        (Interventions(decode_offset=[np.nan] * 7), r"decode_offset is float64 of shape \(7,\); it must be finite"),
        (Interventions(clear_at=[0.0] * 3), r"clear_at is float64 .* integers, shape \(3,\)"),
        ({"no_read": [0]}, r"interventions is a dict; it must be an Interventions or None"),
    ],
)
def test_a_bad_intervention_is_named(change, message):
    drawn, bound = at()
    with pytest.raises(ValueError, match=message):
        bound.trace(drawn.inputs, None, change)


def test_bad_names_and_vectors_are_named():
    drawn, bound = at()
    with pytest.raises(ValueError, match=r"a trace has no 'keys'; it has grounded, predicted"):
        bound.trace(drawn.inputs, keep=("keys",))
    for vector in (np.zeros(6), np.full(7, np.inf), np.zeros(7, int)):
        with pytest.raises(ValueError, match=r"hidden must hold finite numbers of float64, \(\.\.\., 7\); it is"):
            bound.decode(vector)
    assert isinstance(bound.trace(drawn.inputs).state, State)


def test_names_to_keep_may_be_one_or_a_generator():
    drawn, bound = at()
    for keep in ("beta", iter(["beta"]), ["beta"]):
        trace = bound.trace(drawn.inputs, keep=keep)
        assert trace.beta is not None and trace.decay is None


def test_what_float32_cannot_hold_is_named():
    drawn, _ = at()
    params = {name: value.astype(np.float32) for name, value in drawn.params.items()}
    bound, large = load_model(CONFIG, "numpy").bind(params), np.full(7, 1e300)
    with pytest.raises(
        ValueError, match=r"hidden must hold finite numbers of float32, \(\.\.\., 7\); it is float64 \(7,\)"
    ):
        bound.decode(large)
    with pytest.raises(
        ValueError, match=r"decode_offset is float64 of shape \(7,\); it must be finite numbers of float32"
    ):
        bound.trace(drawn.inputs, None, Interventions(decode_offset=large))
