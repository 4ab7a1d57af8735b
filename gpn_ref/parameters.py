"""The table of parameters: names, shapes, initial values, counting and checking. Matrices are (out, in)."""

from math import prod

import numpy as np

from gpn_ref.config import GDNConfig, ModelConfig, TransformerConfig, require_integer
from gpn_ref.random_state import generator


def zeros(rng, shape):
    return np.zeros(shape)


def ones(rng, shape):
    return np.ones(shape)


def small(rng, shape):
    """N(0, 0.02²)."""
    return rng.normal(0.0, 0.02, shape)


def lecun(rng, shape):
    """Normal, truncated at ±2 standard deviations, rescaled to variance 1 / fan-in."""
    value = rng.standard_normal(shape)
    while (outside := np.abs(value) > 2.0).any():
        value[outside] = rng.standard_normal(outside.sum())
    truncated_sd = 0.87962566103423978  # of a unit normal truncated at ±2
    return value / (truncated_sd * np.sqrt(shape[1]))


def log_rate(rng, shape):
    """The logarithm of a decay rate from U(0, 16)."""
    return np.log(np.maximum(rng.uniform(0.0, 16.0, shape), 1e-8))


def step_size(rng, shape):
    """The inverse softplus of a step size, log-uniform in [0.001, 0.1]."""
    step = np.exp(rng.uniform(np.log(0.001), np.log(0.1), shape))
    return step + np.log(-np.expm1(-step))


def gpn_table(config: ModelConfig):
    """Initial values are those of the published implementation: the gates start at 1/2 and the FFN silent."""
    V, D, E, F = config.vocab_size, config.d_state, config.d_emb, config.d_ffn
    H, HK, HU = config.n_heads, config.n_heads * config.d_key, config.n_heads * config.d_value
    table = {
        "embedding.weight": ((V, E), small),
        "ground.norm.weight": ((E,), ones),
        "ground.proj.weight": ((D, E), lecun),
        "ground.gate.norm.weight": ((D,), ones),
        "ground.gate.weight": ((D, D), zeros),
        "ground.gate.bias": ((D,), zeros),
    }
    if H:
        table |= {
            "write.norm.weight": ((D,), ones),
            "write.key.weight": ((HK, D), lecun),
            "write.key.bias": ((HK,), zeros),
            "write.value.weight": ((HU, D), lecun),
            "write.beta.weight": ((H, D), lecun),
            "write.decay.weight": ((H, D), lecun),
            "write.decay.bias": ((H,), step_size),
            "write.log_rate": ((H,), log_rate),
        }
    for i in range(config.n_layers):
        table |= {
            f"layers.{i}.gate.norm.weight": ((D,), ones),
            f"layers.{i}.gate.weight": ((D, D), zeros),
            f"layers.{i}.gate.bias": ((D,), zeros),
            f"layers.{i}.ffn.norm.weight": ((D,), ones),
            f"layers.{i}.ffn.gate.weight": ((F, D), lecun),
            f"layers.{i}.ffn.value.weight": ((F, D), lecun),
            f"layers.{i}.ffn.out.weight": ((D, F), zeros),
        }
        if H:
            table |= {
                f"layers.{i}.read.norm.weight": ((D,), ones),
                f"layers.{i}.read.query.weight": ((HK, D), lecun),
                f"layers.{i}.read.query.bias": ((HK,), zeros),
                f"layers.{i}.read.gate.weight": ((HU, D), lecun),
                f"layers.{i}.read.out_norm.weight": ((HU,), ones),
                f"layers.{i}.read.out.weight": ((D, HU), small),
            }
    table |= {"decode.norm.weight": ((D,), ones), "decode.proj.weight": ((E, D), lecun)}
    if config.decode_bias:
        table["decode.bias"] = ((E,), zeros)
    return table


def transformer_table(config: TransformerConfig):
    V, d = config.vocab_size, config.d_model
    table = {"embedding.weight": ((V, d), small)}
    for i in range(config.n_layers):
        table[f"layers.{i}.attention.norm.weight"] = ((d,), ones)
        table |= {f"layers.{i}.attention.{name}.weight": ((d, d), small) for name in ("query", "key", "value", "out")}
        table |= ffn_table(f"layers.{i}.ffn", d, config.d_ffn)
    return table | {"norm.weight": ((d,), ones)}


