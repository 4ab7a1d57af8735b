"""The kernels that go through a whole window, or all parameters, each by itself."""

import numpy as np
import pytest
from fast.cuda.simulator import turns
from fast.cuda.simulator.alone import changed, exactly, nan, normal, run, same

from gpn_ref import TrainConfig
from gpn_ref.fast.cuda.whole import whole_kernels
from gpn_ref.reference import ops
from gpn_ref.training.optimizer import AdamW

BLOCKS = 5  # that go through an array: more than a block of 4 has threads
HERE = np.s_[2:4]  # rows of which a kernel is told the first


@pytest.fixture(params=[4, 16], ids=["4 threads", "16 threads"])
def threads(request):
    """Fewer than a row has columns, and not a divisor of them; and more."""
    return request.param


@pytest.fixture
def whole(dtype, threads):
    return whole_kernels(np.dtype(dtype).type, threads)


# ------------------------------------------------------------------------------------------------- simple moves
@pytest.mark.parametrize("size", [1, 11, 61])
def test_fill(whole, dtype, threads, size):
    arguments = {"x": nan(dtype, size), "value": np.dtype(dtype).type(0.5)}
    run(whole.fill, BLOCKS, threads, arguments, {"x": np.full(size, 0.5)})


def test_copy(whole, dtype, threads):
    x, y = normal("copy", dtype, (6, 5), (4, 5))
    arguments = {"x": x, "first": 2, "y": y, "y_first": 1}
    run(whole.copy, 2, threads, arguments, {"y": changed(y, np.s_[1:3], x[HERE])})


def test_add(whole, dtype, threads):
    x, y = normal("add", dtype, (6, 5), (4, 5))
    arguments = {"x": x, "first": 2, "y": y, "y_first": 1}
    run(whole.add, 2, threads, arguments, {"y": changed(y, np.s_[1:3], np.add(*exactly(y[1:3], x[HERE])))})


def test_fill_columns(whole, dtype, threads):
    [x] = normal("fill columns", dtype, (6, 12))
    arguments = {"x": x, "first": 2, "column": 3, "n_columns": 7, "value": np.dtype(dtype).type(0.5)}
    run(whole.fill_columns, 2, threads, arguments, {"x": changed(x, np.s_[2:4, 3:10], 0.5)})


def test_add_bias(whole, dtype, threads):
    x, bias = normal("add bias", dtype, (6, 7), (1, 7))
    arguments = {"x": x, "first": 2, "bias": bias}
    run(whole.add_bias, 2, threads, arguments, {"x": changed(x, HERE, np.add(*exactly(x[HERE], bias)))})


