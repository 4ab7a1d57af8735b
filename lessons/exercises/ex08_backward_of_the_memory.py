"""Exercises of lesson 08: the backward of the memory. Fill in the functions, then: python -m lessons.check 08

Letters: B batch, T time, H heads, K key width, U value width. `d_x` is the gradient of x, shaped as x.
You may import numpy and math, and nothing else.
"""

import numpy as np  # noqa: F401


def write_backward(d_written, memory, key, value, beta, decay):
    """The backward of Gated DeltaNet's write: the memory fades first, and the error is against what is left.

        faded = decay · memory        error = value - fadedᵀ key        written = faded + β · key ⊗ error

    d_written and memory (B, H, K, U), key (B, H, K), value (B, H, U), beta and decay (B, H)
    -> the tuple d_memory, d_key, d_value, d_beta, d_decay. About 11 lines; the forward pass is not given: do again what
    you need of it. np.einsum("bhku,bhk->bhu", x, key) is xᵀ key.
    """
    raise NotImplementedError


def decay_backward(d_decay, pre, log_rate):
    """The backward of decay = exp(log_decay), log_decay = -exp(log_rate) · softplus(pre).

    d_decay and pre (B, H); log_rate (H), one parameter a head for all texts -> the tuple d_pre (B, H), d_log_rate (H).
    softplus(x) = ln(1 + eˣ) must not overflow: pre may be as large as 800. About 5 lines.
    """
    raise NotImplementedError


def first_memory_backward(d_memory, d_recalled, keys, queries, beta, decay):
    """How the loss moves with the memory that a window begins with, in the paper's order of decay and error.

    At t = 0 … T - 1 the forward pass wrote M_{t+1} = decay · M_t + β k ⊗ (v - M_tᵀ k) with k = keys[:, t] (the key that
    was used in this write; it need not be shifted), and then read recalled[:, t] = M_{t+1}ᵀ queries[:, t].
    d_memory (B, H, K, U) of M_T, d_recalled (B, T, H, U), keys and queries (B, T, H, K), beta and decay (B, T, H)
    -> d_memory (B, H, K, U) of M_0. Neither memories nor values are needed. About 6 lines.
    """
    raise NotImplementedError
