"""Exercises of lesson 10: sampling. Fill in the functions, then: python -m lessons.check 10

V is the size of the vocabulary. `draw` is given. You may import numpy and math, and nothing else.
"""

import numpy as np


def draw(probabilities, u):
    """The first token at which the sum of the probabilities (V) exceeds u, a number in [0, 1)."""
    return int(np.searchsorted(np.cumsum(probabilities), u, side="right"))


def with_temperature(logits, temperature):
    """p_i = exp(z_i / τ) / Σ_j exp(z_j / τ), with τ the temperature; τ = 0 is the limit: all on the largest logit.

    logits (V) -> probabilities (V), float64. No logit overflows, and of equal ones the first is the largest.
    About 5 lines.
    """
    raise NotImplementedError


def top_p(probabilities, p):
    """Keep the fewest tokens whose probabilities together reach p; the others get 0, and the rest sums to 1 again.

    The token that crosses p is kept. Of equal ones the smaller token goes first: np.argsort(…, kind="stable").
    probabilities (V), p in (0, 1] -> probabilities (V), in the order of the vocabulary. About 5 lines.
    """
    raise NotImplementedError


def generate(step, prompt, temperature, p, draws):
    """Write a token for each of the draws: temperature first, then top-p, then `draw`.

    step(token, state) -> logits (V) of the next token, the new state; the first state is None.
    prompt: a list of tokens, one or more, which the model reads first; draws: a list of numbers in [0, 1)
    -> the new tokens, a list as long as draws. About 7 lines, with your `with_temperature` and `top_p`.
    """
    raise NotImplementedError
