# %% [markdown]
# # 06 · Backpropagation through time
#
# | | |
# |---|---|
# | **You will be able to** | send a loss back through a loop of any length, in one window or in many |
# | **You need** | lessons 02 and 05 |
# | **Minutes** | 75, and 45 for the exercises |
# | **You will see** | gradients that vanish and one that explodes, windows that chain exactly, and what a cut costs |
#
# The model is one step, done again and again with the same parameters. Unroll the loop and it is a very deep network
# whose layers share their weights. So there is nothing new to derive, and three things to get right: add up, pass on,
# go in reverse. The model here has no memory. Its state is s^p and s^g: `predicted` and `grounded`, (B, D) each.

# %%
import numpy as np
from kit import show

from gpn_ref import ModelConfig, init_params, load_model
from gpn_ref.figures import new_figure, styles
from gpn_ref.reference.decode import decode_backward, decode_forward
from gpn_ref.reference.gpn import initial_state, step_backward, step_forward
from gpn_ref.reference.ops import cross_entropy_backward, cross_entropy_forward, sigmoid

rng = np.random.default_rng(6)

# %% [markdown]
# ## 1 · What serves at every step gets a gradient from every step
#
# The smallest loop: s_t = a s_{t-1} + x_t, all single numbers, s_0 = 0, and a loss at every step, here Σ_t s_t. Going
# back, d_s_t has two sources: the loss at s_t (1 here; none at s_0), and the next step, if any, which used s_t.
#
#     d_s_t = 1 + a d_s_{t+1}        d_s_0 = a d_s_1        d_a = Σ_t d_s_t s_{t-1}
#
# On paper: a = 1/2 and x = (1, 2, 3) give s = (1, 2.5, 4.25). Back from the end, d_s is 1, 1.5, 1.75, and
# d_a = 1 · 2.5 + 1.5 · 1 + 1.75 · 0 = 4.

# %%
a, x, s = 0.5, [1.0, 2.0, 3.0], [0.0]
for t in range(3):
    s.append(a * s[-1] + x[t])
d_a, d_s = 0.0, 0.0
for t in reversed(range(3)):
    d_s += 1.0  # the loss of this step
    d_a += d_s * s[t]  # s[t] is the state before it
    d_s *= a  # on to the step before
print("s", s[1:], "  d_a", d_a, "  d_s_0", d_s)
assert d_a == 4.0 and d_s == 0.875  # Σ s_t = 1 + (a + 2) + (a² + 2a + 3), and its derivative is 2a + 3

# %% [markdown]
# ## 2 · The whole model goes back in the same loop
#
# Put `step_forward` (ground, predict) for the line s_t = …, and `step_backward` for the line that undoes it: predict,
# then ground, with the pieces of lesson 05. The decoder (eq. 6) waits for nobody, so it does all steps at once, and
# hands each s^p_t its own gradient, d_predicted (B, T, D). Forward keeps a cache a step; backward uses the last first.

# %%
config = ModelConfig(vocab_size=20, d_state=24, d_emb=12, d_ffn=32)
model = load_model(config, "numpy")
B, T = 4, 64
tokens = rng.integers(0, 20, (B, T + 1))
inputs, targets = tokens[:, :-1], tokens[:, 1:]  # (B, T) each


def parameters(bias, noise=0.0):
    """Initial values, with `bias` in both gates, and noise in the matrices that start at zero."""
    params, random = init_params(config, 0, np.float64), np.random.default_rng(1)
    for name in ("ground.gate", "layers.0.gate"):
        params[f"{name}.bias"] += bias  # (D)
        params[f"{name}.weight"] += noise * random.standard_normal((24, 24))  # W (D, D)
    params["layers.0.ffn.out.weight"] += noise * random.standard_normal((24, 32))  # W_2 (D, F)
    return params


# %%
def bptt(params, inputs, targets, state, d_state, forget_decoder=False):
    """inputs, targets (B, T) -> the mean loss, grads by name, the final state, d_state of the initial state."""
    caches, predicted = [], []
    for t in range(inputs.shape[1]):
        state, cache = step_forward(params, config, inputs[:, t], state)
        caches.append(cache)
        predicted.append(state.predicted)
    logits, decode_cache = decode_forward(params, np.stack(predicted, axis=1))  # (B, T, V)
    nll, nll_cache = cross_entropy_forward(logits, targets)  # (B, T)
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    d_logits = cross_entropy_backward(np.full(nll.shape, 1 / nll.size), nll_cache)
    d_predicted = decode_backward(d_logits, decode_cache, grads)  # (B, T, D)
    if forget_decoder:
        d_predicted[:, :-1] = 0  # a bug, for part 7
    for t in reversed(range(inputs.shape[1])):
        d_state = d_state._replace(predicted=d_state.predicted + d_predicted[:, t])
        d_state = step_backward(d_state, caches[t], config, grads)  # adds to grads what this step says
    return nll.mean(), grads, state, d_state


