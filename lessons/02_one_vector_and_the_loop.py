# %% [markdown]
# # 02 · One vector and the loop: ground, predict, decode
#
# | | |
# |---|---|
# | **You will be able to** | compute a step of the model on paper, and write all of it but the memory in NumPy |
# | **You need** | lesson 01; matrix times vector |
# | **Minutes** | 60, and 40 for the exercises |
# | **You will see** | your loop equal the package's in 12 digits, gates that keep and gates that forget, and ln V |
#
# The model is one vector s, of D numbers, that is first predicted, then corrected by the token that comes, and so on.
# This lesson takes three equations of the paper (arXiv 2605.10643) and makes the model of them. The memory comes in
# lesson 07.

# %%
from dataclasses import replace

import numpy as np
from kit import show

from gpn_ref import PRESETS, init_params, load_model
from gpn_ref.figures import new_figure, styles
from gpn_ref.generate import token_probabilities
from gpn_ref.measures import cross_entropy

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## 1 · Ground: the prediction, gated, and what was seen (equation 4)
#
# Two small functions come again and again. `rms` scales a vector to a mean square of 1, and each entry by a learned
# weight. A gate is one number between 0 and 1 for each entry of the vector, and that is what a `sigmoid` gives.
# Then, with s^p_{t-1} (`predicted`, shape (D)) and the embedding of the token x_t, shape (E):
#
#     gate_f = sigmoid(W rms(s^p_{t-1}) + b)                                (D), W (D, D), b (D)
#     s^g_t  = gate_f ⊙ s^p_{t-1} + W_fuse rms(emb[x_t])                    (D), W_fuse (D, E): `grounded`
#
# ⊙ multiplies entry by entry; the p of s^p and the g of s^g are names, not powers. A formula is for one vector, a
# column. The code keeps those of B texts, a *batch*, as rows of an array (B, D): so W x becomes x @ W.T, W (out, in).
#
# On paper, with D = E = 2, W = 0, all weights of the norms 1 and W_fuse the identity: sigmoid(ln 3) = 3/4 and
# sigmoid(-ln 3) = 1/4, so the first entry keeps three quarters and the second one quarter. The embedding (0.7, 0.1) has
# the mean square 0.25; its rms is (1.4, 0.2). All names are those of the package.


