"""Baselines as large as a GPN, and the paper's at their published counts."""

import pytest

from gpn_ref.config import PAPER_BASELINES, PRESETS
from gpn_ref.parameters import count_params, init_params
from gpn_ref.sizes import baseline_like, choose_model, deeper


@pytest.mark.parametrize("preset", ["mini", "tiny", "small", "paper-1layer"])
@pytest.mark.parametrize("name", ["transformer", "gdn"])
@pytest.mark.parametrize("layers", [1, 2, 5, None])
def test_they_are_as_large(preset, name, layers):
    config = baseline_like(name, PRESETS[preset], layers)
    assert config.name == name
    assert config.n_layers == (layers or {"transformer": 12, "gdn": 10}[name])
    assert config.vocab_size == PRESETS[preset].vocab_size
    assert count_params(config) == pytest.approx(count_params(PRESETS[preset]), rel=0.005)
    assert config.d_ffn >= config.d_model  # and have kept the shape of the paper's


@pytest.mark.parametrize("preset", ["nano", "mini", "tiny", "small", "paper-1layer"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_deeper_gpn_is_narrower_and_as_large(preset, layers):
    config = PRESETS[preset]
    found = deeper(config, layers)
    assert found.n_layers == layers and (found.d_key, found.d_value) == (config.d_key, config.d_value)
    assert count_params(found) == pytest.approx(count_params(config), rel=0.01)
    assert (found == config) if layers == 1 else (found.d_state < config.d_state and found.n_heads <= config.n_heads)


def test_the_papers_counts():
    assert count_params(PAPER_BASELINES["transformer"]) == 128_994_048
    assert count_params(PAPER_BASELINES["gdn"]) == 129_012_088


def test_layers_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="a gdn of 10 layers cannot have about .* parameters; take fewer layers"):
        choose_model("nano", "gdn", None, 300)


def test_initial_values():
    """N(0, 0.02²) but for norms, which are 1, and the decay's, which are the GPN's."""
    config = baseline_like("gdn", PRESETS["small"], 2)
    params = init_params(config, seed=3)
    for name, value in params.items():
        if name.endswith("norm.weight"):
            assert (value == 1).all(), name
        elif value.ndim == 2 and value.size > 1000:
            assert value.std() == pytest.approx(0.02, rel=0.05) and abs(value.mean()) < 0.002, name
    rate = params["layers.1.mixer.log_rate"]
    assert rate.shape == (4,) and (rate < 2.8).all()  # ln 16
    assert ((-7 < params["layers.0.mixer.decay.bias"]) & (params["layers.0.mixer.decay.bias"] < -2.2)).all()
