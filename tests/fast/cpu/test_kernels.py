"""Each compiled function against NumPy, or against the reference's operation of the same name."""

import math

import numba
import numpy as np
import pytest
from strategies import largest_difference

from gpn_ref.config import ModelConfig, TrainConfig
from gpn_ref.fast.cpu import compiled, decode, memory, products, sequence
from gpn_ref.fast.cpu.optimizer import AdamW
from gpn_ref.parameters import init_params
from gpn_ref.random_state import generator
from gpn_ref.reference import ops
from gpn_ref.reference.memory import address_backward, address_forward, delta_backward, delta_forward
from gpn_ref.training import optimizer

DTYPES = [np.float64, np.float32]
ROUNDING = {np.float64: 1e-12, np.float32: 2e-5}


def normal(name, *shapes):
    rng = generator(0, name)
    return [rng.normal(size=shape) for shape in shapes]


def same(found, expected, tolerance=1e-12):
    assert largest_difference(found, expected) < tolerance


# ------------------------------------------------------------------------------------------------------ products
SIZES = [(1, 1), (2, 5), (9, 16), (19, 37), (40, 256), (35, 300), (64, 513), (17, 800)]  # rows, columns


@pytest.mark.parametrize(("n_rows", "n_columns"), SIZES, ids=lambda size: f"wide{size}" if size > 50 else size)
@pytest.mark.parametrize("batch", [1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 30])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_and_its_way_back(n_rows, n_columns, batch, dtype):
    """In shares of 1 to 3 threads, near and far; each share writes its own rows only."""
    shapes = (n_rows, n_columns), (batch, n_columns), (batch, n_rows), (batch, n_rows)
    W, X, Y, d_Y = (x.astype(dtype) for x in normal("product", *shapes))
    forward, back = X.astype(float) @ W.astype(float).T, d_Y.astype(float) @ W.astype(float)
    tolerance = ROUNDING[dtype]
    for far in (False, True):
        for n_pieces in (1, 2, 3):
            plain, added, d_X = np.full_like(Y, np.nan), Y.copy(), np.zeros((n_pieces, batch, n_columns), dtype)
            for piece in range(n_pieces):
                products.rows(piece, n_pieces, far, W, X, plain)
                products.add_rows(piece, n_pieces, far, W, X, added)
                products.rows_back(piece, n_pieces, far, W, d_Y, d_X[piece])
            same(plain, forward, tolerance)
            same(added, Y.astype(float) + forward, tolerance)
            same(d_X.sum(axis=0), back, tolerance)


def test_a_share_of_the_rows_leaves_the_others_alone():
    W, X = normal("share", (40, 6), (3, 6))
    Y = np.full((3, 40), 7.0)
    products.rows(1, 2, False, W, X, Y)
    first = products.first_row(1, 2, 40)
    assert 0 < first < 40 and (Y[:, :first] == 7.0).all()
    same(Y[:, first:], (X @ W.T)[:, first:])


# ------------------------------------------------------------------------------------------------------- scalars
@numba.njit
def exp_of(x):
    return np.array([compiled.exp(x[i]) for i in range(len(x))])


@numba.njit
def sigmoid_of(x):
    return np.array([compiled.sigmoid(x[i]) for i in range(len(x))])


@numba.njit
def softplus_of(x):
    return np.array([compiled.softplus(x[i]) for i in range(len(x))])


def test_exp_of_every_size_of_float32():
    """3e-7 wherever exp(x) is a normal float32; beyond, it stops: neither 0 nor infinite."""
    x = np.concatenate([np.linspace(-87, 88, 20_001), np.geomspace(1e-45, 1, 500), -np.geomspace(1e-45, 1, 500)])
    x = x.astype(np.float32)
    found = exp_of(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=3e-7)


def test_exp_of_what_is_no_size():
    beyond = np.array([np.nan, np.inf, 1e38, 89, -np.inf, -1e38, -88], np.float32)
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            found = exp_of(beyond.astype(dtype))
            assert np.isnan(found[0])
            assert (found[1:4] > 1e38).all() and (found[4:] >= 0).all() and (found[4:] < 2e-38).all()


