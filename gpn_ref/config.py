"""Every size and every default of the package: the model's, the training's, and the named presets."""

from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from sys import float_info


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a Grounded Prediction Network; with `n_heads = 0` it has no memory (then `d_key = d_value = 0`)."""

    vocab_size: int  # V, tokens in the vocabulary
    d_state: int  # D, width of the one state vector
    d_emb: int  # E, width of the embedding
    d_ffn: int  # F, hidden width of the feed-forward network
    n_heads: int = 0  # H, heads of the matrix memory
    d_key: int = 0  # K, width of a head's keys and queries
    d_value: int = 0  # U, width of a head's values
    n_layers: int = 1  # N, layers of the predict step; the memory and its write are shared
    decode_bias: bool = False  # adds `decode.bias` before the tied embedding
    decay_first: bool = False  # Gated DeltaNet's order (decay, then the error) instead of the paper's

    def __post_init__(self):
        sized = ["vocab_size", "d_state", "d_emb", "d_ffn", "n_layers"]
        for name in sized + ["n_heads", "d_key", "d_value"]:
            _set_integer(self, name, at_least=1 if name in sized or self.n_heads else 0)
        for name in ("decode_bias", "decay_first"):
            require_bool(name, getattr(self, name))
        if not self.n_heads and (self.d_key or self.d_value):
            raise ValueError(
                f"d_key is {self.d_key} and d_value is {self.d_value}, but both must be 0 when n_heads is 0"
            )

    @property
    def name(self):
        """What the model is called."""
        return "gpn+m" if self.n_heads else "gpn"

    def sizes(self):
        """The sizes in words."""
        memory = f"{self.n_heads} heads of {self.d_key} × {self.d_value}" if self.n_heads else "no memory"
        return f"D {self.d_state}, E {self.d_emb}, F {self.d_ffn}, {memory}, {_layers(self)}"


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a Transformer++: causal attention with rotary positions, SwiGLU, RMS norms, tied embedding."""

    vocab_size: int  # V, tokens in the vocabulary
    d_model: int  # d, width of the residual stream
    n_layers: int  # N
    n_heads: int  # H, attention heads, each of d / H
    d_ffn: int  # F, hidden width of the feed-forward networks
    name = "transformer"

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "d_ffn"):
            _set_integer(self, name, at_least=1)
        if self.d_model % (2 * self.n_heads):
            raise ValueError(
                f"d_model is {self.d_model}; it must be a multiple of 2 · n_heads, {2 * self.n_heads}: "
                "rotary positions turn the entries of a head in pairs"
            )

    def sizes(self):
        """The sizes in words."""
        heads = f"{self.n_heads} heads of {self.d_model // self.n_heads}"
        return f"d {self.d_model}, F {self.d_ffn}, {heads}, {_layers(self)}"


@dataclass(frozen=True)
class GDNConfig:
    """Sizes of a Gated DeltaNet: layers with a matrix memory each, SwiGLU, RMS norms, untied embedding."""

    vocab_size: int  # V, tokens in the vocabulary
    d_model: int  # d, width of the residual stream
    n_layers: int  # N
    n_heads: int  # H, heads of each layer's memory
    d_key: int  # K, width of a head's keys and queries
    d_value: int  # U, width of a head's values
    d_ffn: int  # F, hidden width of the feed-forward networks
    conv_width: int = 4  # W, tokens that the causal convolutions see
    name = "gdn"

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "d_key", "d_value", "d_ffn", "conv_width"):
            _set_integer(self, name, at_least=1)

    def sizes(self):
        """The sizes in words."""
        heads = f"{self.n_heads} heads of {self.d_key} × {self.d_value}"
        return f"d {self.d_model}, F {self.d_ffn}, {heads}, {_layers(self)}"


def _layers(config):
    return f"{config.n_layers} layer{'s' * (config.n_layers > 1)}"


ARCHITECTURES = {"gpn": ModelConfig, "transformer": TransformerConfig, "gdn": GDNConfig}  # by their names in files


@dataclass(frozen=True)
class TrainConfig:
    """How to train: AdamW with global-norm clipping, warm-up and a cosine (section 5 of the paper)."""

    steps: int = 1000  # optimizer steps in all
    batch_size: int = 16  # B, sequences a step
    window: int = 96  # T, tokens of a sequence a step
    window_start: str = "document"  # "document": each window starts a document; "any": at any token
    bptt: int = 0  # cut the gradient every so many tokens, the state goes on; 0 is never
    accumulation: int = 1  # micro-batches a step: the same gradient in less memory
    learning_rate: float = 6e-4  # peak, after the warm-up
    final_learning_rate: float = 0.1  # where the cosine ends, as a share of the peak
    warmup_steps: int = 100  # linear, from 0 to the peak
    beta1: float = 0.9  # decay of the gradient's running mean
    beta2: float = 0.95  # decay of the squared gradient's running mean
    epsilon: float = 1e-8  # added to the root of the latter
    weight_decay: float = 0.1  # decoupled, on two-dimensional weights only
    clip_norm: float = 1.0  # largest global norm of the gradient
    seed: int = 0  # initial values, batches and samples each derive a generator of their own

    def __post_init__(self):
        for name in ("steps", "batch_size", "window", "accumulation"):
            _set_integer(self, name, at_least=1)
        for name in ("bptt", "warmup_steps", "seed"):
            _set_integer(self, name, at_least=0)
        for name in ("learning_rate", "epsilon", "clip_norm"):
            require_number(name, getattr(self, name), above=0)
        for name in ("beta1", "beta2"):
            require_number(name, getattr(self, name), at_least=0, below=1)
        require_number("final_learning_rate", self.final_learning_rate, at_least=0)
        require_number("weight_decay", self.weight_decay, at_least=0)
        if self.window_start not in ("document", "any"):
            raise ValueError(f"window_start is {self.window_start!r}; it must be 'document' or 'any'")
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"batch_size is {self.batch_size}; it must be a multiple of accumulation, {self.accumulation}"
            )


