"""From choices to all that a run is made of. The same choices give the same run, to the bit."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gpn_ref.config import (
    DEFAULTS,
    PRESETS,
    ModelConfig,
    TrainConfig,
    config_from_dict,
    config_to_dict,
    require_integer,
)
from gpn_ref.measures import Validation
from gpn_ref.model import load_model
from gpn_ref.parameters import count_params
from gpn_ref.text.tokenizer import load_tokenizer
from gpn_ref.training.tasks import load_task


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


def new_experiment(choices):
    """The Experiment of `choices`, a dict; what it lacks comes from DEFAULTS."""
    choices = DEFAULTS | choices
    files = choices["text"]
    name = Path(files[0]).stem if files else choices["corpus"]
    task = load_task(name, files, choices["vocab_size"])
    choices["window_start"] = choices["window_start"] or task.window_start
    known = {field.name for field in fields(TrainConfig)}
    train_config = TrainConfig(**{name: value for name, value in choices.items() if name in known})
    model_config = choose_model(choices["preset"], choices["model"], choices["layers"], task.encoding.n_vocab)
    corpus = {"name": name, "files": files, "checksum": task.checksum()}
    choices |= {"model": model_name(model_config), "layers": model_config.n_layers}
    return _assemble(choices, model_config, train_config, corpus, task)


def restore_experiment(run):
    """The Experiment of a run directory; ValueError if its text is not what it was."""
    try:
        choices, corpus = DEFAULTS | run.config["choices"], run.config["corpus"]
        model_config = config_from_dict(ModelConfig, run.config["model"])
        train_config = config_from_dict(TrainConfig, run.config["training"])
        name, files, checksum = corpus["name"], corpus["files"], corpus["checksum"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{run.path / 'config.json'} is damaged: {error}") from None
    task = load_task(name, files, encoding=load_tokenizer(run.path / "tokenizer.ranks"))
    if task.checksum() != checksum:
        raise ValueError(f"{run.path} can't go on: its text or its tokenizer is no longer what it was when it began")
    return _assemble(choices, model_config, train_config, corpus, task)


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


def choose_model(preset, model, layers, vocab_size):
    """The preset's configuration with the tokenizer's vocabulary, `layers` layers, and with or without a memory."""
    config = replace(PRESETS[preset], vocab_size=vocab_size)
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


def model_name(config):
    return "gpn+m" if config.n_heads else "gpn"
