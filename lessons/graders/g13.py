"""What is asked in lesson 13, and the wrong answers that we foresee."""

import numpy as np

from lessons.graders.g07 import addresses
from lessons.grading import Foreseen, Part
from lessons.solutions import ex13_look_inside as ours


# --------------------------------------------------------------------------------------------- left_on_average
def decays(rng):
    """Fast and slow heads, one that clears at times, the longest lag, and a text so long that products underflow."""
    for B, T, H, lag in ((2, 6, 3, 2), (3, 5, 2, 1), (1, 4, 2, 3)):
        yield rng.uniform(0.02, 0.999, (B, T, H)), lag
    yield np.where(rng.random((2, 12, 2)) < 0.3, 0.01, 0.99), 4
    yield rng.uniform(0.01, 0.05, (1, 300, 2)), 2


def stretches(decay, lag, first=1, more=0):
    """The products of lag + more decays, from `first` tokens after each t on.  decay (B, T, H) -> (B, ·, H)."""
    starts = range(first, decay.shape[1] - lag + first)
    return np.stack([decay[:, t : t + lag + more].prod(axis=1) for t in starts], axis=1)


def with_the_first(decay, lag):
    return np.concatenate([decay[:, :lag].prod(axis=1)[:, None], stretches(decay, lag)], axis=1).mean(axis=(0, 1))


def quotients(decay, lag):
    left = np.cumprod(decay, axis=1)
    return (left[:, lag:] / left[:, :-lag]).mean(axis=(0, 1))


# --------------------------------------------------------------------------------------------------- last_read
def heads(rng):
    """A long text and a short one, a single token, decays near 0 and near 1, and a query that is the last key."""
    for T, K, low, high in ((6, 3, 0.1, 0.9), (9, 2, 0.9, 0.999), (1, 3, 0.2, 0.8), (4, 4, 0.01, 0.3)):
        key, beta, decay = addresses(rng, T, K), rng.uniform(0.1, 0.9, T), rng.uniform(low, high, T)
        yield key, addresses(rng, K), beta, decay
    key = addresses(rng, 5, 3)
    yield key, key[-1].copy(), rng.uniform(0.1, 0.9, 5), rng.uniform(0.3, 0.9, 5)


def run_through(key, query, beta, decay, step):
    """The memory run with one-hot values: step(memory, key, one-hot value, beta, decay) -> the memory after it."""
    memory = np.zeros((key.shape[1], len(key)))
    for of_token in zip(key, np.eye(len(key)), beta, decay, strict=True):
        memory = step(memory, *of_token)
    return memory.T @ query


def error_first(memory, k, v, b, a):
    return a * memory + b * np.outer(k, v - memory.T @ k)


def error_against_the_new_one(memory, k, v, b, a):
    return a * (memory + b * np.outer(k, v - memory.T @ k))


def hebb(memory, k, v, b, a):
    return a * memory + b * np.outer(k, v)


def of_steps(step):
    return lambda key, query, beta, decay: run_through(key, query, beta, decay, step)


def own_turn_first(key, query, beta, decay):
    weights, back = np.zeros(len(key)), query
    for j in reversed(range(len(key))):
        back = decay[j] * (back - beta[j] * (key[j] @ back) * key[j])
        weights[j] = beta[j] * (key[j] @ back)
    return weights


def from_the_first(key, query, beta, decay):
    return ours.last_read(key[::-1], query, beta[::-1], decay[::-1])[::-1]


# ------------------------------------------------------------------------------------------------------ effect
def comparisons(rng):
    """Sequences of unequal length, some that don't count, changes that grow with the length, two sequences."""
    for n, R, empty in ((8, 60, 0), (12, 100, 3), (2, 20, 0), (20, 200, 0)):
        sizes = rng.integers(1, 40, n) * (np.arange(n) >= empty)
        differences = sizes * (0.02 * sizes - 0.1 + 0.3 * rng.standard_normal(n))
        draws = rng.integers(0, n, (R, n))
        draws[sizes[draws].sum(axis=1) == 0] = np.arange(n)  # no draw is of nothing
        yield differences, sizes, draws


def by_draws(draw, level=0.95, of_all=None):
    """draw(differences (R, n), sizes (R, n)) -> the change of each draw (R); of_all: makes the change of those."""

    def wrong(differences, sizes, draws):
        drawn = draw(differences[draws], sizes[draws])
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
        change = of_all(drawn) if of_all else differences.sum() / sizes.sum()
        return change, low, high

    return wrong


def ratio(differences, sizes):
    return differences.sum(axis=1) / sizes.sum(axis=1)


