"""The memory kernel's versions, and the kernels that go through a whole window, against the reference."""

import numpy as np
import pytest
from fast.cuda.simulator.alone import same

from gpn_ref import GDNConfig, init_params, load_model
from gpn_ref.baselines import gated_deltanet
from gpn_ref.fast.cuda import delta, ladder
from gpn_ref.fast.cuda.card import SMALL, the_card
from gpn_ref.random_state import generator
from gpn_ref.reference.memory import delta_forward, recall

SIZES = [(5, 7), (4, 8), (3, 2)]  # K, U: pieces that are not whole, that are, and less than one


@pytest.mark.parametrize(("K", "U"), SIZES)
@pytest.mark.parametrize("version", ["naive", "shared", "registers"])
def test_each_version_writes_and_reads(version, K, U, dtype):
    B, H, card = 2, 3, the_card()
    arrays = ladder.random_arrays(card, B, H, K, U, dtype, seed=1)
    M, key, query, value, beta, decay, _ = (card.get(array).astype(np.float64) for array in arrays)
    by_head = [array.reshape(B, H, *shape) for array, *shape in ((M, K, U), (key, K), (value, U))]
    written, _ = delta_forward(*by_head, beta, decay, decay_first=False)
    ladder.versions(H, K, U, np.dtype(dtype).type, SMALL)[version].launch(card, U, *arrays)
    same(card.get(arrays[0]).reshape(written.shape), written, dtype)
    same(card.get(arrays[-1]).reshape(B, H, U), recall(written, query.reshape(B, H, K)), dtype)
    for array, before in zip(arrays[1:-1], (key, query, value, beta, decay), strict=True):
        np.testing.assert_array_equal(card.get(array), before.astype(dtype))


def test_the_bytes_that_a_version_moves():
    versions = ladder.versions(3, 5, 7, np.float32, SMALL)
    assert {name: version.passes for name, version in versions.items()} == {"naive": 4, "shared": 2, "registers": 2}
    # M of 2 · 3 heads: 35 numbers, passed over twice; a key and query of 5, value and answer of 7, β and decay
    assert ladder.bytes_moved(versions["shared"], 2, 3, 5, 7, 4) == 4 * 6 * (2 * 35 + 5 + 5 + 7 + 7 + 1 + 1)


def window(dtype, B, T, H, K, U):
    """memory, query, key, value, β, decay of a window, and gradients of out and of the final memory."""
    rng = generator(0, "window")
    query, key = rng.random((2, B, T, H, K))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value, d_out = rng.standard_normal((2, B, T, H, U))
    beta, decay = rng.random((2, B, T, H))
    memory, d_memory = rng.standard_normal((2, B, H, K, U))
    arrays = (memory, query, key, value, beta, decay), (d_out, d_memory)
    return [[array.astype(dtype) for array in group] for group in arrays]


@pytest.mark.parametrize(("K", "U"), SIZES)
@pytest.mark.parametrize("T", [1, 4, 5])  # alone; a whole number of segments; one more
def test_a_whole_window(T, K, U, dtype):
    inputs, gradients = window(dtype, 2, T, 2, K, U)
    exact = [[array.astype(np.float64) for array in group] for group in (inputs, gradients)]
    out, memory, caches = gated_deltanet.memory_forward(*exact[0])
    expected = [out, memory, *gated_deltanet.memory_backward(*exact[1], caches)]
    before = [array.copy() for array in inputs + gradients]
    found_out, found_memory, cache = delta.memory_forward(*inputs)
    found = [found_out, found_memory, *delta.memory_backward(*gradients, cache)]
    for one, other in zip(found, expected, strict=True):
        same(one, other, dtype)
    for one, other in zip(inputs + gradients, before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_gated_deltanet_with_its_memory_on_the_card():
    config = GDNConfig(vocab_size=7, d_model=6, n_layers=2, n_heads=2, d_key=4, d_value=5, d_ffn=7)
    params = init_params(config, 1, np.float64)
    tokens = generator(0, "tokens").integers(0, 7, (2, 6))
    numpy, cuda = (load_model(config, backend).bind(params) for backend in ("numpy", "cuda"))
    expected, found = (bound.loss_and_grads(tokens[:, :-1], tokens[:, 1:]) for bound in (numpy, cuda))
    same(found.nll, expected.nll, np.float64)
    largest = max(np.abs(grad).max() for grad in expected.grads.values())
    for name, grad in expected.grads.items():
        np.testing.assert_allclose(found.grads[name], grad, rtol=0, atol=1e-12 * largest, err_msg=name)
