"""Exercises of lesson 13: look inside. Fill in the functions, then: python -m lessons.check 13

Letters: B sequences, T time, H heads, K the width of a key. You may import numpy and math, and nothing else.
"""

import numpy as np  # noqa: F401


def left_on_average(decay, lag):
    """What is left on average of what a head held `lag` tokens ago: part 4's mean of the products.

    What it held after token t has been multiplied by decay_{t+1} · … · decay_{t+lag} once token t + lag is done. The
    mean is over all sequences, and all t for which both tokens are there. decay (B, T, H), between 0 and 1, and a text
    may be long; lag an integer from 1 to T - 1 -> (H). About 2 lines.
    """
    raise NotImplementedError


def last_read(key, query, beta, decay):
    """Whose values does the last read of a head return, if its memory decays first (lesson 07)?

        M_t = decay_t M_{t-1} + β_t k_t ⊗ (v_t - decay_t M_{t-1}ᵀ k_t)  (K, U)        M_Tᵀ q = Σ_j w_j v_j  (U)

    The memory is empty at first. Give each value one of T directions, as part 5 does. Or write M_t as a matrix A_t
    (K, K) times M_{t-1}, plus β_t k_t ⊗ v_t: then a vector (K) is enough, q, which goes back from token to token.
    key (T, K), query (K), that of the last token, beta and decay (T) -> w (T). About 5 lines.
    """
    raise NotImplementedError


def effect(differences, sizes, draws):
    """What a change costs a token, and how sure that is: part 6's numbers, in front of the brackets and in them.

        change = Σ_i differences_i / Σ_i sizes_i

    differences (n): of each sequence the sum, over its tokens, of how much more they cost. sizes (n): how many tokens
    these are; 0 where a sequence has none that counts. draws (R, n): R times n sequences, drawn anew and given by their
    numbers, of which some come twice and some not at all; each draw has tokens that count. Its change is Σ / Σ over its
    n sequences. low and high are the quantiles .025 and .975 (np.quantile) of these R -> (change, low, high), three
    numbers. About 4 lines.
    """
    raise NotImplementedError
