"""The table of parameters: counts, initial values, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from strategies import configs

from gpn_ref.config import PRESETS, ModelConfig
from gpn_ref.parameters import check_params, count_params, init_params, is_decayed, parameter_shapes

WIDE = ModelConfig(vocab_size=400, d_state=300, d_emb=200, d_ffn=300, n_heads=4, d_key=30, d_value=50, decode_bias=True)


@pytest.mark.parametrize(
    ("preset", "count"),
    [("paper-1layer", 129_151_902), ("paper-2layer", 129_837_206), ("paper-gpn", 129_846_176), ("tiny", 1_057_416)],
)
def test_counts_of_the_presets(preset, count):
    assert count_params(PRESETS[preset]) == count


@given(configs())
def test_initial_parameters_are_those_of_the_table(config):
    params = init_params(config)
    check_params(params, config)
    assert {name: value.shape for name, value in params.items()} == parameter_shapes(config)
    assert sum(value.size for value in params.values()) == count_params(config)
    assert {value.dtype for value in params.values()} == {np.dtype(np.float32)}
    memory_names = [name for name in params if "write" in name or "read" in name]
    assert len(memory_names) == (8 + 6 * config.n_layers if config.n_heads else 0)


def test_initial_values():
    params = init_params(WIDE, seed=1, dtype=np.float64)
    for name, value in params.items():
        if name.endswith("norm.weight"):
            assert (value == 1).all(), name
        elif name in ("ground.gate.weight", "layers.0.gate.weight", "layers.0.ffn.out.weight"):
            assert (value == 0).all(), name
        elif name.endswith("bias") and name != "write.decay.bias":
            assert (value == 0).all(), name
        elif name in ("embedding.weight", "layers.0.read.out.weight"):
            assert abs(value.std() / 0.02 - 1) < 0.03, name
        elif value.ndim == 2:
            sd = value.shape[1] ** -0.5
            tolerance = 4 / np.sqrt(2 * value.size)
            assert abs(value.std() / sd - 1) < tolerance, name
            assert np.abs(value).max() <= 2 / 0.8796 * sd, name
    # F = D here, and the FFN's own gate must not be taken for the layer's
    assert params["layers.0.ffn.gate.weight"].std() > 0
    many = init_params(
        ModelConfig(vocab_size=2, d_state=4, d_emb=4, d_ffn=4, n_heads=4000, d_key=1, d_value=1), dtype=np.float64
    )
    rate, step = np.exp(many["write.log_rate"]), np.log1p(np.exp(many["write.decay.bias"]))
    assert 0 < rate.min() < 0.1 and 15.9 < rate.max() < 16 and abs(rate.mean() - 8) < 0.3
    assert 0.001 <= step.min() < 0.00101 and 0.099 < step.max() <= 0.1
    assert abs(np.log(step).mean() - np.log(0.01)) < 0.1


def test_the_seed_decides():
    one, again, other = (init_params(PRESETS["nano"], seed) for seed in (0, 0, 1))
    assert all((one[name] == again[name]).all() for name in one)
    assert (one["embedding.weight"] != other["embedding.weight"]).all()


def test_what_decays():
    shapes = parameter_shapes(WIDE)
    kept = {name for name in shapes if not is_decayed(name, shapes[name])}
    assert all(name.endswith(("norm.weight", "bias", "log_rate")) for name in kept)
    assert is_decayed("embedding.weight", (3, 4)) and not is_decayed("query_conv.weight", (3, 4))
    assert len(kept) == sum(len(shape) == 1 for shape in shapes.values())


def broken(**changes):
    params = init_params(PRESETS["nano"])
    for name, value in changes.items():
        params[name.replace("__", ".")] = value
    return params


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (broken(extra=np.zeros(1, np.float32)), "parameter 'extra' is not one of this model's"),
        ({k: v for k, v in broken().items() if k != "decode.norm.weight"}, "parameter 'decode.norm.weight' is missing"),
        (broken(decode__norm__weight=np.zeros(15, np.float32)), r"has shape \(15,\); it must be \(16,\)"),
        (broken(decode__norm__weight=np.zeros(16, np.float64)), "is float64, but those before it are float32"),
        (broken(decode__norm__weight=np.zeros(16, int)), "is int64; it must be a float32 or float64 array"),
        (broken(decode__norm__weight=np.ma.zeros(16, np.float32)), "is MaskedArray; it must be a float32 or float64"),
        (broken(decode__norm__weight=[0.0] * 16), "is list; it must be a float32 or float64 array"),
        (
            broken(decode__norm__weight=np.full(16, np.nan, np.float32)),
            r"has nan at \(0,\); every entry must be finite",
        ),
        (broken(write__beta__weight=np.full((2, 16), -np.inf, np.float32)), r"has -inf at \(0, 0\)"),
    ],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        check_params(params, PRESETS["nano"])
