"""Exercises of lesson 09: the optimizer. Fill in the functions, then: python -m lessons.check 09

`params`, `grads`, `first` and `second` are dicts, name -> array, with the same names and shapes. No function may change
what it is given. You may import numpy and math, and nothing else.
"""

import math  # noqa: F401

import numpy as np  # noqa: F401

BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8


def adamw_step(params, grads, first, second, step, rate, decay):
    """One step of AdamW, of each parameter p with gradient g, m in `first`, v in `second`; η is the rate, λ the decay:

        m ← m + (1 - β₁)(g - m)     v ← v + (1 - β₂)(g² - v)     m̂ = m / (1 - β₁ᵗ)     v̂ = v / (1 - β₂ᵗ)
        p ← p - η (m̂ / (√v̂ + ε) + λ p)     with λ = 0 for what is not two-dimensional

    step: t, an integer from 1 on -> params, first, second: three new dicts. About 9 lines.
    """
    raise NotImplementedError


def clip(grads, most):
    """Scale all gradients by one factor, min(1, most / norm), where norm is the length of all of them as one vector.

    -> grads, a new dict, and norm, that before clipping. All gradients may be 0. About 3 lines.
    """
    raise NotImplementedError


def learning_rate_at(step, peak, warmup, steps, final):
    """A line up to the peak, which step warmup - 1 has; then a cosine down to final · peak; there it stays.

        peak (step + 1) / warmup  while step < warmup,  then  peak (final + (1 - final) (1 + cos(π x)) / 2),
        x = (step - warmup) / (steps - warmup), at most 1

    step is an integer from 0 on, warmup < steps -> the rate, a number. About 4 lines.
    """
    raise NotImplementedError
