"""A run directory: everything that one training run reads and writes.

config.json         model, training, corpus and the command's other choices: enough to build the run again
tokenizer.ranks     the tokenizer
token_counts.npy    (V,) int64, how often each token occurs in the training text
metrics.jsonl       a JSON object a step; METRICS says what is in it
samples.txt         what the model writes as it learns
checkpoints/        step-000400.safetensors and the one before it
loss.png            the losses by step
results.json        what the finished run came to, beside the baselines
.lock               held by the process that trains

config.json comes last: a directory with `.lock` but without it is what a killed start has left, and free.
"""

import io
import json
import os
import re
import shutil
from contextlib import suppress
from itertools import zip_longest
from math import isfinite
from pathlib import Path

import numpy as np

from gpn_ref.cli import shell
from gpn_ref.files import atomic_write, named
from gpn_ref.training.checkpoint import read_checkpoint, write_checkpoint

try:
    import fcntl
except ImportError:  # Windows: two processes on one run are not told apart
    fcntl = None

METRICS = {
    "step": "optimizer steps done",
    "tokens": "tokens trained on so far",
    "loss": "mean over this step's batch, before the step, nats per token",
    "learning_rate": "of this step",
    "gradient_norm": "global, before clipping",
    "tokens_per_second": "of this step",
    "validation_loss": "nats per token; at every evaluation only, as the next two",
    "validation_perplexity": "exp of it",
    "validation_bits_per_byte": "the same surprise by bytes of text: tokenizers don't change it",
}
TIME_FIELDS = ("tokens_per_second",)  # what differs between two equal runs
LOGS = ("metrics.jsonl", "samples.txt")
CHECKPOINT_NAME = re.compile(r"step-(\d{6,})\.safetensors")
SAMPLE_TITLE = re.compile(r"^--- (after \d+ steps) ---\n", re.MULTILINE)


class InUse(ValueError):
    """The directory holds something else, or another process trains in it."""


