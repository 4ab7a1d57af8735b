# %% [markdown]
# # 07 · A matrix that remembers
#
# | | |
# |---|---|
# | **You will be able to** | store vectors in a matrix, recall, correct and forget them, and say how many fit |
# | **You need** | lesson 02; the inner and the outer product of two vectors |
# | **Minutes** | 60, and 40 for the exercises |
# | **You will see** | memories that blur, a rule that mends them, and two orders of the same acts that disagree |
#
# So far the model has carried vectors from token to token. GPN+M also carries the matrices of H *heads*, M of shape
# (K, U) each. This lesson builds one head, mostly with K = U = 2, so that you can follow it on paper.

# %%
import numpy as np
from kit import show

from gpn_ref import PRESETS, init_params
from gpn_ref.figures import BLACK, BLUE, VERMILION, new_figure
from gpn_ref.reference.memory import delta_forward, write_forward

np.set_printoptions(precision=3, suppress=True)
assert_close = np.testing.assert_allclose

# %% [markdown]
# ## 1 · A matrix can store one vector under another
#
# A *key* k (K) says where, a *value* v (U) says what. Hebb's rule stores the pair by adding an outer product, (K, U):
#
#     M ← M + k ⊗ v            (k ⊗ v)_ij = k_i v_j
#     recalled = Mᵀ k          (U): row i of M, taken k_i times, and all rows added up
#
# With one pair, Mᵀk = (k·k) v. With two, Mᵀk₁ = (k₁·k₁) v₁ + (k₁·k₂) v₂. So keys of length 1 at right angles give back
# exactly what was stored. One-hot keys make a plain table, a value a row; other right angles, a table turned.

# %%
k1, k2 = np.array([0.6, 0.8]), np.array([0.8, -0.6])  # (K), at right angles
v1, v2 = np.array([1.0, 2.0]), np.array([-1.0, 3.0])  # (U)
memory = np.outer(k1, v1) + np.outer(k2, v2)  # (K, U)
print(memory, "recalls", memory.T @ k1, "for k1 and", memory.T @ k2, "for k2")
assert_close(memory.T @ k1, v1)
assert_close(memory.T @ k2, v2)

# %% [markdown]
# ## 2 · The delta rule writes only what is missing
#
# Hebb adds v whatever is there. So keys that overlap blur each other: if k₁·k₃ = 0.6, then k₁ recalls 0.6 v₃ too. And
# of two values under one key comes the sum. The *delta rule* first asks the memory, and stores the *error* alone:
#
#     M ← M + β k ⊗ (v - Mᵀ k)             β between 0 and 1, one number a head
#
# The error that k then finds is (1 - β k·k) times the old one. With k of length 1 and β = 1 it is 0: the
# new value *replaces* the old. Smaller β go part of the way. And none overshoots, as a key of length 2 would.


# %%
def write(memory, key, value, beta, decay=1.0):
    """memory (K, U), key (K), value (U), two numbers -> memory (K, U).  `decay` is for part 4."""
    error = value - memory.T @ key  # (U)
    return decay * memory + beta * np.outer(key, error)


k3, v3 = np.array([1.0, 0.0]), np.array([5.0, 5.0])
print("v1 under k1, then v3 under k3: k1 recalls", (np.outer(k1, v1) + np.outer(k3, v3)).T @ k1, "by Hebb's rule")
print("v1, then v2, under k1:  Hebb", (np.outer(k1, v1) + np.outer(k1, v2)).T @ k1, end="  ")
print("delta", write(np.outer(k1, v1), k1, v2, 1).T @ k1)
assert_close((np.outer(k1, v1) + np.outer(k3, v3)).T @ k1, v1 + 0.6 * v3)
assert_close(write(np.outer(k1, v1), k1, v2, 1).T @ k1, v2)
for length, beta in ((1, 0.5), (1, 0.9), (2, 0.9)):
    after = v2 - write(np.outer(k1, v1), length * k1, v2, beta).T @ (length * k1)
    ratio = after / (v2 - length * v1)  # of the error after the write and before
    print(f"length {length}, β {beta}: the error becomes {ratio[0]:.1f} times what it was")
    assert_close(ratio, 1 - beta * length**2)