# %%
jittered, zero = parameters(bias=2, noise=0.1), initial_state(config, B, np.float64)
loss, grads, _, _ = bptt(jittered, inputs, targets, zero, zero)
out = model.loss_and_grads(jittered, inputs, targets)
print(f"loss {loss:.6f}; the package's {out.loss:.6f}")
assert all(np.allclose(grads[name], out.grads[name], rtol=0, atol=1e-14) for name in grads)

# %% [markdown]
# ## 3 · What comes back through t steps has passed t gates, twice
#
# How much does s^p_0 move s^p_t? A step is s^g = gate_f ⊙ s^p + …, then s^p = gate_p ⊙ s^g + FFN(s^g). While W_2 and
# the gates' matrices W are zero, the FFN is silent and a gate is σ(b): the derivative (D, D) has (σ(b)²)^t on its
# diagonal, 0 elsewhere. At the initial b = 0 that is 4^-t, a millionth after ten steps: the gradient *vanishes*. Such
# fixed gates never make it grow. But a gate with a W is itself moved by the state, a second way that adds to the first
# (lesson 05), and a loud FFN is a third: with either the gradient can grow, and then it *explodes*.
# To measure: `loss_and_grads` goes back from scale · loss + Σ d_state ⊙ final state. With scale 0 and a unit vector for
# d_state, a row of the derivative comes back; with D equal sequences, all D rows at once.


# %%
def sensitivity(params, t, D=config.d_state):
    """The largest factor by which a small move of s^p_0 comes out in s^p_t."""
    d_state = initial_state(config, D, np.float64)._replace(predicted=np.eye(D))
    first, rest = (np.repeat(part, D, axis=0) for part in (inputs[:1, :8], inputs[:1, 8 : 8 + t]))  # (D, 8), (D, t)
    begun = model.forward(params, first).state  # not the zero state
    out = model.loss_and_grads(params, rest, rest, begun, d_state, scale=0.0)  # at scale 0 targets do not matter
    return np.linalg.norm(out.d_state.predicted, 2)  # of (D, D)


# %%
named = {"0.98": parameters(bias=4), "0.88": parameters(bias=2), "0.50": parameters(bias=0)}
W_2 = "layers.0.ffn.out.weight"  # (D, F): silent in all but the last
named["0.88, W of sd 2"] = parameters(bias=2, noise=2.0) | {W_2: np.zeros((24, 32))}
named["0.50, loud FFN"] = parameters(bias=0) | {W_2: 4 * rng.standard_normal((24, 32))}
figure, axes = new_figure("How much a state moves the state t steps later")
lengths, looks, sizes = 2 ** np.arange(6), dict(zip(named, styles(), strict=False)), {}
for gates, params in named.items():
    sizes[gates] = np.array([sensitivity(params, t) for t in lengths])
    axes.semilogy(lengths, sizes[gates], label=f"gates {gates}", **looks[gates])
    print(f"gates {gates:<16}", *(f"{size:8.0e}" for size in sizes[gates]))
axes.set(xlabel="steps t", ylabel="largest factor from s^p_0 to s^p_t", ylim=(1e-14, 1e6))
axes.legend(loc="lower left")
show(figure, "06_vanish_and_explode")
assert np.allclose(sizes["0.98"], sigmoid(4) ** (2 * lengths)) and np.allclose(sizes["0.50"] * 4.0**lengths, 1)
assert sizes["0.50, loud FFN"][-1] > 1e3 and sizes["0.88, W of sd 2"][-1] > 10

# %% [markdown]
# ## 4 · Windows chain exactly: the state goes forward, its gradient comes back
#
# Cut a window that is too long for the machine into parts. Forward: each part starts in the state that the part
# before left. Backward, from the last part to the first: the gradient of the state in which a part started, its
# `d_state`, flows into the final state of the part before. The loss is a mean over T tokens and a part has T_i of
# them, so its own mean counts T_i / T: its `scale`. All gradients add up to those of one window, but for rounding.


