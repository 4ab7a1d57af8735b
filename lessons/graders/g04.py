"""What is asked in lesson 04, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex04_how_to_trust_a_gradient as ours


def losses(rng):
    """Steps so large that truncation shows: then the formulas differ by far more than rounding."""
    for N, V, h in ((3, 5, 0.1), (1, 4, 0.5), (4, 3, 0.01)):
        yield rng.standard_normal((N, V)), rng.integers(0, V, N), h


def directions(rng):
    for logits, targets, h in losses(rng):
        yield logits, targets, 3 * rng.standard_normal(logits.shape), h


def pairs(rng):
    """Close, wrong in one entry, an array of nothing but noise, one with a tiny entry, and a single number."""
    numeric = rng.standard_normal((3, 4))
    yield numeric + 1e-3 * rng.standard_normal((3, 4)), numeric, 2.0
    wrong = numeric.copy()
    wrong[1, 2] -= 0.7
    yield wrong, numeric, 5.0
    yield 1e-6 * rng.standard_normal(6), 1e-6 * rng.standard_normal(6), 1.0
    yield np.array([1e-12, 0.5]), np.array([-1e-12, -0.4]), 0.5
    yield np.array([0.002]), np.array([1e-7]), 3.0


def measured(logits, along, h):
    """`along(move)` for a move of h in each entry."""
    moves = h * np.eye(logits.size).reshape(-1, *logits.shape)
    return np.array([along(move) for move in moves]).reshape(logits.shape)


def one_sided(logits, targets, h):
    base = ours.f(logits, targets)
    return measured(logits, lambda move: (ours.f(logits + move, targets) - base) / h, h)


def never_moved_back(logits, targets, h):
    moved, slopes = logits.copy(), np.zeros(logits.shape)
    for at in np.ndindex(logits.shape):
        moved[at] += h
        up = ours.f(moved, targets)
        moved[at] -= 2 * h
        slopes[at] = (up - ours.f(moved, targets)) / (2 * h)
    return slopes


def moved_back_in_place(logits, targets, h):
    """Right but for roundings, and so is the argument: (x + h) - 2h + h."""
    slopes = np.zeros(logits.shape)
    for at in np.ndindex(logits.shape):
        logits[at] += h
        up = ours.f(logits, targets)
        logits[at] -= 2 * h
        slopes[at] = (up - ours.f(logits, targets)) / (2 * h)
        logits[at] += h
    return slopes


def one_sided_along(logits, targets, direction, h):
    move = h * direction / np.sqrt(np.sum(direction**2))
    return (ours.f(logits + move, targets) - ours.f(logits, targets)) / h


def any_length(logits, targets, direction, h):
    move = h * direction
    return (ours.f(logits + move, targets) - ours.f(logits - move, targets)) / (2 * h)


def moved_along(length):
    """A slope_along whose direction is divided by length(direction)."""

    def wrong(logits, targets, direction, h):
        move = h * direction / length(direction)
        return (ours.f(logits + move, targets) - ours.f(logits - move, targets)) / (2 * h)

    return wrong


def twice_by_the_length(logits, targets, direction, h):
    return ours.slope_along(logits, targets, direction, h) / np.sqrt(np.sum(direction**2))


def length_in_the_end(logits, targets, direction, h):
    return any_length(logits, targets, direction, h) / np.sqrt(np.sum(direction**2))


def entry_after_entry(logits, targets, direction, h):
    u = direction / np.sqrt(np.sum(direction**2))
    return np.sum(ours.numeric_gradient(logits, targets, h) * u)


def entry_by_entry(analytic, numeric, largest_of_all):
    return (np.abs(analytic - numeric) / np.maximum(np.abs(analytic), np.abs(numeric))).max()


def without_floor(analytic, numeric, largest_of_all):
    return np.abs(analytic - numeric).max() / np.abs(numeric).max()


def by_scale(scale):
    """A relative_error over scale(analytic, numeric, largest_of_all)."""
    return lambda analytic, numeric, largest_of_all: (
        np.abs(analytic - numeric).max() / scale(np.abs(analytic), np.abs(numeric), largest_of_all)
    )


def signed(analytic, numeric, largest_of_all):
    scale = max(np.abs(numeric).max(), largest_of_all / 1000)
    return (analytic - numeric).max() / scale


def average(analytic, numeric, largest_of_all):
    scale = max(np.abs(numeric).max(), largest_of_all / 1000)
    return np.abs(analytic - numeric).mean() / scale


def of_all(analytic, numeric, largest_of_all):
    return np.abs(analytic - numeric).max() / max(np.abs(numeric).max(), largest_of_all)


PARTS = [
    Part(
        "numeric_gradient",
        losses,
        [
            Foreseen("that is the one-sided difference: step both ways", one_sided),
            Foreseen(
                "from x - h to x + h is a way of 2h, not of h",
                lambda z, y, h: 2 * ours.numeric_gradient(z, y, h),
            ),
            Foreseen("an entry was moved and not put back before the next one", never_moved_back),
            Foreseen("the sign: the loss ahead less the loss behind", lambda z, y, h: -ours.numeric_gradient(z, y, h)),
            Foreseen("(x + h) - 2h + h is not x in floating point: work on a copy", moved_back_in_place),
            Foreseen(
                "/ 2 * h divides by 2 and multiplies by h: put 2 * h in brackets",
                lambda z, y, h: h * h * ours.numeric_gradient(z, y, h),
            ),
            Foreseen(
                "f is the mean loss; that is the slope of the sum of N losses",
                lambda z, y, h: len(y) * ours.numeric_gradient(z, y, h),
            ),
        ],
    ),
    Part(
        "slope_along",
        directions,
        [
            Foreseen("bring the direction to length 1 first", any_length),
            Foreseen("that is the one-sided difference: step both ways", one_sided_along),
            Foreseen(
                "from x - h u to x + h u is a way of 2h, not of h",
                lambda z, y, u, h: 2 * ours.slope_along(z, y, u, h),
            ),
            Foreseen(
                "/ 2 * h divides by 2 and multiplies by h: put 2 * h in brackets",
                lambda z, y, u, h: h * h * ours.slope_along(z, y, u, h),
            ),
            Foreseen("Σ u² is the square of the length: take its root", moved_along(lambda u: np.sum(u**2))),
            Foreseen(
                "u has one length, of all its entries together; yours has one for each row",
                moved_along(lambda u: np.sqrt(np.sum(u**2, axis=-1, keepdims=True))),
            ),
            Foreseen("divided by the length twice: the move is of length h already", twice_by_the_length),
            Foreseen(
                "the step is along u of length 1; dividing the slope by the length takes a step that is longer",
                length_in_the_end,
            ),
            Foreseen("two losses, not 2n: move all entries at once, a step h along u", entry_after_entry),
        ],
    ),
    Part(
        "relative_error",
        pairs,
        [
            Foreseen(
                "one scale for the whole array; entry by entry, an entry of nothing but noise decides", entry_by_entry
            ),
            Foreseen("an array of nothing but noise needs the other scale, of largest_of_all", without_floor),
            Foreseen("an error below zero is an error too: take absolute values before the largest", signed),
            Foreseen("the largest error is asked, not the mean: a mean hides one wrong entry", average),
            Foreseen("a thousandth of largest_of_all, not all of it", of_all),
            Foreseen(
                "the larger of the two scales, not the smaller: max, not min",
                by_scale(lambda analytic, numeric, largest: min(numeric.max(), largest / 1000)),
            ),
            Foreseen(
                "the scale is what was measured, numeric, not what is to be checked",
                by_scale(lambda analytic, numeric, largest: max(analytic.max(), largest / 1000)),
            ),
            Foreseen(
                "the scale is the largest |numeric|, not the mean",
                by_scale(lambda analytic, numeric, largest: max(numeric.mean(), largest / 1000)),
            ),
            Foreseen(
                "the scale is the larger of the two, not their sum",
                by_scale(lambda analytic, numeric, largest: numeric.max() + largest / 1000),
            ),
            Foreseen("an error is much or little by a scale: divide", by_scale(lambda *arguments: 1)),
        ],
    ),
]
