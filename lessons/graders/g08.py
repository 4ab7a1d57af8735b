"""What is asked in lesson 08, and the wrong answers that we foresee."""

import numpy as np

from lessons.graders.g07 import addresses, shifted
from lessons.grading import Foreseen, Part
from lessons.solutions import ex08_backward_of_the_memory as ours


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


# ---------------------------------------------------------------------------------------------- write_backward
def writes(rng):
    """Two batches of other widths, and a memory of 2 × 2."""
    for B, H, K, U in ((2, 3, 4, 5), (3, 1, 3, 2), (1, 1, 2, 2)):
        d_written, memory = rng.standard_normal((2, B, H, K, U))
        beta, decay = rng.uniform(0.1, 0.9, (2, B, H))
        yield d_written, memory, addresses(rng, B, H, K), rng.standard_normal((B, H, U)), beta, decay


def recall(memory, key):
    return np.einsum("bhku,bhk->bhu", memory, key)


def times(memory, value):
    return np.einsum("bhku,bhu->bhk", memory, value)


def outer(key, value):
    return np.einsum("bhk,bhu->bhku", key, value)


def error_of(memory, key, value, decay):
    """Of the write that is asked for: against the faded memory."""
    return value - decay[..., None] * recall(memory, key)


def of_the_paper(d_written, memory, key, value, beta, decay):
    error = value - recall(memory, key)
    d_error = beta[..., None] * recall(d_written, key)
    d_key = beta[..., None] * times(d_written, error) - times(memory, d_error)
    d_memory = decay[..., None, None] * d_written - outer(key, d_error)
    d_beta = np.sum(recall(d_written, key) * error, axis=-1)
    return d_memory, d_key, d_error, d_beta, np.sum(d_written * memory, axis=(-1, -2))


def key_of_one_term(d_written, memory, key, value, beta, decay):
    d_memory, _, *others = ours.write_backward(d_written, memory, key, value, beta, decay)
    return d_memory, beta[..., None] * times(d_written, error_of(memory, key, value, decay)), *others


def key_of_the_whole_memory(d_written, memory, key, value, beta, decay):
    d_memory, _, d_value, *others = ours.write_backward(d_written, memory, key, value, beta, decay)
    d_key = beta[..., None] * times(d_written, error_of(memory, key, value, decay)) - times(memory, d_value)
    return d_memory, d_key, d_value, *others


def error_sends_nothing_back(d_written, memory, key, value, beta, decay):
    d_memory, d_key, d_value, d_beta, _ = ours.write_backward(d_written, memory, key, value, beta, decay)
    d_key = d_key + times(decay[..., None, None] * memory, d_value)
    return decay[..., None, None] * d_written, d_key, d_value, d_beta, np.sum(d_written * memory, axis=(-1, -2))


def decay_of_one_term(d_written, memory, key, value, beta, decay):
    *others, _ = ours.write_backward(d_written, memory, key, value, beta, decay)
    return *others, np.sum(d_written * memory, axis=(-1, -2))


def recalled_not_faded(d_written, memory, key, value, beta, decay):
    _, *others = ours.write_backward(d_written, memory, key, value, beta, decay)
    return decay[..., None, None] * d_written - outer(key, others[1]), *others


def error_of_the_whole_memory(d_written, memory, key, value, beta, decay):
    """The error of the forward pass against the memory that has not faded, and all else right."""
    d_memory, d_key, d_value, _, d_decay = ours.write_backward(d_written, memory, key, value, beta, decay)
    error = value - recall(memory, key)
    d_key = d_key + beta[..., None] * times(d_written, error - error_of(memory, key, value, decay))
    return d_memory, d_key, d_value, np.sum(recall(d_written, key) * error, axis=-1), d_decay


def memory_without_decay(d_written, memory, key, value, beta, decay):
    d_memory, *others = ours.write_backward(d_written, memory, key, value, beta, decay)
    return d_memory / decay[..., None, None], *others


def memory_of_one_term(d_written, memory, key, value, beta, decay):
    _, *others = ours.write_backward(d_written, memory, key, value, beta, decay)
    return decay[..., None, None] * d_written, *others


def error_without_beta(d_written, memory, key, value, beta, decay):
    """β forgotten in d_error, and so in all that comes after it."""
    d_beta_error, error = recall(d_written, key), error_of(memory, key, value, decay)
    faded, d_faded = decay[..., None, None] * memory, d_written - outer(key, d_beta_error)
    d_key = beta[..., None] * times(d_written, error) - times(faded, d_beta_error)
    d_memory, d_decay = decay[..., None, None] * d_faded, np.sum(d_faded * memory, axis=(-1, -2))
    return d_memory, d_key, d_beta_error, np.sum(d_beta_error * error, axis=-1), d_decay


