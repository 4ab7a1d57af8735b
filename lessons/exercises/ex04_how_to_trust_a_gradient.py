"""Exercises of lesson 04: how to trust a gradient. Fill in the functions, then: python -m lessons.check 04

f is the mean loss of lesson 03, given below: the function whose gradient is to be measured. Letters: N tokens, V
vocabulary. You may import numpy, math and what this file imports, and nothing else. Arguments must be after the call
what they were before, in every digit: move a copy.
"""

import numpy as np  # noqa: F401

from gpn_ref.reference.ops import cross_entropy_forward


def f(logits, targets):
    """The mean loss.  logits (N, V), targets (N) integers -> one number."""
    nll, _ = cross_entropy_forward(logits, targets)
    return nll.mean()


def numeric_gradient(logits, targets, h):
    """Centred differences, entry by entry: (f(x + h e) - f(x - h e)) / 2h, where e is 1 at one entry and 0 elsewhere.

    logits (N, V), targets (N), h a number -> (N, V), the slope of f by each logit. `logits` must stay as it is, to the
    last digit. About 6 lines.
    """
    raise NotImplementedError


def slope_along(logits, targets, direction, h):
    """The slope of f along u, the direction brought to length 1: (f(x + h u) - f(x - h u)) / 2h.

    logits (N, V), targets (N), direction (N, V) of any length, that of all its entries together, h a number -> one
    number. Two losses are enough. About 3 lines.
    """
    raise NotImplementedError


def relative_error(analytic, numeric, largest_of_all):
    """The largest |analytic - numeric|, over the array's scale.

    The scale is the largest |numeric| of this array, or a thousandth of `largest_of_all` if that is more.
    analytic, numeric (...), largest_of_all a number -> one number. About 2 lines.
    """
    raise NotImplementedError
