# %% [markdown]
# # 03 · Softmax and cross entropy, and their gradient
#
# | | |
# |---|---|
# | **You will be able to** | turn scores into a loss that no number can break, and write its gradient by hand |
# | **You need** | lesson 02; the derivatives of exp and log |
# | **Minutes** | 45, and 30 for the exercises |
# | **You will see** | a loss of exactly ln V, an overflow, a gradient of two terms, and two bugs caught |
#
# A model scores every token of its vocabulary: the *logits*, one number each, shape (V). This lesson makes a loss of
# them, and sends the loss back. It is the first backward pass of the course, and the shortest.

# %%
import numpy as np
from kit import show

from gpn_ref.figures import BLACK, BLUE, VERMILION, new_figure
from gpn_ref.reference.ops import cross_entropy_backward, cross_entropy_forward

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## 1 · Softmax keeps differences, and nothing else
#
# softmax(z)_i = exp(z_i) / Σ_j exp(z_j), for z of shape (V). All entries are positive and sum to 1. Adding the same
# number to every logit changes nothing, because exp(z + c) = exp(z) exp(c), and exp(c) cancels.

# %%
logits = np.array([2.0, 1.0, 0.0, -1.0])  # (V), V = 4
softmax = lambda z: np.exp(z) / np.exp(z).sum()  # noqa: E731
print("softmax(z)      ", softmax(logits), " sums to", softmax(logits).sum())
print("softmax(z + 100)", softmax(logits + 100))
assert np.allclose(softmax(logits), softmax(logits + 100))

# %% [markdown]
# ## 2 · A computer cannot hold exp(1000), so shift first
#
# float64 ends at 1.8e308, about exp(709.8); float32 ends at about exp(88.7). Subtracting the largest logit is free, by
# part 1, and then the largest exponential is exp(0) = 1. What underflows to 0 was too small to matter.

# %%
large = np.array([1000.0, 999.0, 0.0])
with np.errstate(over="ignore", invalid="ignore"):
    print("as written:", softmax(large))
print("shifted:   ", softmax(large - large.max()))
assert np.isfinite(softmax(large - large.max())).all()
assert np.isclose(np.log(np.finfo(np.float64).max), 709.8, atol=0.05)
assert np.isclose(np.log(np.finfo(np.float32).max), 88.7, atol=0.05)

# %% [markdown]
# ## 3 · Cross entropy is the surprise at the token that came
#
# nll = -log softmax(z)_y = log Σ_j exp(z_j) - z_y, in *nats*, for the token y that really came. A model that knows
# nothing gives each token 1 / V and is surprised by ln V: the first line of every training run. One that halves
# its perplexity, exp(nll), has gained ln 2 = 0.69 nats.
#
# Never compute log(softmax(z)): where the softmax underflows to 0, the log is -inf. Take the log of the sum. The
# package's `cross_entropy_forward` does; it returns nll, and a *cache*: what the backward pass will need again.

# %%
V = 512
nothing_known, _ = cross_entropy_forward(np.zeros((1, V)), np.array([7]))
print(f"all logits alike: {nothing_known[0]:.4f} nats; ln {V} = {np.log(V):.4f}")
sure_and_wrong, _ = cross_entropy_forward(np.array([[1000.0, 0.0]]), np.array([1]))
print(f"sure of the wrong token: {sure_and_wrong[0]:.1f} nats, not infinity")
assert np.isclose(nothing_known[0], np.log(V)) and sure_and_wrong[0] == 1000.0

# %% [markdown]
# ## 4 · The gradient is what was predicted, less what came
#
# Throughout the course `d_x` is short for ∂loss / ∂x, the gradient by x, and has the shape of x. Here the loss is nll.
# Its derivative by z_i is that of log Σ exp(z_j), which is softmax(z)_i, less 1 where i = y:
#
#     d_logits = softmax(z) - onehot(y)        (V)
#
# It sums to 0: what the right token gains, the others lose together. And it vanishes only when the right token has
# all the probability. We check one entry the honest way: move it a little, and see how the loss moves.

# %%
target, h = 2, 1e-6
d_logits = softmax(logits) - np.eye(4)[target]
nll = lambda z: np.log(np.exp(z - z.max()).sum()) + z.max() - z[target]  # noqa: E731
numeric = np.array([(nll(logits + h * e) - nll(logits - h * e)) / (2 * h) for e in np.eye(4)])
print("by hand:     ", d_logits, " sum", round(d_logits.sum(), 12))
print("by moving z: ", numeric)
assert np.allclose(d_logits, numeric, atol=1e-8)