# %% [markdown]
# ## 3 · K pairs fill a matrix
#
# The squared overlap of two random keys is 1 / K in the mean, so after n pairs Hebb's rule errs by (n - 1) / K of a
# value's square. M has K rows: it can hold the values of K independent keys exactly, and no more. The delta rule
# comes nearer to that. To see how near, we also take `pinv`, least squares: of all matrices the one that errs least.
# The model's keys have no negative entry (part 6). Such keys overlap all the time, and Hebb's rule drowns in it.


# %%
def errors(keys, values):
    """Mean square error of recall after 1, 2, … N pairs: keys (N, K), values (N, U) -> (N, 3), a column a rule."""
    hebb = delta = np.zeros((keys.shape[1], values.shape[1]))  # (K, U)
    found = []
    for n in range(1, len(keys) + 1):
        hebb = hebb + np.outer(keys[n - 1], values[n - 1])
        delta = write(delta, keys[n - 1], values[n - 1], beta=1)
        best = np.linalg.pinv(keys[:n]) @ values[:n]  # (K, n)(n, U) = (K, U)
        found.append([np.mean((keys[:n] @ M - values[:n]) ** 2) for M in (hebb, delta, best)])
    return np.array(found)


# %%
rng, K, rules = np.random.default_rng(0), 16, ("Hebb", "delta", "best of all")
drawn, values = rng.standard_normal((2, 50, 2 * K, K))  # (50, N, K), (50, N, U): fifty memories
figure, axes = new_figure(f"How far n pairs are missed by {K} × {K} matrices", columns=2, width=10)
for axis, x, keys in zip(axes[0], (drawn, np.maximum(drawn, 0)), ("of any sign", "never negative"), strict=True):
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    curves = np.mean([errors(*pairs) for pairs in zip(unit, values, strict=True)], axis=0)  # (N, 3)
    for rule, color, dash in zip(range(3), (VERMILION, BLUE, BLACK), ("-", "--", ":"), strict=True):
        axis.plot(np.arange(1, 2 * K + 1) / K, curves[:, rule], dash, color=color, label=rules[rule])
    axis.set(title=f"keys {keys}", xlabel="n / K", ylabel="error; a value's mean square is 1", ylim=(-0.05, 2.05))
    print(f"keys {keys}: error after K pairs", dict(zip(rules, curves[K - 1].round(2).tolist(), strict=True)))
    assert curves[K - 1, 0] > 1.5 * curves[K - 1, 1] and curves[K - 1, 2] < 1e-9 and curves[K, 2] > 1e-3
    assert curves[-1, 1] > 1 and (keys == "never negative" or abs(curves[K - 1, 0] - (K - 1) / K) < 0.1)
axes[0, 0].legend()
show(figure, "07_capacity")

# %% [markdown]
# ## 4 · Decay forgets, each head at its own speed
#
# A text goes on, and K pairs are few: after 2 K even the delta rule errs by more than 1, and a matrix of zeros would do
# better. What is old should go. So the whole of M fades at each step, before the write adds to it:
#
#     M_t = decay · M_{t-1} + β k ⊗ (v - M_{t-1}ᵀ k)             (K, U)            the paper's equation 10
#     decay = exp(log_decay)      log_decay = -exp(log_rate) softplus(a)           one number a head
#
# softplus(a) = ln(1 + eᵃ) > 0, so decay lies between 0 and 1; np.logaddexp(0, a) is ln(e⁰ + eᵃ), and never overflows.
# log_rate is a parameter, drawn so that heads are born fast and slow; a is made of the current state, so each token can
# change the pace. What no key touches is worth decayⁿ after n steps, and 1/e after -1 / log_decay of them.

