"""Exercises of lesson 07: the matrix memory. Fill in the functions, then: python -m lessons.check 07

Letters: B batch, T time, H heads, K key width, U value width. Each of the B texts has H memories of its own.
You may import numpy and math, and nothing else.
"""

import numpy as np  # noqa: F401


def write(memory, key, value, beta, decay):
    """One write, in the paper's order: M_t = decay · M + β k ⊗ (v - Mᵀ k).

    memory (B, H, K, U), key (B, H, K), value (B, H, U), beta and decay (B, H) -> memory (B, H, K, U).
    Must leave its arguments as they are. About 3 lines; np.einsum("bhku,bhk->bhu", memory, key) is Mᵀ k.
    """
    raise NotImplementedError


def recalled_after(n, beta, decay, decay_first):
    """What share of v is recalled for k after n writes of the same v under the same k, into an empty memory.

    k has length 1; beta and decay (H) are the same at each write. n is an integer, 0 or more. `decay_first` says which
    rule: False the paper's, M_t = decay · M + β k ⊗ (v - Mᵀ k); True the other order, M' = decay · M,
    M_t = M' + β k ⊗ (v - M'ᵀ k). No memory is needed: find what one write does to the share. -> share (H).
    About 5 lines.
    """
    raise NotImplementedError


def read_text(keys, queries, values, beta, decay):
    """Write and read along a text: what is recalled at each step, from an empty memory.

    keys[:, t], queries[:, t], values[:, t], beta[:, t] and decay[:, t] are all made of the grounded state s^g_t. The
    write of step t files values[:, t] under the key of the state BEFORE, in the paper's order; the read of step t comes
    after the write, M_tᵀ q_t. The first step has no state before; here we let its key be 0, as in a new model, where
    b_k = 0.
    keys, queries (B, T, H, K), values (B, T, H, U), beta and decay (B, T, H) -> recalled (B, T, H, U). About 10 lines,
    if `write` is right.
    """
    raise NotImplementedError
