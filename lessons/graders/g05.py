"""What is asked in lesson 05, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex05_backward_of_norm_gate_swiglu as ours


# ------------------------------------------------------------------------------------------- rms_norm_backward
def norms(rng):
    """That of the lesson, on paper; a batch, a row, a window, and states so small that the 1e-6 counts."""
    yield np.array([[1.0, 1.0]]), np.array([[1.0, 7.0]]), np.ones(2)
    for shape, scale in (((3, 4), 1.0), ((5,), 2.0), ((2, 3, 4), 1.0), ((2, 3), 1e-3)):
        yield rng.standard_normal(shape), scale * rng.standard_normal(shape), 1 + 0.3 * rng.standard_normal(shape[-1])


def along_the_row(x):
    return np.mean(x, axis=-1, keepdims=True)


def over_the_rows(x):
    return np.mean(x, axis=0, keepdims=True)


def norm(d_y, x, weight, epsilon=1e-6, squares=along_the_row, along=along_the_row, second=1.0):
    """rms_norm_backward with its parts to turn: -> d_x, n, r."""
    r = np.sqrt(squares(x * x) + epsilon)
    n, d_n = x / r, d_y * weight
    return (d_n - second * n * along(d_n * n)) / r, n, r


def summed(d_y, n):
    return np.sum(d_y * n, axis=tuple(range(n.ndim - 1)))


def turned(**parts):
    """A wrong answer whose d_weight is as it should be for its n."""

    def wrong(d_y, x, weight):
        d_x, n, _ = norm(d_y, x, weight, **parts)
        return d_x, summed(d_y, n)

    return wrong


def without_weight(d_y, x, weight):
    d_x, n, _ = norm(d_y, x, np.ones_like(weight))
    return d_x, summed(d_y, n)


def weight_in_the_end(d_y, x, weight):
    d_x, n, _ = norm(d_y, x, np.ones_like(weight))
    return d_x * weight, summed(d_y, n)


def without_length(d_y, x, weight):
    d_x, n, r = norm(d_y, x, weight)
    return d_x * r, summed(d_y, n)


def with_weight(make):
    """A wrong answer whose d_x is right: d_weight is make(d_y, n, x)."""

    def wrong(d_y, x, weight):
        d_x, n, _ = norm(d_y, x, weight)
        return d_x, make(d_y, n, x)

    return wrong


# ------------------------------------------------------------------------------------------ bare_gate_backward
def gates(rng):
    """One row; widths that differ, so that a transpose too much does not fit; many."""
    for B, n_in, D in ((1, 2, 2), (3, 2, 4), (6, 4, 3)):
        shapes = (B, D), (B, n_in), (D, n_in), (D,)
        yield tuple(rng.standard_normal(shape) for shape in shapes)


def with_slope(slope):
    """A wrong answer with d_z = d_gate ⊙ slope(gate)."""

    def wrong(d_gate, x, weight, bias):
        d_z = d_gate * slope(ours.sigmoid(x @ weight.T + bias))
        return d_z @ weight, d_z.T @ x, d_z.sum(axis=0)

    return wrong


def then(change):
    """A wrong answer made of the right one: change(d_x, d_weight, d_bias, B)."""
    return lambda d_gate, x, weight, bias: change(*ours.bare_gate_backward(d_gate, x, weight, bias), len(x))


def bias_by_row(d_gate, x, weight, bias):
    d_x, d_weight, _ = ours.bare_gate_backward(d_gate, x, weight, bias)
    gate = ours.sigmoid(x @ weight.T + bias)
    return d_x, d_weight, d_gate * gate * (1 - gate)


# ------------------------------------------------------------------------------------------------ ffn_backward
def ffns(rng):
    """One small enough for paper, a hidden width above D, and one below."""
    for B, D, F in ((1, 2, 1), (3, 4, 6), (2, 5, 3)):
        shapes = (B, D), (B, D), (D,), (F, D), (F, D), (D, F)
        d_out, x, norm_weight, *weights = (rng.standard_normal(shape) for shape in shapes)
        yield d_out, x, 1 + 0.3 * norm_weight, *weights


def silu_slope(z, sigma):
    return sigma + z * sigma * (1 - sigma)


def ffn(slope=silu_slope, value_slope=lambda z, sigma: z * sigma, through=(1, 1), valued=True, fed="n", normed=True):
    """ffn_backward with its parts to turn: `through` the gate, the value; `fed` what the two matrices take."""

    def wrong(d_out, x, norm_weight, gate_weight, value_weight, out_weight):
        n = ours.rms_norm(x, norm_weight)
        gate, value = n @ gate_weight.T, n @ value_weight.T
        sigma, d_hidden = ours.sigmoid(gate), d_out @ out_weight
        d_gate = d_hidden * slope(gate, sigma) * (value if valued else 1)
        d_value = d_hidden * value_slope(gate, sigma)
        d_n = through[0] * d_gate @ gate_weight + through[1] * d_value @ value_weight
        d_x, d_norm_weight = ours.rms_norm_backward(d_n, x, norm_weight)
        taken = {"n": n, "x": x, "bare n": ours.rms_norm(x, np.ones_like(norm_weight))}[fed]
        d_weights = d_gate.T @ taken, d_value.T @ taken, d_out.T @ (gate * sigma * value)
        return d_x if normed else d_n, d_norm_weight, *d_weights

    return wrong


def ffn_then(change):
    """A wrong answer made of the right one: change(B, d_x, d_norm_weight, d_gate_weight, d_value_weight, d_out)."""
    return lambda d_out, *rest: change(len(d_out), *ours.ffn_backward(d_out, *rest))


PARTS = [
    Part(
        "rms_norm_backward",
        norms,
        [
            Foreseen("r depends on x too: what lies along x must not come back", turned(second=0.0)),
            Foreseen(
                "the mean along the row, not the sum: r is made with a mean",
                turned(along=lambda x: np.sum(x, axis=-1, keepdims=True)),
            ),
            Foreseen("d_x starts from the gradient of n, which is not d_y: look at the weight", without_weight),
            Foreseen("the weight belongs to d_n, so inside the mean too, not at the end", weight_in_the_end),
            Foreseen("the longer x, the less a move of it matters: where is r?", without_length),
            Foreseen("for small x the 1e-6 under the root counts", turned(epsilon=0.0)),
            Foreseen(
                "each row has an r and a mean of its own: along which axis?", turned(squares=np.mean, along=np.mean)
            ),
            Foreseen(
                "r is right; but the mean in d_x is each row's own, too: along which axis?", turned(along=np.mean)
            ),
            Foreseen(
                "r and the mean go along a row, the last axis, not over the batch",
                turned(squares=over_the_rows, along=over_the_rows),
            ),
            Foreseen(
                "one weight serves all rows: what is the shape of d_weight?", with_weight(lambda d_y, n, x: d_y * n)
            ),
            Foreseen(
                "a window has two axes before D, and a row has none: d_weight adds up all rows",
                with_weight(lambda d_y, n, x: np.sum(d_y * n, axis=0)),
            ),
            Foreseen(
                "the rows add up in d_weight; if the loss is a mean, d_y says so already",
                with_weight(lambda d_y, n, x: np.mean((d_y * n).reshape(-1, n.shape[-1]), axis=0)),
            ),
            Foreseen("the weight multiplies n, not x", with_weight(lambda d_y, n, x: summed(d_y, x))),
        ],
        names=("d_x", "d_weight"),
    ),
    Part(
        "bare_gate_backward",
        gates,
        [
            Foreseen("the gradient must pass the sigmoid first: d_z is not d_gate", with_slope(np.ones_like)),
            Foreseen(
                "sigmoid' has two factors, gate and 1 - gate: half of it is missing", with_slope(lambda gate: gate)
            ),
            Foreseen("sigmoid' has two factors: where is the gate itself?", with_slope(lambda gate: 1 - gate)),
            Foreseen(
                "the gate is that of x weightᵀ + bias: the bias moves it",
                lambda d_gate, x, weight, bias: ours.bare_gate_backward(d_gate, x, weight, np.zeros_like(bias)),
            ),
            Foreseen(
                "d_weight is transposed: it has the shape of weight", then(lambda d_x, d_w, d_b, B: (d_x, d_w.T, d_b))
            ),
            Foreseen("one bias serves all rows: what is the shape of d_bias?", bias_by_row),
            Foreseen(
                "the batch adds up; if the loss is a mean, d_gate says so already",
                then(lambda d_x, d_w, d_b, B: (d_x, d_w / B, d_b / B)),
            ),
            Foreseen(
                "d_weight is a sum over the batch, not its mean", then(lambda d_x, d_w, d_b, B: (d_x, d_w / B, d_b))
            ),
            Foreseen(
                "d_bias is a sum over the batch, not its mean", then(lambda d_x, d_w, d_b, B: (d_x, d_w, d_b / B))
            ),
        ],
        names=("d_x", "d_weight", "d_bias"),
    ),
    Part(
        "ffn_backward",
        ffns,
        [
            Foreseen("n feeds two matrices: what comes back through value_weight is missing", ffn(through=(1, 0))),
            Foreseen("n feeds two matrices: what comes back through gate_weight is missing", ffn(through=(0, 1))),
            Foreseen("d_x has not passed the norm yet: that is the gradient of n", ffn(normed=False)),
            Foreseen("gate_weight and value_weight multiply n, not x", ffn(fed="x")),
            Foreseen("gate_weight and value_weight multiply n with the norm's weight in it", ffn(fed="bare n")),
            Foreseen("silu is a product: its derivative has two terms", ffn(slope=lambda z, sigma: sigma)),
            Foreseen(
                "that is the sigmoid's derivative; silu is z times the sigmoid, a product: two terms",
                ffn(slope=lambda z, sigma: sigma * (1 - sigma)),
            ),
            Foreseen(
                "that is the second term of silu' alone: a product has two",
                ffn(slope=lambda z, sigma: z * sigma * (1 - sigma)),
            ),
            Foreseen(
                "silu' has two terms, as you say; in the second z stays as it is, and only sigmoid is derived",
                ffn(slope=lambda z, sigma: sigma + sigma * (1 - sigma)),
            ),
            Foreseen("what reaches the gate is scaled by the value", ffn(valued=False)),
            Foreseen(
                "the value is multiplied by silu(gate), not by sigmoid(gate)", ffn(value_slope=lambda z, sigma: sigma)
            ),
            Foreseen("the value is multiplied by silu(gate), not by the gate", ffn(value_slope=lambda z, sigma: z)),
            Foreseen(
                "the order: d_gate_weight first, then d_value_weight",
                ffn_then(lambda B, d_x, d_norm, d_gate, d_value, d_out: (d_x, d_norm, d_value, d_gate, d_out)),
            ),
            Foreseen(
                "d_out_weight is transposed: it has the shape of out_weight",
                ffn_then(lambda B, *d: (*d[:4], d[4].T)),
            ),
            Foreseen(
                "the matrices' gradients add up over the batch; nobody asked for a mean",
                ffn_then(lambda B, *d: (*d[:2], *(d_weight / B for d_weight in d[2:]))),
            ),
        ],
        names=("d_x", "d_norm_weight", "d_gate_weight", "d_value_weight", "d_out_weight"),
    ),
]
