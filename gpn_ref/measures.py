"""What a model knows: its loss on validation text, and words that only the text before them tells."""

import math
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from gpn_ref.text.recall import recall_evaluation
from gpn_ref.text.tokenizer import END, byte_lengths, encode

BATCH_TOKENS = 4096  # of an evaluation's batch: many enough for fast products, few enough for the memory

DISTANCES = (  # tokens since a cloze passage last named its answer
    ("up to 20 tokens", 0, 20),
    ("21-60 tokens", 21, 60),
    ("61-150 tokens", 61, 150),
    ("over 150 tokens", 151, math.inf),
)


def cross_entropy(logits, targets):
    """(...,) nats, float64: -log softmax(logits)[target], from (..., V) logits and (...,) targets."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, np.asarray(targets)[..., None], axis=-1)[..., 0]
    return np.log(np.exp(shifted).sum(axis=-1)) - chosen


def perplexity(loss):
    """exp of a loss in nats per token; a model that has run wild gets the largest power that is finite."""
    return math.exp(min(loss, 700.0))


class Validation:
    """Validation text as a list of batches: inputs (B, T) and targets (B, T), each row scored from the zero state."""

    def __init__(self, batches, encoding):
        self.batches = batches
        self.size = sum(targets.size for _, targets in batches)
        self.bytes = sum(int(byte_lengths(targets, encoding).sum()) for _, targets in batches)

    def loss(self, bound):
        """Mean cross entropy of a bound model in nats per token."""
        return self._mean(lambda inputs, targets: cross_entropy(bound.forward(inputs).logits, targets))

    def trigram_loss(self, trigram):
        """That of a Trigram, which sees what a model sees: the row so far."""
        return self._mean(lambda inputs, targets: trigram.nll(np.concatenate([inputs, targets[:, -1:]], axis=1)))

    def _mean(self, nll):
        return float(sum(nll(inputs, targets).sum() for inputs, targets in self.batches) / self.size)

    def bits_per_byte(self, loss):
        """A loss in nats per token as bits per byte of the targets' text."""
        return loss * self.size / math.log(2) / max(self.bytes, 1)

    def record(self, loss):
        """What an evaluation adds to a step's metrics."""
        return {
            "validation_loss": loss,
            "validation_perplexity": perplexity(loss),
            "validation_bits_per_byte": self.bits_per_byte(loss),
        }


@dataclass(frozen=True)
class Answers:
    """Which questions a model got right, in groups by how far back the answer lies."""

    correct: np.ndarray  # (n,) bool
    groups: dict[str, np.ndarray]  # (n,) bool: the questions of a distance
    chance: float  # accuracy of drawing one of the candidates blindly

    @property
    def accuracy(self):
        return float(self.correct.mean())

    def by_distance(self):
        """Distance -> accuracy and number of questions, where there are any."""
        return {
            name: {"accuracy": float(self.correct[inside].mean()), "questions": int(inside.sum())}
            for name, inside in self.groups.items()
            if inside.any()
        }


def cloze_question(item, encoding):
    """An item's prefix as tokens, END first, and the first token of its last word."""
    text, answer = item["text"], item["answer"]
    if not answer or not text.endswith(answer):
        raise ValueError(f"the cloze passage {text[-60:]!r} does not end with its answer {answer!r}")
    prefix = [encoding.encode_single_token(END), *encode(encoding, text.removesuffix(answer))]
    return prefix, encode(encoding, answer)[0]


def cloze(bound, items, encoding):
    """The paper's accuracy: is the first token of the last word, given its prefix, the likeliest of all tokens?"""
    prefixes, answers = zip(*(cloze_question(item, encoding) for item in items), strict=True)
    lengths = np.array([len(prefix) for prefix in prefixes])
    order = np.argsort(lengths, kind="stable")
    guesses = np.empty(len(items), np.int64)
    progress = tqdm(total=len(items), desc="last words", unit=" passages", disable=None, leave=False)
    while len(order):
        count = max(1, BATCH_TOKENS // lengths[order[-1]])  # the longest first, so that padding stays short
        batch, order = order[-count:], order[:-count]
        inputs = np.zeros((len(batch), lengths[batch].max()), np.int64)  # what follows a prefix is ignored
        for row, index in enumerate(batch):
            inputs[row, : lengths[index]] = prefixes[index]
        logits = bound.forward(inputs).logits
        guesses[batch] = logits[np.arange(len(batch)), lengths[batch] - 1].argmax(axis=-1)
        progress.update(len(batch))
    progress.close()
    distances = np.array([item["distance"] for item in items])
    return Answers(
        correct=guesses == np.array(answers),
        groups={name: (distances >= low) & (distances <= high) for name, low, high in DISTANCES},
        chance=float(np.mean([1 / len(item["candidates"]) for item in items])),
    )


def recall(bound, config, gaps, rows):
    """Accuracy on the values asked for after each of the gaps, `rows` sequences a gap: the likeliest of all tokens."""
    correct, groups = [], []
    for gap in gaps:
        inputs, targets, answers = recall_evaluation(config, rows, gap)
        guesses = bound.forward(inputs).logits.argmax(axis=-1)
        correct.append((guesses == targets)[answers])
        trained = "" if gap in config.gaps else ", never trained"
        groups.append(np.full(correct[-1].shape, f"gap of {gap} tokens{trained}"))
    names = np.concatenate(groups)
    return Answers(np.concatenate(correct), {name: names == name for name in dict.fromkeys(names)}, config.chance)
