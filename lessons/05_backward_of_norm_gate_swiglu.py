# %% [markdown]
# # 05 · The backward pass of norm, gate and SwiGLU
#
# | | |
# |---|---|
# | **You will be able to** | write the backward pass of every operation of the model by hand, and prove it |
# | **You need** | lesson 04; chain rule, product rule, matrix products |
# | **Minutes** | 75, and 45 for the exercises |
# | **You will see** | gradients done on paper, a gradient at a right angle to its input, and three bugs caught |
#
# The model of lesson 02 is made of few operations: matrices, RMS norms, gates and SwiGLU. For each we write the
# forward line, and below it the line that undoes it. `d_x` is always the gradient of the loss by x, and always has
# the shape of x. A backward takes `d_y` from whoever used y, and knows nothing else of the loss.

# %%
import numpy as np
from kit import show

from gpn_ref.figures import BLACK, BLUE, GREY, VERMILION, new_figure
from gpn_ref.reference.ops import gate_backward, gate_forward, rms_norm_forward, sigmoid, swiglu_forward

np.set_printoptions(precision=4, suppress=True)
rng = np.random.default_rng(5)


def agrees(forward, inputs, d_y, d_inputs, h=1e-5):
    """Whether each d_input is the gradient of Σ d_y ⊙ forward(*inputs), along a random direction (lesson 04)."""
    for i, (x, d_x) in enumerate(zip(inputs, d_inputs, strict=True)):
        if np.shape(d_x) != x.shape:
            return False
        u = rng.standard_normal(x.shape)
        up, down = (np.sum(d_y * forward(*inputs[:i], x + s * u, *inputs[i + 1 :])) for s in (h, -h))
        if abs(np.sum(d_x * u) - (up - down) / (2 * h)) > 1e-7:  # all numbers here are near 1: no scale needed
            return False
    return True


# %% [markdown]
# ## 1 · A matrix sends its gradient back through its transpose
#
# y = W x: x is (in), W is (out, in), y is (out); y_i = Σ_j W_ij x_j. Each x_j reaches every y_i with weight W_ij, and
# each W_ij reaches one y_i with weight x_j:
#
#     d_x = Wᵀ d_y          (in)           d_W = d_y ⊗ x          (out, in)
#
# Do it on paper first, with x = (1, 2), W = ((1, 0), (3, -1)) and d_y = (1, 10).

# %%
x, W, d_y = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [3.0, -1.0]]), np.array([1.0, 10.0])
d_x, d_W = W.T @ d_y, np.outer(d_y, x)
print("d_x", d_x, "  d_W", d_W.tolist())
assert d_x.tolist() == [31, -10] and d_W.tolist() == [[1, 2], [10, 20]]
assert agrees(lambda x, W: W @ x, (x, W), d_y, (d_x, d_W))

# %% [markdown]
# ## 2 · A batch adds up, and the shapes proofread
#
# With a batch, x is (B, in) and y = x Wᵀ + b is (B, out). The same W and b serve every row, so their gradients are
# sums over the rows: a sum of B outer products, which is one matrix product.
#
#     d_x = d_y W           (B, out)(out, in) = (B, in)
#     d_W = d_yᵀ x          (out, B)(B, in)   = (out, in)       = Σ_b d_y[b] ⊗ x[b]
#     d_b = Σ_b d_y[b]      (out)
#
# Forgot the formula? Three sizes that differ leave one way to multiply. But the model's gates are square, (D, D), and
# a transpose too much fits there as well: so test with sizes that differ.

# %%
B, n_in, n_out = 3, 2, 4
x, W, b, d_y = (rng.standard_normal(shape) for shape in ((B, n_in), (n_out, n_in), n_out, (B, n_out)))


def linear_backward(d_y, x, W):
    """y = x Wᵀ + b.  d_y (B, out), x (B, in), W (out, in) -> d_x (B, in), d_W (out, in), d_b (out)."""
    return d_y @ W, d_y.T @ x, d_y.sum(axis=0)


d_x, d_W, d_b = linear_backward(d_y, x, W)
row_by_row = sum(np.outer(d_y[i], x[i]) for i in range(B))
print("d_W", d_W.shape, "as one product is the sum of", B, "outer products:", np.allclose(d_W, row_by_row))
assert np.allclose(d_W, row_by_row) and agrees(lambda x, W, b: x @ W.T + b, (x, W, b), d_y, (d_x, d_W, d_b))

# %% [markdown]
# ## 3 · Elementwise: a gate has one factor, SwiGLU a product rule in it
#
# Elementwise operations need only a derivative, entry by entry. For gate = σ(z), with σ(z) = 1 / (1 + exp(-z)):
#
#     d_z = d_gate ⊙ gate ⊙ (1 - gate)                at most a quarter passes, and almost nothing where a gate is sure
#
# SwiGLU is y = silu(gate) ⊙ value, all (F), with silu(z) = z σ(z). Two inputs, two gradients; silu is a product itself:
#
#     d_value = d_y ⊙ silu(gate)        d_gate = d_y ⊙ value ⊙ silu'(gate)        silu' = σ + z σ (1 - σ)
#
# On paper, at gate = ln 3: σ is 3/4, and silu' is 3/4 + ln 3 · 3/16 = 0.956. With value 2 and d_y 1, d_gate is 1.912.