def key_without_beta(d_written, memory, key, value, beta, decay):
    """β forgotten in the first term of d_key."""
    d_memory, d_key, *others = ours.write_backward(d_written, memory, key, value, beta, decay)
    first = times(d_written, error_of(memory, key, value, decay))
    return d_memory, d_key + (1 - beta[..., None]) * first, *others


def decay_of_the_faded(d_written, memory, key, value, beta, decay):
    *others, d_decay = ours.write_backward(d_written, memory, key, value, beta, decay)
    return *others, d_decay * decay


def exchanged(d_written, memory, key, value, beta, decay):
    *others, d_beta, d_decay = ours.write_backward(d_written, memory, key, value, beta, decay)
    return *others, d_decay, d_beta


def wrong_sign(d_written, memory, key, value, beta, decay):
    """The gradient of `error` sent on as that of the recalled value."""
    _, _, d_value, d_beta, _ = ours.write_backward(d_written, memory, key, value, beta, decay)
    faded, d_faded = decay[..., None, None] * memory, d_written + outer(key, d_value)
    d_key = beta[..., None] * times(d_written, error_of(memory, key, value, decay)) + times(faded, d_value)
    return decay[..., None, None] * d_faded, d_key, d_value, d_beta, np.sum(d_faded * memory, axis=(-1, -2))


# ---------------------------------------------------------------------------------------------- decay_backward
def decays(rng):
    """A batch, a single text, and inputs at which softplus overflows where it is written down as it stands."""
    for B, H in ((3, 2), (1, 4)):
        yield rng.standard_normal((B, H)), rng.standard_normal((B, H)), rng.uniform(-1, 1, H)
    yield np.array([[1.0, -2.0], [0.5, 1.5]]), np.array([[800.0, -800.0], [-3.0, 790.0]]), np.array([-7.0, -6.0])


def unsummed(d_decay, pre, log_rate):
    log_decay = -np.exp(log_rate) * np.logaddexp(0, pre)
    return ours.decay_backward(d_decay, pre, log_rate)[0], d_decay * np.exp(log_decay) * log_decay


def averaged(d_decay, pre, log_rate):
    d_pre, d_log_rate = ours.decay_backward(d_decay, pre, log_rate)
    return d_pre, d_log_rate / len(pre)


def without_outer_exp(d_decay, pre, log_rate):
    return ours.decay_backward(d_decay * np.exp(np.exp(log_rate) * np.logaddexp(0, pre)), pre, log_rate)


def of_the_rate(d_decay, pre, log_rate):
    d_pre, d_log_rate = ours.decay_backward(d_decay, pre, log_rate)
    return d_pre, d_log_rate / np.exp(log_rate)


def pre_of_other_sign(d_decay, pre, log_rate):
    d_pre, d_log_rate = ours.decay_backward(d_decay, pre, log_rate)
    return -d_pre, d_log_rate


def both_of_other_sign(d_decay, pre, log_rate):
    return ours.decay_backward(-d_decay, pre, log_rate)


def softplus_is_straight(d_decay, pre, log_rate):
    d_pre, d_log_rate = ours.decay_backward(d_decay, pre, log_rate)
    d_log_decay = d_decay * np.exp(-np.exp(log_rate) * np.logaddexp(0, pre))
    return -d_log_decay * np.exp(log_rate), d_log_rate


def overflowing(d_decay, pre, log_rate):
    log_decay = -np.exp(log_rate) * np.log(1 + np.exp(pre))
    d_log_decay = d_decay * np.exp(log_decay)
    return -d_log_decay * np.exp(log_rate) * sigmoid(pre), np.sum(d_log_decay * log_decay, axis=0)


# --------------------------------------------------------------------------------------- first_memory_backward
def windows(rng):
    """Windows of several steps, and of one."""
    for B, T, H, K, U in ((2, 4, 2, 3, 5), (3, 2, 1, 4, 2), (1, 1, 1, 2, 2)):
        keys, queries = addresses(rng, 2, B, T, H, K)
        d_memory, d_recalled = rng.standard_normal((B, H, K, U)), rng.standard_normal((B, T, H, U))
        yield d_memory, d_recalled, keys, queries, *rng.uniform(0.2, 0.9, (2, B, T, H))