# %%
def chained(params, length, cut=False, reset=False):
    """The gradients over windows of `length` tokens, T in all."""
    bound, states = model.bind(params), [None]  # bound: the parameters, checked once; None: the zero state
    for start in range(0, T, length):
        states.append(None if reset else bound.forward(inputs[:, start : start + length], states[-1]).state)
    grads, d_state = dict.fromkeys(params, 0.0), None
    for i in reversed(range(T // length)):
        part = slice(i * length, (i + 1) * length)
        out = bound.loss_and_grads(inputs[:, part], targets[:, part], states[i], d_state, scale=length / T)
        grads = {name: grads[name] + out.grads[name] for name in grads}
        d_state = None if cut else out.d_state
    return grads


flat = lambda grads: np.concatenate([grads[name].ravel() for name in sorted(grads)])  # noqa: E731  all in one vector
distance = lambda grads, true: np.linalg.norm(flat(grads) - flat(true)) / np.linalg.norm(flat(true))  # noqa: E731
print(f"8 windows of 8, chained, differ from one of 64 by {distance(chained(jittered, 8), grads):.0e} of it")
assert distance(chained(jittered, 8), grads) < 1e-12

# %% [markdown]
# ## 5 · Truncated: the state goes on, and its gradient is cut
#
# Much training does not chain: a window starts in the state before it, and takes that as given. This is *truncated*
# backpropagation through time. The loss is the true one; the gradient lacks what a token did to losses beyond its
# window. How much that is depends on how long the gates hold: in windows of 8, a twelfth with gates of 0.5, and more
# than half with 0.98. A longer window does not mend a cut, it makes fewer of them. Each still takes from the few tokens
# before it: where a window is longer than the gates hold, the error falls about as the root of the number of cuts.

# %%
lengths, lost = 2 ** np.arange(7), {}
figure, axes = new_figure(f"What truncation loses of the gradient of {T} tokens")
for gates in ("0.98", "0.88", "0.50"):
    true = model.loss_and_grads(named[gates], inputs, targets).grads
    lost[gates] = [distance(chained(named[gates], length, cut=True), true) for length in lengths]
    axes.semilogx(lengths, lost[gates], base=2, label=f"gates {gates}", **looks[gates])
    print(f"gates {gates}", *(f"{n}: {e:.2f}" for n, e in zip(lengths, lost[gates], strict=True)), sep="  ")
axes.set(xlabel="tokens in a window", ylabel="relative error of the gradient", ylim=(0, 0.8))
axes.set_xticks(lengths, lengths)
axes.legend()
show(figure, "06_truncation")
assert lost["0.50"][3] < 0.1 and lost["0.98"][3] > 0.5 and not any(errors[-1] for errors in lost.values())
assert all(0.8 < lost[gates][3] / lost[gates][5] / 7**0.5 < 1.2 for gates in ("0.88", "0.50"))  # 7 cuts, and 1

# %% [markdown]
# ## 6 · Memory: a cache a step, unless windows are chained
#
# A backward pass needs what its forward pass saw: one window keeps T caches. Chained windows keep a state each, and
# the caches of one window at a time, which the backward pass makes anew. A forward pass more, and √T windows of √T
# tokens keep √T states and √T caches instead of T.


# %%
def floats(cache, seen):
    """How many numbers a cache holds, but for arrays that are in `seen` already."""
    if isinstance(cache, np.ndarray):
        new = id(cache) not in seen
        seen.add(id(cache))
        return cache.size * new
    return sum(floats(part, seen) for part in cache or ())


_, cache = step_forward(jittered, config, inputs[:, 0], zero)
per_step = floats(cache, {id(value) for value in jittered.values()})  # the parameters are there anyway
in_eights = 8 * per_step + 8 * 2 * B * config.d_state
print(f"floats kept: one window of {T}: {T * per_step:,}; windows of 8: {in_eights:,}")
assert in_eights < T * per_step / 5

# %% [markdown]
# ## 7 · Break it
#
# Two bugs that everybody writes, and neither crashes. The first takes the loss of the last step alone back through
# time: `d_predicted` of the others is never added. The second forgets the state between windows, and each starts from
# zero. Both models train, on less than you think. One direction (lesson 04) through all parameters tells.


# %%
def agrees(grads, h=1e-5):
    """Whether these are the gradients of the mean loss over all T tokens, along a random direction of length 1."""
    u = {name: rng.standard_normal(value.shape) for name, value in jittered.items()}
    length = np.linalg.norm(flat(u))
    up, down = ({name: jittered[name] + s / length * u[name] for name in u} for s in (h, -h))
    rise = model.loss_and_grads(up, inputs, targets).loss - model.loss_and_grads(down, inputs, targets).loss
    return bool(abs(flat(grads) @ flat(u) / length - rise / (2 * h)) < 1e-6 * np.linalg.norm(flat(grads)))


last_only = bptt(jittered, inputs, targets, zero, zero, forget_decoder=True)[1]
verdicts = [agrees(given) for given in (grads, chained(jittered, 8), last_only, chained(jittered, 8, True, reset=True))]
print("one window: {}   chained: {}   the last loss only: {}   the state forgotten: {}".format(*verdicts))
assert verdicts == [True, True, False, False]

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `step_backward`, `window_backward` and `loss_and_grads` in `gpn_ref/reference/gpn.py`: part 2, and a memory beside
# it. `Learner` in `gpn_ref/training/learner.py` truncates where `bptt` in the training's configuration says so, and
# averages as in part 4.
#
# Exercises, `lessons/exercises/ex06_through_time.py`: the loop of part 1 for vectors and batches, the same in
# windows, and what gates leave of a state. Grade yourself: `python -m lessons.check 06`. Next: lesson 07, a memory.
