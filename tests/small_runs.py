"""Small runs for the tests: a text that a nano model trains on in a moment."""

import json

import numpy as np

from gpn_ref.text.tokenizer import format_ranks, ranks_of
from gpn_ref.training.experiment import new_experiment
from gpn_ref.training.run_directory import TIME_FIELDS, RunDirectory
from gpn_ref.training.trainer import Trainer

SENTENCES = ("the cat sat on the mat", "a dog ran to the café", "where is the red hat?", "“here”, she said")
TEXT = "\n\n".join(" ".join(SENTENCES[(i * k) % 4] for k in (1, 2, 3)) + f" {i}." for i in range(60)) + "\n"
SMALL = {
    "preset": "nano",
    "vocab_size": 100,
    "steps": 12,
    "batch_size": 4,
    "window": 12,
    "warmup_steps": 3,
    "learning_rate": 1e-3,
    "window_start": "document",
    "evaluate_every": 5,
    "checkpoint_every": 4,
}


def text_file(folder):
    path = folder / "cats.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def new_trainer(folder, **changes):
    """A trainer of a new run in `folder`/run, on TEXT unless `corpus` says otherwise."""
    folder.mkdir(exist_ok=True)
    text = {} if "corpus" in changes else {"text": [str(text_file(folder))]}
    experiment = new_experiment(SMALL | text | changes)
    ranks = format_ranks(ranks_of(experiment.encoding))
    counts = np.bincount(experiment.task.tokens, minlength=experiment.encoding.n_vocab)
    return Trainer(RunDirectory.create(folder / "run", experiment.config(), ranks, counts), experiment)


def without_times(metrics):
    return [{name: value for name, value in record.items() if name not in TIME_FIELDS} for record in metrics]


def metrics_lines(run):
    """The lines of a run's metrics.jsonl, each checked to be JSON, without their time fields."""
    lines = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return without_times(json.loads(line) for line in lines)