# %%
def rms(x, weight):
    """x / sqrt(mean(x²) + 1e-6) ⊙ weight.  x (..., n), weight (n) -> (..., n)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gate(params, name, x):
    """sigmoid(W rms(x) + b).  x (B, D) -> (B, D)."""
    normed = rms(x, params[f"{name}.norm.weight"])
    return sigmoid(normed @ params[f"{name}.weight"].T + params[f"{name}.bias"])


def ground(params, predicted, tokens):
    """Equation 4.  predicted (B, D), tokens (B) -> grounded (B, D)."""
    seen = rms(params["embedding.weight"][tokens], params["ground.norm.weight"])  # (B, E)
    return gate(params, "ground.gate", predicted) * predicted + seen @ params["ground.proj.weight"].T


zero, one, identity = np.zeros((2, 2)), np.ones(2), np.eye(2)
paper = {"embedding.weight": np.array([[0.7, 0.1], [0.1, 0.7], [-0.5, 0.5]])}  # (V, E), V = 3
paper |= {"ground.norm.weight": one, "ground.proj.weight": identity}
paper |= {"ground.gate.norm.weight": one, "ground.gate.weight": zero, "ground.gate.bias": np.log([3, 1 / 3])}
predicted = np.array([[2.0, -2.0]])  # (B, D), B = 1
grounded = ground(paper, predicted, np.array([0]))
print("3/4 · 2 + 1.4 and 1/4 · -2 + 0.2:", grounded)
assert np.allclose(grounded, [[2.9, -0.3]], atol=1e-4)

# %% [markdown]
# ## 2 · Predict: what stays, and what changes (equation 7)
#
# The next vector is the grounded one, gated again, plus what a small network with F hidden numbers adds:
#
#     s^p_t = gate_p ⊙ s^g_t + W_2 (silu(W_g z) ⊙ W_u z),  z = rms(s^g_t)   (D); W_g, W_u (F, D), W_2 (D, F)
#
# silu(x) = x · sigmoid(x): about x where x is large, about 0 where it is very negative. So one half of the network,
# W_g z, opens and shuts the other. On paper, F = 1: W_g sees the first entry, W_u the second, and W_2 writes to the
# second. The gate is 1/2 for both. Then the first entry is 1.45. Work out the second: z is (1.4067, -0.1455).


# %%
def predict(params, grounded):
    """Equation 7.  grounded (B, D) -> predicted (B, D)."""
    z = rms(grounded, params["layers.0.ffn.norm.weight"])  # (B, D)
    opens, value = z @ params["layers.0.ffn.gate.weight"].T, z @ params["layers.0.ffn.value.weight"].T  # (B, F)
    added = (opens * sigmoid(opens) * value) @ params["layers.0.ffn.out.weight"].T  # (B, D)
    return gate(params, "layers.0.gate", grounded) * grounded + added


paper |= {"layers.0.gate.norm.weight": one, "layers.0.gate.weight": zero, "layers.0.gate.bias": np.zeros(2)}
paper |= {"layers.0.ffn.norm.weight": one, "layers.0.ffn.gate.weight": np.array([[1.0, 0.0]])}  # (F, D)
paper |= {"layers.0.ffn.value.weight": np.array([[0.0, 1.0]]), "layers.0.ffn.out.weight": np.array([[0.0], [1.0]])}
predicted = predict(paper, grounded)
print("s^p_t:", predicted)
assert np.allclose(predicted, [[1.45, -0.15 - 0.1644]], atol=1e-4)

# %% [markdown]
# ## 3 · Decode: how much does the prediction look like each token? (equation 6)
#
#     logits = emb (W_dec rms(s^p_t))                                       (V); W_dec (E, D), emb (V, E)
#
# A score for every token, made with the same embedding that reads tokens in: the score is large where the prediction
# points along the token's embedding. On paper, W_dec is the identity. `token_probabilities` of lesson 00 makes
# probabilities of the scores.


# %%
def decode(params, predicted):
    """Equation 6.  predicted (..., D) -> logits (..., V)."""
    return rms(predicted, params["decode.norm.weight"]) @ params["decode.proj.weight"].T @ params["embedding.weight"].T


paper |= {"decode.norm.weight": one, "decode.proj.weight": identity}
logits = decode(paper, predicted)
print("logits", logits, " probabilities of the three tokens", token_probabilities(logits[0]))
assert np.allclose(logits, [[0.9375, -0.0716, -0.8409]], atol=1e-4) and logits.argmax() == 0

# %% [markdown]
# ## 4 · The loop is ten lines, and state goes in and out
#
# Ground, predict, decode, and on to the next token. That is the whole model, GPN in the paper. `forward` takes the
# state in which the text so far left it, and returns the one in which it leaves it. So two windows equal one, if the
# state is handed on. We compare with the package, at parameters with no zeros in them and in float64.


# %%
def forward(params, inputs, predicted):
    """inputs (B, T): T tokens of each text; predicted (B, D): s^p so far -> logits (B, T, V), predicted at the end."""
    logits = []
    for t in range(inputs.shape[1]):
        grounded = ground(params, predicted, inputs[:, t])
        predicted = predict(params, grounded)
        logits.append(decode(params, predicted))
    return np.stack(logits, axis=1), predicted


# %%
config = replace(PRESETS["nano"], n_heads=0, d_key=0, d_value=0)  # without memory
V, D, B, T = config.vocab_size, config.d_state, 2, 12
rng = np.random.default_rng(0)
fresh = init_params(config, seed=0, dtype=np.float64)
params = {name: value + 0.3 * rng.standard_normal(value.shape) for name, value in fresh.items()}
inputs, start = rng.integers(0, V, (B, T)), np.zeros((B, D))
ours, last = forward(params, inputs, start)
package = load_model(config, backend="numpy").forward(params, inputs)
first_logits, halfway = forward(params, inputs[:, :5], start)
second_logits, end = forward(params, inputs[:, 5:], halfway)
print(f"largest difference: to the package {np.abs(ours - package.logits).max():.0e}")
print(f"of two windows to one {np.abs(np.append(first_logits, second_logits, axis=1) - ours).max():.0e}")
same = lambda a, b: np.allclose(a, b, rtol=0, atol=1e-12)  # noqa: E731
assert same(ours, package.logits) and same(last, package.state.predicted)
assert same(np.append(first_logits, second_logits, axis=1), ours) and same(end, last)

# %% [markdown]
# ## 5 · A gate of 0 forgets, a gate of 1 keeps
#
# How long does the vector remember its first token? We read two texts that differ in it alone, and watch the
# difference of their s^p, shape (D). In a fresh model W is 0 and the network silent (W_2 is 0), so that both gates
# multiply the difference at every token, and nothing else does: (gate_f · gate_p)^n of it is left after n tokens.
# Fresh gates are 1/2; then a quarter is left after one token. To carry something over 100 tokens, gates must learn to
# stand close to 1. The memory of lesson 07 is another way to carry it.

# %%
figure, axes = new_figure("What is left of the first token, by the gates")
pair = np.repeat(rng.integers(0, V, (1, 31)), 2, axis=0)
pair[:, 0] = 3, 4  # (2, T): they differ in the first token
for value, style in zip((0.1, 0.5, 0.9, 0.99), styles(), strict=False):
    bias = np.full(D, np.log(value / (1 - value)))  # its sigmoid is the value
    gated = fresh | {"ground.gate.bias": bias, "layers.0.gate.bias": bias}
    states, predicted = [], np.zeros((2, D))
    for t in range(pair.shape[1]):
        predicted = forward(gated, pair[:, t : t + 1], predicted)[1]
        states.append(predicted)
    left = np.linalg.norm(np.diff(states, axis=1)[:, 0], axis=-1)  # (T)
    left /= left[0]
    axes.semilogy(left, label=f"both gates {value}", markevery=5, **style)
    print(f"both gates {value}: {left[1]:.4f} is left after one token, {left[5]:.1e} after five")
    assert np.allclose(left, value ** (2.0 * np.arange(31)), atol=1e-12)
axes.set(xlabel="tokens read since", ylabel="difference of the states, as a share of the first", ylim=(1e-9, 2))
axes.legend()
show(figure, "02_gates")

# %% [markdown]
# ## 6 · From the zero state, and before training, the loss is ln V
#
# Every text starts from s^p = 0. The zero vector decodes to V scores of 0: all tokens alike, a loss of exactly ln V.
# A fresh model, whose embedding is small and whose network is silent, is never far from that. A first loss that is not
# about ln V tells of a bug before a minute of training is spent. (`cross_entropy` is -ln p, from the logits; lesson 03
# opens it.)

# %%
targets = rng.integers(0, V, (B, T))  # any will do
at_zero = cross_entropy(decode(fresh, np.zeros((1, D))), [7])
untrained = cross_entropy(forward(fresh, inputs, start)[0], targets).mean()
print(f"ln {V} = {np.log(V):.4f}; the zero state {at_zero[0]:.4f}; a fresh model {untrained:.4f} nats a token")
assert np.isclose(at_zero[0], np.log(V), rtol=1e-12) and abs(untrained - np.log(V)) < 0.05

# %% [markdown]
# ## 7 · Break it
#
# Two bugs that shapes and a first loss do not show. *Predict first, ground last*: then logits_t is made before x_t is
# read, from the zero state at first, and with our targets each is asked for a token too far. (The published program
# runs in this order. Its targets are a place earlier too, so there it is no bug, but one term more: x_1, scored from
# the zero state, costs exactly ln V.) *Forget the state between windows*: every window begins as if nothing had been.
# One check against the package catches both.


# %%
def ground_last(params, inputs, predicted):
    logits, grounded = [], np.zeros_like(predicted)
    for t in range(inputs.shape[1]):
        predicted = predict(params, grounded)
        logits.append(decode(params, predicted))
        grounded = ground(params, predicted, inputs[:, t])
    return np.stack(logits, axis=1)


late = ground_last(params, inputs, start)
forgetful = np.append(first_logits, forward(params, inputs[:, 5:], start)[0], axis=1)
for name, logits in {"right": ours, "ground last": late, "state forgotten": forgetful}.items():
    agrees = np.isclose(logits, package.logits, rtol=0, atol=1e-12).all(axis=(0, 2))  # (T)
    print(f"{name:<16} shape {logits.shape}, agrees with the package at {agrees.sum():2} of {T} tokens")
    assert agrees.all() == (name == "right")
assert same(late[:, 1:], ours[:, :-1]) and not late[:, 0].any()  # one place late; and at first all scores are 0
assert same(forgetful[:, :5], ours[:, :5])  # right up to the border

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# One equation a file: `ground_forward` in `gpn_ref/reference/ground.py`, `predict_forward` in
# `gpn_ref/reference/predict.py`, `decode_forward` in `gpn_ref/reference/decode.py`; the loop is `window_forward` in
# `gpn_ref/reference/gpn.py`. `gpn_ref/parameters.py` has every name with its shape and its first value.
#
# Exercises, `lessons/exercises/ex02_one_vector_and_the_loop.py`: ground, predict, and the loop. Grade yourself:
# `python -m lessons.check 02`. Next: lesson 03, softmax and cross entropy, and the first gradient.
