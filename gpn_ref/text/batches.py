"""Documents to tokens, and tokens to the windows that a model is trained and validated on."""

import numpy as np
from tqdm import tqdm

from gpn_ref import random_state
from gpn_ref.config import require_integer
from gpn_ref.text.tokenizer import END, encode


def encode_documents(documents, encoding):
    """All documents in one row of tokens, each begun by END.

    Returns tokens (n,) int32 and starts (documents,) int64, the positions of the ENDs.
    """
    end = encoding.encode_single_token(END)
    rows = [
        np.array([end, *encode(encoding, document)], dtype=np.int32)
        for document in tqdm(documents, desc="encoding", unit=" documents", disable=None, leave=False)
    ]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    tokens = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int32)
    return tokens, np.cumsum(lengths) - lengths


class Batches:
    """An endless row of training batches whose position can be saved and restored to the bit.

    A window is T + 1 tokens in a row; it runs on into the document that follows, and from the last into the
    first. With `window_start` "document" windows start at a document's END, every document once an epoch in
    an order drawn anew; of a document longer than a window only the beginning is then ever seen. With "any"
    each window starts at a token drawn from all: long documents are seen whole, but most windows start
    without what came before.
    """

    def __init__(self, tokens, starts, train_config):
        _require_a_window("training", tokens, train_config.window)
        self.tokens, self.starts, self.config = tokens, starts, train_config
        self.random = random_state.generator(train_config.seed, "batches")
        self._draw_epoch()

    def next(self):
        """inputs (B, T) and targets (B, T), int32; the targets are the inputs one token on."""
        begins = np.zeros(0, dtype=np.int64)
        while len(begins) < self.config.batch_size:
            if self.position == len(self.epoch):
                self._draw_epoch()
            more = self.epoch[self.position :][: self.config.batch_size - len(begins)]
            self.position += len(more)
            begins = np.concatenate([begins, more])
        return _windows(self.tokens, begins, self.config.window)

    def state(self):
        """Where the next batch comes from, as JSON types."""
        return {"random": self.epoch_random, "position": self.position}

    def load(self, state):
        """Go on from a `state()` of the same tokens and configuration; ValueError if it cannot be one."""
        if not isinstance(state, dict) or set(state) != {"random", "position"}:
            raise ValueError(f"{state!r:.60} is not a position in the training data")
        require_integer("the position in the training data", state["position"], at_least=0)
        random_state.load(self.random, state["random"])
        self._draw_epoch()
        if state["position"] > len(self.epoch):
            raise ValueError(
                f"the position in the training data is {state['position']} of {len(self.epoch)}: other data"
            )
        self.position = state["position"]

    def _draw_epoch(self):
        self.epoch_random, self.position = random_state.save(self.random), 0
        if self.config.window_start == "document":
            self.epoch = self.random.permutation(self.starts)
        else:
            self.epoch = self.random.integers(len(self.tokens), size=self.config.batch_size)


def validation_windows(tokens, starts, batch_size, window, limit):
    """The same windows every time, none overlapping another, for either `window_start`.

    A window starts at a document's END or, while the document's rest still fills a window, where the last
    window ended; so fewer than T tokens a document are left out. Of more than `limit` windows only every
    second, third, ... is kept. Returns a list of inputs (B, T) and targets (B, T), int32; the last batch may
    have fewer rows.
    """
    _require_a_window("validation", tokens, window)
    begins, position = [], 0
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        position = max(position, int(start))
        while (position == start or position + window <= end) and position + window < len(tokens):
            begins.append(position)
            position += window
    kept = np.array(begins[:: -(-len(begins) // limit)])
    return [_windows(tokens, kept[first : first + batch_size], window) for first in range(0, len(kept), batch_size)]


def _windows(tokens, begins, window):
    rows = tokens[(begins[:, None] + np.arange(window + 1)) % len(tokens)]  # (B, T + 1)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def _require_a_window(part, tokens, window):
    if len(tokens) <= window:
        raise ValueError(
            f"the {part} text has {len(tokens)} tokens, but a window of {window} needs {window + 1}: "
            "give more text or a smaller window"
        )
