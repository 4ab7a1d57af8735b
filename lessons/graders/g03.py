"""What is asked in lesson 03, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex03_softmax_and_cross_entropy as ours

EXTREME = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])  # exp overflows in one row, and is 0 in all of the other


def batches(rng):
    """A batch as it comes, one of a single token, one with a token that is all but impossible, and logits of ±1e4."""
    for B, T, V, scale in ((2, 3, 5, 1.0), (1, 1, 4, 1.0), (3, 2, 6, 50.0)):
        yield scale * rng.standard_normal((B, T, V)), rng.integers(0, V, (B, T))
    yield EXTREME[None], np.array([[1, 2]])


def logits_only(rng):
    for logits, _ in batches(rng):
        yield (logits,)
    yield (EXTREME,)


def softmax(logits, shift=0.0):
    exponentials = np.exp(logits - shift)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def by_the_largest(logits):
    return softmax(logits, logits.max(axis=-1, keepdims=True))


def unshifted(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def by_the_largest_of_all(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_of_softmax(logits):
    """Shifted as it should be: where the softmax underflows to 0, its log is -inf."""
    return np.log(by_the_largest(logits))


def log_of_softmax_unshifted(logits):
    return np.log(softmax(logits))


def one_sum_for_all(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum())


def over_everything(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def shift_lost(logits):
    """The sum is of shifted logits, and the logits are not."""
    return logits - np.log(np.exp(logits - logits.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True))


def nll(log_softmax):
    """A cross_entropy made of this log_softmax."""
    return lambda logits, targets: -np.take_along_axis(log_softmax(logits), targets[..., None], axis=-1)[..., 0]


def gradient(softmax, at_target=-1):
    """A mean_loss_backward made of this softmax, which adds this number at the target."""
    return lambda logits, targets: (softmax(logits) + at_target * np.eye(logits.shape[-1])[targets]) / targets.size


PARTS = [
    Part(
        "log_softmax",
        logits_only,
        [
            Foreseen("exp overflows: subtract the largest logit of each row first", unshifted),
            Foreseen("the sum must run over the last axis alone, with keepdims=True", over_everything),
            Foreseen("that is the softmax; its log is asked", lambda z: np.exp(ours.log_softmax(z))),
            Foreseen(
                "each row by its own largest logit, not by that of all: axis=-1, keepdims=True", by_the_largest_of_all
            ),
            Foreseen("where a softmax underflows to 0 its log is -inf: subtract the log of the sum", log_of_softmax),
            Foreseen(
                "exp overflows, and log(softmax) is -inf where it underflows: shift, then subtract the log of the sum",
                log_of_softmax_unshifted,
            ),
            Foreseen("the sum of the exponentials is one for each row, not one for all: axis=-1", one_sum_for_all),
            Foreseen("you shift in the sum, but not the logit that stands before it", shift_lost),
        ],
    ),
    Part(
        "cross_entropy",
        batches,
        [
            Foreseen("the sign: a surprise is never negative", lambda z, y: -ours.cross_entropy(z, y)),
            Foreseen("one number for each token, not their mean", lambda z, y: ours.cross_entropy(z, y).mean()),
            Foreseen(
                "keep the shape (B, T): take the target's entry along the last axis, then drop that axis",
                lambda z, y: ours.cross_entropy(z, y)[..., None],
            ),
            Foreseen(
                "the nats of each token as they are: divide nothing by B · T",
                lambda z, y: ours.cross_entropy(z, y) / y.size,
            ),
            Foreseen("where a softmax underflows to 0 its log is -inf: use your log_softmax", nll(log_of_softmax)),
            Foreseen("exp overflows for logits of 1e4: use log_softmax", nll(log_of_softmax_unshifted)),
            Foreseen("exp overflows for logits of 1e4: subtract the largest logit of each row first", nll(unshifted)),
            Foreseen("each row by its own largest logit, not by that of all", nll(by_the_largest_of_all)),
            Foreseen("the sum of the exponentials is one for each row, not one for all", nll(one_sum_for_all)),
        ],
    ),
    Part(
        "mean_loss_backward",
        batches,
        [
            Foreseen("the loss is a mean: divide by B · T", lambda z, y: y.size * ours.mean_loss_backward(z, y)),
            Foreseen("divide by B · T, not by B", lambda z, y: y.shape[1] * ours.mean_loss_backward(z, y)),
            Foreseen("divide by B · T, not by T", lambda z, y: y.shape[0] * ours.mean_loss_backward(z, y)),
            Foreseen(
                "divide by the tokens, B · T; logits.size is B · T · V",
                lambda z, y: ours.mean_loss_backward(z, y) / z.shape[-1],
            ),
            Foreseen("the sign: softmax less one at the target", lambda z, y: -ours.mean_loss_backward(z, y)),
            Foreseen(
                "subtract 1 at the target; without that the gradient never vanishes",
                gradient(by_the_largest, at_target=0),
            ),
            Foreseen(
                "the whole difference is divided by B · T, the 1 at the target too",
                lambda z, y: by_the_largest(z) / y.size - np.eye(z.shape[-1])[y],
            ),
            Foreseen("at the target 1 is taken off, not added", gradient(by_the_largest, at_target=1)),
            Foreseen(
                "exp overflows for logits of 1e4: shift first, or take exp of log_softmax",
                gradient(softmax),
            ),
            Foreseen("each row by its own largest logit, not by that of all", gradient(lambda z: softmax(z, z.max()))),
        ],
    ),
]
