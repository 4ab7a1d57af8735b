"""What is asked in lesson 14, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex14_against_the_stack as ours


# ------------------------------------------------------------------------------------------ attention_forward
def windows(rng):
    """A batch, one token alone, scores of which most are of no weight, and scores that no exponential can hold.

    At last scores that are all alike and far below 0.
    """
    for B, T, K, U, scale in ((2, 4, 3, 5, 1.0), (1, 1, 2, 2, 1.0), (3, 5, 4, 2, 5.0), (1, 3, 4, 4, 100.0)):
        query, key = scale * rng.standard_normal((2, B, T, K))
        yield query, key, rng.standard_normal((B, T, U))
    query = np.tile(200 * rng.standard_normal(4), (1, 3, 1))
    yield query, -query, rng.standard_normal((1, 3, 4))


def attend(query, key, value, scale=None, seen=None, axis=-1):
    """Attention with the score's scale, the tokens seen (T, T) and the softmax's axis as given."""
    T, K = query.shape[1:]
    scores = query @ key.swapaxes(1, 2) * (K**-0.5 if scale is None else scale)
    scores = np.where(np.tri(T, dtype=bool) if seen is None else seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True) @ value


def sees_all(query, key, value):
    return attend(query, key, value, seen=True)


def sees_only_the_future(query, key, value):
    return attend(query, key, value, seen=np.tri(query.shape[1], dtype=bool).T)


def not_itself(query, key, value):
    return attend(query, key, value, seen=np.tri(query.shape[1], k=-1, dtype=bool))


def zeros_for_the_future(query, key, value):
    """Masked scores are 0, not -inf: each later token has the weight exp(0)."""
    T, K = query.shape[1:]
    scores = np.tri(T) * (query @ key.swapaxes(1, 2)) / np.sqrt(K)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def masked_late(query, key, value):
    """The softmax over all tokens, and then the mask: the weights do not sum to 1."""
    T, K = query.shape[1:]
    scores = query @ key.swapaxes(1, 2) / np.sqrt(K)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.tri(T) * weights / weights.sum(axis=-1, keepdims=True) @ value


def finite_mask(query, key, value):
    """Masked scores are -1e4, which a score that is seen may lie below."""
    T, K = query.shape[1:]
    scores = np.where(np.tri(T, dtype=bool), query @ key.swapaxes(1, 2) / np.sqrt(K), -1e4)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def one_largest(query, key, value):
    """The largest of all scores is subtracted from all: a query whose own are far below has no weight left."""
    T, K = query.shape[1:]
    scores = np.where(np.tri(T, dtype=bool), query @ key.swapaxes(1, 2) / np.sqrt(K), -np.inf)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def largest_to_come(query, key, value):
    """What is subtracted may be the score of a token that is not seen."""
    T, K = query.shape[1:]
    scores = query @ key.swapaxes(1, 2) / np.sqrt(K)
    weights = np.tri(T) * np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def unshifted(query, key, value):
    T, K = query.shape[1:]
    weights = np.exp(query @ key.swapaxes(1, 2) / np.sqrt(K)) * np.tri(T)
    return weights / weights.sum(axis=-1, keepdims=True) @ value


# ----------------------------------------------------------------------------------------- transformer_params
def stacks(rng):
    """The paper's, that of the lesson, and small ones."""
    yield 32000, 768, 12, 2752
    yield 295, 48, 12, 140
    yield 7, 8, 1, 5
    yield 11, 16, 3, 2


def params(V, d, N, F, embeddings=1, matrices=4, ffn=3, norms=2, last=1):
    return embeddings * V * d + N * (matrices * d * d + ffn * d * F + norms * d) + last * d


# ---------------------------------------------------------------------------------------------- matched_width
def wishes(rng):
    """As many as the GPN+M of the lesson, exactly as many as a stack has, between two, and fewer than any has.

    Then between two that are equally near; where the nearest width is not that of the nearest count; where F = 8 d // 3
    would say another width; as many as the paper's; and a few fewer than a stack has.
    """
    yield 367_888, 295, 12
    yield 367_888, 295, 1
    yield 1_000_000, 4096, 4
    yield ours.transformer_params(100, 40, 3, 107), 100, 3
    yield (size(32, 100, 2) + size(40, 100, 2)) // 2 + 50, 100, 2
    yield 100, 50, 2
    yield 35_276, 100, 2
    yield 407_312, 295, 12
    yield 294_808, 295, 12
    yield 128_994_048, 32000, 12
    yield size(48, 295, 12) - 999, 295, 12


def size(d, V, N):
    return ours.transformer_params(V, d, N, round(8 * d / 3))


def not_above(wanted, V, N):
    d = 8
    while size(d + 8, V, N) <= wanted:
        d += 8
    return d


