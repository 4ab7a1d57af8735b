"""What is asked in lesson 01, and the wrong answers that we foresee."""

import math

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex01_text_to_tokens as ours


# ------------------------------------------------------------------------------------------------- join_pair
def merges(rng):
    """Pairs here and there, equals in a row, no pair, one token, none. Short ones first: all their tokens are shown."""
    yield np.array([1, 2, 1, 4, 1, 2]), 1, 2, 7
    yield np.array([5, 5, 5, 2, 5, 5]), 5, 5, 6
    yield np.array([5, 5, 5, 5]), 5, 5, 6
    yield np.array([2, 1]), 1, 2, 3
    yield np.array([1]), 1, 2, 3
    yield np.array([], int), 1, 2, 3
    yield rng.integers(0, 3, 20), 1, 2, 3


def overlapping(tokens, left, right, new):
    """Compares with the token before, although that one is already used up."""
    joined = []
    for i, token in enumerate(tokens):
        if i and tokens[i - 1] == left and token == right:
            joined[-1] = new
        else:
            joined.append(token)
    return np.array(joined, int)


def overlapping_twice(tokens, left, right, new):
    """Takes every place where a pair begins, also inside of the pair before."""
    pairs = zip(tokens[:-1], tokens[1:], strict=True)
    begins = np.array([*(pair == (left, right) for pair in pairs), False][: len(tokens)], bool)
    ends = np.append(False, begins)[: len(tokens)]
    return np.where(begins, new, tokens)[begins | ~ends]


def past_the_end(tokens, left, right, new):
    joined, i = [], 0
    while i < len(tokens):
        here = tokens[i] == left and tokens[i + 1] == right
        joined.append(new if here else tokens[i])
        i += 2 if here else 1
    return np.array(joined, int)


def from_the_right(tokens, left, right, new):
    return ours.join_pair(tokens[::-1], right, left, new)[::-1]


def both_kept(tokens, left, right, new):
    joined = [
        [new if i + 1 < len(tokens) and tuple(tokens[i : i + 2]) == (left, right) else tokens[i]]
        for i in range(len(tokens))
    ]
    return np.array([token for tokens in joined for token in tokens], int)


def first_only(tokens, left, right, new):
    for i in range(len(tokens) - 1):
        if tokens[i] == left and tokens[i + 1] == right:
            return np.concatenate([tokens[:i], [new], tokens[i + 2 :]])
    return tokens


def last_lost(tokens, left, right, new):
    """Runs to the last but one, and never looks whether the last was joined."""
    joined, i = [], 0
    while i < len(tokens) - 1:
        here = tokens[i] == left and tokens[i + 1] == right
        joined.append(new if here else tokens[i])
        i += 2 if here else 1
    return np.array(joined, int)


# --------------------------------------------------------------------------------------------- bits_per_byte
def prices(rng):
    """Tokens of some bytes, of none at the start, a batch of one, all tokens of one byte."""
    for B, T in ((2, 5), (1, 3), (3, 4)):
        n_bytes = rng.integers(1, 8, (B, T))
        n_bytes[:, 0] = 0
        yield rng.exponential(2.0, (B, T)), n_bytes
    yield rng.exponential(2.0, (1, 4)), np.ones((1, 4), int)


# ---------------------------------------------------------------------------------------------------- bigram
def texts(rng):
    """Texts with pairs that come again and tokens that never come; one whose last token comes nowhere else."""
    for n, V, d in ((40, 4, 0.75), (12, 6, 0.5), (3, 5, 0.75), (200, 3, 1.0)):
        shorter = rng.dirichlet(np.ones(V))
        yield rng.integers(0, V - 1, n), shorter, d
    yield np.array([0, 1, 0, 1, 0, 2]), np.array([0.5, 0.25, 0.125, 0.125]), 0.75


def counted(tokens, V):
    counts = np.zeros((V, V))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    return counts


def smooth(counts, total, kinds, shorter, d):
    return np.where(total > 0, (np.maximum(counts - d, 0) + d * kinds * shorter) / np.maximum(total, 1), shorter)


