"""The kernels between two products, each there and back, against the reference's operations."""

import numpy as np
import pytest
from fast.cuda.simulator import turns
from fast.cuda.simulator.alone import changed, exactly, nan, normal, run, same

from gpn_ref.fast.cuda.layout import Sizes, look, width
from gpn_ref.fast.cuda.rows import row_kernels
from gpn_ref.reference import ops

FIRST, B, SLOTS = 2, 2, 3  # rows 2 and 3 of 6
HERE, BEFORE = np.s_[FIRST : FIRST + B], np.s_[FIRST - B : FIRST]
MEMORY = {"with memory": (2, 4, 3), "without": (0, 0, 0)}


@pytest.fixture(params=[4, 16], ids=["4 threads", "16 threads"])
def threads(request):
    """Fewer than a row has columns, and not a divisor of them; and more."""
    return request.param


@pytest.fixture(params=MEMORY)
def sizes(request):
    H, K, U = MEMORY[request.param]
    return Sizes(11, 5, 6, 7, H, K, U, 1, False)


@pytest.fixture
def rows(sizes, dtype, threads):
    return row_kernels(sizes, np.dtype(dtype).type, threads)


def seen(dtype, *shapes):
    return normal("rows", dtype, *shapes)


def norm_back(d_normalized, normalized, inverse):
    cache = ops.RMSNormCache(normalized, inverse, np.ones(normalized.shape[1]))
    return ops.rms_norm_backward(d_normalized, cache)[0]


def test_normalize(rows, sizes, dtype, threads):
    [x] = seen(dtype, (6, sizes.D))
    arguments = {"first": FIRST, "x": x, "normalized": nan(dtype, 6, sizes.D), "inverse": nan(dtype, 6, 1)}
    normalized, cache = ops.rms_norm_forward(exactly(x)[0][HERE], 1)
    expected = {
        "normalized": changed(arguments["normalized"], HERE, normalized),
        "inverse": changed(arguments["inverse"], HERE, cache.inverse_rms),
    }
    run(rows.normalize, B, threads, arguments, expected)


@pytest.mark.parametrize("factor", [0, 1e-15, 1e15])
def test_normalize_what_is_small_or_large(rows, sizes, dtype, threads, factor):
    x = (factor * seen("float64", (B, sizes.D))[0]).astype(dtype)
    arguments = {"first": 0, "x": x, "normalized": nan(dtype, B, sizes.D), "inverse": nan(dtype, B, 1)}
    normalized, cache = ops.rms_norm_forward(exactly(x)[0], 1)
    run(rows.normalize, B, threads, arguments, {"normalized": normalized, "inverse": cache.inverse_rms})


def test_normalize_back(rows, sizes, dtype, threads):
    """It adds, and its gradient lies in rows of another number."""
    D = sizes.D
    x, d_normalized, d_x = seen(dtype, (6, D), (3, D), (6, D))
    normalized, norm = ops.rms_norm_forward(exactly(x)[0], 1)
    normalized, inverse = normalized.astype(dtype), norm.inverse_rms.astype(dtype)
    arguments = {
        "first": FIRST, "d_first": 1, "d_normalized": d_normalized, "normalized": normalized, "inverse": inverse,
        "d_x": d_x,
    }  # fmt: skip
    through = norm_back(exactly(d_normalized)[0][1:3], exactly(normalized)[0][HERE], exactly(inverse)[0][HERE])
    expected = {"d_x": changed(d_x, HERE, exactly(d_x)[0][HERE] + through)}
    run(rows.normalize_back, B, threads, arguments, expected)


def test_ground(rows, sizes, dtype, threads):
    D = sizes.D
    pre, bias, predicted, grounded = seen(dtype, (6, D), (1, D), (6, D), (6, D))
    arguments = {
        "first": FIRST, "batch": B, "pre": pre, "bias": bias, "predicted": predicted, "grounded": grounded,
        "normalized": nan(dtype, 6, D), "inverse": nan(dtype, 6, 1),
    }  # fmt: skip
    p, b, before, seen_now = exactly(pre, bias, predicted, grounded)
    x = ops.sigmoid(p[HERE] + b) * before[BEFORE] + seen_now[HERE]
    normalized, cache = ops.rms_norm_forward(x, 1)
    expected = {
        "grounded": changed(grounded, HERE, x),
        "normalized": changed(arguments["normalized"], HERE, normalized),
        "inverse": changed(arguments["inverse"], HERE, cache.inverse_rms),
    }
    run(rows.ground, B, threads, arguments, expected)


def test_ground_back(rows, sizes, dtype, threads):
    D = sizes.D
    d_normalized, normalized, pre, bias, predicted, d_grounded, d_predicted = seen(
        dtype, (B, D), (6, D), (6, D), (1, D), (6, D), (6, D), (6, D)
    )
    inverse = np.abs(seen(dtype, (6, 1))[0])
    arguments = {
        "first": FIRST, "batch": B, "d_normalized": d_normalized, "normalized": normalized, "inverse": inverse,
        "pre": pre, "bias": bias, "predicted": predicted, "d_grounded": d_grounded, "d_predicted": d_predicted,
    }  # fmt: skip
    d_n, n, i, p, b, before, d_g, d_p = exactly(
        d_normalized, normalized, inverse, pre, bias, predicted, d_grounded, d_predicted
    )
    d_x = d_g[HERE] + norm_back(d_n, n[HERE], i[HERE])
    gate = ops.sigmoid(p[HERE] + b)
    expected = {
        "d_grounded": changed(d_grounded, HERE, d_x),
        "d_predicted": changed(d_predicted, BEFORE, d_p[BEFORE] + d_x * gate),
        "pre": changed(pre, HERE, d_x * before[BEFORE] * gate * (1 - gate)),
    }
    run(rows.ground_back, B, threads, arguments, expected)


