"""Geometry of the states (section 7.1): length, how far each dimension moves, how many directions they fill."""

import numpy as np

DEAD = 0.01  # a dimension is dead if its sd is under this share of the median sd
ROUNDING = 1e-6  # or under this share of the root mean square of all entries, which is rounding


class Moments:
    """Count, mean and co-moment of vectors that come in batches; float64, and no difference of large sums is taken."""

    def __init__(self, size):
        self.count, self.mean, self.comoment = 0, np.zeros(size), np.zeros((size, size))

    def add(self, vectors):
        """vectors (n, D)."""
        vectors = np.asarray(vectors, np.float64)
        n, mean = len(vectors), vectors.mean(axis=0)
        centred, moved = vectors - mean, mean - self.mean
        both = self.count + n
        self.comoment += centred.T @ centred + np.outer(moved, moved) * (self.count * n / both)
        self.mean += moved * (n / both)
        self.count = both

    def covariance(self):
        """(D, D), that of the vectors themselves: divided by their number."""
        return self.comoment / max(self.count, 1)


class StateMoments:
    """What the geometry needs to know of states: their moments, and those of their norms."""

    def __init__(self, size):
        self.states, self.norms = Moments(size), Moments(1)

    def add(self, states):
        """states (..., D)."""
        states = states.reshape(-1, states.shape[-1])
        self.states.add(states)
        self.norms.add(np.linalg.norm(states.astype(np.float64), axis=-1, keepdims=True))

    @property
    def norm_mean(self):
        return float(self.norms.mean[0])

    @property
    def norm_sd(self):
        return float(np.sqrt(self.norms.covariance()[0, 0]))

    def mean_square(self):
        """Of all entries of all states."""
        states = self.states
        return (np.trace(states.covariance()) + states.mean @ states.mean) / len(states.mean)


def geometry(moments):
    """Everything of section 7.1 by name, from a StateMoments. NaN is what these states can't tell."""
    covariance = moments.states.covariance()
    sd = np.sqrt(np.diag(covariance))
    dead = dead_dimensions(sd, ROUNDING * np.sqrt(moments.mean_square()))
    r = correlations(covariance, dead)
    spectrum = eigenvalues(covariance) if not dead.all() else np.zeros(len(sd))
    return {
        "states": moments.states.count,
        "dimensions": len(sd),
        "norm_mean": moments.norm_mean,
        "norm_sd": moments.norm_sd,
        "sd_smallest": sd.min(),
        "sd_largest": sd.max(),
        "dead_dimensions": int(dead.sum()),
        "correlation_mean": np.abs(r).mean() if len(r) else np.nan,
        "correlation_largest": np.abs(r).max() if len(r) else np.nan,
        "components_90": components_for(spectrum, 0.90),
        "components_99": components_for(spectrum, 0.99),
        "stable_rank": stable_rank(spectrum),
        "participation_ratio": participation_ratio(spectrum),
        "sd_sorted": np.sort(sd)[::-1],
        "correlation_histogram": np.histogram(r, bins=CORRELATION_BINS)[0],
        "eigenvalues": spectrum,
        "cumulative_variance": cumulative_variance(spectrum),
    }


CORRELATION_BINS = np.linspace(-1, 1, 81)


def dead_dimensions(sd, rounding=0.0):
    """(D,) bool: which dimensions hardly move, at most DEAD of the median sd or not beyond `rounding`.  sd (D,)."""
    return sd <= max(DEAD * np.median(sd), rounding)


def correlations(covariance, dead):
    """(n,) correlation of each pair of dimensions, dead ones left out.  covariance (D, D), dead (D,) bool."""
    live = covariance[np.ix_(~dead, ~dead)]
    sd = np.sqrt(np.diag(live))
    return np.clip((live / np.outer(sd, sd))[np.triu_indices(len(sd), 1)], -1, 1)


def eigenvalues(covariance):
    """(D,) from the largest to the smallest; what rounding made negative is 0."""
    return np.maximum(np.linalg.eigvalsh(covariance)[::-1], 0)


def cumulative_variance(spectrum):
    """(D,) share of the variance in the first 1, 2, ... principal components; NaN without any variance."""
    total = spectrum.sum()
    return np.cumsum(spectrum) / total if total else np.full(len(spectrum), np.nan)


def components_for(spectrum, share):
    """How many principal components hold this share of the variance; NaN without any."""
    enough = cumulative_variance(spectrum) >= share - 1e-12
    return int(np.argmax(enough)) + 1 if enough.any() else np.nan


def stable_rank(spectrum):
    """Σλ / λ_max: how many directions as wide as the widest would hold the variance; NaN without any."""
    return spectrum.sum() / spectrum.max() if spectrum.any() else np.nan


def participation_ratio(spectrum):
    """(Σλ)² / Σλ²: how many directions of equal width spread the variance as much; NaN without any."""
    return spectrum.sum() ** 2 / np.sum(spectrum**2) if spectrum.any() else np.nan