def back(d_memory, d_recalled, keys, queries, beta, decay, steps=reversed, along=lambda beta, decay: beta, late=False):
    """The loop: in the order of `steps`, with what is taken away along the key; `late` reads before the write."""
    for t in steps(range(keys.shape[1])):
        d_here = outer(queries[:, t], d_recalled[:, t])
        if not late:
            d_memory = d_memory + d_here
        d_error = along(beta[:, t], decay[:, t])[..., None] * recall(d_memory, keys[:, t])
        d_memory = decay[:, t, :, None, None] * d_memory - outer(keys[:, t], d_error)
        if late:
            d_memory = d_memory + d_here
    return d_memory


PARTS = [
    Part(
        "write_backward",
        writes,
        [
            Foreseen(
                "that is the backward of the paper's order; here the error is against the faded one", of_the_paper
            ),
            Foreseen("d_key has two terms: the key also asks what is there", key_of_one_term),
            Foreseen("d_key: what the key asks is the faded memory, not the whole", key_of_the_whole_memory),
            Foreseen("the error depends on the memory, the key and the decay, too", error_sends_nothing_back),
            Foreseen("d_decay has two terms: the error depends on it, too", decay_of_one_term),
            Foreseen("d_memory: all that reaches the memory goes through its decay", recalled_not_faded),
            Foreseen("the sign: error = value - recalled, so d_recalled = -d_error", wrong_sign),
            Foreseen(
                "the error is against the faded memory: make it again as the forward pass did",
                error_of_the_whole_memory,
            ),
            Foreseen("d_memory: you stop at the faded memory; one step back is left", memory_without_decay),
            Foreseen("d_memory has two terms: the error depends on the memory, too", memory_of_one_term),
            Foreseen("d_error: the error was written times β", error_without_beta),
            Foreseen("d_key: its first term stands in β · key ⊗ error", key_without_beta),
            Foreseen("d_decay: what did the decay multiply? Not the faded memory", decay_of_the_faded),
            Foreseen("the order: d_beta first, then d_decay", exchanged),
        ],
        names=("d_memory", "d_key", "d_value", "d_beta", "d_decay"),
    ),
    Part(
        "decay_backward",
        decays,
        [
            Foreseen("log_rate is shared by all texts: d_log_rate (H) is a sum over the batch", unsummed),
            Foreseen("d_log_rate: a sum over the batch, not a mean; the loss has its mean already", averaged),
            Foreseen("from decay to log_decay: the derivative of exp is exp", without_outer_exp),
            Foreseen("that is the gradient of the rate; its logarithm is the parameter", of_the_rate),
            Foreseen("the sign of d_pre: where pre grows, the decay falls", pre_of_other_sign),
            Foreseen("the sign: log_decay is minus the rate times softplus", both_of_other_sign),
            Foreseen("the derivative of softplus is missing", softplus_is_straight),
            Foreseen("exp overflows in softplus: np.logaddexp(0, x) doesn't", overflowing),
        ],
        names=("d_pre", "d_log_rate"),
    ),
    Part(
        "first_memory_backward",
        windows,
        [
            Foreseen(
                "each read sends a gradient to the memory that it read",
                lambda d_memory, d_recalled, *rest: back(d_memory, 0 * d_recalled, *rest),
            ),
            Foreseen("go from the last step to the first", lambda *window: back(*window, steps=iter)),
            Foreseen(
                "the read came after the write: its gradient comes before the write's backward",
                lambda *window: back(*window, late=True),
            ),
            Foreseen(
                "a write also takes away what it found under the key",
                lambda *window: back(*window, along=lambda beta, decay: 0 * beta),
            ),
            Foreseen(
                "that is the other order of decay and error",
                lambda *window: back(*window, along=lambda beta, decay: decay * beta),
            ),
            Foreseen(
                "the sign of what a write takes away",
                lambda *window: back(*window, along=lambda beta, decay: -beta),
            ),
            Foreseen(
                "the gradient of the last memory comes in, too: it is where the loop starts",
                lambda d_memory, *rest: back(0 * d_memory, *rest),
            ),
            Foreseen(
                "keys[:, t] is already the key that step t wrote under: don't shift it",
                lambda d_memory, d_recalled, keys, *rest: back(d_memory, d_recalled, shifted(keys), *rest),
            ),
            Foreseen(
                "a read sends its gradient along the query that it asked with, not along the key",
                lambda d_memory, d_recalled, keys, queries, *rest: back(d_memory, d_recalled, keys, keys, *rest),
            ),
            Foreseen(
                "a write goes back along its key, not along the query",
                lambda d_memory, d_recalled, keys, queries, *rest: back(d_memory, d_recalled, queries, queries, *rest),
            ),
        ],
    ),
]