# %%
def swiglu_backward(d_y, gate, value):
    """y = silu(gate) ⊙ value.  All (..., F) -> d_gate, d_value."""
    silu = gate * sigmoid(gate)
    d_silu = sigmoid(gate) + silu * (1 - sigmoid(gate))
    return d_y * value * d_silu, d_y * silu


gate, value, d_y = np.array([np.log(3), 0.0]), np.array([2.0, 5.0]), np.array([1.0, 1.0])  # F = 2
d_gate, d_value = swiglu_backward(d_y, gate, value)
print("d_gate", d_gate, "  d_value", d_value)
assert np.allclose(d_gate, [1.912, 2.5], atol=1e-3)
assert agrees(lambda gate, value: swiglu_forward(gate, value)[0], (gate, value), d_y, (d_gate, d_value))

# %%
z = np.linspace(-6, 6, 241)
slope = swiglu_backward(np.ones(241), z, np.ones(241))[0]
figure, axes = new_figure("silu(z) = z σ(z), and both halves of its derivative")
axes.plot(z, z * sigmoid(z), color=BLUE, label="silu")
axes.plot(z, slope, color=VERMILION, linestyle="--", label="silu' = σ + z σ (1 - σ)")
axes.plot(z, sigmoid(z), color=BLACK, linestyle=":", label="σ, the first half alone")
axes.set(ylim=(-0.5, 2), xlabel="z, an entry of the FFN's gate", ylabel="silu, and its slope")
axes.legend()
show(figure, "05_silu")
assert slope.max() > 1.09 and slope.min() < -0.09  # it overshoots 1, and it goes below 0
assert np.max(sigmoid(z) * (1 - sigmoid(z))) == 0.25  # the gate's factor, at z = 0

# %% [markdown]
# ## 4 · A norm lets nothing pass along its input
#
# RMS norm: y = n ⊙ w, where n = x / r and r² = mean(x²) + 1e-6; x, n and w are (D). So r moves with x_j by n_j / D, and
# n_i = x_i / r by 1 / r where i = j, less n_i n_j / (D r) for every i: where r grows, all of n shrinks. Multiply by
# d_n_i, with d_n = d_y ⊙ w (D), and add over i; the sum with its 1 / D is a mean:
#
#     d_x = (d_n - n mean(d_n ⊙ n)) / r          (D)
#     d_w = d_y ⊙ n, summed over the batch       (D)
#
# A move along x changes only its length, which the norm takes away; so what lies along x does not come back. On paper:
# x = (1, 7) has mean square 25, so r = 5 and n = (0.2, 1.4). With w = d_y = (1, 1) the mean of d_n ⊙ n is 0.8, and
# d_x = ((1, 1) - 0.8 · (0.2, 1.4)) / 5 = (0.168, -0.024), at a right angle to x: 1 · 0.168 - 7 · 0.024 = 0. At x = 0,
# where every text starts, n is 0 and r is 1/1000: nothing is taken out, and the gradient grows 1000-fold.


# %%
def rms_norm_backward(d_y, x, w):
    """d_y, x (B, D), w (D) -> d_x (B, D), d_w (D)."""
    r = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)  # (B, 1)
    n = x / r
    d_n = d_y * w
    d_x = (d_n - n * np.mean(d_n * n, axis=-1, keepdims=True)) / r
    return d_x, np.sum(d_y * n, axis=0)


x, w, d_y = np.array([[1.0, 7.0]]), np.ones(2), np.array([[1.0, 1.0]])  # B = 1, D = 2
d_x, _ = rms_norm_backward(d_y, x, w)
print("d_x", d_x[0], "  along x:", round(abs(float(np.sum(d_x * x))), 6))
assert np.allclose(d_x, [[0.168, -0.024]], atol=1e-6) and abs(np.sum(d_x * x)) < 1e-6
assert np.allclose(rms_norm_backward(d_y, 10 * x, w)[0], d_x / 10)  # ten times the state, a tenth of the gradient
assert np.allclose(rms_norm_backward(d_y, 0 * x, w)[0], 1000 * d_y)
norm = lambda x, w: rms_norm_forward(x, w)[0]  # noqa: E731
x4, w4, d_y4 = (rng.standard_normal(shape) for shape in ((3, 4), 4, (3, 4)))  # B = 3, D = 4
assert agrees(norm, (x4, w4), d_y4, rms_norm_backward(d_y4, x4, w4))

# %% [markdown]
# In two dimensions n can only lie on the circle of radius √2. What of d_y leaves the circle can't move n, and is lost.