# %% [markdown]
# Two curves say it all: the loss falls in a straight line while the model is wrong, and flattens when it is
# right. No entry of the gradient exceeds 1, however wrong the model is. That is why this loss trains so calmly.
# `cross_entropy_backward(d_nll, cache)` gives d_logits; `d_nll` is 1 for each of these losses, as loss and nll are one.

# %%
z = np.linspace(-8, 14, 221)  # the right token's logit; 511 others at 0
curve, cache = cross_entropy_forward(np.stack([z, *np.zeros((V - 1, 221))], axis=1), np.zeros(221, int))
slope = cross_entropy_backward(np.ones(221), cache)[:, 0]
figure, axes = new_figure("Cross entropy, and its gradient, by the right token's logit")
axes.plot(z, curve, color=BLUE, label="loss, in nats")
axes.plot(z, slope, color=VERMILION, linestyle="--", label="its gradient by this logit")
axes.axhline(np.log(V), color=BLACK, linestyle=":", label=f"ln {V}, where all logits are alike")
axes.set(
    xlabel=f"logit of the right token; the other {V - 1} are 0", ylabel="loss: nats; gradient: nats a unit of logit"
)
axes.legend()
show(figure, "03_cross_entropy")
assert slope.min() > -1 and np.isclose(curve[80], np.log(V)) and curve[-1] < 1e-3 < curve[0] - np.log(V)

# %% [markdown]
# ## 5 · A batch has a mean, and the mean has a share in every gradient
#
# The model's loss is the mean of nll (B, T) over its B · T tokens. So each token's `d_nll` is 1 / (B · T), and each row
# of d_logits (B, T, V) is scaled by it. That is all that `cross_entropy_backward` adds to part 4.

# %%
rng = np.random.default_rng(0)
batch, targets = rng.standard_normal((2, 3, 4)), rng.integers(0, 4, (2, 3))  # (B, T, V), (B, T)
losses, cache = cross_entropy_forward(batch, targets)  # (B, T)
d_batch = cross_entropy_backward(np.full(losses.shape, 1 / losses.size), cache)  # (B, T, V)
print(f"loss {losses.mean():.4f}; the largest gradient of {losses.size} tokens is {np.abs(d_batch).max():.4f}")
assert np.abs(d_batch).max() <= 1 / losses.size

# %% [markdown]
# ## 6 · Break it
#
# Two bugs that everybody writes once. The first forgets the mean: plain gradient descent then needs another learning
# rate for each batch size, and nothing tells you. The second forgets the shift: it takes as the target the token that
# was read, and not the one after it. The model learns to repeat what it sees, and the loss falls *beautifully*. A
# check of every entry against differences of the real loss catches both.


# %%
def right_entries(d_logits):
    """How many entries of d_logits (B, T, V) are what moving that logit does to the mean loss."""
    right = 0
    for at in np.ndindex(batch.shape):
        moved = batch.copy()
        moved[at] += h
        numeric = (cross_entropy_forward(moved, targets)[0].mean() - losses.mean()) / h
        right += abs(d_logits[at] - numeric) < 1e-5
    return right


read = np.roll(targets, 1, axis=1)  # (B, T): what was the target a place ago is read now (at first: any token)
without_mean = cross_entropy_backward(np.ones(losses.shape), cache)
unshifted = cross_entropy_backward(np.full(losses.shape, 1 / losses.size), cross_entropy_forward(batch, read)[1])
for bug, d_logits in {"none": d_batch, "no mean": without_mean, "no shift": unshifted}.items():
    print(f"bug: {bug:<9} {right_entries(d_logits):2} of {d_logits.size} entries are right")
assert right_entries(d_batch) == d_batch.size and right_entries(without_mean) == 0
assert right_entries(unshifted) == 14

# %% [markdown]
# The second bug has all probabilities right, and takes the 1 off in another place: so a check of one entry would
# have missed it at 14 of 24. Lesson 04 checks all of an array at once.

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `cross_entropy_forward` and `cross_entropy_backward` in `gpn_ref/reference/ops.py`, 20 lines with their docstrings.
# `gpn_ref/fast/cpu/decode.py` has the same in one compiled pass.
#
# Exercises, `lessons/exercises/ex03_softmax_and_cross_entropy.py`: a log-softmax that no logit breaks, the loss of a
# batch, and its gradient. Grade yourself: `python -m lessons.check 03`. Next: lesson 04, how to trust a gradient.