def gdn_table(config: GDNConfig):
    V, d, H, W = config.vocab_size, config.d_model, config.n_heads, config.conv_width
    HK, U, HU = H * config.d_key, config.d_value, H * config.d_value
    table = {"embedding.weight": ((V, d), small)}
    for i in range(config.n_layers):
        mixer = f"layers.{i}.mixer"
        table |= {
            f"{mixer}.norm.weight": ((d,), ones),
            f"{mixer}.query.weight": ((HK, d), small),
            f"{mixer}.key.weight": ((HK, d), small),
            f"{mixer}.value.weight": ((HU, d), small),
            f"{mixer}.query_conv.weight": ((HK, W), small),
            f"{mixer}.key_conv.weight": ((HK, W), small),
            f"{mixer}.value_conv.weight": ((HU, W), small),
            f"{mixer}.beta.weight": ((H, d), small),
            f"{mixer}.decay.weight": ((H, d), small),
            f"{mixer}.decay.bias": ((H,), step_size),
            f"{mixer}.log_rate": ((H,), log_rate),
            f"{mixer}.gate.weight": ((HU, d), small),
            f"{mixer}.out_norm.weight": ((U,), ones),
            f"{mixer}.out.weight": ((d, HU), small),
        }
        table |= ffn_table(f"layers.{i}.ffn", d, config.d_ffn)
    return table | {"norm.weight": ((d,), ones), "head.weight": ((V, d), small)}


def ffn_table(prefix, d, F):
    return {
        f"{prefix}.norm.weight": ((d,), ones),
        f"{prefix}.gate.weight": ((F, d), small),
        f"{prefix}.value.weight": ((F, d), small),
        f"{prefix}.out.weight": ((d, F), small),
    }


TABLES = {ModelConfig: gpn_table, TransformerConfig: transformer_table, GDNConfig: gdn_table}


def parameter_table(config) -> dict[str, tuple]:
    """Name -> (shape, initial values) of every parameter, in the order in which the model uses them."""
    return TABLES[type(config)](config)


def parameter_shapes(config) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter."""
    return {name: shape for name, (shape, _) in parameter_table(config).items()}


def count_params(config) -> int:
    """Number of parameters; an embedding that is shared by both ends counts once."""
    return sum(prod(shape) for shape in parameter_shapes(config).values())


def init_params(config, seed: int = 0, dtype=np.float32) -> dict[str, np.ndarray]:
    """A new model's parameters: name -> array. The same seed gives the same values."""
    if type(config) not in TABLES:
        known = ", ".join(kind.__name__ for kind in TABLES)
        raise ValueError(f"config is a {type(config).__name__}; it must be one of {known}")
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype is {dtype!r}; it must be float32 or float64")
    rng = generator(require_integer("seed", seed, at_least=0), "initial values")
    return {name: init(rng, shape).astype(dtype) for name, (shape, init) in parameter_table(config).items()}


def is_decayed(name: str, shape: tuple[int, ...]) -> bool:
    """Whether weight decay applies: two-dimensional weights (the embedding too), but none named `..._conv.weight`."""
    return name.endswith(".weight") and not name.endswith("_conv.weight") and len(shape) == 2


def check_params(params: dict[str, np.ndarray], config) -> None:
    """A missing, extra, misshapen or non-finite parameter, or mixed types, is a ValueError that names it."""
    if not isinstance(params, dict):
        raise ValueError(f"params is a {type(params).__name__}; it must be a dict of names and arrays")
    shapes = parameter_shapes(config)
    for name in params:
        if name not in shapes:
            raise ValueError(f"parameter {name!r} is not one of this model's")
    dtype = None
    for name, shape in shapes.items():
        if name not in params:
            raise ValueError(f"parameter {name!r} is missing")
        value = params[name]
        plain = type(value) in (np.ndarray, np.memmap)  # a matrix or a masked array computes other things
        if not plain or value.dtype not in (np.float32, np.float64):
            kind = value.dtype if plain else type(value).__name__
            raise ValueError(f"parameter {name!r} is {kind}; it must be a float32 or float64 array")
        if value.shape != shape:
            raise ValueError(f"parameter {name!r} has shape {value.shape}; it must be {shape}")
        dtype = dtype or value.dtype
        if value.dtype != dtype:
            raise ValueError(f"parameter {name!r} is {value.dtype}, but those before it are {dtype}")
        if not np.isfinite(value).all():
            bad = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
            raise ValueError(f"parameter {name!r} has {value[bad]} at {bad}; every entry must be finite")