# %%
figure, axes = new_figure("RMS norm of x = (1, 7): what comes back of d_y = (1, 1)")
turn = np.linspace(0, 2 * np.pi, 200)
axes.plot(np.sqrt(2) * np.cos(turn), np.sqrt(2) * np.sin(turn), color=GREY, linestyle=":", label="where n can be")
n, tangent = np.array([0.2, 1.4]), 5 * d_x[0]
for start, end, colour, line, label in (
    ((0, 0), n, BLACK, "-", "n = x / r"),
    (n + tangent, n + d_y[0], GREY, "--", "lost: along x"),
    (n, n + d_y[0], BLUE, "-", "d_y"),
    (n, n + tangent, VERMILION, "-", "r · d_x"),
):
    x_y = zip(start, end, strict=True)
    axes.plot(*x_y, color=colour, linestyle=line, linewidth=2, marker="o", markevery=[1], label=label)
axes.set(aspect="equal", ylim=(-0.2, 2.6), xlabel="first entry", ylabel="second entry")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "05_norm")

# %% [markdown]
# ## 5 · What is used twice gets two gradients, and they add
#
# The model's states pass through gate(s) ⊙ s, where gate(s) = σ(W rms(s; w) + b), s is (B, D) and W (D, D). The state
# s goes in twice: as what is gated, and through the gate. Undo the last line first, then the one before:
#
#     y = gate ⊙ s          d_s = d_y ⊙ gate,   d_gate = d_y ⊙ s
#     gate = σ(z)           d_z = d_gate ⊙ gate ⊙ (1 - gate)
#     z = W n + b           d_n = d_z W,   d_W = d_zᵀ n,   d_b = Σ_b d_z
#     n = rms(s; w)         d_s += what the norm sends back,   d_w


# %%
def gated_backward(d_y, s, w, W, b):
    """y = gate(s) ⊙ s.  d_y, s (B, D) -> d_s (B, D), d_w (D), d_W (D, D), d_b (D)."""
    gate, _ = gate_forward(s, w, W, b)  # (B, D)
    d_z = d_y * s * gate * (1 - gate)  # (B, D)
    d_n, d_W, d_b = linear_backward(d_z, norm(s, w), W)
    d_through_gate, d_w = rms_norm_backward(d_n, s, w)
    return d_y * gate + d_through_gate, d_w, d_W, d_b


s, W, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 4)), rng.standard_normal(4)
ours, gated = gated_backward(d_y4, s, w4, W, b), lambda s, *gate: gate_forward(s, *gate)[0] * s
theirs = gate_backward(d_y4 * s, gate_forward(s, w4, W, b)[1])  # d_s (of it, only through the gate), d_w, d_W, d_b
right = agrees(gated, (s, w4, W, b), d_y4, ours)
print("all four gradients agree with differences:", right)
assert right and all(np.allclose(mine, its) for mine, its in zip(ours[1:], theirs[1:], strict=True))

# %% [markdown]
# ## 6 · Break it
#
# Three bugs that everybody writes, and each hides from a lazy check. A norm without its second term is right where that
# term happens to be 0; the outer product of one row, not summed over the batch, where B = 1; silu' without its second
# half, at gate = 0. At random points with B = 3, all are caught.


# %%
def norm_as_a_scale(d_y, x, w):
    return d_y * w / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6), rms_norm_backward(d_y, x, w)[1]


def first_row_only(d_y, x, W):
    return d_y @ W, np.outer(d_y[0], x[0])


def first_half_only(d_y, gate, value):
    return d_y * value * sigmoid(gate), swiglu_backward(d_y, gate, value)[1]


linear, swiglu = lambda x, W: x @ W.T, lambda gate, value: swiglu_forward(gate, value)[0]
across = np.array([[1.0, -1.0, 1.0, -1.0]])  # at a right angle to x = (1, 1, 1, 1): nothing lies along x
for what, forward, bug, lazy, lazy_d_y, at_random in (
    ("norm", norm, norm_as_a_scale, (np.ones((1, 4)), np.ones(4)), across, (x4, w4)),
    ("linear", linear, first_row_only, (s[:1], W), across, (s, W)),
    ("SwiGLU", swiglu, first_half_only, (np.zeros((3, 4)), s), d_y4, (x4, s)),
):
    hidden = agrees(forward, lazy, lazy_d_y, bug(lazy_d_y, *lazy))
    passes = agrees(forward, at_random, d_y4, bug(d_y4, *at_random))
    print(f"{what:<7} wrong; passes the lazy check: {hidden}, a check at random points: {passes}")
    assert hidden and not passes

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `linear_backward`, `bias_backward`, `rms_norm_backward`, `gate_backward` and `swiglu_backward` in
# `gpn_ref/reference/ops.py`: each below its forward, with a cache of what the forward has computed already.
# `ffn_backward` in `gpn_ref/reference/predict.py` chains them: its norm feeds two matrices, so two gradients add there.
#
# Exercises, `lessons/exercises/ex05_backward_of_norm_gate_swiglu.py`: the norm whatever stands before D, the gate
# without its norm, and the whole FFN. Grade yourself: `python -m lessons.check 05`. Next: lesson 06, through time.
