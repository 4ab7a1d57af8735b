"""From choices to all that a run is made of. The same choices give the same run, to the bit."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gpn_ref.cli import unknown
from gpn_ref.config import (
    DEFAULTS,
    PRESETS,
    ModelConfig,
    TrainConfig,
    architecture,
    config_from_dict,
    config_to_dict,
    model_config_from_dict,
    require_integer,
)
from gpn_ref.measures import Validation
from gpn_ref.model import BACKENDS, default_backend, load_model
from gpn_ref.sizes import choose_model
from gpn_ref.text.recall import RecallConfig
from gpn_ref.text.tokenizer import SMALLEST_VOCAB, load_tokenizer
from gpn_ref.training.tasks import NAMES as TASKS
from gpn_ref.training.tasks import load_task

LIMITS = {  # of the whole numbers among the choices: the least, the most that anyone means
    "vocab_size": (SMALLEST_VOCAB, 10**6),
    "recall_pairs": (1, 10**4),
    "recall_n_keys": (1, 10**4),
    "recall_n_values": (1, 10**4),
    "recall_n_fillers": (1, 10**4),
    "recall_gaps": (0, 10**4),
    "layers": (1, 1000),
    "steps": (1, 10**9),
    "batch_size": (1, 10**6),
    "window": (1, 10**7),
    "bptt": (0, 10**7),
    "accumulation": (1, 10**6),
    "warmup_steps": (0, 10**9),
    "seed": (0, 2**63 - 1),
    "evaluate_every": (1, 10**9),
    "checkpoint_every": (1, 10**9),
}


@dataclass(frozen=True)
class Experiment:
    model_config: ModelConfig
    train_config: TrainConfig
    corpus: dict  # name, files, and a checksum of the tokens
    backend: str
    choices: dict  # the command's, with the keys of DEFAULTS; every default filled in
    evaluate_every: int  # steps
    checkpoint_every: int  # steps
    task: Any  # TextTask or RecallTask
    model: Any
    batches: Any
    validation: Validation

    def __post_init__(self):
        for name in ("evaluate_every", "checkpoint_every"):
            require_integer(name, getattr(self, name), at_least=1)

    @property
    def encoding(self):
        return self.task.encoding

    def config(self):
        """What a run directory's config.json holds."""
        return {
            "choices": self.choices,
            "model": config_to_dict(self.model_config),
            "training": config_to_dict(self.train_config),
            "corpus": self.corpus,
        }


def new_experiment(choices, task=None, model_config=None):
    """The Experiment of `choices`, a dict; what it lacks comes from DEFAULTS.

    A `task` that is already loaded, and a `model_config` of sizes of its own, take the place of those chosen.
    """
    choices = DEFAULTS | choices
    files = choices["text"]
    name = Path(files[0]).stem if files else choices["corpus"]
    task = task or load_task(name, files, choices["vocab_size"], recall=recall_config(choices))
    choices["window_start"] = choices["window_start"] or task.window_start
    known = {field.name for field in fields(TrainConfig)}
    train_config = TrainConfig(**{name: value for name, value in choices.items() if name in known})
    model_config = model_config or choose_model(
        choices["preset"], choices["model"], choices["layers"], task.encoding.n_vocab
    )
    choices["corpus"] = None if files else name
    corpus = {"name": name, "files": files, "checksum": task.checksum()}
    choices |= {"model": model_config.name, "layers": model_config.n_layers}
    choices["backend"] = choices["backend"] or default_backend()
    return _assemble(choices, model_config, train_config, corpus, task)


def restore_experiment(run):
    """The Experiment of a run directory; ValueError if its text is not what it was, or its config.json is damaged."""
    try:
        choices, model_config, train_config, corpus = _read_config(run.config)
        recall = recall_config(choices)
    except ValueError as error:
        raise ValueError(f"{run.config_path} is damaged: {error}") from None
    encoding = load_tokenizer(run.path / "tokenizer.ranks")
    if encoding.n_vocab != model_config.vocab_size:
        raise ValueError(
            f"{run.config_path} is damaged: vocab_size of the model is {model_config.vocab_size}, "
            f"but tokenizer.ranks makes {encoding.n_vocab} tokens"
        )
    task = load_task(corpus["name"], corpus["files"], encoding=encoding, recall=recall)
    if task.checksum() != corpus["checksum"]:
        raise ValueError(f"{run.path} can't go on: its text or its tokenizer is no longer what it was when it began")
    return _assemble(choices, model_config, train_config, corpus, task)


