"""What a model is trained on, text or the recall task: batches, validation, questions with known answers."""

from dataclasses import asdict
from hashlib import sha256

import numpy as np

from gpn_ref import cloze, measures
from gpn_ref.cli import unknown
from gpn_ref.files import DATA
from gpn_ref.text import corpora
from gpn_ref.text.batches import Batches, encode_documents, validation_windows
from gpn_ref.text.recall import RecallBatches, RecallConfig, recall_evaluation, recall_ranks
from gpn_ref.text.tokenizer import byte_lengths, encoding_from_ranks, load_tokenizer, train_bpe

NAMES = [*corpora.CORPORA, "recall"]
VALIDATION_TOKENS = 2**16  # at most, so that validation stays cheap beside any corpus
UNTRAINED_GAPS = (16, 32)


def load_task(name, files=(), vocab_size=None, encoding=None, recall=None):
    """The task of a corpus, by name, or of text files; `recall` is the RecallConfig of the corpus of that name.

    `encoding` is the tokenizer of a run that goes on; else stories bring theirs, and other text gets a
    byte-pair encoding of `vocab_size` tokens, made from its training part.
    """
    if name not in NAMES and not files:
        raise ValueError(unknown("corpus", name, NAMES))
    if name == "recall" and not files:
        return RecallTask(recall or RecallConfig())
    corpus = corpora.load_corpus(name, files)
    if encoding is None and corpus.cloze:
        encoding = load_tokenizer(DATA / "stories" / "tokenizer.ranks")
    elif encoding is None:
        encoding = encoding_from_ranks(train_bpe("\n\n".join(corpus.train), vocab_size))
    return TextTask(corpus, encoding)


class TextTask:
    """A corpus in tokens."""

    def __init__(self, corpus, encoding):
        self.name, self.encoding, self.cloze_items = corpus.name, encoding, corpus.cloze
        self.documents = len(corpus.train)
        self.window_start = "document" if corpus.cloze else "any"
        self.tokens, self.starts = encode_documents(corpus.train, encoding)
        self.validation_tokens, self.validation_starts = encode_documents(corpus.validation, encoding)

    def describe(self):
        """A line on the text and a line on the tokenizer."""
        n_bytes = int(byte_lengths(self.tokens, self.encoding).sum())
        return {
            "corpus": f"{self.name}: {n_bytes:,} bytes, {len(self.tokens):,} tokens in {self.documents:,} "
            f"documents; {len(self.validation_tokens):,} tokens apart for validation",
            "tokenizer": f"{self.encoding.n_vocab:,} tokens; "
            f"{n_bytes / len(self.tokens):.2f} bytes of this text a token",
        }

    def batch_size(self, train_config):
        """A batch in words."""
        return f"{train_config.batch_size} sequences of {train_config.window} tokens"

    def checksum(self):
        """Changes with any token of the text."""
        return sha256(self.tokens.tobytes() + self.validation_tokens.tobytes()).hexdigest()

    def batches(self, train_config):
        """Endless training batches, whose position can be saved."""
        return Batches(self.tokens, self.starts, train_config)

    def validation(self, train_config):
        """At most VALIDATION_TOKENS of the text held back, in windows as long as those of training."""
        size = train_config.window, VALIDATION_TOKENS
        return measures.Validation(self.windows(*size), self.target_bytes(*size))

    def windows(self, window, n_tokens):
        """At most `n_tokens` of the text held back: a list of inputs (B, window) and targets (B, window)."""
        return self._windows(self.validation_tokens, window, n_tokens)

    def target_bytes(self, window, n_tokens):
        """The bytes of the targets of each row of these windows, a list of (B).

        They are counted in the whole text: a window may begin inside of a byte that is written with three tokens.
        """
        lengths = byte_lengths(self.validation_tokens, self.encoding)
        return [targets.sum(axis=1) for _, targets in self._windows(lengths, window, n_tokens)]

    def _windows(self, tokens, window, n_tokens):
        if len(tokens) <= window:
            raise ValueError(
                f"{self.name} has {len(tokens):,} tokens to measure on, but sequences of {window:,} tokens need "
                f"{window + 1:,}: give more text or ask for shorter ones"
            )
        batch_size, limit = max(1, measures.BATCH_TOKENS // window), max(1, n_tokens // window)
        return validation_windows(tokens, self.validation_starts, batch_size, window, limit)

    def questions(self, bound):
        """What the model answers of the cloze set, a `measures.Answers`, or None without one."""
        return cloze.ask(bound, self.cloze_questions()) if self.cloze_items else None

    def cloze_questions(self):
        """The questions of the corpus's own cloze set; none where it has none."""
        return [cloze.question(item, self.encoding) for item in self.cloze_items or []]


class RecallTask:
    """Multi-query associative recall, generated as it is needed; the same methods as TextTask."""

    name, window_start = "recall", "document"

    def __init__(self, config):
        self.config, self.gaps = config, tuple(dict.fromkeys(config.gaps))  # a gap drawn more often counts once
        self.encoding = encoding_from_ranks(recall_ranks(config))
        self.asked_gaps = tuple(dict.fromkeys((*self.gaps, *UNTRAINED_GAPS)))
        # a sample, for token counts and the trigram
        self.tokens = np.concatenate([inputs.ravel() for inputs, _ in self._sequences(seed=1)])

    def describe(self):
        config = self.config
        return {
            "task": f"recall: {config.pairs} pairs of {config.n_keys} keys and {config.n_values} values, a gap "
            f"of {', '.join(map(str, self.gaps))} tokens, then the keys again: which values?",
            "tokenizer": f"{self.encoding.n_vocab} tokens, one a key, value or filler",
        }

    def batch_size(self, train_config):
        lengths = [4 * self.config.pairs + gap for gap in self.gaps]
        return f"{train_config.batch_size} sequences of {min(lengths)} to {max(lengths)} tokens"

    def checksum(self):
        return sha256(repr(asdict(self.config)).encode()).hexdigest()

    def batches(self, train_config):
        return RecallBatches(self.config, train_config)

    def validation(self, train_config):
        return measures.Validation(self.windows(), self.target_bytes())

    def windows(self, window=None, n_tokens=VALIDATION_TOKENS):
        """Sequences of each gap in training, a batch a gap; they are as long as the task makes them."""
        return list(self._sequences(n_tokens))

    def target_bytes(self, window=None, n_tokens=VALIDATION_TOKENS):
        """The bytes of the targets of each of these sequences, a list of (B)."""
        return [byte_lengths(targets, self.encoding).sum(axis=1) for _, targets in self.windows(window, n_tokens)]

    def questions(self, bound):
        rows = measures.recall_rows(self.config, max(self.asked_gaps))
        return measures.recall(bound, self.config, self.asked_gaps, rows)

    def cloze_questions(self):
        return []

    def _sequences(self, n_tokens=VALIDATION_TOKENS, seed=0):
        for gap in self.gaps:
            rows = measures.recall_rows(self.config, gap, n_tokens)
            yield recall_evaluation(self.config, rows, gap, seed)[:2]
