"""Checkpoints: one safetensors file that holds all that a run needs to go on, or a sampler to start.

Tensors are named `param/NAME` and `optimizer/NAME`. Everything else is text in the file's metadata, JSON but
for the tokenizer, which is its rank file. `sha256` is the checksum of the whole file as it is with that
checksum's own 64 digits set to 0.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from gpn_ref.config import TrainConfig, config_from_dict, config_to_dict, model_config_from_dict, require_integer
from gpn_ref.files import atomic_write
from gpn_ref.parameters import check_params
from gpn_ref.text.tokenizer import encoding_from_ranks, parse_ranks

FORMAT, VERSION = "gpn_ref checkpoint", 1
NO_SUM = "0" * 64


@dataclass(frozen=True)
class Checkpoint:
    """A run after `step` optimizer steps."""

    step: int
    tokens: int  # trained on so far
    model_config: Any  # a ModelConfig, or that of a baseline
    train_config: TrainConfig
    backend: str  # "numpy", ...
    corpus: dict  # name, files, and a checksum of the tokens
    tokenizer: str  # text of the rank file
    params: dict[str, np.ndarray]
    optimizer: dict[str, np.ndarray]  # the learner's state
    batches: dict  # data position, and the random state of the batches
    sampler: dict  # random state of the samples
    logs: dict  # bytes of each log of the run at this step

    def encoding(self):
        """The tokenizer, a `tiktoken.Encoding`."""
        return encoding_from_ranks(parse_ranks(self.tokenizer.encode(), "the tokenizer"))


def write_checkpoint(path, checkpoint):
    """Write the file whole or not at all; OSError if the disk is full or the place is not writable."""
    fields = dict(vars(checkpoint))
    tensors = {}
    for kind, group in (("param", "params"), ("optimizer", "optimizer")):
        tensors |= {f"{kind}/{name}": np.asarray(value, order="C") for name, value in fields.pop(group).items()}
    fields |= {name: config_to_dict(fields[name]) for name in ("model_config", "train_config")}
    texts = {name: value if name == "tokenizer" else json.dumps(value) for name, value in fields.items()}
    texts |= {"format": FORMAT, "version": str(VERSION), "sha256": NO_SUM}
    content = bytearray(safetensors.numpy.save(tensors, texts))
    _set_sum(content, NO_SUM, sha256(content).hexdigest())
    with atomic_write(path, "wb") as file:
        file.write(content)


def read_checkpoint(path):
    """The Checkpoint in the file.

    A file that is cut, altered, not a checkpoint, or whose parameters do not fit its own configuration is a
    ValueError that names it; a missing one an OSError.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError(f"{path} is not a checkpoint: it is not a regular file")
    content = bytearray(Path(path).read_bytes())
    texts = _read_metadata(path, content)
    if not _set_sum(content, texts["sha256"], NO_SUM) or sha256(content).hexdigest() != texts["sha256"]:
        raise ValueError(f"{path} is cut or altered: its content does not match its checksum")
    try:
        tensors = safetensors.numpy.load(bytes(content))
        fields = {
            name: text if name == "tokenizer" else json.loads(text)
            for name, text in texts.items()
            if name not in ("format", "version", "sha256")
        }
        fields["model_config"] = model_config_from_dict(fields["model_config"])
        fields["train_config"] = config_from_dict(TrainConfig, fields["train_config"])
        for kind, group in (("param/", "params"), ("optimizer/", "optimizer")):
            fields[group] = {name.removeprefix(kind): tensors[name] for name in tensors if name.startswith(kind)}
        checkpoint = Checkpoint(**fields)
        _check_types(checkpoint)
        check_params(checkpoint.params, checkpoint.model_config)
        vocab_size = checkpoint.encoding().n_vocab
    except (SafetensorError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is not a checkpoint that can be used: {error}") from None
    if vocab_size != checkpoint.model_config.vocab_size:
        raise ValueError(
            f"{path} does not fit itself: its tokenizer has {vocab_size} tokens, "
            f"its model {checkpoint.model_config.vocab_size}"
        )
    return checkpoint


def _check_types(checkpoint):
    for name in ("step", "tokens"):
        require_integer(name, getattr(checkpoint, name), at_least=0)
    for name, kind in (("backend", str), ("corpus", dict), ("batches", dict), ("sampler", dict), ("logs", dict)):
        if not isinstance(getattr(checkpoint, name), kind):
            raise ValueError(f"its {name} is {getattr(checkpoint, name)!r:.60}")
    for name, length in checkpoint.logs.items():
        require_integer(f"the length of {name}", length, at_least=0)


def _read_metadata(path, content):
    """The texts in a safetensors file's header: 8 bytes of length, then JSON."""
    size = int.from_bytes(content[:8], "little")
    if content[8:9] != b"{":
        raise ValueError(f"{path} is not a checkpoint: it is {'not a safetensors file' if content else 'empty'}")
    try:
        texts = json.loads(content[8 : 8 + size])["__metadata__"]
        if texts["format"] != FORMAT:
            raise KeyError("format")
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is cut or damaged: its header can't be read") from None
    except (KeyError, TypeError):
        raise ValueError(f"{path} is a safetensors file, but not a checkpoint of this program") from None
    if texts.get("version") != str(VERSION):
        raise ValueError(
            f"{path} is a checkpoint of format {texts.get('version')}; this program reads format {VERSION}"
        )
    if not all(isinstance(text, str) for text in texts.values()) or len(texts.get("sha256", "")) != 64:
        raise ValueError(f"{path} is altered: it has no checksum")
    return texts


def _set_sum(content, old, new):
    """Replace the checksum in place; False if it is not there. A quote inside other metadata is always escaped."""
    key = b'"sha256":"'
    place = content.find(key + old.encode() + b'"')
    if place >= 0:
        content[place + len(key) : place + len(key) + 64] = new.encode()
    return place >= 0