def test_exp_of_float64_is_the_librarys():
    x = np.linspace(-700, 700, 2001)
    np.testing.assert_allclose(exp_of(x), np.exp(x), rtol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid_and_softplus(dtype):
    x = np.concatenate([np.linspace(-80, 80, 801), [-1e30, -1e4, 1e4, 1e30]]).astype(dtype)
    exact, nan = x.astype(np.float64), np.array([np.nan], dtype)
    rounding = 4e-7 if dtype == np.float32 else 1e-14
    with np.errstate(all="ignore"):
        found, expected = sigmoid_of(x), 1 / (1 + np.exp(-exact))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=1e-38)
    np.testing.assert_allclose(softplus_of(x), np.logaddexp(0, exact), rtol=rounding)
    assert np.isnan(sigmoid_of(nan)).all() and np.isnan(softplus_of(nan)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_decay_and_its_way_back(dtype):
    """Against its formula and centred differences of it, from no decay at all to all of it."""

    def formula(pre, log_rate):
        return math.exp(-math.exp(log_rate) * np.logaddexp(0, pre))

    h, rounding = 1e-6, 1e-14 if dtype == np.float64 else 1e-6
    for pre in (-200.0, -30.0, -2.0, 0.0, 1.0, 20.0, 500.0):
        for log_rate in (-60.0, -18.0, -1.0, 0.0, 2.75, 8.0, 60.0):
            found = memory.decay_of(dtype(pre), dtype(log_rate))
            assert found == pytest.approx(formula(pre, log_rate), rel=0, abs=rounding)
            d_pre, d_log_rate = memory.decay_back(dtype(1.5), dtype(pre), dtype(log_rate))
            by_pre = (formula(pre + h, log_rate) - formula(pre - h, log_rate)) / (2 * h)
            by_log_rate = (formula(pre, log_rate + h) - formula(pre, log_rate - h)) / (2 * h)
            np.testing.assert_allclose((d_pre, d_log_rate), (1.5 * by_pre, 1.5 * by_log_rate), rtol=1e-5, atol=1e-8)


# -------------------------------------------------------------------------------- one sequence between two products
@pytest.mark.parametrize("n", [1, 5, 16, 33])
def test_the_norm_and_its_way_back(n):
    x, weight, d_y, d_x, d_weight = normal("norm", n, n, n, n, n)
    y, cache = ops.rms_norm_forward(x[None], weight)
    expected_x, expected_weight = ops.rms_norm_backward(d_y[None], cache)
    inverse, out, d_normalized = sequence.inverse_rms(x), np.empty(n), np.zeros(n)
    sequence.scale(x, inverse, weight, out)
    found_x, found_weight = d_x.copy(), d_weight.copy()
    sequence.scale_back(d_y, x, inverse, weight, found_weight, d_normalized)
    sequence.norm_back(d_normalized, x, inverse, found_x)
    same(out, y[0])
    same(found_x, d_x + expected_x[0])
    same(found_weight, d_weight + expected_weight)


@pytest.mark.parametrize("n", [1, 5, 16, 33])
def test_gates_and_their_way_back(n):
    pre, bias, x, out, d_out, d_x = normal("gate", n, n, n, n, n, n)
    gate, found, found_x = pre.copy(), out.copy(), d_x.copy()
    sequence.gated(gate, bias, x, found)
    expected = ops.sigmoid(pre + bias)
    same(gate, expected)
    same(found, out + expected * x)
    sequence.gated_back(d_out, gate, x, found_x)
    same(gate, d_out * x * expected * (1 - expected))
    same(found_x, d_x + d_out * expected)


@pytest.mark.parametrize("n", [1, 5, 16, 33])
def test_swiglu_and_its_way_back(n):
    gate, value, d_y = normal("swiglu", n, n, n)
    y, cache = ops.swiglu_forward(gate, value)
    d_gate, d_value = ops.swiglu_backward(d_y, cache)
    found, g, v = np.empty(n), gate.copy(), value.copy()
    sequence.swiglu(g, v, found)
    sequence.swiglu_back(d_y, g, v)
    for one, other in ((found, y), (g, d_gate), (v, d_value)):
        same(one, other)


@pytest.mark.parametrize("n", [2, 5, 16, 33])
def test_what_is_read_and_its_way_back(n):
    gate, recalled, weight, d_y, d_weight = normal("read", n, n, n, n, n)
    normed, norm_cache = ops.rms_norm_forward(recalled[None], weight)
    y, cache = ops.swiglu_forward(gate, normed[0])
    d_gate, d_normed = ops.swiglu_backward(d_y, cache)
    d_recalled, expected_weight = ops.rms_norm_backward(d_normed[None], norm_cache)
    found, g, r, found_weight = np.empty(n), gate.copy(), recalled.copy(), d_weight.copy()
    inverse = sequence.read_gated(g, r, weight, found)
    same(found, y)
    sequence.read_gated_back(d_y.copy(), g, r, inverse, weight, found_weight)
    for one, other in ((g, d_gate), (r, d_recalled[0]), (found_weight, d_weight + expected_weight)):
        same(one, other)


def test_the_pieces_of_a_sum_are_added_up_in_the_first():
    [pieces] = normal("pieces", (3, 2, 5))
    other, expected = pieces[:, 0].copy(), pieces.sum(axis=0)[1]
    sequence.add_up(pieces, 1)
    same(pieces[0, 1], expected)
    same(pieces[:, 0], other)


# ---------------------------------------------------------------------------------------------------- the memory
K, U = 6, 7


@pytest.mark.parametrize("bias", ["some active", "none active", "one active"])
def test_an_address_and_its_way_back(bias):
    pre, b, d_address = normal("address", K, K, K)
    b = {"some active": b, "none active": b - 100, "one active": b - 100 + 200 * (np.arange(K) == 2)}[bias]
    expected, cache = address_forward(np.ones((1, 1)), pre[:, None], b, 1)
    _, d_pre, _ = address_backward(d_address[None, None], cache)
    found = pre.copy()
    inverse = memory.address(found, b)
    same(found, expected[0, 0])
    memory.address_back(d_address, found, inverse)
    np.testing.assert_allclose(found, d_pre[:, 0], rtol=0, atol=1e-13)
    assert not found[pre + b <= 0].any()


def test_no_key_is_nan_where_its_input_is():
    pre = np.array([1.0, np.nan, -1.0])
    memory.address(pre, np.zeros(3))
    assert np.isnan(pre).all()


def one_write():
    """M, key, value, the next key and a query (unit vectors without negative entries), β, decay."""
    M, key, value, next_key, query = normal("write", (K, U), K, U, K, K)
    key, next_key, query = (np.abs(x) / np.linalg.norm(x) for x in (key, next_key, query))
    return M, key, value, next_key, query, 0.7, 0.6


def batched(*arrays):
    return [np.asarray(array)[None, None] for array in arrays]


@pytest.mark.parametrize("decay_first", [False, True])
def test_a_write_and_two_reads(decay_first):
    M, key, value, next_key, query, beta, decay = one_write()
    written, _ = delta_forward(*batched(M, key, value, beta, decay), decay_first)
    expected, error, found = np.empty(U), value.copy(), M.copy()
    memory.read(M, key, expected)
    memory.error_of(error, expected, decay, decay_first)
    again, recalled, next_expected = np.empty((K, U)), np.empty(U), np.empty(U)
    memory.write(M, key, error, beta, decay, again)
    memory.write_and_read(found, key, error, beta, decay, query, recalled, next_key, next_expected)
    same(found, written[0, 0])
    same(again, written[0, 0])
    same(recalled, found.T @ query)
    same(next_expected, found.T @ next_key)


@pytest.mark.parametrize("decay_first", [False, True])
def test_a_write_and_a_read_on_their_way_back(decay_first):
    M, key, value, _, query, beta, decay = one_write()
    written, cache = delta_forward(*batched(M, key, value, beta, decay), decay_first)
    d_written, d_recalled = normal("way back", (K, U), U)
    through_read = d_written + np.outer(query, d_recalled)
    d_M, d_key, d_value, d_beta, d_decay = delta_backward(through_read[None, None], cache, decay_first)
    error, expected, found_M = cache.error[0, 0].copy(), cache.recalled[0, 0].copy(), d_written.copy()
    found_key, found_query, scratch = np.full(K, np.nan), np.full(K, np.nan), np.full(U, np.nan)
    found_beta, found_decay = memory.write_and_read_back(
        M, key, error, beta, decay, query, expected, d_recalled, decay_first, found_M, found_key, found_query, scratch
    )
    same(found_M, d_M[0, 0])
    same(found_key, d_key[0, 0])
    same(found_query, written[0, 0] @ d_recalled)
    same(error, d_value[0, 0])
    same((found_beta, found_decay), (d_beta[0, 0], d_decay[0, 0]))


def test_a_read_on_its_way_back():
    M, query, d_recalled, d_M = normal("read back", (K, U), K, U, (K, U))
    found_query, found_M = np.full(K, np.nan), d_M.copy()
    memory.read_back(M, query, d_recalled, found_query, found_M)
    same(found_query, M @ d_recalled)
    same(found_M, d_M + np.outer(query, d_recalled))


# -------------------------------------------------------------------------------------- the loss and the optimizer
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4, 1e30])
def test_cross_entropy(dtype, size):
    [logits] = normal("logits", (5, 19))
    logits, targets = (size * logits).astype(dtype), np.array([0, 18, 3, 3, 7])
    nll, cache = ops.cross_entropy_forward(logits.astype(np.float64), targets)
    d_logits = ops.cross_entropy_backward(np.full(5, 0.25), cache)
    found, found_nll = logits.copy(), np.empty(5, dtype)
    decode.cross_entropy_rows(found, targets, dtype(0.25), found_nll)
    rounding = 1e-13 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(found_nll, nll, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(found, d_logits, rtol=0, atol=rounding)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 4, 18])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_logit_that_is_no_number_is_seen_in_the_loss(bad, place, dtype):
    logits, nll = np.zeros((1, 19), dtype), np.empty(1, dtype)
    logits[0, place] = bad
    with np.errstate(all="ignore"):
        decode.cross_entropy_rows(logits, np.array([7]), dtype(1), nll)
    assert not np.isfinite(nll).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fused_optimizer_is_the_plain_one(dtype):
    """Twenty steps, clipped and not, with every kind of parameter; the norm is the same too."""
    config = ModelConfig(31, 12, 9, 14, n_heads=2, d_key=5, d_value=6, n_layers=2, decode_bias=True)
    train_config, rng = TrainConfig(clip_norm=100.0), generator(0, "gradients")
    plain_params, fused_params = init_params(config, 0, dtype), init_params(config, 0, dtype)
    plain, fused = optimizer.AdamW(plain_params, train_config), AdamW(fused_params, train_config)
    norms = []
    for step in range(20):
        grads = {name: rng.normal(0, 1 + step, value.shape).astype(dtype) for name, value in plain_params.items()}
        norm = plain.update(plain_params, grads, 0.01)
        found = fused.update(fused_params, grads, 0.01)
        assert found == pytest.approx(norm, rel=1e-12 if dtype == np.float64 else 1e-6)
        norms.append(norm)
    assert min(norms) < 100 < max(norms) and plain.updates == fused.updates == 20
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    for name in plain_params:
        assert fused_params[name].dtype == dtype
        for one, other in ((fused_params, plain_params), (fused.first, plain.first), (fused.second, plain.second)):
            assert largest_difference(one[name], other[name]) < tolerance, name


def test_the_norm_of_more_entries_than_are_summed_at_once():
    grads = dict(zip("abc", normal("norm of many", (3, 5000), 4096, 1), strict=True))
    assert AdamW({}, TrainConfig())._norm(grads) == pytest.approx(optimizer.global_norm(grads), rel=1e-14)