# %%
params = init_params(PRESETS["mini"], seed=0)
log_decay = -np.exp(params["write.log_rate"]) * np.logaddexp(0, params["write.decay.bias"])  # (H); a is its bias here
print("1/e lives of the 8 heads of a newborn model, in tokens:", np.sort(-1 / log_decay).round(1))
assert -1 / log_decay.max() > 10 * (-1 / log_decay.min())
for decay in (0.5, 0.99):  # ten writes under k2, at right angles to k1
    memory = np.outer(k1, v1)
    for _ in range(10):
        memory = write(memory, k2, v2, beta=0.9, decay=decay)
    print(f"decay {decay:<4}: ten tokens later k1 recalls", memory.T @ k1, f"= {decay**10:.3f} v1")
    assert_close(memory.T @ k1, decay**10 * v1)

# %% [markdown]
# ## 5 · Decay first, or error first: two rules that the same words describe
#
# The paper takes the error against the memory *before* its decay. Gated DeltaNet decays, then takes the error against
# what is left. Put a key of length 1 to both results, with r = M_{t-1}ᵀk (U):
#
#     the paper           M_tᵀ k = (decay - β) r + β v
#     Gated DeltaNet      M_tᵀ k = decay (1 - β) r + β v
#
# The second factor is never negative. The first is, where decay < β: then what was stored comes back with its sign
# turned. The paper's rule takes away β r, the old value as it *was*, but only decay · r is still there. The two agree
# where decay = 1, β = 0 or r = 0: they differ by -β (1 - decay) k ⊗ r (K, U).


# %%
def decay_first(memory, key, value, beta, decay):
    return write(decay * memory, key, value, beta)


def of_the_package(decay_first, *numbers):
    """What delta_forward makes of one text and one head: B = H = 1."""
    return delta_forward(*(np.asarray(x)[None, None] for x in numbers), decay_first)[0][0, 0]  # (K, U)


memory = np.outer(k1, v1)
difference = write(memory, k1, v2, 0.9, 0.2) - decay_first(memory, k1, v2, 0.9, 0.2)
assert_close(difference, -0.9 * (1 - 0.2) * np.outer(k1, memory.T @ k1))
for key, beta, decay in ((k1, 0.9, 1.0), (k1, 0.0, 0.2), (k2, 0.9, 0.2)):
    assert_close(write(memory, key, v2, beta, decay), decay_first(memory, key, v2, beta, decay))
for rule, order in ((write, False), (decay_first, True)):  # both stand in the package
    ours = rule(memory, k1, v2, 0.9, 0.2)
    print(f"{rule.__name__:<12} recalls {ours.T @ k1} under k1")
    assert_close(ours, of_the_package(order, memory, k1, v2, 0.9, 0.2))

# %%
figure, axes = new_figure("The value 1, written under one key at each step", columns=2, width=10)
for axis, head, decay, beta in ((axes[0, 0], "fast", 0.2, 0.9), (axes[0, 1], "slow", 0.98, 0.5)):
    for rule, factor, style in ((write, decay - beta, "o-"), (decay_first, decay * (1 - beta), "s--")):
        recalled, memory = [0.0], np.zeros((2, 1))
        for _ in range(12):
            memory = rule(memory, k1, np.ones(1), beta, decay)
            recalled.append((memory.T @ k1)[0])
        name = {write: "the paper", decay_first: "Gated DeltaNet"}[rule]
        axis.plot(recalled, style, color=VERMILION if rule is write else BLUE, label=f"{name}: factor {factor:.2f}")
        assert abs(recalled[-1] - beta / (1 - factor)) < 0.02  # where r = factor · r + β
    axis.set(title=f"a {head} head: decay {decay}, β {beta}", xlabel="writes", ylabel="recalled", ylim=(0, 1.1))
    axis.legend(loc="lower right")
