"""Configurations refuse what cannot be, by name and value, and survive JSON."""

import dataclasses
import json

import numpy as np
import pytest

from gpn_ref.config import (
    PAPER_BASELINES,
    PRESETS,
    ModelConfig,
    TrainConfig,
    config_from_dict,
    config_to_dict,
    model_config_from_dict,
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size is 0; it must be a whole number, 1 or more"),
        ({"d_state": -3}, "d_state is -3"),
        ({"d_emb": 2.5}, "d_emb is 2.5"),
        ({"n_layers": True}, "n_layers is True"),
        ({"d_key": 0}, "d_key is 0; it must be a whole number, 1 or more"),
        ({"n_heads": 0}, "d_key is 8 and d_value is 8, but both must be 0 when n_heads is 0"),
        ({"n_heads": -1}, "n_heads is -1"),
        ({"decode_bias": 1}, "decode_bias is 1; it must be true or false"),
    ],
)
def test_bad_sizes(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PRESETS["nano"], **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0; it must be a whole number, 1 or more"),
        ({"bptt": -1}, "bptt is -1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be a finite number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"clip_norm": float("inf")}, "clip_norm is inf"),
        ({"clip_norm": 10**400}, "clip_norm is 1000000000"),
        ({"beta1": 1.0}, "beta1 is 1.0; it must be a finite number at least 0 and below 1"),
        ({"weight_decay": "0.1"}, "weight_decay is '0.1'"),
        ({"window_start": "middle"}, "window_start is 'middle'; it must be 'document' or 'any'"),
        ({"batch_size": 16, "accumulation": 3}, "batch_size is 16; it must be a multiple of accumulation, 3"),
    ],
)
def test_bad_training(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**changes)


@pytest.mark.parametrize("config", [*PRESETS.values(), *PAPER_BASELINES.values()])
def test_json_round_trip(config):
    assert model_config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config


def test_json_round_trip_of_training():
    config = TrainConfig(learning_rate=1e-3)
    assert config_from_dict(TrainConfig, json.loads(json.dumps(config_to_dict(config)))) == config


def test_a_file_from_before_there_were_baselines_is_of_a_gpn():
    values = config_to_dict(PRESETS["nano"])
    assert values.pop("architecture") == "gpn"
    assert model_config_from_dict(values) == PRESETS["nano"]


@pytest.mark.parametrize("values", [[], {"architecture": "rnn"}, {"architecture": ["gpn"]}, {"architecture": "gdn"}])
def test_what_is_no_models_configuration_is_named(values):
    message = "architecture is|must be an object|missing 7 required"
    with pytest.raises(ValueError, match=message):
        model_config_from_dict(values)


def test_names_and_sizes_in_words():
    assert [PRESETS[name].name for name in ("mini", "paper-gpn")] == ["gpn+m", "gpn"]
    assert PRESETS["mini"].sizes() == "D 128, E 64, F 344, 8 heads of 32 × 32, 1 layer"
    assert PRESETS["paper-gpn"].sizes() == "D 3184, E 768, F 8384, no memory, 1 layer"
    assert PAPER_BASELINES["transformer"].sizes() == "d 768, F 2752, 12 heads of 64, 12 layers"
    assert PAPER_BASELINES["gdn"].sizes() == "d 768, F 1408, 6 heads of 128 × 256, 10 layers"


def test_numpy_integers_are_whole_numbers():
    config = dataclasses.replace(PRESETS["nano"], vocab_size=np.int64(257))
    assert config == PRESETS["nano"] and type(config.vocab_size) is int


def test_unknown_and_missing_fields_are_named():
    with pytest.raises(ValueError, match="ModelConfig has no field 'd_model'; it has d_emb,"):
        config_from_dict(ModelConfig, {"d_model": 3})
    with pytest.raises(ValueError, match="missing 3 required positional arguments: 'd_state', 'd_emb', and 'd_ffn'"):
        config_from_dict(ModelConfig, {"vocab_size": 3})
    with pytest.raises(ValueError, match="TrainConfig must be an object"):
        config_from_dict(TrainConfig, [1])
