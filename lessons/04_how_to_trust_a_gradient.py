# %% [markdown]
# # 04 · How to trust a gradient
#
# | | |
# |---|---|
# | **You will be able to** | check a gradient against the function itself, and say how far to trust the check |
# | **You need** | lesson 03; the first terms of a Taylor series |
# | **Minutes** | 60, and 30 for the exercises |
# | **You will see** | a valley of errors, false alarms, and wrong gradients that pass a check at the wrong place |
#
# A wrong backward pass rarely crashes. The model trains, a little worse, and nobody knows why. So every gradient of
# this course is compared with what it claims to be: how the loss moves when a number moves. That comparison is an
# instrument, and this lesson is about its errors.

# %%
import numpy as np
from kit import show

from gpn_ref import ModelConfig, init_params, load_model
from gpn_ref.figures import BLACK, BLUE, VERMILION, new_figure
from gpn_ref.reference.ops import cross_entropy_backward, cross_entropy_forward, l2_norm_forward

rng = np.random.default_rng(4)

# %% [markdown]
# ## 1 · A difference has two errors, and so a best step
#
# Let the loss be f, and h the *step*: how far we move one number x. Taylor's series gives two ways to find f'(x):
#
#     one-sided   (f(x + h) - f(x)) / h         = f'(x) + h/2 · f''(x) + …
#     centred     (f(x + h) - f(x - h)) / 2h    = f'(x) + h²/6 · f'''(x) + …     the even terms cancel
#
# What is left out is the *truncation*: a small h makes it small. But a computer rounds f to a relative ε (1e-16 in
# float64), and the difference divides that by h: *rounding*, ε|f|/h, which a small h makes large. The best step is
# where they meet, but for constants: one-sided where ε/h ≈ h, at √ε ≈ 1e-8; centred where ε/h ≈ h², at ε^(1/3) ≈ 5e-6.
# We look for it with 200 losses of V = 5 logits, moving the first logit of each.

# %%
z = rng.standard_normal((200, 5))  # (N, V), one row a loss
loss = lambda z: cross_entropy_forward(z, np.zeros(len(z), int))  # noqa: E731  losses (N) and their cache
slope = cross_entropy_backward(np.ones(200), loss(z)[1])[:, 0]  # (N), by hand


def error(h, centred, dtype=np.float64):
    """The median relative error of a difference with step h."""
    move = np.array([h, 0, 0, 0, 0], dtype)
    x = z.astype(dtype)
    rise = loss(x + move)[0] - loss(x - move if centred else x)[0]
    return np.median(np.abs(rise / dtype(2 * h if centred else h) / slope - 1))


steps = 10.0 ** np.arange(0, -14.5, -0.5)
one_sided, centred = ([error(h, kind) for h in steps] for kind in (False, True))
for name, errors in (("one-sided", one_sided), ("centred", centred)):
    print(f"{name:<10} best step {steps[np.argmin(errors)]:.0e}, relative error {min(errors):.0e}")
assert 9 < error(1e-3, False) / error(1e-4, False) < 11  # h ten times smaller: ten times better,
assert 90 < error(1e-2, True) / error(1e-3, True) < 110  # or a hundred times
assert error(1e-12, True) > 1e5 * error(1e-5, True)  # and then far worse
assert 0.1 < steps[np.argmin(one_sided)] / 1e-8 < 10 and 0.1 < steps[np.argmin(centred)] / 5e-6 < 10

# %% [markdown]
# ## 2 · Check in float64, whatever you train in
#
# float32 rounds at ε = 6e-8, so its rounding lies almost nine decades higher, and the best that a check can see is
# about five digits. A gradient that is wrong by one part in a million looks perfect there. The step must be larger,
# too: the 1e-5 that serves float64 so well errs by half a percent in float32; and from 3e-8 down nothing moves, because
# x + h is x for most x.

# %%
single = [error(h, True, np.float32) for h in steps]
print(f"float32    best step {steps[np.argmin(single)]:.0e}, relative error {min(single):.0e}")
print(f"at h = 1e-5: float32 errs by {error(1e-5, True, np.float32):.0e}, float64 by {error(1e-5, True):.0e}")
figure, axes = new_figure("What a difference says of a gradient, by its step")
axes.loglog(steps, one_sided, color=BLUE, marker="o", markersize=4, label="one-sided, float64")
axes.loglog(steps, centred, color=VERMILION, marker="s", markersize=4, label="centred, float64")
axes.loglog(steps, single, color=BLACK, linestyle="--", label="centred, float32")
axes.set_xlabel("step h, as a change of one logit")
axes.set_ylabel("relative error of the difference")
axes.text(3e-13, 2e-7, "rounding", rotation=-42)
axes.text(2e-3, 3e-11, "truncation", rotation=60)
axes.legend()
show(figure, "04_step_sizes")
assert min(centred) < 1e-10 and 1e-7 < min(single) < 1e-4 and error(1e-5, True, np.float32) > 1e-3

