"""The algebra of the gated delta memory, where the answer is known."""

import numpy as np
from hypothesis import given
from strategies import seeds

from gpn_ref.random_state import generator
from gpn_ref.reference.memory import delta_forward, recall

B, H, K, U = 2, 3, 4, 5


def draw(seed):
    """A memory, a key of length 1, a value, β and decay in (0, 1)."""
    rng = generator(seed, "memory")
    key = np.abs(rng.normal(size=(B, H, K)))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    return (
        rng.normal(size=(B, H, K, U)),
        key,
        rng.normal(size=(B, H, U)),
        rng.uniform(0, 1, (B, H)),
        rng.uniform(0, 1, (B, H)),
    )


def write(memory, key, value, beta, decay, decay_first=False):
    return delta_forward(memory, key, value, beta, decay, decay_first)[0]


@given(seeds)
def test_without_beta_a_write_is_pure_decay(seed):
    memory, key, value, beta, decay = draw(seed)
    for decay_first in (False, True):
        written = write(memory, key, value, 0 * beta, decay, decay_first)
        np.testing.assert_array_equal(written, decay[..., None, None] * memory)


@given(seeds)
def test_without_decay_a_write_is_the_delta_rule(seed):
    """Head by head, with plain matrices: M + β k (v - Mᵀ k)ᵀ."""
    memory, key, value, beta, decay = draw(seed)
    written = write(memory, key, value, beta, np.ones_like(decay))
    for b, h in np.ndindex(B, H):
        M, k, v = memory[b, h], key[b, h], value[b, h]
        expected = M + beta[b, h] * np.outer(k, v - M.T @ k)
        np.testing.assert_allclose(written[b, h], expected, rtol=0, atol=1e-14)


@given(seeds)
def test_a_full_write_is_read_back(seed):
    """β = decay = ‖k‖ = 1: a read with k returns v, and a read with a key at a right angle what it did before."""
    memory, key, value, beta, decay = draw(seed)
    written = write(memory, key, value, np.ones_like(beta), np.ones_like(decay))
    np.testing.assert_allclose(recall(written, key), value, rtol=0, atol=1e-13)
    other = generator(seed, "other").normal(size=key.shape)
    other -= np.sum(other * key, axis=-1, keepdims=True) * key
    np.testing.assert_allclose(recall(written, other), recall(memory, other), rtol=0, atol=1e-13)


@given(seeds)
def test_the_two_orders_of_decay_differ_by_what_the_key_recalls(seed):
    """GDN's less GPN's is β (1 - decay) k ⊗ Mᵀk: nothing exactly where decay = 1, β = 0 or Mᵀk = 0."""
    memory, key, value, beta, decay = draw(seed)
    difference = write(memory, key, value, beta, decay, True) - write(memory, key, value, beta, decay, False)
    expected = np.einsum("bh,bhk,bhu->bhku", beta * (1 - decay), key, recall(memory, key))
    np.testing.assert_allclose(difference, expected, rtol=0, atol=1e-14)
    assert np.abs(difference).max() > 1e-6


def test_the_two_orders_of_decay_agree_where_they_must():
    memory, key, value, beta, decay = draw(0)
    no_recall = memory - np.einsum("bhk,bhu->bhku", key, recall(memory, key))
    for case in [
        (memory, key, value, beta, np.ones_like(decay)),
        (memory, key, value, np.zeros_like(beta), decay),
        (no_recall, key, value, beta, decay),
    ]:
        np.testing.assert_allclose(write(*case, True), write(*case, False), rtol=0, atol=1e-15)


@given(seeds)
def test_the_transition_never_grows(seed):
    """M_t = A M + write with A = decay I - β k kᵀ: its norm is at most 1, and along k it is decay - β."""
    memory, key, value, beta, decay = draw(seed)
    identity = np.broadcast_to(np.eye(K), (B, H, K, K))
    transition = write(identity, key, np.zeros((B, H, K)), beta, decay)
    assert np.linalg.norm(transition, ord=2, axis=(-2, -1)).max() <= 1 + 1e-12
    along = np.einsum("bhk,bhkj,bhj->bh", key, transition, key)
    np.testing.assert_allclose(along, decay - beta, rtol=0, atol=1e-14)
    decay_first = write(identity, key, np.zeros((B, H, K)), beta, decay, True)
    along = np.einsum("bhk,bhkj,bhj->bh", key, decay_first, key)
    np.testing.assert_allclose(along, decay * (1 - beta), rtol=0, atol=1e-14)


def test_heads_are_head_major():
    """Row h·K + j of W_k is entry j of head h."""
    from gpn_ref.reference.memory import address_forward

    weight = np.zeros((H * K, 2))
    weight[1 * K + 2] = [1.0, 0.0]
    address, _ = address_forward(np.array([[5.0, 7.0]]), weight, np.zeros(H * K), H)
    expected = np.zeros((1, H, K))
    expected[0, 1, 2] = 1.0
    np.testing.assert_allclose(address, expected, rtol=1e-12)
