"""A trained model with what it was trained on: what the commands that look at a run all begin with."""

import sys
from functools import cached_property
from pathlib import Path

import numpy as np

from gpn_ref import cli
from gpn_ref.config import DEFAULTS, ModelConfig, config_to_dict
from gpn_ref.files import TRAINED
from gpn_ref.model import BACKENDS, load_model
from gpn_ref.text.corpora import whole_files
from gpn_ref.text.recall import RecallConfig, symbol_counts
from gpn_ref.training.checkpoint import read_checkpoint
from gpn_ref.training.experiment import recall_config
from gpn_ref.training.run_directory import RunDirectory
from gpn_ref.training.tasks import TextTask, load_task


class Trained:
    """A run directory, with its newest good checkpoint, or a checkpoint file. `prog` begins what is told on stderr.

    ValueError or OSError of one line if `path` is neither.
    """

    def __init__(self, path, backend=None, prog="gpn_ref"):
        self.path, self._prog = Path(path), prog
        self.run = RunDirectory(path) if self.path.is_dir() else None
        self.checkpoint = self.run.latest_checkpoint(self.warn, self._check) if self.run else read_checkpoint(path)
        if self.checkpoint is None:
            raise ValueError(f"{path} has no checkpoint yet")
        self.config = self.checkpoint.model_config
        self.encoding = self.checkpoint.encoding()
        self.model = load_model(self.config, backend)
        self.bound = self.model.bind(self.checkpoint.params)

    def _check(self, path, checkpoint):
        """ValueError for a checkpoint that lies in another run's directory."""
        model = self.run.config.get("model") if isinstance(self.run.config, dict) else None
        own = config_to_dict(checkpoint.model_config)
        if isinstance(model, dict) and {"architecture": "gpn"} | model != own:  # files of old do not name it
            raise ValueError(f"{path} is of another run: its model is not that of {self.run.config_path}")

    def warn(self, line):
        print(f"{self._prog}: {line}", file=sys.stderr)

    def out(self, command):
        """Where a command's files go: in the run directory, or, of a checkpoint file, beside the runs."""
        if self.run:
            return self.path / command
        if self.path.parent.name == "checkpoints":
            return self.path.parent.parent / f"{command}-{self.path.stem}"
        return Path("runs") / f"{self.path.stem}-{command}"

    def folder(self, out, command):
        """The folder for a command's files, `out` or else `self.out(command)`, made if it is not there."""
        folder = Path(out) if out else self.out(command)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; --out must be a folder, there or not")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def describe(self):
        """What this is, in a line."""
        step, corpus = self.checkpoint.step, self.checkpoint.corpus.get("name")
        return f"{self.path} after {step} steps on {corpus}"

    def require_a_gpn(self, command):
        """ValueError unless it is a GPN: the baselines have no one state to look at."""
        if not isinstance(self.config, ModelConfig):
            raise ValueError(f"{command} looks inside a GPN, but {self.path} is a {self.config.name}")

    def task(self, text_files=()):
        """The task that the model was trained on, or, to look at only, all of `text_files` as validation text."""
        if text_files:
            return TextTask(whole_files(text_files), self.encoding)
        return self.own_task

    @cached_property
    def own_task(self):
        name, files, checksum = (self.checkpoint.corpus.get(key) for key in ("name", "files", "checksum"))
        if not isinstance(name, str) or not isinstance(files, list):
            raise ValueError(f"{self.path} does not say what it was trained on; give --text FILE")
        task = load_task(name, files, encoding=self.encoding, recall=self._recall_config(name, files))
        if task.encoding.n_vocab != self.encoding.n_vocab:
            raise ValueError(f"{self.path} has {self.encoding.n_vocab} tokens, but its task {task.encoding.n_vocab}")
        if task.checksum() != checksum:
            self.warn(f"the corpus {name} is not what {self.path} was trained on; it may know some of this text")
        return task

    def _recall_config(self, name, files):
        """Sizes of the recall task: the run's own, or, of a lone checkpoint, what its tokenizer tells."""
        if name != "recall" or files:
            return None
        folder = self.path if self.run else self.path.parent.parent
        if (folder / "config.json").is_file():
            try:
                return recall_config(RunDirectory(folder).config["choices"])
            except (KeyError, TypeError, AttributeError):
                raise ValueError(
                    f"{folder / 'config.json'} is damaged: it does not tell the sizes of the task"
                ) from None
        sizes = symbol_counts(self.encoding)
        pairs = min(DEFAULTS["recall_pairs"], sizes["n_keys"])
        return RecallConfig(pairs=pairs, gaps=tuple(DEFAULTS["recall_gaps"]), **sizes)

    def token_counts(self):
        """(V,) how often each token occurs in the training text: the run's own counts, else counted again."""
        path = self.path / "token_counts.npy"
        if not self.run or not path.exists():
            return np.bincount(self.own_task.tokens, minlength=self.config.vocab_size)
        try:
            counts = np.load(path, allow_pickle=False)
        except (ValueError, EOFError):
            counts = np.zeros(0)
        if counts.shape != (self.config.vocab_size,) or counts.dtype.kind not in "iu" or counts.min() < 0:
            raise ValueError(f"{path} is damaged: it must hold {self.config.vocab_size} counts")
        return counts


def add_arguments(parser, command):
    """The arguments that all commands on a trained model share; `command` names the folder of its files."""
    add_run(parser)
    place = f"default: RUN/{command}; of a checkpoint file, runs/NAME-{command}"
    place = f"folder for its files, which replace those of the same names ({place})"
    parser.add_argument("--out", type=cli.path, metavar="DIR", help=place)
    add_backend(parser)


def add_run(parser):
    where = "a run directory, or a checkpoint file (default: the model that ships)"
    parser.add_argument("run", type=cli.path, nargs="?", default=TRAINED, metavar="RUN", help=where)


def add_backend(parser):
    parser.add_argument(
        "--backend",
        type=cli.one_of("backend", list(BACKENDS)),
        metavar="NAME",
        help=f"what computes: {', '.join(BACKENDS)} (default: numba where it imports)",
    )
