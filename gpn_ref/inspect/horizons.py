"""Horizons (section 7.3): how long a state resembles itself, and how long each head of the memory keeps what it holds.

What a head holds decays step by step, so of what it held `lag` steps ago the share Π decay is left: its retention. The
lag at which this falls to 1/e is the head's life, which the paper calls its half-life; the true half life is given
beside it. Everything here adds up sums and counts by lag, a batch at a time: memory does not grow with the text.
"""

import numpy as np

FAST = 4.0  # tokens: heads whose 1/e life is shorter are fast, the others slow (the paper's: 1 to 3, and 5 to 322)
EFOLD, HALF = np.exp(-1.0), 0.5  # what is left at the 1/e life, and at the half life
DENSE, RATIO = 32, 1.1  # lags: each one up to here, then this much further each time


def lags_up_to(longest):
    """(L,) integers: 1, 2, 3, ..., 32, then a tenth further each time, none above `longest`."""
    lags = list(range(1, DENSE + 1))
    while lags[-1] < longest:
        lags.append(round(lags[-1] * RATIO))
    return np.array([lag for lag in lags if lag <= longest], np.int64)


class MeansByLag:
    """Running means, one or a row of them a lag."""

    def __init__(self, lags, shape=()):
        self.lags = lags
        self.sums, self.counts = np.zeros((len(lags), *shape)), np.zeros((len(lags), *shape))

    def add(self, length, sum_and_count):
        """`sum_and_count(lag)` of a batch of sequences of `length` tokens; longer lags have no pairs in it."""
        for i in np.flatnonzero(self.lags < length):
            more, count = sum_and_count(self.lags[i])
            self.sums[i] += more
            self.counts[i] += count

    def means(self):
        """(L, ...), NaN where nothing was added."""
        return np.where(self.counts > 0, self.sums / np.maximum(self.counts, 1), np.nan)


# ------------------------------------------------------------------------------------------------ of the states
class StateCosines:
    """Mean cos(s_t, s_{t+lag}) over all t and sequences: raw, and with each sequence's own mean taken away.

    White noise of T states has about 0 raw, and -1 / (T - 1) centred, for what is left sums to 0.
    """

    def __init__(self, lags):
        self._raw, self._centred = MeansByLag(lags), MeansByLag(lags)

    def add(self, states):
        """states (B, T, D)."""
        states = states.astype(np.float64)
        largest = np.linalg.norm(states, axis=-1).max()
        centred = states - states.mean(axis=1, keepdims=True)
        for total, vectors in ((self._raw, states), (self._centred, centred)):
            unit = directions(vectors, 1e-12 * largest)
            there = unit.any(axis=-1)  # (B, T)
            total.add(states.shape[1], lambda lag, unit=unit, there=there: cosines(unit, there, lag))

    def raw(self):
        return self._raw.means()

    def centred(self):
        return self._centred.means()


def directions(vectors, least):
    """Vectors (..., D) at length 1, but 0 where not longer than `least`, which is rounding: they point nowhere."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    there = norms > least
    return np.where(there, vectors, 0) / np.where(there, norms, 1)


def cosines(unit, there, lag):
    """The sum of the cosines over `lag`, and of how many pairs.  unit (B, T, D), there (B, T) bool."""
    count = np.count_nonzero(there[:, lag:] & there[:, :-lag])
    return np.einsum("btd,btd->", unit[:, lag:], unit[:, :-lag]), count


# ------------------------------------------------------------------------------------------------- of the heads
class Retention:
    """Mean over t and sequences of decay_{t+1} · ... · decay_{t+lag}: what is left of a memory `lag` steps later."""

    def __init__(self, lags, n_heads):
        self._means = MeansByLag(lags, (n_heads,))

    def add(self, decay):
        """decay (B, T, H)."""
        least = np.finfo(np.float64).tiny  # a decay that rounds to 0 has a logarithm too
        log_kept = np.cumsum(np.log(np.maximum(decay.astype(np.float64), least)), axis=1)  # (B, T, H)

        def sum_and_count(lag):
            left = np.exp(log_kept[:, lag:] - log_kept[:, :-lag])  # (B, T - lag, H)
            return left.sum(axis=(0, 1)), left.shape[0] * left.shape[1]

        self._means.add(decay.shape[1], sum_and_count)

    def means(self):
        """(L, H)."""
        return self._means.means()


def life(lags, retention, share):
    """The lag, in tokens, at which `share` is left of a head's memory, and whether it was measured.

    lags (L,), retention (L,). Between two lags, lag 0 = 1 being the first, the logarithm is a straight line: exact for
    a steady decay. Where more than `share` is left at the largest lag, the life is extrapolated at the mean rate up to
    there, and not measured: inf for a head that forgets nothing. Without lags it is NaN.
    """
    if len(lags) == 0:
        return float("nan"), False
    lags = np.concatenate([[0], lags])
    logs = np.log(np.maximum([1.0, *retention], np.finfo(np.float64).tiny))
    below = np.flatnonzero(logs < np.log(share))
    if len(below) == 0:
        rate = -logs[-1] / lags[-1]
        return (float(-np.log(share) / rate) if rate > 0 else float("inf")), False
    after = below[0]
    before = after - 1
    part = (logs[before] - np.log(share)) / (logs[before] - logs[after])
    return float(lags[before] + part * (lags[after] - lags[before])), True


def head_lives(lags, retention):
    """(H,) tokens: the 1/e life of each head.  lags (L,), retention (L, H)."""
    return np.array([life(lags, of_head, EFOLD)[0] for of_head in np.transpose(retention)])


def is_fast(lives):
    """(H,) bool: the heads whose 1/e life is below FAST tokens; the others are slow."""
    return np.asarray(lives) < FAST