def _read_config(config):
    """The parts of config.json; a field that is missing, unknown or wrong is a ValueError that names it."""
    _require_fields("it", config, ("choices", "model", "training", "corpus"))
    choices, model, training, corpus = (config[part] for part in ("choices", "model", "training", "corpus"))
    _require_fields("choices", choices, DEFAULTS)
    model = {"architecture": "gpn"} | model if isinstance(model, dict) else model  # files of old do not name it
    kind = architecture(model) if isinstance(model, dict) else ModelConfig
    _require_fields("model", model, ["architecture", *(field.name for field in fields(kind))])
    _require_fields("training", training, [field.name for field in fields(TrainConfig)])
    _require_fields("corpus", corpus, ("name", "files", "checksum"))
    for part in (model, training, choices):
        for name, value in part.items():
            _require_in_limits(name, value, required=part is choices and name in LIMITS)
    model_config, train_config = model_config_from_dict(model), config_from_dict(TrainConfig, training)
    names = {"preset": list(PRESETS), "backend": list(BACKENDS)} | (
        {"corpus": TASKS} if choices["corpus"] is not None else {}
    )
    same = {"text": corpus["files"], "layers": model_config.n_layers, "model": model_config.name}
    same |= {name: value for name, value in training.items() if name in choices}
    for name, known in names.items():
        if choices[name] not in known:
            raise ValueError(unknown(f"{name} among the choices", choices[name], known))
    for name, value in same.items():
        if choices[name] != value:
            raise ValueError(f"{name} is {choices[name]!r:.60} among the choices, but {value!r:.60} elsewhere")
    strings = corpus["files"] if isinstance(corpus["files"], list) else [None]
    if not all(isinstance(value, str) and value for value in (corpus["name"], corpus["checksum"], *strings)):
        raise ValueError("corpus must hold strings as name and checksum, and a list of strings as files")
    if (choices["corpus"] is None) != bool(strings):
        raise ValueError(f"corpus is {choices['corpus']!r} among the choices, but text is {strings!r:.60}")
    return choices, model_config, train_config, corpus


def _require_fields(what, values, names):
    if not isinstance(values, dict):
        raise ValueError(f"{what} must be an object with {', '.join(names)}; got {values!r:.60}")
    for name in names:
        if name not in values:
            raise ValueError(f"{what} has no field {name!r}")
    for name in values:
        if name not in names:
            raise ValueError(f"{what} has an unknown field {name!r:.60}")


def _require_in_limits(name, value, required):
    """ValueError for whole numbers beyond LIMITS, and for what is none but must be."""
    least, most = LIMITS.get(name, (None, 10**9))
    if name == "recall_gaps" and not isinstance(value, list):
        raise ValueError(f"{name} is {value!r:.60}; it must be a list of whole numbers")
    for number in value if name == "recall_gaps" else [value]:
        if required:
            require_integer(name, number, at_least=least)
        if isinstance(number, int) and number > most:
            raise ValueError(f"{name} is {number!r:.60}; it must be {most} or less")


def recall_config(choices):
    """The sizes of the recall task, by choices that are named `recall_` and the RecallConfig's name for them."""
    sizes = {name.removeprefix("recall_"): value for name, value in choices.items() if name.startswith("recall_")}
    return RecallConfig(**sizes | {"gaps": tuple(sizes["gaps"])})


def _assemble(choices, model_config, train_config, corpus, task):
    return Experiment(
        model_config=model_config,
        train_config=train_config,
        corpus=corpus,
        backend=choices["backend"],
        choices=choices,
        evaluate_every=choices["evaluate_every"],
        checkpoint_every=choices["checkpoint_every"],
        task=task,
        model=load_model(model_config, choices["backend"]),
        batches=task.batches(train_config),
        validation=task.validation(train_config),
    )