def not_below(wanted, V, N):
    d = 8
    while size(d, V, N) < wanted:
        d += 8
    return d


def nearest(wanted, V, N, hidden, last=False):
    """As asked, but for F, a function of the width; of two that are equally near the larger, if `last`."""
    misses = {d: abs(ours.transformer_params(V, d, N, hidden(d)) - wanted) for d in range(8, 2000, 8)}
    return [d for d, miss in misses.items() if miss == min(misses.values())][-last]


def cut_off(*case):
    return nearest(*case, lambda d: 8 * d // 3)


def rounded_up(*case):
    return nearest(*case, lambda d: -(-8 * d // 3))


def the_larger(*case):
    return nearest(*case, lambda d: round(8 * d / 3), last=True)


def root(wanted, V, N):
    """The width, no integer, at which 12 N d² + (V + 2 N + 1) d is what is wanted."""
    b = V + 2 * N + 1
    return (np.sqrt(b * b + 48 * N * wanted) - b) / (24 * N)


def nearest_width(*case):
    return max(8, 8 * round(root(*case) / 8))


def any_width(wanted, V, N):
    return min(range(8, 2000), key=lambda d: abs(size(d, V, N) - wanted))


def without_the_embedding(wanted, V, N):
    return min(range(8, 2000, 8), key=lambda d: abs(size(d, V, N) - V * d - wanted))


def four_times(*case):
    return nearest(*case, lambda d: 4 * d)


def one_layer(wanted, V, N):
    return ours.matched_width(wanted, V, 1)


PARTS = [
    Part(
        "attention_forward",
        windows,
        [
            Foreseen("causal: a token must not see those that come after it", sees_all),
            Foreseen(
                "the mask is the wrong way round: the first token sees itself alone, the last one all",
                sees_only_the_future,
            ),
            Foreseen("a token sees itself too: the first one has nothing else", not_itself),
            Foreseen("what is to come must get no weight at all, but exp(0) is 1", zeros_for_the_future),
            Foreseen("a score that is seen may lie below the number that hides what is to come", finite_mask),
            Foreseen("the weights of what is seen must sum to 1: mask before the softmax divides", masked_late),
            Foreseen("where is √K? Scores grow with the width of the keys", lambda *case: attend(*case, scale=1.0)),
            Foreseen("the scores are divided by √K, not by K", lambda q, k, v: attend(q, k, v, scale=1 / q.shape[-1])),
            Foreseen(
                "√K is of the width of the keys, not of that of the values",
                lambda q, k, v: attend(q, k, v, scale=v.shape[-1] ** -0.5),
            ),
            Foreseen(
                "the softmax is over the tokens that a query sees: the last axis", lambda *case: attend(*case, axis=1)
            ),
            Foreseen("exp overflows: lesson 03 says what to subtract first", unshifted),
            Foreseen("if one query's scores are far above another's, what is left of the lower ones?", one_largest),
            Foreseen("what is subtracted must be a score that the query sees", largest_to_come),
        ],
    ),
    Part(
        "transformer_params",
        stacks,
        [
            Foreseen("the embedding also decodes: it counts once", lambda *sizes: params(*sizes, embeddings=2)),
            Foreseen("where is the embedding?", lambda *sizes: params(*sizes, embeddings=0)),
            Foreseen("attention also has a matrix behind it, out", lambda *sizes: params(*sizes, matrices=3)),
            Foreseen("SwiGLU has three matrices: W_g, W_u and W_2", lambda *sizes: params(*sizes, ffn=2)),
            Foreseen("norms have weights too", lambda *sizes: params(*sizes, norms=0, last=0)),
            Foreseen(
                "a layer has two norms, before the attention and before the network",
                lambda *sizes: params(*sizes, norms=1),
            ),
            Foreseen("one norm is missing: the last, before the decoder", lambda *sizes: params(*sizes, last=0)),
            Foreseen("there are N layers", lambda V, d, N, F: params(V, d, 1, F)),
        ],
    ),
    Part(
        "matched_width",
        wishes,
        [
            Foreseen("the nearest may have a few more than wanted", not_above),
            Foreseen("the nearest may have a few fewer than wanted", not_below),
            Foreseen("of two that are equally near, the smaller", the_larger),
            Foreseen("it is the count of parameters that must be nearest, not the width", nearest_width),
            Foreseen("F is rounded, not cut off", cut_off),
            Foreseen("F is rounded, not always up", rounded_up),
            Foreseen("the width must be a multiple of 8", any_width),
            Foreseen("the width must be an integer, and a multiple of 8", root),
            Foreseen("the embedding grows with the width too, and counts", without_the_embedding),
            Foreseen("F is 8/3 of the width here, not four times", four_times),
            Foreseen("there are N layers", one_layer),
        ],
    ),
]