def config_to_dict(config):
    """The configuration as plain JSON types; that of a model names its architecture."""
    names = {kind: name for name, kind in ARCHITECTURES.items()}
    return ({"architecture": names[type(config)]} if type(config) in names else {}) | asdict(config)


def architecture(values):
    """The kind of configuration that `values`, of a file, are of; files of old name none, and are of GPNs."""
    name = values.get("architecture", "gpn")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(f"architecture is {name!r:.60}; it must be one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def model_config_from_dict(values):
    """The configuration of a model that `config_to_dict` gave."""
    if not isinstance(values, dict):
        raise ValueError(f"a model's configuration must be an object of names and values; got {values!r:.60}")
    kind = architecture(values)
    return config_from_dict(kind, {name: value for name, value in values.items() if name != "architecture"})


def config_from_dict(kind, values):
    """A `kind` (ModelConfig, TrainConfig) from a dict; a missing or unknown field is a ValueError that names it."""
    if not isinstance(values, dict):
        raise ValueError(f"{kind.__name__} must be an object of names and values; got {values!r:.60}")
    known = {field.name for field in fields(kind)}
    for name in values:
        if name not in known:
            raise ValueError(f"{kind.__name__} has no field {name!r}; it has {', '.join(sorted(known))}")
    try:
        return kind(**values)
    except TypeError as error:  # a missing field
        raise ValueError(f"{kind.__name__}: {error}") from None


def _set_integer(config, name, at_least):
    object.__setattr__(config, name, require_integer(name, getattr(config, name), at_least))


def require_integer(name, value, at_least):
    """The value as an int; NumPy's integers are welcome."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number, {at_least} or more")
    return int(value)


def require_number(name, value, at_least=None, above=None, below=None):
    good = isinstance(value, Real) and not isinstance(value, bool) and abs(value) <= float_info.max
    good = good and (at_least is None or value >= at_least)
    good = good and (above is None or value > above) and (below is None or value < below)
    if not good:
        bounds = [("at least", at_least), ("above", above), ("below", below)]
        wanted = " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
        raise ValueError(f"{name} is {value!r:.60}; it must be a finite number{' ' * bool(wanted)}{wanted}")


def require_bool(name, value):
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it must be true or false")


PRESETS = {
    # for simulators and tests
    "nano": ModelConfig(vocab_size=257, d_state=16, d_emb=8, d_ffn=24, n_heads=2, d_key=8, d_value=8),
    # what `train_tiny` trains in a minute
    "mini": ModelConfig(vocab_size=512, d_state=128, d_emb=64, d_ffn=344, n_heads=8, d_key=32, d_value=32),
    # the sizes that the benchmarks name
    "tiny": ModelConfig(vocab_size=512, d_state=256, d_emb=128, d_ffn=688, n_heads=4, d_key=32, d_value=64),
    "small": ModelConfig(vocab_size=4096, d_state=768, d_emb=256, d_ffn=2048, n_heads=6, d_key=64, d_value=128),
    # the paper's models of 130M parameters
    "paper-1layer": ModelConfig(
        vocab_size=32000, d_state=2496, d_emb=768, d_ffn=6656, n_heads=15, d_key=128, d_value=256
    ),
    "paper-2layer": ModelConfig(
        vocab_size=32000, d_state=1920, d_emb=768, d_ffn=4864, n_heads=11, d_key=128, d_value=256, n_layers=2
    ),
    "paper-gpn": ModelConfig(vocab_size=32000, d_state=3184, d_emb=768, d_ffn=8384),
}
# the paper's baselines of the same size, the second with ten layers
PAPER_BASELINES = {
    "transformer": TransformerConfig(vocab_size=32000, d_model=768, n_layers=12, n_heads=12, d_ffn=2752),
    "gdn": GDNConfig(vocab_size=32000, d_model=768, n_layers=10, n_heads=6, d_key=128, d_value=256, d_ffn=1408),
}

# what `train_tiny` does where its flags do not say otherwise
DEFAULTS = {
    "corpus": "stories",
    "text": [],
    "model": None,  # as the preset
    "preset": "mini",
    "layers": None,  # as the preset
    "vocab_size": 1024,  # of the tokenizer made for text that brings none
    "recall_pairs": 4,
    "recall_n_keys": 8,
    "recall_n_values": 16,
    "recall_n_fillers": 8,
    "recall_gaps": [0, 0, 0, 4],  # most batches without a gap: recall is learned there first
    "backend": None,  # the fastest that imports
    "steps": 600,
    "batch_size": 32,
    "window": 64,
    "learning_rate": 2e-3,
    "warmup_steps": 60,
    "beta2": 0.99,  # all of this was tuned with 0.99; the paper's code has 0.95
    "window_start": None,  # as the task: stories begin anew each window, long documents are seen whole
    "bptt": 0,
    "accumulation": 1,
    "seed": 0,
    "evaluate_every": 100,
    "checkpoint_every": 50,
}