def parts(tokens, shorter):
    counts = counted(tokens, len(shorter))
    return counts, counts.sum(axis=1, keepdims=True), (counts > 0).sum(axis=1, keepdims=True)


def counted_once(tokens, shorter, d):
    counts = np.zeros((len(shorter), len(shorter)))
    counts[tokens[:-1], tokens[1:]] += 1
    return smooth(counts, counts.sum(axis=1, keepdims=True), (counts > 0).sum(axis=1, keepdims=True), shorter, d)


def wrong_way_round(tokens, shorter, d):
    return ours.bigram(tokens[::-1], shorter, d)


def transposed(tokens, shorter, d):
    return ours.bigram(tokens, shorter, d).T


def not_dealt_out(tokens, shorter, d):
    counts, total, _ = parts(tokens, shorter)
    return np.where(total > 0, np.maximum(counts - d, 0) / np.maximum(total, 1), shorter)


def no_discount(tokens, shorter, d):
    counts, total, _ = parts(tokens, shorter)
    return np.where(total > 0, counts / np.maximum(total, 1), shorter)


def dealt_out_evenly(tokens, shorter, d):
    counts, total, kinds = parts(tokens, shorter)
    even = np.full(len(shorter), 1 / len(shorter))
    return np.where(total > 0, smooth(counts, total, kinds, even, d), shorter)


def one_d_for_all(tokens, shorter, d):
    counts, total, _ = parts(tokens, shorter)
    return smooth(counts, total, 1, shorter, d)


def unseen_empty(tokens, shorter, d):
    counts, total, _ = parts(tokens, shorter)
    return np.where(total > 0, ours.bigram(tokens, shorter, d), 0)


def unseen_even(tokens, shorter, d):
    counts, total, _ = parts(tokens, shorter)
    return np.where(total > 0, ours.bigram(tokens, shorter, d), 1 / len(shorter))


def unseen_nan(tokens, shorter, d):
    _, total, _ = parts(tokens, shorter)
    return np.where(total > 0, ours.bigram(tokens, shorter, d), np.nan)


def below_zero(tokens, shorter, d):
    counts, total, kinds = parts(tokens, shorter)
    return np.where(total > 0, (counts - d + d * kinds * shorter) / np.maximum(total, 1), shorter)


def with_kinds(of):
    """A bigram whose kinds are of(counts (V, V))."""

    def wrong(tokens, shorter, d):
        counts, total, _ = parts(tokens, shorter)
        return smooth(counts, total, of(counts), shorter, d)

    return wrong


def d_forgotten(tokens, shorter, d):
    counts, total, kinds = parts(tokens, shorter)
    dealt_out = np.maximum(counts - d, 0) + kinds * shorter
    return np.where(total > 0, dealt_out / np.maximum(total, 1), shorter)


def whole_counts(tokens, shorter, d):
    counts, total, kinds = parts(tokens, shorter)
    return np.where(total > 0, (counts + d * kinds * shorter) / np.maximum(total, 1), shorter)


def down_the_column(tokens, shorter, d):
    counts, total, kinds = parts(tokens, shorter)
    return np.where(total > 0, smooth(counts, total, kinds, shorter[:, None], d), shorter)


def down_both(tokens, shorter, d):
    counts, total, kinds = parts(tokens, shorter)
    return smooth(counts, total, kinds, shorter[:, None], d)


def without_keepdims(tokens, shorter, d):
    counts, total, kinds = parts(tokens, shorter)
    return smooth(counts, total[:, 0], kinds[:, 0], shorter, d)


def all_that_came(tokens, shorter, d):
    counts, _, kinds = parts(tokens, shorter)
    return smooth(counts, np.bincount(tokens, minlength=len(shorter))[:, None], kinds, shorter, d)


