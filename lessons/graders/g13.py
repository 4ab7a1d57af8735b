"""What is asked in lesson 13, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex13_look_inside as ours


# ---------------------------------------------------------------------------------------- participation_ratio
def clouds(rng):
    """States with a mean of their own and unequal directions, few states, and all states on a line."""
    for n, D, mean in ((40, 4, 5.0), (30, 3, 2.0), (3, 5, 1.0)):
        mixed = rng.standard_normal((n, D)) * np.arange(1, D + 1) @ rng.standard_normal((D, D))
        yield (mixed + mean * rng.standard_normal(D),)
    yield (np.outer(rng.standard_normal(6), rng.standard_normal(3)),)


def ratio(matrix):
    return np.trace(matrix) ** 2 / np.sum(matrix**2)


def covariance(states):
    return np.cov(states.T, bias=True)


def each_centred(states):
    """Each state less the mean of its own entries."""
    centred = states - states.mean(axis=1, keepdims=True)
    return ratio(centred.T @ centred)


def stable_rank(states):
    spectrum = np.linalg.eigvalsh(covariance(states))
    return spectrum.sum() / spectrum.max()


def of_lengths(states):
    widths = np.sqrt(np.maximum(np.linalg.eigvalsh(covariance(states)), 0))
    return widths.sum() ** 2 / np.sum(widths**2)


def diagonal_alone(states):
    return ratio(np.diag(states.var(axis=0)))


def of_correlations(states):
    return ratio(np.corrcoef(states.T))


# -------------------------------------------------------------------------------------------------- head_life
def decays(rng):
    """Fast and slow heads, of steady and of changing decay."""
    for B, T, H in ((2, 5, 3), (1, 1, 2), (3, 4, 1)):
        yield (rng.uniform(0.02, 0.999, (B, T, H)),)
    yield (np.broadcast_to([0.5, 0.9, 0.999], (2, 3, 3)).copy(),)


# --------------------------------------------------------------------------------------------- centred_cosine
def sequences(rng):
    """Sequences whose means differ, from one token apart to the two ends."""
    for B, T, D, lag in ((2, 6, 3, 1), (3, 7, 4, 3), (2, 4, 2, 3), (1, 5, 3, 2)):
        yield rng.standard_normal((B, T, D)) + 2 * rng.standard_normal((B, 1, D)), lag


def cosine(states, lag):
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    return np.mean(np.sum(unit[:, lag:] * unit[:, :-lag], axis=-1))


def unit_first(states, lag):
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    centred = unit - unit.mean(axis=1, keepdims=True)
    return np.mean(np.sum(centred[:, lag:] * centred[:, :-lag], axis=-1))


def without_lengths(states, lag):
    centred = states - states.mean(axis=1, keepdims=True)
    return np.mean(np.sum(centred[:, lag:] * centred[:, :-lag], axis=-1))


def around(states, lag):
    centred = states - states.mean(axis=1, keepdims=True)
    unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.mean(np.sum(unit * np.roll(unit, lag, axis=1), axis=-1))


def too_many(states, lag):
    return ours.centred_cosine(states, lag) * (states.shape[1] - lag) / states.shape[1]


PARTS = [
    Part(
        "participation_ratio",
        clouds,
        [
            Foreseen(
                "a vector added to all states must change nothing: what is taken away first?",
                lambda states: ratio(states.T @ states),
            ),
            Foreseen("the mean of the states is (D): not the mean of each state's entries", each_centred),
            Foreseen("that is Σλ / λ_max, the stable rank: the sum of the squares goes below", stable_rank),
            Foreseen("an eigenvalue is a variance: singular values of the states must be squared first", of_lengths),
            Foreseen("Σ λ_i² is the sum of all squared entries of C, not of its diagonal alone", diagonal_alone),
            Foreseen("of the covariance, not the correlation: wide dimensions count for more", of_correlations),
            Foreseen(
                "the sum of the eigenvalues is squared too: the ratio must not change with the unit of the states",
                lambda states: np.trace(covariance(states)) / np.sum(covariance(states) ** 2),
            ),
            Foreseen(
                "upside down: one direction alone must give 1, and D equal ones D",
                lambda s: 1 / ours.participation_ratio(s),
            ),
        ],
    ),
    Part(
        "head_life",
        decays,
        [
            Foreseen(
                "which mean tells the product of many decays: that of the decays, or that of their logarithms?",
                lambda decay: -1 / np.log(decay.mean(axis=(0, 1))),
            ),
            Foreseen("the sign: log decay is negative, a life is not", lambda decay: -ours.head_life(decay)),
            Foreseen(
                "that is the half life, until 1/2 is left; 1/e is asked",
                lambda decay: np.log(2) * ours.head_life(decay),
            ),
            Foreseen("each head has a life of its own: (H)", lambda decay: -1 / np.log(decay).mean()),
            Foreseen(
                "the mean is over the sequences too: (H), not (B, H)", lambda decay: -1 / np.log(decay).mean(axis=1)
            ),
            Foreseen(
                "first the mean of log decay, then one life: not the mean of a life a token",
                lambda decay: np.mean(-1 / np.log(decay), axis=(0, 1)),
            ),
            Foreseen(
                "that is the mean of log decay; where does exp(n · that) reach 1/e?",
                lambda decay: np.log(decay).mean(axis=(0, 1)),
            ),
        ],
    ),
    Part(
        "centred_cosine",
        sequences,
        [
            Foreseen("raw, all states of a sequence look alike: take its mean away first", cosine),
            Foreseen(
                "each sequence has a mean of its own, (B, 1, D); that of all of them leaves a part",
                lambda states, lag: cosine(states - states.mean(axis=(0, 1)), lag),
            ),
            Foreseen(
                "the mean is over time, axis 1: not over the entries of a state",
                lambda states, lag: cosine(states - states.mean(axis=-1, keepdims=True), lag),
            ),
            Foreseen("first the mean, then the lengths: centred vectors of length 1 are no longer centred", unit_first),
            Foreseen("a cosine is a product of vectors of length 1", without_lengths),
            Foreseen("the end of a sequence has no partner at its beginning: T - lag pairs, not T", around),
            Foreseen("the mean is over T - lag pairs a sequence, not over T", too_many),
        ],
    ),
]