show(figure, "07_two_orders")

# %% [markdown]
# ## 6 · The key is the state before, the value the state now: "what followed this?"
#
# With n = rms(s^g_t), n' = rms(s^g_{t-1}) by one norm and m = rms(s^g_t) by another, (D) each, every head has
#
#     k = l2(relu(W_k n' + b_k))   (K)       v = W_v n   (U)       β = σ(W_β n),  a = W_a n + b_a       numbers
#     q = l2(relu(W_q m + b_q))    (K)       r = rms(Mᵀ q of all heads, side by side)                   (H·U)
#     read = W_o (silu(W_rg m) ⊙ r)          added to gate ⊙ s^g + FFN: that is s^p_t                   (D)
#
# Only the key is of the *previous* state. So a write files each state under the one that it followed, and the read,
# after it, asks: *what followed a state like this one?* That is what a predictor wants to know. A read before the write
# would miss, at the second a of "aa", that a follows a. l2(x) = x / sqrt(Σ x² + 1e-12) gives length 1, for part 2's
# sake. Where no entry is positive the key is 0, and nothing is written: so at the first step (n' = 0) of a new model,
# whose b_k is 0. In a trained one that key is l2(relu(b_k)).


# %%
def address(x):
    positive = np.maximum(x, 0)
    return positive / np.sqrt(np.sum(positive**2) + 1e-12)


def listen(text, late=False, read_first=False):
    """The letter that is recalled at each letter of the text; · where that is nothing. States are one-hot, (K)."""
    memory, previous, answers = np.zeros((3, 3)), np.zeros(3), ""
    for state in np.eye(3)[["abc".index(letter) for letter in text]]:
        written = write(memory, address(state if late else previous), state, beta=1.0)
        found = (memory if read_first else written).T @ address(state)
        answers += "abc"[found.argmax()] if found.any() else "·"
        memory, previous = written, state
    return answers


print("abcab recalls", listen("abcab"), "  aa recalls", listen("aa"), "  read first:", listen("aa", read_first=True))
assert listen("abcab") == "···bc" and listen("aa") == "·a" and listen("aa", read_first=True) == "··"

# %% [markdown]
# ## 7 · Break it
#
# The bug that everybody writes takes the key from the state at hand. All shapes fit, a gradient check passes, and the
# model still learns. But its memory now says at each token what the token *is*. Two checks see it: a text whose answer
# is known; and a key that must not move when the current state does, here with the package's `write_forward`.

# %%
print("the key of the wrong time: abcab recalls", listen("abcab", late=True))
assert listen("abcab", late=True) == "abcab" != listen("abcab")
config, D = PRESETS["mini"], PRESETS["mini"].d_state
before, now, other = rng.standard_normal((3, 1, D))  # (B, D) each
empty = np.zeros((1, config.n_heads, config.d_key, config.d_value))  # (B, H, K, U)
key_of = lambda previous, grounded: write_forward(params, config, previous, grounded, empty)[1].delta.key  # noqa: E731
right = np.array_equal(key_of(before, now), key_of(before, other))
crossed = np.array_equal(key_of(now, before), key_of(other, before))
print(f"the key stays when the current state moves: {right}; with the states crossed: {crossed}")
assert right and not crossed

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `gpn_ref/reference/memory.py`: `recall`, `outer`, `address_forward`, `delta_forward`, `decay_forward`, put together
# for B texts and H heads by `write_forward` and `read_forward`, which also norms and gates what it recalls.
# `ModelConfig(decay_first=True)`: the other order. `eigenvalue_along_key` in `gpn_ref/inspect/heads.py`: both factors.
#
# Exercises, `lessons/exercises/ex07_matrix_memory.py`: the write, what n writes leave, and the loop with the right
# key. Grade yourself: `python -m lessons.check 07`. Next: lesson 08, the gradient of all this.
