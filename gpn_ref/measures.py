"""What a model knows: its loss on text, by sequence and by position, and what it recalls."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter

import numpy as np
from tqdm import tqdm

from gpn_ref.statistics import interval
from gpn_ref.text.recall import recall_evaluation

BATCH_TOKENS = 4096  # of an evaluation's batch: many enough for fast products, few enough for the memory
PART = 2**16  # logits that a cross entropy turns to float64 at once: few enough for the cache
RECALL_ROWS, RECALL_TOKENS = 256, 2**16  # of an evaluation of the recall task, at most


def cross_entropy(logits, targets):
    """(...,) nats, float64: -log softmax(logits)[target], from (..., V) logits and (...,) targets."""
    rows, targets = logits.reshape(-1, logits.shape[-1]), np.asarray(targets)
    nll, size = np.empty(targets.size), max(1, PART // logits.shape[-1])
    for first in range(0, len(rows), size):
        part = slice(first, first + size)
        shifted = rows[part].astype(np.float64)
        shifted -= shifted.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(shifted, targets.ravel()[part, None], axis=-1)[:, 0]
        nll[part] = np.log(np.exp(shifted).sum(axis=-1)) - chosen
    return nll.reshape(targets.shape)


def require_finite(nll):
    """ValueError if a cross entropy is not finite."""
    if not np.isfinite(nll).all():
        raise ValueError("the model's numbers overflow on this text: a loss is not finite, and nothing can be measured")


def perplexity(loss):
    """exp of a loss in nats per token; a model that has run wild gets the largest power that is finite."""
    return math.exp(min(loss, 700.0))


class Validation:
    """Validation text as a list of batches: inputs (B, T) and targets (B, T), each row scored from the zero state."""

    def __init__(self, batches, n_bytes):
        """`n_bytes`: of each batch (B), the bytes of each row's targets."""
        self.batches = batches
        self.size = sum(targets.size for _, targets in batches)
        self.bytes = sum(int(of_batch.sum()) for of_batch in n_bytes)

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