def means_of_means(differences, sizes, draws):
    each = differences / sizes
    return each.mean(), *np.quantile(each[draws].mean(axis=1), [0.025, 0.975])


def a_sequence(differences, sizes, draws):
    return differences.mean(), *np.quantile(differences[draws].mean(axis=1), [0.025, 0.975])


def of_one_length(differences, sizes, draws):
    drawn = differences[draws].sum(axis=1) / sizes.sum()
    return differences.sum() / sizes.sum(), *np.quantile(drawn, [0.025, 0.975])


def spread_of_sequences(differences, sizes, draws):
    there = sizes > 0
    change, each = differences.sum() / sizes.sum(), differences[there] / sizes[there]
    return change, *np.quantile(each, [0.025, 0.975])


def deviations(differences, sizes, draws):
    change, low, high = ours.effect(differences, sizes, draws)
    return change, low - change, high - change


PARTS = [
    Part(
        "left_on_average",
        decays,
        [
            Foreseen(
                "that is the mean decay to the power of lag: the product comes first, then the mean",
                lambda decay, lag: decay.mean(axis=(0, 1)) ** lag,
            ),
            Foreseen(
                "that is exp(lag · mean log decay), the other life: here each stretch has its own product",
                lambda decay, lag: np.exp(lag * np.log(decay).mean(axis=(0, 1))),
            ),
            Foreseen(
                "first the product of each stretch, then their mean: not the mean of their logarithms",
                lambda decay, lag: np.exp(np.log(stretches(decay, lag)).mean(axis=(0, 1))),
            ),
            Foreseen("the first decay multiplies an empty memory: T - lag stretches, not one more", with_the_first),
            Foreseen(
                "what is held after token t has met decay_t already: which is the next?",
                lambda decay, lag: stretches(decay, lag, first=0).mean(axis=(0, 1)),
            ),
            Foreseen(
                "a stretch has lag decays: yours has one less",
                lambda decay, lag: stretches(decay, lag, more=-1).mean(axis=(0, 1)),
            ),
            Foreseen(
                "the mean is over the sequences too: (H), not (B, H)",
                lambda decay, lag: stretches(decay, lag).mean(axis=1),
            ),
            Foreseen("each head has an average of its own: (H)", lambda decay, lag: stretches(decay, lag).mean()),
            Foreseen("in a long text the product of all decays so far is 0, and then it is 0 / 0", quotients),
        ],
    ),
    Part(
        "last_read",
        heads,
        [
            Foreseen(
                "that is the lesson's order, error first: here the error is against what has decayed",
                of_steps(error_first),
            ),
            Foreseen(
                "what token j writes does not go through its own A_j: that turns what was there before", own_turn_first
            ),
            Foreseen(
                "the decay comes before the write: a token's own value is not weakened by it",
                of_steps(error_against_the_new_one),
            ),
            Foreseen("a later write takes away what it finds under its key: decay is not all", of_steps(hebb)),
            Foreseen(
                "that is what each write alone would give: what do later tokens do to it?",
                lambda key, query, beta, decay: beta * (key @ query),
            ),
            Foreseen(
                "where is the decay?",
                lambda key, query, beta, decay: ours.last_read(key, query, beta, np.ones_like(decay)),
            ),
            Foreseen(
                "where is β?",
                lambda key, query, beta, decay: ours.last_read(key, query, np.ones_like(beta), decay),
            ),
            Foreseen("the read is at the end: which token does q come to first on its way back?", from_the_first),
            Foreseen("a weight may be negative", lambda *arguments: np.abs(ours.last_read(*arguments))),
        ],
    ),
    Part(
        "effect",
        comparisons,
        [
            Foreseen("a long sequence has more tokens: Σ / Σ, not the mean of a mean a sequence", means_of_means),
            Foreseen("that is a change a sequence: a change a token is asked", a_sequence),
            Foreseen("each draw has its own number of tokens: draw the sizes as well", of_one_length),
            Foreseen(
                "a long sequence counts for more in a draw, too: Σ / Σ",
                by_draws(lambda d, n: np.divide(d, n, out=np.zeros(d.shape), where=n > 0).mean(axis=1)),
            ),
            Foreseen("2.5 % lie below, 2.5 % above: that makes 95 % between them", by_draws(ratio, level=0.9)),
            Foreseen(
                "the change is that of the sequences as they are, not a mean of the draws",
                by_draws(ratio, of_all=np.mean),
            ),
            Foreseen(
                "how sure the mean is, not how far sequences are apart: of each draw one change", spread_of_sequences
            ),
            Foreseen("low and high lie around the change, not around 0", deviations),
        ],
        names=("change", "low", "high"),
    ),
]
