"""Is it causal? What becomes of the loss and of the answers when something inside a model is taken away.

Every change is compared with the unchanged model on the same tokens, a batch at a time, and leaves one number a
sequence, so that memory hardly grows with the text. A measured array has two planes, as MEASURES names them.
"""

from math import comb
from typing import NamedTuple

import numpy as np

from gpn_ref import random_state
from gpn_ref.inspect.horizons import Retention, head_lives, lags_up_to
from gpn_ref.measures import BATCH_TOKENS, cross_entropy, require_finite
from gpn_ref.model import Interventions
from gpn_ref.statistics import interval
from gpn_ref.text.recall import recall_evaluation
from gpn_ref.training.tasks import RecallTask

MEASURES = ("loss", "accuracy")  # nats of the tokens that count, and how many questions are answered right
MEAN_STATE = {  # what is changed -> the fields of Interventions that take the mean state away
    "before decoding": ("decode_offset",),
    "before grounding": ("ground_offset",),
    "before both": ("decode_offset", "ground_offset"),
}
HEADS = {"no_write": "stop writing", "no_read": "are not read", "no_past": "lose their contents"}
CLEARINGS = tuple(2**i for i in range(8))  # tokens before a question at which the memory is lost


# ---------------------------------------------------------------------------------------------- what is measured on
class Rows(NamedTuple):
    """A batch of text, whose every target counts for the loss, or of passages, which are there for their questions."""

    inputs: np.ndarray  # (B, T)
    targets: np.ndarray  # (B, T)
    is_text: bool
    asked: np.ndarray  # (B, T) bool: the questions, for the accuracy
    distance: np.ndarray  # (B) tokens since the answer was last mentioned; NaN: never, or nobody says

    @property
    def counted(self):
        """(B, T) bool: the targets that count for the loss."""
        return np.full(self.inputs.shape, self.is_text)