def spans(T):
    """Borders of the spans of positions that are told together: (0, 1, 2, ..., 32, 34, ..., T), wider and wider."""
    borders = [0]
    while borders[-1] < T:
        borders.append(min(T, borders[-1] + max(1, borders[-1] // 16)))
    return borders


class PositionSums:
    """Mean and standard error of a number by position, over sequences that may differ in length."""

    def __init__(self, T):
        self.spans = np.array(list(pairwise(spans(T))))  # (S, 2): a span's first position, counted from 0, and its end
        self._sums = np.zeros((3, len(self.spans)))  # how many sequences reach a span, their means, these squared

    def add(self, values, first=0):
        """Count in values (B, n), of the positions from `first` on."""
        end = first + values.shape[1]
        for span, (begin, stop) in enumerate(self.spans):
            if begin < end and stop > first:
                means = values[:, max(0, begin - first) : stop - first].mean(axis=1)
                self._sums[:, span] += len(means), means.sum(), (means**2).sum()

    def statistics(self):
        """(S,) each: number of sequences, mean, standard error of the mean; NaN where there are too few."""
        count, total, squares = self._sums
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = total / count
            variance = np.maximum(squares / count - mean**2, 0)
            return count.astype(int), mean, np.sqrt(variance / (count - 1))


class TextScore:
    """What a model's cross entropy on sequences of up to T tokens comes to: sums only, so that long texts fit."""

    def __init__(self, T):
        self.sequences = []  # of each batch: (B, 3), nats, tokens and bytes of each sequence
        self.quarters = []  # of each batch: (B, 5), mean nats of the quarters, and of the last with half hidden
        self.positions, self.halves = PositionSums(T), PositionSums(T)  # of nats: read whole; read from the middle on
        self.seconds = 0.0  # that reading the text whole took

    def add(self, nll, n_bytes, half=None):
        """Count a batch in: nll (B, T) nats and n_bytes (B) of its targets.

        `half` (B, T - T // 2): nats of the second half when the model was not shown the first.
        """
        B, T = nll.shape
        self.sequences.append(np.stack([nll.sum(axis=1), np.full(B, T), n_bytes], axis=1))
        self.positions.add(nll)
        if half is not None:
            self.halves.add(half, T // 2)
            borders = [T * quarter // 4 for quarter in range(5)]
            parts = [nll[:, begin:end] for begin, end in pairwise(borders)] + [half[:, borders[3] - borders[2] :]]
            self.quarters.append(np.stack([part.mean(axis=1) for part in parts], axis=1))

    def estimates(self, seed=0):
        """The loss in its three units, each with its interval over sequences."""
        losses, tokens, n_bytes = np.concatenate(self.sequences).T
        return {
            "sequences": len(losses),
            "tokens": int(tokens.sum()),
            "bytes": int(n_bytes.sum()),
            "loss": estimate(losses, tokens, seed),
            "perplexity": estimate(losses, tokens, seed, perplexity),
            "bits_per_byte": estimate(losses / math.log(2), n_bytes, seed),
        }

    def context(self, seed=0):
        """How much more a token of the window's last quarter costs, in nats; {} of windows too short for quarters.

        More than one of the first and of the second quarter, whose text may differ; and when the model was not shown
        the window's first half, how much more than when it was.
        """
        if not self.quarters:
            return {}
        first, second, _, last, half = np.concatenate(self.quarters).T
        more = {
            "than_first_quarter": last - first,
            "than_second_quarter": last - second,
            "without_first_half": half - last,
        }
        return {f"more_{name}": estimate(nats, seed=seed) for name, nats in more.items()}


def score_text(bound, batches, n_bytes):
    """The TextScore of a bound model on a list of inputs (B, T) and targets (B, T), each row from the zero state.

    `n_bytes`: of each batch (B), the bytes of each row's targets. ValueError where the model's numbers overflow.
    """
    score = TextScore(max(targets.shape[1] for _, targets in batches))
    total = sum(targets.size for _, targets in batches)
    bound.forward(batches[0][0][:1, :1])  # a first call may load compiled code, which is no part of the speed
    with tqdm(total=total, desc="scoring", unit=" tokens", unit_scale=True, disable=None, leave=False) as progress:
        for (inputs, targets), of_batch in zip(batches, n_bytes, strict=True):
            began = perf_counter()
            nll = cross_entropy(bound.forward(inputs).logits, targets)
            score.seconds += perf_counter() - began
            require_finite(nll)
            T, half = targets.shape[1], None
            if T >= 4:
                half = cross_entropy(bound.forward(inputs[:, T // 2 :]).logits, targets[:, T // 2 :])
            score.add(nll, of_batch, half)
            progress.update(targets.size)
    return score


def estimate(sums, sizes=None, seed=0, unit=float):
    """{"value", "interval"} of sum(sums) / sum(sizes), by `statistics.interval`; `unit` makes of it what is told."""
    value = np.sum(sums) / (len(sums) if sizes is None else np.sum(sizes))
    return {"value": unit(value), "interval": [unit(end) for end in interval(sums, sizes, seed)]}


@dataclass(frozen=True)
class Answers:
    """Which questions a model got right, in groups by how far back the answer lies."""

    correct: np.ndarray  # (n,) bool
    groups: dict[str, np.ndarray]  # (n,) bool: the questions of a distance
    chance: float | None  # accuracy of drawing one of the candidates blindly, where they are known

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


def recall(bound, config, gaps, rows):
    """Accuracy on the values asked for after each of the gaps, `rows` sequences a gap: the likeliest of all tokens."""
    correct = [recalled(bound, config, gap, rows).ravel() for gap in gaps]
    trained = {gap: "" if gap in config.gaps else ", never trained" for gap in gaps}
    names = np.repeat([f"gap of {gap} tokens{trained[gap]}" for gap in gaps], [right.size for right in correct])
    return Answers(np.concatenate(correct), {name: names == name for name in dict.fromkeys(names)}, config.chance)


def recalled(bound, config, gap, rows, seed=0):
    """(rows, pairs) bool: of each value asked for after the gap, whether it is the likeliest of all tokens."""
    inputs, targets, answers = recall_evaluation(config, rows, gap, seed)
    size = max(1, BATCH_TOKENS // inputs.shape[1])
    guesses = [bound.forward(inputs[i : i + size]).logits.argmax(axis=-1) for i in range(0, rows, size)]
    return (np.concatenate(guesses) == targets)[answers].reshape(rows, config.pairs)


def recall_rows(config, gap, n_tokens=RECALL_TOKENS):
    """Sequences of an evaluation: fewer of long ones, so that it stays cheap."""
    return min(RECALL_ROWS, 1 + n_tokens // (4 * config.pairs + gap))


def recall_grid(bound, config, pairs, gaps, seed=0):
    """Number of pairs -> a list: the accuracy after each gap, its interval over sequences, and if it was trained."""
    with tqdm(total=len(pairs) * len(gaps), desc="recall", disable=None, leave=False) as progress:
        return {count: [_recall_cell(bound, config, count, gap, seed, progress) for gap in gaps] for count in pairs}


def _recall_cell(bound, config, pairs, gap, seed, progress):
    sizes = replace(config, pairs=pairs)
    right = recalled(bound, sizes, gap, recall_rows(sizes, gap), seed)
    progress.update()
    return {
        "gap": gap,
        "trained": pairs == config.pairs and gap in config.gaps,
        "questions": right.size,
        "accuracy": estimate(right.mean(axis=1), seed=seed),
    }
