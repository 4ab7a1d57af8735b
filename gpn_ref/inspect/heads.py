"""What each head writes and reads, beyond the paper: shares of an update, what a read retrieves, eigenvalues."""

import numpy as np

# ---------------------------------------------------------------------------------------------- parts of an update


def parts_of_update(x, out, gate, ffn, gated, out_weight):
    """⟨part, u⟩ for each part of a layer's update u = out - x = (gate - 1) ⊙ x + ffn + Σ_h read_h, and ⟨u, u⟩.

    x, out, gate, ffn (..., D): what the layer takes, gives and adds; gated (..., H, U), which W_o takes; out_weight
    (D, H·U): W_o -> (..., 2 + H): the gate, the feed-forward network, then each head; (...). A part over the whole is
    its share: how far it goes along the way that all of them go. Shares add up to 1; one that works against it is
    negative.
    """
    x, out, gate, ffn, gated = (np.asarray(part, np.float64) for part in (x, out, gate, ffn, gated))
    update = out - x
    pulled = (update @ out_weight.astype(np.float64)).reshape(gated.shape)  # W_oᵀ u: ⟨read_h, u⟩ = ⟨gated_h, W_oᵀ u⟩
    of_gate, of_ffn = np.sum((gate - 1) * x * update, axis=-1), np.sum(ffn * update, axis=-1)
    of_heads = np.sum(gated * pulled, axis=-1)  # (..., H)
    return np.concatenate([of_gate[..., None], of_ffn[..., None], of_heads], axis=-1), np.sum(update**2, axis=-1)


def shares(parts, whole):
    """Parts (..., P) over the whole (...): 0 where nothing moved."""
    return parts / np.where(whole > 0, whole, 1)[..., None]


# ------------------------------------------------------------------------------------ which token a read retrieves


def read_weights(key, query, beta, decay, decay_first=False):
    """How much of each value written a read retrieves: Mᵀ_t q_t = Σ_j w_tj v_j, from a memory that was empty.

    A write is M_t = A_t M_{t-1} + β_t k_t v_tᵀ with A_t = decay_t - β_t k_t k_tᵀ, or, with decay_first,
    decay_t (1 - β_t k_t k_tᵀ). Unrolled, w_tj = β_j k_jᵀ A_{j+1} ... A_t q_t: go back from q_t, and turn it
    with A at each step.
    key and query (..., T, K), beta and decay (..., T) -> (..., T, T), 0 for j > t.
    """
    T = key.shape[-2]
    turned = np.array(query)  # (..., T, K): row t becomes A_{j+1} ... A_t q_t on the way down
    weights = np.zeros((*key.shape[:-1], T), query.dtype)
    for j in reversed(range(T)):
        late = turned[..., j:, :]  # a view: the reads that come at or after write j
        strength, kept = beta[..., j, None], decay[..., j, None]  # (..., 1)
        weights[..., j:, j] = strength * (late @ key[..., j, :, None])[..., 0]
        along = weights[..., j:, j] * (kept if decay_first else 1)
        late *= kept[..., None]
        late -= along[..., None] * key[..., j, None, :]
    return weights


def retrieved_amounts(weights, value):
    """|w_tj| ‖v_j‖: how much each earlier token gives to a read.  weights (..., T, T), value (..., T, U)."""
    return np.abs(weights) * np.linalg.norm(value, axis=-1)[..., None, :]


def retrieved_tokens(amounts):
    """(..., T) j: the token that gives most to the read at t; t itself if none gives anything.  amounts (..., T, T)."""
    T = amounts.shape[-1]
    return np.where(amounts.any(axis=-1), amounts.argmax(axis=-1), np.arange(T))


class Retrievals:
    """Where the reads of each head retrieve from, over a text: counts by distance, and how often it is the answer.

    The answer is the next token: has a read at t retrieved a token equal to x_{t+1}? Chance takes any token so far.
    """

    def __init__(self, shape, longest):
        """shape: (N, H)."""
        self.distances = np.zeros((*shape, longest), np.int64)  # (N, H, longest)
        self._answers, self._blind, self.reads = np.zeros(shape), 0.0, 0

    def add(self, retrieved, inputs, targets):
        """One sequence: retrieved (N, H, T), inputs (T), targets (T)."""
        N, H, T = retrieved.shape
        layer, head, t = np.indices((N, H, T))
        np.add.at(self.distances, (layer, head, t - retrieved), 1)
        self._answers += np.sum(inputs[retrieved] == targets, axis=-1)
        self._blind += np.sum(np.tril(targets[:, None] == inputs) / np.arange(1, T + 1)[:, None])
        self.reads += T

    def answers(self):
        """(N, H) share of reads that retrieve a token equal to the next one."""
        return self._answers / max(self.reads, 1)

    def chance(self):
        return self._blind / max(self.reads, 1)


def quantile_of_counts(counts, share):
    """The smallest index by which `share` of the counts (n,) is reached."""
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum()))


# --------------------------------------------------------------------------------- eigenvalues of the transition


def eigenvalue_along_key(key, beta, decay, decay_first=False):
    """The eigenvalue of A_t along the key; across it, K - 1 times, it is decay_t.

    decay - β ‖k‖² here, so it can be negative: what was stored under the key comes back with its sign turned. With
    decay_first it is decay (1 - β ‖k‖²), as in Gated DeltaNet, and never is.
    key (..., K), beta and decay (...) -> (...).
    """
    removed = beta * np.sum(key**2, axis=-1)
    return decay * (1 - removed) if decay_first else decay - removed


EIGENVALUE_BINS = np.linspace(-1, 1, 41)


class Eigenvalues:
    """Histograms over a text of the eigenvalues along and across the key, a head each, and what of them is negative."""

    def __init__(self, n_heads):
        self.along, self.across = np.zeros((2, n_heads, len(EIGENVALUE_BINS) - 1), np.int64)
        self._sums, self._negative = np.zeros(n_heads), np.zeros(n_heads)
        self.smallest = np.full(n_heads, np.inf)
        self._count = 0

    def add(self, along, across):
        """along, across (B, T, H)."""
        for total, values in ((self.along, along), (self.across, across)):
            clipped = np.clip(values, -1, 1)  # a float32 may pass 1 by a rounding
            total += [np.histogram(of_head, EIGENVALUE_BINS)[0] for of_head in np.moveaxis(clipped, -1, 0)]
        self._sums += along.sum(axis=(0, 1), dtype=np.float64)
        self._negative += (along < 0).sum(axis=(0, 1))
        self.smallest = np.minimum(self.smallest, along.min(axis=(0, 1)))
        self._count += along[..., 0].size

    def negative(self):
        """(H,) share of eigenvalues along the key that are negative."""
        return self._negative / max(self._count, 1)

    def mean(self):
        """(H,) mean eigenvalue along the key."""
        return self._sums / max(self._count, 1)
