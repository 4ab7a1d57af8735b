"""Exercises of lesson 06: backpropagation through time. Fill in the functions, then: python -m lessons.check 06

The loop is that of lesson 06, part 1, for vectors and a batch: s_t = gate ⊙ s_{t-1} + x_t, for t = 1 … T; x[:, 0] is
x_1. B is batch, T time, D width. You may import numpy and math, and nothing else. Don't change what you are given.
"""

import numpy as np  # noqa: F401


def loop_backward(d_own, gate, x, s_0):
    """Undo s_t = gate ⊙ s_{t-1} + x_t: the gradients of the sum of all entries of d_own ⊙ s.

    d_own[:, 0] is what the loss of step 1 says of s_1: its own share of d_s_1, the 1 of the lesson's `1 + a d_s_{t+1}`.
    d_own, x (B, T, D), gate (D), s_0 (B, D) -> d_gate (D), d_x (B, T, D), d_s_0 (B, D), each the whole gradient.
    About 10 lines.
    """
    raise NotImplementedError


def truncated(d_own, gate, x, s_0, length):
    """d_gate of the same loop in windows of `length` steps: the state goes on between them, its gradient is cut.

    d_own, x (B, T, D), gate (D), s_0 (B, D) -> d_gate (D). The last window is shorter where T is no multiple of
    `length`. About 7 lines, with loop_backward.
    """
    raise NotImplementedError


def left(gates):
    """What the gates leave of each step: d s_T / d s_t, by entry, where s_t = gate_t ⊙ s_{t-1} + x_t.

    gates (T, D), gates[0] that of step 1 -> (T, D): the first row for s_1, the last for s_T itself. About 4 lines.
    """
    raise NotImplementedError