def places(sizes):
    """Columns of what one product makes."""
    return {name: np.s_[part.start : part.start + part.size] for name, part in look(sizes, 0).items()}


def test_mix(rows, sizes, dtype, threads):
    F, HU, at = sizes.F, sizes.HU, places(sizes)
    n_columns = max(1, HU)
    pre, recalled, out_norm = seen(dtype, (6, width(look(sizes, 0))), (6, n_columns), (1, n_columns))
    arguments = {
        "first": FIRST, "pre": pre, "recalled": recalled, "out_norm": out_norm, "mixed": nan(dtype, 6, F + HU),
        "inverse_recalled": nan(dtype, 6, 1),
    }  # fmt: skip
    p, found, scale = exactly(pre[HERE], recalled[HERE], out_norm)
    mixed = [ops.swiglu_forward(p[:, at["ffn_gate"]], p[:, at["ffn_value"]])[0]]
    expected = {}
    if HU:
        normed, cache = ops.rms_norm_forward(found, scale)
        mixed.append(ops.swiglu_forward(p[:, at["read_gate"]], normed)[0])
        expected["inverse_recalled"] = changed(arguments["inverse_recalled"], HERE, cache.inverse_rms)
    expected["mixed"] = changed(arguments["mixed"], HERE, np.concatenate(mixed, axis=1))
    run(rows.mix, B, threads, arguments, expected)


def test_mix_back(rows, sizes, dtype, threads):
    D, F, HU, at = sizes.D, sizes.F, sizes.HU, places(sizes)
    n_columns = max(1, HU)
    d_mixed, pre, bias, recalled, out_norm, below, d_above, d_below, d_out_norm = seen(
        dtype, (B, F + HU), (6, width(look(sizes, 0))), (1, D), (6, n_columns), (1, n_columns), (6, D), (6, D), (6, D),
        (B, n_columns),
    )  # fmt: skip
    _, norm_cache = ops.rms_norm_forward(exactly(recalled)[0], 1)
    inverse = norm_cache.inverse_rms.astype(dtype)
    arguments = {
        "first": FIRST, "d_mixed": d_mixed, "pre": pre, "bias": bias, "recalled": recalled, "inverse_recalled": inverse,
        "out_norm": out_norm, "below": below, "d_above": d_above, "d_below": d_below, "d_out_norm": d_out_norm,
    }  # fmt: skip
    d_m, p, b, r, w, x, d_y, d_x, d_w = exactly(
        d_mixed, pre[HERE], bias, recalled[HERE], out_norm, below[HERE], d_above[HERE], d_below[HERE], d_out_norm
    )
    gate = ops.sigmoid(p[:, at["gate"]] + b)
    d_pre = p.copy()
    d_pre[:, at["gate"]] = d_y * x * gate * (1 - gate)
    cache = ops.swiglu_forward(p[:, at["ffn_gate"]], p[:, at["ffn_value"]])[1]
    d_pre[:, at["ffn_gate"]], d_pre[:, at["ffn_value"]] = ops.swiglu_backward(d_m[:, :F], cache)
    expected = {"d_below": changed(d_below, HERE, d_x + d_y * gate)}
    if HU:
        normed, norm_cache = ops.rms_norm_forward(r, w[0])
        cache = ops.swiglu_forward(p[:, at["read_gate"]], normed)[1]
        d_pre[:, at["read_gate"]], d_normed = ops.swiglu_backward(d_m[:, F:], cache)
        d_recalled, _ = ops.rms_norm_backward(d_normed, norm_cache)
        expected["recalled"] = changed(recalled, HERE, d_recalled)
        expected["d_out_norm"] = d_w + d_normed * norm_cache.normalized
        expected["d_mixed"] = np.concatenate([d_m[:, :F], d_normed * w], axis=1)  # used up: never read again
    expected["pre"] = changed(pre, HERE, d_pre)
    run(rows.mix_back, B, threads, arguments, expected)


def test_predict(rows, sizes, dtype, threads):
    D, at = sizes.D, places(sizes)
    pre, bias, below, above = seen(dtype, (6, width(look(sizes, 0))), (1, D), (6, D), (6, D))
    arguments = {
        "first": FIRST, "pre": pre, "bias": bias, "below": below, "above": above, "normalized": nan(dtype, 6, D),
        "inverse": nan(dtype, 6, 1),
    }  # fmt: skip
    p, b, x, added = exactly(pre[HERE], bias, below[HERE], above[HERE])
    y = ops.sigmoid(p[:, at["gate"]] + b) * x + added
    normalized, cache = ops.rms_norm_forward(y, 1)
    expected = {
        "above": changed(above, HERE, y),
        "normalized": changed(arguments["normalized"], HERE, normalized),
        "inverse": changed(arguments["inverse"], HERE, cache.inverse_rms),
    }
    run(rows.predict, B, threads, arguments, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none(rows, sizes, dtype, threads, bad):
    """A NaN in one entry is in all of its row; an infinity is one, or becomes one, in its own place."""
    [x] = seen(dtype, (B, sizes.D))
    x[0, sizes.D - 1] = bad
    arguments = [0, x, nan(dtype, B, sizes.D), nan(dtype, B, 1)]
    turns.launch(rows.normalize.function, B, threads, *arguments)
    found = arguments[2]
    assert np.isnan(found[0]).all() if np.isnan(bad) else np.isnan(found[0, -1])
    same(found[1], ops.rms_norm_forward(exactly(x)[0][1], 1)[0], dtype)
