"""A smoothed trigram: what counting alone predicts, the baseline that a trained model must beat."""

import numpy as np


class Trigram:
    """Interpolated absolute discounting, from the counts c of a training text of n tokens:

        p₁(w)     = max(c(w) - d, 0) / n + d · kinds(·) / n / V
        p₂(w|v)   = max(c(v w) - d, 0) / c(v ·) + d · kinds(v ·) / c(v ·) · p₁(w)
        p₃(w|u v) = max(c(u v w) - d, 0) / c(u v ·) + d · kinds(u v ·) / c(u v ·) · p₂(w|v)

    c(u v ·) is the number of tokens that follow u v, kinds(u v ·) the number of different ones; a context
    never seen leaves everything to the shorter one. d = 0.75.
    """

    discount = 0.75

    def __init__(self, tokens, vocab_size):
        """`tokens` (n + 1) integers, the first one only a context."""
        self.vocab_size = vocab_size
        self.tables = [self._table(*grams) for grams in self._grams(tokens)]

    def nll(self, tokens):
        """Rows of tokens (..., n + 1) -> (..., n) float64: -ln p₃ of all but a row's first token, in nats.

        Its second token has only one before it: p₂.
        """
        probability = 1.0 / self.vocab_size
        for (context, gram), table in zip(self._grams(tokens), self.tables, strict=True):
            (grams, gram_counts), (contexts, totals, kinds) = table
            count, kind = _look_up(grams, gram_counts, gram), _look_up(contexts, kinds, context)
            total = np.maximum(_look_up(contexts, totals, context), 1)
            longer = np.maximum(count - self.discount, 0.0) / total
            longer += self.discount * kind / total * probability
            probability = np.where(kind > 0, longer, probability)
        return -np.log(probability)

    def _grams(self, tokens):
        """For orders 1, 2 and 3: (..., n) keys of each target's context, and of context and target together."""
        tokens = np.asarray(tokens, np.int64)
        V = self.vocab_size
        target, last = tokens[..., 1:], tokens[..., :-1]
        two = np.full_like(last, -1)  # -1: no context, one that is never seen
        two[..., 1:] = last[..., :-1] * V + last[..., 1:]
        for context in (np.zeros_like(last), last, two):
            yield context, np.where(context < 0, -1, context * V + target)

    def _table(self, context, gram):
        context, gram = context[context >= 0], gram[context >= 0]
        grams, counts = np.unique(gram, return_counts=True)
        contexts, kinds = np.unique(grams // self.vocab_size, return_counts=True)
        return (grams, counts), (contexts, np.unique(context, return_counts=True)[1], kinds)


def _look_up(keys, values, wanted):
    """The value of each wanted key in sorted `keys`, 0 where there is none."""
    if not len(keys):
        return np.zeros_like(wanted)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