@pytest.mark.parametrize("n_rows", [1, 2, 7])
@pytest.mark.parametrize("pieces", [1, 3])
def test_column_sums(whole, dtype, threads, n_rows, pieces):
    """Of some rows and columns, added to what is there; more pieces than rows do no harm."""
    x, out = normal("column sums", dtype, (10, 20), (5, 18))
    arguments = {
        "x": x, "first": 2, "n_rows": n_rows, "column": 3, "n_columns": 13, "out": out, "out_first": 1,
    }  # fmt: skip
    parts = np.s_[1 : 1 + pieces, :13]
    borders = [2 + n_rows * piece // pieces for piece in range(pieces + 1)]
    sums = [exactly(x)[0][a:b, 3:16].sum(axis=0) for a, b in zip(borders, borders[1:], strict=False)]
    run(
        whole.column_sums, (-(-13 // threads), pieces), threads, arguments,
        {"out": changed(out, parts, exactly(out)[0][parts] + sums)},
    )  # fmt: skip


# ------------------------------------------------------------------- norm scales folded into their matrices
def test_fold(whole, dtype, threads):
    weight, norm, stack = normal("fold", dtype, (3, 7), (1, 7), (6, 7))
    arguments = {"weight": weight, "norm": norm, "stack": stack, "first": 2}
    run(whole.fold, 3, threads, arguments, {"stack": changed(stack, np.s_[2:5], np.multiply(*exactly(weight, norm)))})


@pytest.mark.parametrize("n_rows", [1, 5])
def test_unfold(whole, dtype, threads, n_rows):
    """The sums of norm gradients are in pieces, of which some may be of no row."""
    d_stack, weight, norm = normal("unfold", dtype, (8, 7), (n_rows, 7), (1, 7))
    arguments = {
        "d_stack": d_stack, "first": 2, "weight": weight, "norm": norm, "d_weight": nan(dtype, n_rows, 7),
        "sums": nan(dtype, 3, 7),
    }  # fmt: skip
    d, w, n = exactly(d_stack[2 : 2 + n_rows], weight, norm)
    borders = [n_rows * piece // 3 for piece in range(4)]
    sums = [(d * w)[a:b].sum(axis=0) for a, b in zip(borders, borders[1:], strict=False)]
    run(whole.unfold, (-(-7 // threads), 3), threads, arguments, {"d_weight": d * n, "sums": np.array(sums)})


def test_join(whole, dtype, threads):
    weight, stack = normal("join", dtype, (3, 7), (3, 12))
    arguments = {"weight": weight, "stack": stack, "column": 4}
    run(whole.join, 3, threads, arguments, {"stack": changed(stack, np.s_[:, 4:11], weight)})


# ------------------------------------------------------------------------------------------------- embedding
TOKENS = np.array([[3, 0, 3, 8, 3, 0]], np.int32)  # some more than once, others never


def test_embed(whole, dtype, threads):
    [embedding] = normal("embed", dtype, (9, 7))
    arguments = {
        "tokens": TOKENS, "embedding": embedding, "normalized": nan(dtype, 6, 7), "inverse": nan(dtype, 6, 1)
    }  # fmt: skip
    normalized, cache = ops.rms_norm_forward(exactly(embedding)[0][TOKENS[0]], 1)
    run(whole.embed, 6, threads, arguments, {"normalized": normalized, "inverse": cache.inverse_rms})


def test_embed_back(whole, dtype, threads):
    d_normalized, normalized, inverse = normal("embed back", dtype, (6, 7), (6, 7), (6, 1))
    arguments = {"d_normalized": d_normalized, "normalized": normalized, "inverse": inverse}
    d, *cache = exactly(d_normalized, normalized, inverse)
    d_x, _ = ops.rms_norm_backward(d, ops.RMSNormCache(*cache, np.ones(7)))
    run(whole.embed_back, 6, threads, arguments, {"d_normalized": d_x})


def test_add_embedded(whole, dtype, threads):
    """Each token's rows, however many, are added to its row; where there are none, it stays."""
    d_embedded, d_embedding = normal("add embedded", dtype, (6, 7), (9, 7))
    order = np.argsort(TOKENS[0], kind="stable").astype(np.int32)[None]
    starts = np.concatenate([[0], np.cumsum(np.bincount(TOKENS[0], minlength=9))]).astype(np.int32)[None]
    [expected] = exactly(d_embedding)
    np.add.at(expected, TOKENS[0], exactly(d_embedded)[0])
    arguments = {"order": order, "starts": starts, "d_embedded": d_embedded, "d_embedding": d_embedding}
    run(whole.add_embedded, 9, threads, arguments, {"d_embedding": expected})


# ------------------------------------------------------------------------------------ softmax and cross entropy
@pytest.mark.parametrize("size", [0, 1, 30, 1e4, 1e30])
@pytest.mark.parametrize("vocabulary", [2, 4, 19])
def test_cross_entropy(whole, dtype, threads, vocabulary, size):
    """Fewer words than threads, and more; the loss of huge logits is huge, and no exponential overflows."""
    [logits] = normal("logits", "float64", (3, vocabulary))
    logits = (size * logits).astype(dtype)
    targets = np.array([[0, 1, 0, vocabulary - 1, 0]], np.int32)
    arguments = {
        "logits": logits, "targets": targets, "first": 1, "scale": np.dtype(dtype).type(0.25), "nll": nan(dtype, 1, 5)
    }  # fmt: skip
    nll, cache = ops.cross_entropy_forward(exactly(logits)[0], targets[0, 1:4])
    expected = {
        "logits": ops.cross_entropy_backward(np.full(3, 0.25), cache),
        "nll": changed(arguments["nll"], np.s_[0, 1:4], nll),
    }
    run(whole.cross_entropy, 3, threads, arguments, expected)


@pytest.mark.parametrize("vocabulary", [1, 3, 19])
def test_the_lowest_logits_that_there_are(whole, dtype, threads, vocabulary):
    """Also with threads that have none: what they begin with is no larger."""
    logits, nll = np.full((1, vocabulary), 0.95 * np.finfo(dtype).min, dtype), nan(dtype, 1, 1)
    targets, one = np.zeros((1, 1), np.int32), np.dtype(dtype).type(1)
    turns.launch(whole.cross_entropy.function, 1, threads, logits, targets, 0, one, nll)
    same(nll, [[np.log(vocabulary)]], dtype)
    assert logits[0, 0] == pytest.approx(1 / vocabulary - 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 7, 18])
@pytest.mark.parametrize("target", [7, 8])
def test_a_logit_that_is_no_number_is_seen_in_the_loss(whole, dtype, threads, bad, place, target):
    logits, nll = np.zeros((2, 19), dtype), nan(dtype, 1, 2)
    logits[0, place] = bad
    targets, one = np.array([[target, target]], np.int32), np.dtype(dtype).type(1)
    turns.launch(whole.cross_entropy.function, 2, threads, logits, targets, 0, one, nll)
    assert not np.isfinite(nll[0, 0])
    same(nll[:, 1], [np.log(19)], dtype)


def test_add_loss(whole, dtype, threads):
    [nll] = normal("loss", dtype, (1, 23))
    results = np.array([np.nan, np.nan, 2.0], dtype)
    arguments = {"nll": nll, "share": np.dtype(dtype).type(0.25), "results": results}
    run(whole.add_loss, 1, threads, arguments, {"results": [np.nan, np.nan, 2 + 0.25 * exactly(nll)[0].mean()]})


# ------------------------------------------------------------------------------------ the norm of all gradients
def norm_and_clip(whole, threads, grads, clip_norm):
    """-> norm, clip, as the three kernels find them one after the other."""
    parts, results = nan(grads.dtype, 2, BLOCKS), nan(grads.dtype, 3)
    real = grads.dtype.type
    turns.launch(whole.largest_of.function, BLOCKS, threads, grads, parts)
    turns.launch(whole.squares_of.function, BLOCKS, threads, grads, parts)
    turns.launch(whole.clip_of.function, 1, threads, parts, real(clip_norm), results)
    assert np.isnan(results[2])  # the loss is not its to write
    return results[0], results[1]


@pytest.mark.parametrize("size", [1, 10, 100])
@pytest.mark.parametrize("factor", [1e-25, 1e-15, 1.0, 1e15, 1e30])
def test_the_norm(whole, dtype, threads, size, factor):
    """Neither huge nor tiny squares are lost."""
    grads = (factor * normal("norm", "float64", (size,))[0]).astype(dtype)
    exact = np.linalg.norm(exactly(grads)[0])
    for clip_norm in (0.5 * exact, 2 * exact):
        norm, clip = norm_and_clip(whole, threads, grads, clip_norm)
        assert norm == pytest.approx(exact, rel=1e-12 if dtype == "float64" else 1e-5)
        assert clip == pytest.approx(min(1, clip_norm / exact), rel=1e-12 if dtype == "float64" else 1e-5)


def test_the_largest_and_the_squares_of_each_share(whole, dtype, threads):
    """Block b has the b-th of every so many entries; the first row has the largest, the second sums of squares."""
    [grads] = normal("shares", dtype, (2 * BLOCKS * threads + 3,))
    of_block = np.arange(len(grads)) // threads % BLOCKS
    shares = [grads[of_block == b] for b in range(BLOCKS)]
    top = np.array([np.abs(share).max() for share in shares])
    arguments = {"grads": grads, "parts": nan(dtype, 2, BLOCKS)}
    run(whole.largest_of, BLOCKS, threads, arguments, {"parts": np.stack([top, [np.nan] * BLOCKS])})
    arguments["parts"][0] = top
    squares = [np.sum(np.square(exactly(share)[0] / top.max())) for share in shares]
    run(whole.squares_of, BLOCKS, threads, arguments, {"parts": np.stack([top, squares])})


def test_the_norm_of_nothing(whole, dtype, threads):
    assert norm_and_clip(whole, threads, np.zeros(20, dtype), 1.0) == (0, 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 19])
def test_a_gradient_that_is_no_number_is_seen_in_the_norm(whole, dtype, threads, bad, place):
    [grads] = normal("norm", dtype, (20,))
    grads[place] = bad
    assert not np.isfinite(norm_and_clip(whole, threads, grads, 1.0)[0])


def optimizer_state(dtype):
    """params, grads, first and second moments of 20 numbers, of which the first 12 decay; the moments' counts."""
    params, grads, first, second = normal("adamw", dtype, (20,), (20,), (20,), (20,))
    return params, grads, first, np.abs(second)


def rates(config, learning_rate, updates, dtype):
    b1, b2 = config.beta1, config.beta2
    corrections = 1 / (1 - b1**updates), 1 / (1 - b2**updates)
    return np.array([1 - b1, 1 - b2, *corrections, config.epsilon, learning_rate, config.weight_decay], dtype)


@pytest.mark.parametrize("clip", [1.0, 0.125])
@pytest.mark.parametrize("updates", [1, 7])
def test_adamw(whole, dtype, threads, clip, updates):
    """The optimizer's own step: matrices decay, the rest does not."""
    params, grads, first, second = optimizer_state(dtype)
    config = TrainConfig()
    names = {"a.weight": np.s_[:12], "a.bias": np.s_[12:]}  # a matrix and a vector

    def by_name(array):
        return {name: array[at].reshape(3, 4) if name == "a.weight" else array[at] for name, at in names.items()}

    exact = exactly(params, grads, first, second)
    plain = AdamW(by_name(exact[0]), config)
    plain.first, plain.second, plain.updates = by_name(exact[2]), by_name(exact[3]), updates
    plain._move(by_name(exact[0]), by_name(exact[1]), clip, 0.1)  # in place
    arguments = {
        "params": params, "grads": grads, "first": first, "second": second, "n_decayed": 12,
        "rates": rates(config, 0.1, updates, dtype), "results": np.array([3, clip, 2], dtype),
    }  # fmt: skip
    run(whole.adamw, BLOCKS, threads, arguments, {"params": exact[0], "first": exact[2], "second": exact[3]})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 2], ids=["norm", "loss"])
def test_adamw_of_what_is_no_number_changes_nothing(whole, dtype, threads, bad, which):
    params, grads, first, second = optimizer_state(dtype)
    results = np.array([3, 1, 2], dtype)
    results[which] = bad
    arguments = {
        "params": params, "grads": grads, "first": first, "second": second, "n_decayed": 12,
        "rates": rates(TrainConfig(), 0.1, 1, dtype), "results": results,
    }  # fmt: skip
    run(whole.adamw, BLOCKS, threads, arguments, {})