# %% [markdown]
# ## 3 · One direction checks a whole array
#
# Entry by entry, an array of n numbers costs 2n losses. Instead move all entries at once, along a random direction u
# of length 1, shaped as the array. The slope along u is what the gradient d_x (lesson 03) says of it:
#
#     (f(x + h u) - f(x - h u)) / 2h  ≈  Σ d_x ⊙ u         two losses, for any n
#
# u touches every entry, so a wrong one shows, as far as its gradient and its part of u are large. Which one it is, the
# sum can't tell. Several directions see more than one; part 7 takes three. Each entry moves by only about h / √n, so
# the step may be larger than for one entry: 1e-3 here.

# %%
batch, targets = 3 * rng.standard_normal((8, 16, 100)), rng.integers(0, 100, (8, 16))  # (B, T, V), (B, T)
mean_loss = lambda logits: cross_entropy_forward(logits, targets)[0].mean()  # noqa: E731
right = cross_entropy_backward(np.full((8, 16), 1 / 128), cross_entropy_forward(batch, targets)[1])  # (B, T, V)
u = rng.standard_normal(batch.shape)
u /= np.sqrt(np.sum(u**2))
numeric = (mean_loss(batch + 1e-3 * u) - mean_loss(batch - 1e-3 * u)) / 2e-3
one_wrong = right.copy()
one_wrong[0, 0, targets[0, 0]] *= -1  # a sign, in one entry
error_of = lambda d_logits: abs(np.sum(d_logits * u) / numeric - 1)  # noqa: E731
print(f"all {right.size:,} entries right: {error_of(right):.0e}; a target's sign wrong: {error_of(one_wrong):.0e}")
flipped = np.abs((np.sum(right * u) - 2 * right * u) / numeric - 1)  # (B, T, V): the error, were this one sign wrong
seen = [(flipped > limit).mean() for limit in (1e-6, 1e-3)]
print(f"any of {right.size:,} signs wrong: {seen[0]:.0%} show by more than 1e-6, {seen[1]:.0%} by more than 1e-3")
assert error_of(right) < 1e-8 and error_of(one_wrong) > 1e-3 and 0.8 < seen[0] < 0.9 and 0.1 < seen[1] < 0.2
assert np.isclose(flipped[0, 0, targets[0, 0]], error_of(one_wrong))

# %% [markdown]
# ## 4 · An error needs a scale
#
# Is an error of 1e-7 much? Two ways to judge it fail. *Absolute*: where a mean over a million tokens makes every
# gradient tiny, twice the gradient passes. *Relative, entry by entry*: an entry of 1e-18 is noise to any difference,
# and a right gradient fails. What serves: the largest error of an array over its largest gradient; or over a
# thousandth of the largest gradient of all arrays, if that is more. For all of an array may be noise. A number added
# to all logits of a loss, say, changes nothing (lesson 03): its gradient is 0, and what we measure is rounding.

# %%
rules = {
    "absolute": lambda d, numeric, of_all: np.abs(d - numeric).max(),
    "entry by entry": lambda d, numeric, of_all: (np.abs(d - numeric) / (np.abs(d) + np.abs(numeric) + 1e-99)).max(),
    "by its largest": lambda d, numeric, of_all: np.abs(d - numeric).max() / np.abs(numeric).max(),
    "or of all": lambda d, numeric, of_all: np.abs(d - numeric).max() / max(np.abs(numeric).max(), of_all / 1000),
}
x, measured = np.array([2, 1, 0, -40.0]), lambda x, moves: (loss(x + moves)[0] - loss(x - moves)[0]) / 2e-5
d, numeric = np.exp(x) / np.exp(x).sum() - np.eye(4)[0], measured(x, 1e-5 * np.eye(4))  # (V), a row for each move
d_logits = cross_entropy_backward(np.ones(200), loss(z)[1])  # (N, V), of part 1
cases = {
    "right": (d, numeric, np.abs(d).max()),
    "doubled": (2e-6 * d, 1e-6 * numeric, 1e-6 * np.abs(d).max()),
    "noise": (d_logits.sum(axis=1), measured(z, 1e-5), np.abs(d_logits).max()),  # (N): by a number added to all logits
}

# %%
passed = {}
for case, arrays in cases.items():
    errors = {rule: measure(*arrays) for rule, measure in rules.items()}
    passed[case] = [rule for rule, error in errors.items() if error < 1e-6]
    print(f"{case:<8}", ", ".join(f"{rule} {error:.0e}" for rule, error in errors.items()), " passes", passed[case])
assert passed["right"] == ["absolute", "by its largest", "or of all"]
assert passed["doubled"] == ["absolute"] and passed["noise"] == ["absolute", "or of all"]