PARTS = [
    Part(
        "join_pair",
        merges,
        [
            Foreseen("a token that was joined is used up: 5 5 5 holds one pair, not two", overlapping),
            Foreseen("no token is in two pairs: the first two of 5 5 5 are one, the third stays", overlapping_twice),
            Foreseen("go from left to right: the first two of 5 5 5 are the pair", from_the_right),
            Foreseen("after a pair step over both of its tokens", both_kept),
            Foreseen("every pair is to be joined, not the first alone", first_only),
            Foreseen("the last token is lost where it is in no pair", last_lost),
            Foreseen("the last token has none to its right: look before you compare", past_the_end),
            Foreseen("an array is asked, and that is a list: np.array of it", lambda *a: ours.join_pair(*a).tolist()),
        ],
    ),
    Part(
        "bits_per_byte",
        prices,
        [
            Foreseen("nats are not bits: divide by ln 2", lambda nll, n: nll.sum() / n.sum()),
            Foreseen("a nat is more than a bit: divide by ln 2", lambda nll, n: nll.sum() * math.log(2) / n.sum()),
            Foreseen("that is bits per token; count the bytes", lambda nll, n: nll.mean() / math.log(2)),
            Foreseen(
                "some tokens stand for no byte: sum all nats and all bytes, and divide only then",
                lambda nll, n: np.mean(nll / n) / math.log(2),
            ),
            Foreseen(
                "sum the nats and the bytes of the whole text, then divide: a token of no bytes costs too",
                lambda nll, n: np.mean(nll[n > 0] / n[n > 0]) / math.log(2),
            ),
            Foreseen(
                "one number for all, not one for each sequence",
                lambda nll, n: nll.sum(axis=1) / math.log(2) / n.sum(axis=1),
            ),
            Foreseen("that is a perplexity of some kind; no exp is asked", lambda nll, n: np.exp(nll.sum() / n.sum())),
        ],
    ),
    Part(
        "bigram",
        texts,
        [
            Foreseen("a pair that comes twice is counted once: `counts[a, b] += 1` forgets repeats", counted_once),
            Foreseen("row v is for what comes AFTER v; you count what comes before it", wrong_way_round),
            Foreseen("transposed: rows are the token before, columns the token after", transposed),
            Foreseen("rows do not sum to 1: what was taken off must be dealt out, d · kinds in all", not_dealt_out),
            Foreseen("these are plain shares: take d off each count, and deal it out", no_discount),
            Foreseen("deal out by `shorter`, not to all tokens alike", dealt_out_evenly),
            Foreseen("d was taken off once for each kind, so d · kinds(v ·) is there to deal out", one_d_for_all),
            Foreseen("a token that nothing followed gets all of `shorter`, not zeros", unseen_empty),
            Foreseen("a token that nothing followed gets `shorter`, not 1 / V for all", unseen_even),
            Foreseen("0 / 0: what of a token that nothing followed?", unseen_nan),
            Foreseen("a count of 0 has nothing to take off: max(c - d, 0)", below_zero),
            Foreseen("c(v ·) counts the tokens that FOLLOW v; nothing follows the last token", all_that_came),
            Foreseen(
                "kinds(v ·) counts different tokens: how many entries of the row are above 0, not their sum",
                with_kinds(lambda counts: counts.sum(axis=1, keepdims=True)),
            ),
            Foreseen(
                "kinds(v ·) looks along the row of v, axis 1; yours counts down the columns",
                with_kinds(lambda counts: (counts > 0).sum(axis=0, keepdims=True)),
            ),
            Foreseen(
                "kinds(v ·) is what came after v; yours is what came before it: the other axis",
                with_kinds(lambda counts: (counts > 0).sum(axis=0)[:, None]),
            ),
            Foreseen(
                "kinds(v ·) is a number for each row v, shape (V, 1): keepdims=True",
                with_kinds(lambda counts: (counts > 0).sum(axis=1)),
            ),
            Foreseen(
                "kinds(v ·) is a number for each row v, not one for the whole text",
                with_kinds(lambda counts: (counts > 0).sum()),
            ),
            Foreseen("d is forgotten where you deal out: d · kinds(v ·) was taken off, not kinds(v ·)", d_forgotten),
            Foreseen("rows sum to more than 1: what you deal out must be taken off the counts first", whole_counts),
            Foreseen("shorter[w] is of the token AFTER v: it runs along the row, not down the column", down_the_column),
            Foreseen("`shorter` runs along each row of p; you lay it down the columns", down_both),
            Foreseen("each row v is divided by its own c(v ·), shape (V, 1): keepdims=True", without_keepdims),
        ],
    ),
]
