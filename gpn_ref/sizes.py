"""Which model: a preset, or another one as large, with the same vocabulary and as nearly as possible its parameters."""

from dataclasses import replace
from itertools import count
from math import log

from gpn_ref.config import PRESETS, GDNConfig, TransformerConfig
from gpn_ref.parameters import count_params

LAYERS = {"transformer": 12, "gdn": 10}  # the paper's
MODELS = ("gpn+m", "gpn", *LAYERS)
N_HEADS = 4
STEP = 2 * N_HEADS  # of the width: rotary positions take the entries of a head in pairs
SMALLEST = 1 / 4  # share of its proportional width that an FFN may be cut down to


def choose_model(preset, model, layers, vocab_size):
    """The preset's configuration with the tokenizer's vocabulary and `layers` layers (None: as the model has them).

    `model` is one of MODELS, all of them as large as the preset; None is the preset itself.
    """
    config = replace(PRESETS[preset], vocab_size=vocab_size)
    if model in LAYERS:
        return baseline_like(model, config, layers)
    if layers:
        config = replace(config, n_layers=layers)
    if model == "gpn+m" and not config.n_heads:
        raise ValueError(f"the preset {preset} has no memory; choose another one for the model gpn+m")
    return without_memory(config) if model == "gpn" and config.n_heads else config


def without_memory(config):
    """The GPN with as nearly as possible as many parameters: a wider FFN gets what the memory had."""
    bare = replace(config, n_heads=0, d_key=0, d_value=0)
    unit = count_params(replace(bare, d_ffn=config.d_ffn + 1)) - count_params(bare)
    return replace(bare, d_ffn=config.d_ffn + round((count_params(config) - count_params(bare)) / unit))


def baseline_like(name, config, n_layers=None):
    """The configuration of the baseline `name` with about the parameters of `config`, a GPN's.

    Widths are in the proportions of the paper's models, as nearly as the count allows: F about 8/3 d in a Transformer;
    H·K = d, H·U = 2 d and F about 11/6 d in a GDN. ValueError if so many layers don't fit.
    """
    make = {"transformer": _transformer, "gdn": _gdn}[name]
    return _fitted(lambda d: make(config.vocab_size, d, n_layers or LAYERS[name]), count_params(config))


def deeper(config, n_layers):
    """The GPN of `n_layers` layers with about the parameters of `config`: a narrower state, with H and F in proportion.

    ValueError if so many layers don't fit.
    """
    if n_layers == config.n_layers:
        return config
    return _fitted(lambda d: _narrower(config, n_layers, d), count_params(config))


def _fitted(make, wanted):
    """Of the models `make(d)`, F made to fit `wanted` parameters, the one whose F is nearest to what it was."""
    found = {}
    for d in count(STEP, STEP):
        proportional = make(d)
        unit = count_params(replace(proportional, d_ffn=proportional.d_ffn + 1)) - count_params(proportional)
        d_ffn = proportional.d_ffn + round((wanted - count_params(proportional)) / unit)
        if d_ffn < max(1, SMALLEST * proportional.d_ffn):
            break
        fitted = replace(proportional, d_ffn=d_ffn)
        if abs(count_params(fitted) - wanted) <= wanted / 50:
            found[abs(log(d_ffn / proportional.d_ffn))] = fitted
    if not found:
        layers = f"{proportional.n_layers} layer{'s' * (proportional.n_layers > 1)}"
        other = "fewer layers or a larger preset" if proportional.n_layers > 1 else "a larger preset"
        raise ValueError(f"a {proportional.name} of {layers} cannot have about {wanted:,} parameters; take {other}")
    return found[min(found)]


def _narrower(config, n_layers, d):
    share = d / config.d_state
    heads = {"n_heads": max(1, round(share * config.n_heads))} if config.n_heads else {}
    return replace(config, n_layers=n_layers, d_state=d, d_ffn=max(1, round(share * config.d_ffn)), **heads)


def _transformer(vocab_size, d, n_layers):
    return TransformerConfig(vocab_size, d, n_layers, n_heads=N_HEADS, d_ffn=round(8 / 3 * d))


def _gdn(vocab_size, d, n_layers):
    return GDNConfig(
        vocab_size, d, n_layers, n_heads=N_HEADS, d_key=d // N_HEADS, d_value=2 * d // N_HEADS, d_ffn=round(11 / 6 * d)
    )