# %% [markdown]
# ## 5 · At a kink, the difference is wrong and the gradient right
#
# relu(x) = max(x, 0) bends at 0. There a centred difference says 1/2, for every h; we define relu'(0) = 0, which is
# as good as any. Worse is l2(relu(x)), of which lesson 07 makes its keys: x is (K), and l2(y) brings y to length 1, as
# y / sqrt(Σ y² + 1e-12). From x = 0 it jumps to 1 within a few millionths: at h = 1e-5 the difference claims 5e4, where
# the gradient is 0 by relu'(0) = 0. Nothing is wrong with the code; the point is bad.
#
# How to know? Take h and 2h. On a smooth stretch they agree up to h²; across a kink they don't: discard the point,
# draw another. A point exactly *on* relu's kink deceives even that, so draw points at random, never at round numbers.


# %%
def slopes(f, x, h=1e-5):
    """The centred differences with h and with 2h."""
    return [(f(x + s) - f(x - s)) / (2 * s) for s in (h, 2 * h)]


relu = lambda x: max(x, 0.0)  # noqa: E731
key_entry = lambda x: l2_norm_forward(np.array([relu(x), 0.0]))[0][0]  # noqa: E731  K = 2, the other entry at 0
for what, f, x in (
    ("relu at 0", relu, 0.0),
    ("relu at 3e-6", relu, 3e-6),
    ("relu at 0.7", relu, 0.7),
    ("l2(relu) at 0", key_entry, 0.0),
):
    near, far = slopes(f, x)
    print(f"{what:<14} h: {near:<10.5g} 2h: {far:<10.5g} {'agree' if abs(near - far) < 1e-5 else 'disagree: discard'}")
assert np.allclose(slopes(relu, 0.0), 0.5) and np.isclose(slopes(relu, 0.7)[0], 1)
assert abs(slopes(key_entry, 0.0)[0] - 5e4) < 500 and slopes(key_entry, 0.0)[0] > 1.9 * slopes(key_entry, 0.0)[1]

# %% [markdown]
# ## 6 · At the initial parameters, a check proves little
#
# The model of lesson 02 (a `ModelConfig` that names no heads has no memory) starts with W_2 (D, F), the way out of its
# feed-forward network, and both gate matrices W (D, D) at zero. What feeds a zero matrix gets no gradient at all: the
# norms in front of the gates and the network, and W_g and W_u, which feed W_2. And zero equals minus zero, twice zero,
# and the zero of a wrong formula. So *jitter* first: add noise to every parameter, and check there.

# %%
config = ModelConfig(vocab_size=7, d_state=6, d_emb=5, d_ffn=7)
model = load_model(config, "numpy")
inputs, targets = rng.integers(0, 7, (2, 2, 5))  # (B, T) each
initial = init_params(config, seed=0, dtype=np.float64)
jittered = {name: value + 0.3 * rng.standard_normal(value.shape) for name, value in initial.items()}
silent = {}
for at, params in (("initial", initial), ("jittered", jittered)):
    grads = model.loss_and_grads(params, inputs, targets).grads
    silent[at] = [name for name, d in grads.items() if not d.any()]
    print(f"{at:<9} {len(silent[at])} of {len(grads)} gradients are exactly 0", *silent[at], sep="\n    ")
assert "layers.0.ffn.gate.weight" in silent["initial"] and not silent["jittered"]

# %% [markdown]
# ## 7 · Break it: a check must be able to fail
#
# A check that has never failed has not been checked. So plant the commonest bug of all, a sign, in each parameter's
# gradient in turn, and see that each is caught. At the initial parameters several are not.


# %%
def passes(params, grads, name, sign=1, h=1e-5, tolerance=1e-6):
    """Whether sign · grads[name] is the gradient of the mean loss by that parameter, along three random directions."""
    errors, scales = [], [max(np.abs(d).max() for d in grads.values()) / 1000]
    for u in rng.standard_normal((3, *params[name].shape)):
        u /= np.sqrt(np.sum(u**2))
        up, down = (model.loss_and_grads(params | {name: params[name] + s * u}, inputs, targets) for s in (h, -h))
        numeric = (up.loss - down.loss) / (2 * h)
        errors.append(abs(sign * np.sum(grads[name] * u) - numeric))
        scales.append(abs(numeric))
    return max(errors) < tolerance * max(scales)


for at, params in (("initial", initial), ("jittered", jittered)):
    grads = model.loss_and_grads(params, inputs, targets).grads
    assert all(passes(params, grads, name) for name in grads)
    let_through = [name for name in grads if passes(params, grads, name, sign=-1)]
    print(f"{at:<9} {len(grads)} right gradients pass, and {len(let_through)} of {len(grads)} with the wrong sign")
    assert let_through == silent[at]

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `draw_point` and `check` in `gpn_ref/gradcheck.py`. They jitter, take h and 2h, discard kinks, and make of the two
# (4 · near - far) / 3, where near is the difference with h and far that with 2h: their errors cancel but for a part
# of order h⁴. `python -m gpn_ref.gradcheck` shows every gradient of the package pass.
#
# Exercises, `lessons/exercises/ex04_how_to_trust_a_gradient.py`: centred differences entry by entry, the slope along
# a direction, and the error on its scale. Grade yourself: `python -m lessons.check 04`. Next: lesson 05, the backward
# pass of norm, gate and SwiGLU.
