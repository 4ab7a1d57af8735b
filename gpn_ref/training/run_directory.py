"""A run directory: everything that one training run reads and writes.

config.json         model, training, corpus and the command's other choices: enough to build the run again
tokenizer.ranks     the tokenizer
token_counts.npy    (V,) int64, how often each token occurs in the training text
metrics.jsonl       a JSON object a step; METRICS says what is in it
samples.txt         what the model writes as it learns
checkpoints/        step-000400.safetensors and the one before it
loss.png            the losses by step
results.json        what the finished run came to, beside the baselines
"""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np

from gpn_ref.files import atomic_write
from gpn_ref.training.checkpoint import read_checkpoint, write_checkpoint

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


class RunDirectory:
    """An existing run directory. ValueError or OSError, naming the path, if `path` is none."""

    def __init__(self, path):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.results_path = self.path / "results.json"
        config = self.path / "config.json"
        if not self.path.exists():
            raise ValueError(f"{self.path} does not exist; it must be a run directory")
        if not config.is_file():
            raise ValueError(f"{self.path} is not a run directory: it has no config.json")
        try:
            self.config = json.loads(config.read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(f"{config} is damaged: it is not JSON") from None
        for part in ("choices", "model", "training", "corpus"):
            if not isinstance(self.config, dict) or not isinstance(self.config.get(part), dict):
                raise ValueError(f"{config} is damaged: it has no object {part!r}")

    @classmethod
    def create(cls, path, config, ranks_text, token_counts):
        """Make a run directory, all at once or not at all.

        `config` holds JSON types; `ranks_text` is the text of a rank file, `token_counts` (V,). ValueError if
        `path` exists and is not an empty directory.
        """
        path = Path(path)
        require_free(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            (temporary / "checkpoints").mkdir(parents=True)
            with atomic_write(temporary / "config.json") as file:
                file.write(json.dumps(config, indent=2) + "\n")
            with atomic_write(temporary / "tokenizer.ranks") as file:
                file.write(ranks_text)
            with atomic_write(temporary / "token_counts.npy", "wb") as file:
                np.save(file, token_counts)
            for name in LOGS:
                (temporary / name).touch()
            if path.exists():
                path.rmdir()
            temporary.rename(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return cls(path)

    def append(self, log, text):
        """Add text to a log, unbuffered: a killed run loses nothing, and a full disk is an OSError here."""
        with open(self.path / log, "ab", buffering=0) as file:
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

    def cut_logs(self, lengths):
        """Cut each log back to the length that a checkpoint names (0 without one)."""
        for name in LOGS:
            length = lengths.get(name, 0)
            with open(self.path / name, "ab") as file:
                if file.tell() < length:
                    raise ValueError(
                        f"{self.path / name} has {file.tell()} bytes; the checkpoint needs its first {length}"
                    )
                if file.tell() > length:
                    file.truncate(length)

    def metrics(self):
        """The records of metrics.jsonl, a dict a step."""
        with open(self.path / "metrics.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def samples(self):
        """Titles and texts of samples.txt, the first of an untrained model."""
        parts = SAMPLE_TITLE.split((self.path / "samples.txt").read_text(encoding="utf-8"))
        return [(title, text.strip("\n")) for title, text in zip(parts[1::2], parts[2::2], strict=True)]

    def save(self, checkpoint, before):
        """Write a checkpoint, then drop all others but that of the step `before` (None: there is none)."""
        path = self.checkpoint_path(checkpoint.step)
        write_checkpoint(path, checkpoint)
        for other in self.checkpoint_paths():
            if other != path and (before is None or other != self.checkpoint_path(before)):
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
        for path in paths:
            try:
                checkpoint = read_checkpoint(path)
                check(path, checkpoint)
                return checkpoint
            except (ValueError, OSError) as error:
                warn(str(error))
        if paths:
            raise ValueError(f"none of the {len(paths)} checkpoints in {self.checkpoints} can be used")
        return None

    def remove_leftovers(self):
        """Delete temporary files of a process that was killed while it wrote."""
        for folder in (self.path, self.checkpoints):
            for path in folder.glob(".*.tmp"):
                path.unlink()


def require_free(path):
    """ValueError unless `path` can become a run directory: it does not exist, or is an empty directory."""
    path = Path(path)
    if (path / "config.json").exists():
        raise ValueError(f"{path} already holds a run; go on with --resume {path}, or choose another --out")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; --out must name a new or empty directory")
    if path.exists() and any(path.iterdir()):
        raise ValueError(f"{path} is not empty; --out must name a new or empty directory")
