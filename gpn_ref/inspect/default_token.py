"""The default token (section 7.2): the mean state, which way it points, and what it says when it is decoded."""

import numpy as np

TOP = 10  # tokens of a decoded vector


def cosine(one, other):
    """Cosine of two vectors (..., D) along the last axis; 0 where one of them is 0."""
    lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return np.sum(one * other, axis=-1) / np.where(lengths > 0, lengths, 1)


class PairCosines:
    """Mean and sd of the cosine between any two of many vectors, which need not be kept: how alike batch means are.

    With g = Σ u and G = Σ u uᵀ over the unit vectors u, the sum of all cosines is ‖g‖² and that of their squares ‖G‖².
    """

    def __init__(self, size):
        self._count, self._sum, self._outer = 0, np.zeros(size), np.zeros((size, size))

    def add(self, vector):
        """vector (D,)."""
        length = np.linalg.norm(vector)
        unit = vector / (length or 1.0)
        self._count += 1
        self._sum += unit
        self._outer += np.outer(unit, unit)

    def mean_and_sd(self):
        """NaN of fewer than two vectors."""
        n = self._count
        if n < 2:
            return float("nan"), float("nan")
        pairs = n * (n - 1)
        mean = (self._sum @ self._sum - n) / pairs  # each vector with itself is no pair
        square = (np.sum(self._outer**2) - n) / pairs
        variance = square - mean**2
        return float(mean), float(np.sqrt(variance)) if variance > 1e-14 else 0.0  # less is rounding


def marks_up_to(longest):
    """(n,) integers 1, 2, 5, 10, 20, 50, ...: at most `longest`."""
    marks = [base * 10**power for power in range(len(str(longest))) for base in (1, 2, 5)]
    return np.array([mark for mark in marks if mark <= longest], np.int64)


class RunningMean:
    """Mean cosine of the mean of a sequence's first n states with `target`, for n = 1, 2, 5, 10, ..."""

    def __init__(self, target, longest):
        self.marks, self._target = marks_up_to(longest), target
        self._sums, self._counts = np.zeros(len(self.marks)), np.zeros(len(self.marks))

    def add(self, states):
        """states (B, T, D)."""
        sums = np.cumsum(states, axis=1, dtype=np.float64)
        for i in np.flatnonzero(self.marks <= states.shape[1]):
            self._sums[i] += cosine(sums[:, self.marks[i] - 1], self._target).sum()
            self._counts[i] += len(states)

    def means(self):
        """(n,), one a mark."""
        return self._sums / np.maximum(self._counts, 1)


def top_tokens(logits, count=TOP):
    """The likeliest tokens, of equal ones the smaller first.  logits (V,) -> (count,), fewer if V is."""
    return np.argsort(-logits, kind="stable")[:count]


def ranks(values):
    """(n,) rank of each value from 1 for the smallest; equal ones share the mean of their ranks."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    return (last - (sizes - 1) / 2)[group]


def spearman(one, other):
    """Rank correlation of two (n,) arrays: Pearson's of their ranks; NaN where all of one are equal."""
    one, other = ranks(one), ranks(other)
    one, other = one - one.mean(), other - other.mean()
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / lengths) if lengths > 0 else float("nan")


def frequency_ranks(counts):
    """(V,) integers: 1 for the commonest token; equally common ones share the better rank.  counts (V,)."""
    ordered = np.sort(-counts)
    return np.searchsorted(ordered, -counts) + 1
