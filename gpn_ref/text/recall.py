"""Multi-query associative recall: pairs of key and value, a gap, then every key again, its value to be told.

    <|end|> k07 v13 k21 v04 f03 f00 f09 k21 v04 k07 v13

Nothing but a memory of the pairs tells the values after the gap: a guess is right once in `n_values` times.
The sequences are generated without end.
"""

from dataclasses import dataclass

import numpy as np

from gpn_ref import random_state
from gpn_ref.config import require_integer
from gpn_ref.text.tokenizer import DIGITS, ranks_of


@dataclass(frozen=True)
class RecallConfig:
    """Sizes of the task; a sequence is 1 + 4 · pairs + gap tokens."""

    pairs: int = 4  # pairs a sequence, their keys all different
    n_keys: int = 31  # different keys
    n_values: int = 32  # different values; chance is 1 / n_values
    n_fillers: int = 16  # different symbols that fill the gap
    gaps: tuple[int, ...] = (0, 4, 8)  # tokens between pairs and questions; each batch draws one of these

    def __post_init__(self):
        for name in ("pairs", "n_keys", "n_values", "n_fillers"):
            require_integer(f"recall {name}", getattr(self, name), at_least=1)
        if not self.gaps:
            raise ValueError("recall gaps is empty; it must hold a length or more, 0 for none")
        for gap in self.gaps:
            require_integer("recall gap", gap, at_least=0)
        if self.pairs > self.n_keys:
            raise ValueError(f"recall pairs is {self.pairs}; it must be at most n_keys, {self.n_keys}")

    @property
    def chance(self):
        """The accuracy of guessing."""
        return 1 / self.n_values


LETTERS = {"n_keys": "k", "n_values": "v", "n_fillers": "f"}


def recall_ranks(config):
    """Ranks of a tokenizer with a token for every symbol: keys, then values, then fillers."""
    symbols = [(letter, getattr(config, name)) for name, letter in LETTERS.items()]
    tokens = [f" {letter}{index:02d}".encode() for letter, count in symbols for index in range(count)]
    if len(tokens) < DIGITS:
        raise ValueError(f"recall has {len(tokens)} keys, values and fillers; a tokenizer needs {DIGITS} or more")
    return {token: rank for rank, token in enumerate(tokens)}


def symbol_counts(encoding):
    """How many keys, values and fillers a tokenizer of `recall_ranks` has, by their names in RecallConfig."""
    tokens = [token.decode("utf-8", "replace") for token in ranks_of(encoding)]
    return {name: sum(token.startswith(f" {letter}") for token in tokens) for name, letter in LETTERS.items()}


class RecallBatches:
    """Training batches of the task, in place of `batches.Batches`. A batch's sequences have the same gap."""

    def __init__(self, config, train_config):
        self.config, self.batch_size = config, train_config.batch_size
        self.random = random_state.generator(train_config.seed, "recall batches")

    def next(self):
        """inputs (B, T) and targets (B, T), int32; T = 4 · pairs + gap, so it differs from batch to batch."""
        gap = int(self.random.choice(self.config.gaps))
        inputs, targets, _ = _sequences(self.config, self.batch_size, gap, self.random)
        return inputs, targets

    def state(self):
        """Where the next batch comes from, as JSON types."""
        return {"random": random_state.save(self.random)}

    def load(self, state):
        """Go on from a `state()`; ValueError if it is not one."""
        if not isinstance(state, dict) or set(state) != {"random"}:
            raise ValueError(f"{state!r:.60} is not a position in the recall task")
        random_state.load(self.random, state["random"])


def recall_evaluation(config, batch_size, gap, seed=0):
    """Sequences apart from those of training: inputs (B, T), targets (B, T), and answers (B, T) bool.

    `answers` is True where the target is a value asked for after the gap: `pairs` times a row.
    """
    return _sequences(config, batch_size, gap, random_state.generator(seed, "recall evaluation"))


def _sequences(config, batch_size, gap, random):
    first_value = config.n_keys
    first_filler = first_value + config.n_values
    end = first_filler + config.n_fillers
    every_key = np.tile(np.arange(config.n_keys), (batch_size, 1))
    keys = random.permuted(every_key, axis=1)[:, : config.pairs]
    values = first_value + random.integers(config.n_values, size=keys.shape)
    pairs = np.stack([keys, values], axis=2)  # (B, pairs, 2)
    order = random.permuted(np.tile(np.arange(config.pairs), (batch_size, 1)), axis=1)
    asked = np.take_along_axis(pairs, order[:, :, None], axis=1)
    fillers = first_filler + random.integers(config.n_fillers, size=(batch_size, gap))
    begin = np.full((batch_size, 1), end)
    parts = [begin, pairs.reshape(batch_size, -1), fillers, asked.reshape(batch_size, -1)]
    rows = np.concatenate(parts, axis=1).astype(np.int32)  # (B, 1 + 4 · pairs + gap)
    answers = np.zeros((batch_size, rows.shape[1] - 1), dtype=bool)
    answers[:, 2 * config.pairs + gap + 1 :: 2] = True
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:]), answers