class RunDirectory:
    """An existing run directory. ValueError or OSError, naming the path, if `path` is none."""

    def __init__(self, path):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.results_path = self.path / "results.json"
        self.config_path = self.path / "config.json"
        self._lock, self._made = None, None
        if not self.path.exists():
            raise ValueError(f"{self.path} does not exist; it must be a run directory")
        if not self.config_path.is_file():
            raise ValueError(f"{self.path} is not a run directory: it has no config.json")
        try:
            self.config = json.loads(self.config_path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            raise ValueError(f"{self.config_path} is damaged: it is not JSON") from None

    @classmethod
    def create(cls, path, config, ranks_text, token_counts):
        """Make a run directory, all at once or not at all, and hold it.

        `config` holds JSON types; `ranks_text` is the text of a rank file, `token_counts` (V,). InUse if
        `path` is in use: not a new or empty directory, nor one that a killed start has left.
        """
        path = Path(path)
        require_free(path)
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        lock = hold(path)
        try:
            require_free(path)  # still
        except InUse:
            lock.close()
            raise
        try:
            _remove_leftovers(path)
            (path / "checkpoints").mkdir(exist_ok=True)
            with atomic_write(path / "tokenizer.ranks") as file:
                file.write(ranks_text)
            counts = io.BytesIO()
            np.save(counts, token_counts)
            with atomic_write(path / "token_counts.npy", "wb") as file:
                file.write(counts.getvalue())
            for name in LOGS:
                (path / name).touch()
            with atomic_write(path / "config.json") as file:
                file.write(json.dumps(config, indent=2) + "\n")
            run = cls(path)
        except BaseException:
            _discard(path, made, lock)
            raise
        run._lock, run._made = lock, made
        return run

    def __enter__(self):
        """Keep other processes from training here until the block, or this process, ends; InUse if one does."""
        self._lock = self._lock or hold(self.path)
        return self

    def __exit__(self, *exception):
        if self._lock:
            self._lock.close()

    def discard(self):
        """Remove what `create` made, and the directories above that it needed."""
        _discard(self.path, self._made, self._lock)

    def append(self, log, text):
        """Add text to a log, unbuffered: a killed run loses nothing, and a full disk is an OSError here."""
        with named(self.path / log), open(self.path / log, "ab", buffering=0) as file:
            data = memoryview(text.encode("utf-8"))
            while data:
                data = data[file.write(data) :]

    def append_sample(self, step, text):
        """Add what the model writes after `step` steps."""
        self.append("samples.txt", f"--- after {step} steps ---\n{text}\n\n")

    def log_lengths(self):
        """Bytes of each log, all of them on the disk."""
        lengths = {}
        for name in LOGS:
            with open(self.path / name, "ab") as file:
                os.fsync(file.fileno())
                lengths[name] = file.tell()
        return lengths

    def check_logs(self, lengths, step, finished=False):
        """ValueError or OSError unless the logs hold all that they should after `step` steps, as long as `lengths` say.

        Without a checkpoint (`step` None) they must be those of a run that has not done a step.
        """
        metrics, samples = self.path / "metrics.jsonl", self.path / "samples.txt"
        for path in (metrics, samples):
            size, wanted = path.stat().st_size, lengths.get(path.name, 0)
            if size < wanted:
                raise ValueError(f"{path} has {size} bytes; the checkpoint needs its first {wanted}")
        if step is None:
            if metrics.read_bytes().count(b"\n") > 1:
                raise ValueError(f"{self.checkpoints} has no checkpoint, but {metrics} has steps: put it back")
            return
        with open(metrics, "rb") as file:
            lines = file.read(lengths.get(metrics.name, 0)).split(b"\n")
        for number, line in enumerate(lines[:-1]):
            if not _is_record(line, number):
                raise ValueError(f"{metrics} is damaged: line {number + 1} is not the record of step {number}")
        if len(lines) != step + 2 or lines[-1] or finished and b'"validation_loss"' not in lines[-2]:
            raise ValueError(f"{metrics} is damaged: it does not end with step {step}")
        with open(samples, "rb") as file:
            text = file.read(lengths.get(samples.name, 0))
        if not text.startswith(b"--- after 0 steps ---\n") or not text.endswith(b"\n") or not _is_utf8(text):
            raise ValueError(f"{samples} is damaged: it is not the samples of this run")

    def cut_logs(self, lengths):
        """Cut each log back to the length that a checkpoint names (0 without one)."""
        for name in LOGS:
            with named(self.path / name), open(self.path / name, "ab") as file:
                if file.tell() > lengths.get(name, 0):
                    file.truncate(lengths.get(name, 0))

    def metrics(self):
        """The records of metrics.jsonl, a dict a step."""
        with open(self.path / "metrics.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def samples(self):
        """Titles and texts of samples.txt, the first of an untrained model."""
        parts = SAMPLE_TITLE.split((self.path / "samples.txt").read_text(encoding="utf-8"))
        return [(title, text.strip("\n")) for title, text in zip(parts[1::2], parts[2::2], strict=True)]

    def results(self):
        """What results.json holds, or None if it is missing or damaged."""
        try:
            results = json.loads(self.results_path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return results if isinstance(results, dict) else None

    def save(self, checkpoint, before):
        """Write a checkpoint, then drop all others but that of the step `before` (None: there is none)."""
        path = self.checkpoint_path(checkpoint.step)
        if path.is_dir():  # it was named when the run was resumed
            path.rename(path.with_name(f"{path.name}.directory"))
        write_checkpoint(path, checkpoint)
        for other in self.checkpoint_paths():
            if other != path and (before is None or other != self.checkpoint_path(before)) and not other.is_dir():
                other.unlink()

    def checkpoint_path(self, step):
        return self.checkpoints / f"step-{step:06d}.safetensors"

    def checkpoint_paths(self):
        """The checkpoints' paths, the newest first."""
        found = [
            (match, path) for path in self.checkpoints.glob("*") if (match := CHECKPOINT_NAME.fullmatch(path.name))
        ]
        return [path for match, path in sorted(found, key=lambda pair: int(pair[0][1]), reverse=True)]

    def latest_checkpoint(self, warn, check=lambda path, checkpoint: None):
        """The newest checkpoint that can be used, or None if there is none yet.

        One that is damaged, or that `check` raises a ValueError for, is named by `warn(line)`, and the one
        before it used. ValueError if there are checkpoints, but none can be used.
        """
        paths = self.checkpoint_paths()
        for path, before in zip_longest(paths, paths[1:]):
            try:
                checkpoint = read_checkpoint(path)
                check(path, checkpoint)
                return checkpoint
            except OSError as error:
                problem = f"{path}: {error.strerror}"
            except ValueError as error:
                problem = str(error)
            warn(f"{problem}; looking at the one before" if before else problem)
        if paths:
            raise ValueError(f"none of the {len(paths)} checkpoints in {self.checkpoints} can be used")
        return None

    def clean(self, warn):
        """Drop what a process that was killed has left: temporary files, a third checkpoint."""
        self.checkpoints.mkdir(exist_ok=True)
        for folder in (self.path, self.checkpoints):
            _remove_leftovers(folder, warn)
        for path in self.checkpoint_paths()[2:]:
            if not path.is_dir():
                path.unlink()


def require_free(path):
    """InUse unless `path` can become a run directory: new, empty, or left by a start that was killed."""
    path = Path(path)
    if (path / "config.json").exists():
        raise InUse(f"{path} already holds a run; go on with --resume {shell(path)}, or choose another --out")
    if path.exists() and not path.is_dir():
        raise InUse(f"{path} is a file; --out must name a new or empty directory")
    if path.exists() and any(path.iterdir()) and not (path / ".lock").exists():
        raise InUse(f"{path} is not empty; --out must name a new or empty directory")


def hold(path):
    """The directory's open `.lock`: the system lets go of it when the process ends, however that ends.

    InUse if another process holds it.
    """
    file = open(path / ".lock", "ab")
    try:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InUse(f"{path} is being trained by another process") from None
    except OSError:  # a file system without locks
        pass
    return file


def _discard(path, made, lock):
    """Remove a run that did not begin, and the folders made for it; whatever else lies there stays."""
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    for name in ("config.json", "tokenizer.ranks", "token_counts.npy", *LOGS, ".lock"):
        (path / name).unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        for folder in made:
            folder.rmdir()
    lock.close()


def _remove_leftovers(folder, warn=None):
    for path in folder.glob(".*.tmp"):
        if not path.is_dir():
            path.unlink()
        elif warn:
            warn(f"{path} is a directory, and none of this run's; it is left alone")


def _is_record(line, step):
    """Whether the line is what metrics.jsonl holds of that step."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    evaluation = {name for name in METRICS if name.startswith("validation")}
    wanted = {"step", "tokens"} | (set(METRICS) - evaluation if step else evaluation)
    if not isinstance(record, dict) or set(record) not in (wanted, wanted | evaluation):
        return False
    return record["step"] == step and all(type(value) in (int, float) and isfinite(value) for value in record.values())


def _is_utf8(data):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