def text_rows(task, window, n_tokens):
    """Validation text of the task, a list of Rows; the sequences of the recall task are full of questions."""
    batches = []
    for number, (inputs, targets) in enumerate(task.windows(window, n_tokens)):
        asked = np.zeros(inputs.shape, bool)
        if isinstance(task, RecallTask):
            asked = recall_evaluation(task.config, len(inputs), task.gaps[number])[2]
        unknown = np.full(len(inputs), np.nan)
        at_once = max(1, BATCH_TOKENS // inputs.shape[1])
        for first in range(0, len(inputs), at_once):
            here = slice(first, first + at_once)
            batches.append(Rows(inputs[here], targets[here], True, asked[here], unknown[here]))
    return batches


def passage_rows(questions, n_passages):
    """At most `n_passages` of a cloze set, evenly spaced: a list of Rows that ask for the last word's first token."""
    chosen = np.linspace(0, len(questions) - 1, min(n_passages, len(questions))).round().astype(int)
    questions = sorted((questions[i] for i in chosen), key=lambda question: len(question.prefix))
    batches = []
    while questions:
        count = max(1, BATCH_TOKENS // len(questions[-1].prefix))  # the longest first, so that padding stays short
        batch, questions = questions[-count:], questions[:-count]
        inputs = np.zeros((len(batch), len(batch[-1].prefix)), np.int64)  # what follows a prefix is ignored
        targets, asked = np.zeros_like(inputs), np.zeros(inputs.shape, bool)
        for row, (prefix, answer, *_) in enumerate(batch):
            last = len(prefix) - 1
            inputs[row, : last + 1], targets[row, last], asked[row, last] = prefix, answer[0], True
        distance = np.array([question.distance for question in batch], float)  # None becomes NaN
        batches.append(Rows(inputs, targets, False, asked, distance))
    return batches


# ------------------------------------------------------------------------------------------------------- measuring
def changed(bound, change=None):
    """The model with an Interventions, as a function: inputs (B, T) -> logits (B, T, V)."""
    return lambda inputs: bound.trace(inputs, interventions=change, keep=("logits",)).logits


def score(logits_of, rows):
    """(2, B, T): nats of each target that counts, and 1 for each question that is answered right; 0 elsewhere."""
    logits = logits_of(rows.inputs)
    nll = np.zeros(rows.inputs.shape)
    if rows.is_text:
        nll = cross_entropy(logits, rows.targets)
        require_finite(nll)
    return np.stack([nll, rows.asked & (logits.argmax(axis=-1) == rows.targets)])


def compare(unchanged, changes, batches, tick=lambda tokens: None):
    """What each change makes of each sequence.

    `unchanged`, and `changes` by name, are functions from inputs to logits. -> sums of the unchanged model (2, n), and
    by name how much larger those of the change are (2, n). `tick` is told how many tokens are done.
    """
    sums, differences = [], {name: [] for name in changes}
    for rows in batches:
        before = score(unchanged, rows)
        sums.append(before.sum(axis=-1))
        tick(rows.inputs.size)
        for name, logits_of in changes.items():
            differences[name].append((score(logits_of, rows) - before).sum(axis=-1))
            tick(rows.inputs.size)
    return joined(sums), {name: joined(parts) for name, parts in differences.items()}


def sizes(batches):
    """(2, n): how many targets of each sequence count for the loss, and how many are questions."""
    return joined([np.stack([rows.counted.sum(axis=1), rows.asked.sum(axis=1)]) for rows in batches])


def joined(parts):
    """Arrays (2, B, ...) of batches -> (2, n, ...)."""
    return np.concatenate(parts, axis=1)


def effect(sums, sizes, seed=0):
    """A mean change with its interval over sequences, as JSON types; None where nothing counts.

    sums, sizes (n).  "low" and "high" are None where one sequence is all there is.
    """
    there = sizes > 0
    if not there.any():
        return None
    low, high = interval(sums[there], sizes[there], seed)
    low, high = (None, None) if np.isnan(low) else (low, high)
    mean = float(sums[there].sum() / sizes[there].sum())
    return {"change": mean, "low": low, "high": high, "sequences": int(there.sum())}


def effects(sums, sizes, seed=0):
    """`effect` of each of MEASURES.  sums, sizes (2, n)."""
    return {name: effect(sums[i], sizes[i], seed) for i, name in enumerate(MEASURES)}


# -------------------------------------------------------------------------------------------- what is taken away
def mean_state(bound, batches):
    """The mean of s^p over all tokens, (D) float64, and the mean of its norms."""
    total, norms, count = 0.0, 0.0, 0
    for rows in batches:
        hidden = bound.forward(rows.inputs).hidden.astype(np.float64)  # (B, T, D)
        total = total + hidden.sum(axis=(0, 1))
        norms += float(np.linalg.norm(hidden, axis=-1).sum())
        count += rows.inputs.size
    return total / count, norms / count


def lives(bound, batches, n_heads, tick=lambda tokens: None):
    """(H,) tokens: the 1/e life of each head on this text."""
    longest = max(rows.inputs.shape[1] for rows in batches)
    lags = lags_up_to(longest - 1)
    retention = Retention(lags, n_heads)
    for rows in batches:
        retention.add(bound.trace(rows.inputs, keep=("decay",)).decay)
        tick(rows.inputs.size)
    return head_lives(lags, retention.means())


def without_mean(mean, where):
    """The change that takes the mean state away at one of MEAN_STATE."""
    return Interventions(**dict.fromkeys(MEAN_STATE[where], mean))


def without_heads(kind, heads, n_heads):
    """The change of one of HEADS to these heads."""
    return Interventions(**{kind: np.isin(np.arange(n_heads), heads)})


def random_sets(n_heads, tested, draws, seed=0):
    """Up to `draws` different sets of as many heads as `tested`, never `tested` itself; fewer if there are no more.

    The order of drawing depends on how many heads a set has, not on which are tested.
    """
    random = random_state.generator(seed, f"sets of {len(tested)} heads")
    sets = []
    wanted = min(draws, comb(n_heads, len(tested)) - 1)
    while len(sets) < wanted:
        drawn = tuple(sorted(random.choice(n_heads, len(tested), replace=False).tolist()))
        if drawn != tuple(tested) and drawn not in sets:
            sets.append(drawn)
    return sets


# ----------------------------------------------------------------------------------------- the memory lost at a step
def lag_starts(longest):
    """(L,) the smallest lag of each group of lags: 1 to 8 alone, then four groups from each power of 2 to the next."""
    starts = [*range(1, 8), *(2**power * quarter // 4 for power in range(3, 30) for quarter in range(4, 8))]
    return np.array([start for start in starts if start <= longest])


def clearing_steps(rows, draws, random):
    """Steps at which the memory is lost, a list of (B) arrays; -1: not at all.

    In text, `draws` times a step drawn anew for each sequence; in passages, CLEARINGS tokens before the question.
    """
    length = rows.inputs.shape[1]
    if rows.is_text:
        return [random.integers(1, max(2, length), len(rows.inputs)) for _ in range(draws)]
    word = rows.asked.argmax(axis=1) + 1  # where the word to guess would stand
    return [np.where(word > lag, word - lag, -1) for lag in CLEARINGS if (word > lag).any()]


def by_lag(values, steps, starts):
    """(B, L) the sums of values (B, T) over groups of lags since the memory was lost at steps (B).

    At lag n the memory holds what the last n tokens wrote, and no more.
    """
    lag = np.where(steps[:, None] > 0, np.arange(1, values.shape[1] + 1) - steps[:, None], 0)  # (B, T)
    row, t = np.nonzero(lag > 0)
    group = np.searchsorted(starts, lag[row, t], side="right") - 1
    sums = np.zeros((len(values), len(starts)))
    np.add.at(sums, (row, group), values[row, t])
    return sums


def clear_memory(bound, batches, steps, starts, tick=lambda tokens: None):
    """How much the loss and the answers change at each lag after the memory was lost at `steps`, one list a batch.

    -> the sums of the changes and how many they are of, both (2, n, L).
    """
    sums, counts = [], []
    for rows, of_batch in zip(batches, steps, strict=True):
        before = score(changed(bound), rows)
        tick(rows.inputs.size)
        change, count = np.zeros((2, 2, len(rows.inputs), len(starts)))
        for lost in of_batch:
            after = score(changed(bound, Interventions(clear_at=lost)), rows)
            tick(rows.inputs.size)
            change += [by_lag(plane, lost, starts) for plane in after - before]
            count += [by_lag(plane, lost, starts) for plane in (rows.counted, rows.asked)]
        sums.append(change)
        counts.append(count)
    return joined(sums), joined(counts)
