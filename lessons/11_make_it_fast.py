# %% [markdown]
# # 11 · Make it fast
#
# | | |
# |---|---|
# | **You will be able to** | find where the time goes, say on paper where it must go, and get there in checked steps |
# | **You need** | lessons 06, 07 and 10 |
# | **Minutes** | 75, and 45 for the exercises |
# | **You will see** | the roof over every product, one model at five speeds, and three bugs that only fast code has |
#
# The reference is written to be read. Here its forward pass gets faster, and what it computes stays the same: each
# version is first compared with it, in float64, and only then measured.

# %%
import math
from time import process_time

import numpy as np
from kit import show
from numba import get_num_threads, njit, prange
from threadpoolctl import threadpool_limits

from gpn_ref import PRESETS, init_params, load_model
from gpn_ref.figures import BLACK, VERMILION, new_figure
from gpn_ref.reference import decode, ops, predict
from gpn_ref.reference.memory import outer, recall, write_forward

# %% [markdown]
# ## 1 · Measure first: the time is not where the arithmetic is
#
# A clock on the wall also counts what others do on this machine. So we take this process's own processor time, let one
# thread multiply, and keep the best of some rounds, in which all that is compared takes turns. The arithmetic is
# counted on paper: a multiply-add for each entry of a matrix and each text, and some passes over M (H, K, U). Of two
# pieces, the write has less arithmetic, and gets through it far more slowly. Part 5 will mend that.

# %%
threadpool_limits(1, "blas")
config, B, T, rng = PRESETS["mini"], 16, 64, np.random.default_rng(0)  # the sizes of the model that ships
D, F, H, HK, HU = config.d_state, config.d_ffn, config.n_heads, 8 * config.d_key, 8 * config.d_value
params = {name: x + rng.normal(0, 0.02, x.shape) for name, x in init_params(config, 0, np.float64).items()}
tokens, reference = rng.integers(0, config.vocab_size, (B, T)), load_model(config, "numpy").bind(params)


def best(*works, rounds=3):
    """Seconds of processor time that each work takes."""
    found = [math.inf] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            began = process_time()
            work()
            found[i] = min(found[i], process_time() - began)
    return np.array(found)


# %%
_, (_, s, M) = reference.step(tokens[:, 0])  # s^g (B, D), M (B, H, K, U)
ffn = lambda: [predict.ffn_forward(params, "layers.0.ffn", s) for _ in range(T)]  # noqa: E731
write = lambda: [write_forward(params, config, s, s, M) for _ in range(T)]  # noqa: E731
counts, seconds = B * np.array([3 * F * D, (HK + HU + 2 * H) * D + 3 * M[0].size]), best(ffn, write) / T
for name, count, each in zip(("FFN  ", "write"), counts, seconds, strict=True):
    print(f"{name} {count:,} multiply-adds, {1e3 * each:.2f} milliseconds: {count / each / 1e9:.1f} billion a second")
assert counts[0] > counts[1] and counts[0] / seconds[0] > 1.2 * counts[1] / seconds[1]

# %% [markdown]
# ## 2 · On paper: a skinny product waits for its matrix
#
# W (n, D) times B vectors takes 2 n D B operations, multiplies and adds, and reads 4 n D bytes of W in float32: that is
# B / 2 operations a byte. A core does only so many operations a second, and gets only so many bytes:
#
#     operations a second ≤ min(peak, bandwidth · B / 2)                the *roofline*
#
# Where B is small, memory is the limit: more texts should cost nothing. With lesson 10's B = 1, a weight is read for
# one use. (From B = 2 on NumPy takes another way, on our machine five times as long: a roof is not what you get.)

# %%
W, sizes = rng.standard_normal((4096, 4096), np.float32), 2 ** np.arange(8)  # 64 MB, more than caches hold; B
square, products = W[:1024, :1024].copy(), [lambda b=b: W[:b] @ W.T for b in sizes]
peaking, reading, *each = best(lambda: square @ square, lambda: W.ravel() @ W.ravel(), *products)
roof = np.minimum(2 * 1024**3 / peaking, W.nbytes / reading * sizes / 2) / 1e9
reached = 2 * W.size * sizes / each / 1e9
print("milliseconds for B = 1, 2, 4, … 128:", *np.round(1e3 * np.array(each), 1))
assert reached[6] > 2 * reached[0]  # B 64 and B 1
figure, axes = new_figure("W X for a W of 64 MB and B vectors: one thread, float32")
axes.loglog(sizes, roof, color=BLACK, label="roof")
axes.loglog(sizes, reached, "o--", color=VERMILION, label="NumPy's product")
axes.set(xlabel="B, vectors that share W", ylabel="billion operations a second", xticks=sizes, xticklabels=sizes)
axes.legend()
show(figure, "11_roof")

# %% [markdown]
# ## 3 · Out of the loop with all that does not wait
#
# Only states wait for each other. W_fuse rms(emb[x_t]) (B, D) needs tokens alone: one product before the loop does it
# for all T steps. The decoder reads s^p, and nothing waits for it: one product behind the loop. And no gradient of a
# matrix, d_W = Σ_t d_y_tᵀ x_t (n, D), is needed before the way back ends: adding at every step reads and writes all of
# d_W T times. Keep d_y (T, B, n) and x (T, B, D), and it is one product, too.

# %%
d_y, x = rng.standard_normal((16, 8, 4096)), rng.standard_normal((16, 8, 1024))  # (T, B, n), (T, B, D)
at_every_step = lambda: sum(d_y[t].T @ x[t] for t in range(16))  # noqa: E731
at_the_end = lambda: d_y.reshape(128, -1).T @ x.reshape(128, -1)  # noqa: E731
np.testing.assert_allclose(at_the_end(), at_every_step(), rtol=0, atol=1e-10)
slow, fast = best(at_every_step, at_the_end)
print(f"one product for d_W is {slow / fast:.1f} times as fast as one at every step")
assert slow > 1.5 * fast


def loop(p, step, carried=None):
    """-> logits (B, T, V), and no caches.  step: s^g_t (B, D), what is carried -> s^p_t (B, D), what is carried on."""
    normed, _ = ops.rms_norm_forward(p["embedding.weight"][tokens], p["ground.norm.weight"])  # (B, T, E)
    seen, predicted = normed @ p["ground.proj.weight"].T, [np.zeros((B, D), normed.dtype)]
    gate = [p[f"ground.gate.{name}"] for name in ("norm.weight", "weight", "bias")]
    for t in range(T):
        s = ops.gate_forward(predicted[t], *gate)[0] * predicted[t] + seen[:, t]
        now, carried = step(s, carried)
        predicted.append(now)
    return decode.decode_forward(p, np.stack(predicted[1:], axis=1))[0]


def plain_step(s, carried):
    previous, memory = carried or (0 * s, 0 * M)  # s^g_{t-1} and M_{t-1}
    memory, _ = write_forward(params, config, previous, s, memory)
    return predict.predict_forward(params, config, 0, s, memory)[0], (s, memory)


# %% [markdown]
# ## 4 · One product for all that looks at one state
#
# Gate, FFN, query, read gate, value, β and decay look at s^g_t; and so does the *next* step's key. So stack the nine
# matrices on each other: one product, W (n, D), n = D + 2F + 2HK + 2HU + 2H. Each looks through its norm's scale w (D),
# but W (w ⊙ x̂) is (W diag(w)) x̂: folded into W's columns, it leaves x̂ = s^g / √(mean(s^g²) + 10⁻⁶) (B, D), the same
# for all. New weights must be folded anew, and in training their gradients unfolded.

# %%
right = reference.forward(tokens).logits  # what every version must give
assert np.allclose(loop(params, plain_step), right, rtol=0, atol=1e-10)
LOOKS = {"layers.0.gate": [""], "layers.0.ffn": ["gate.", "value."], "layers.0.read": ["query.", "gate."]}
LOOKS |= {"write": ["value.", "beta.", "decay.", "key."]}  # whose norm -> who looks through it
address = lambda pre, bias: ops.l2_norm_forward(np.maximum(pre + bias, 0).reshape(B, H, -1))[0]  # noqa: E731


def in_numpy(memory, key, error, beta, decay, query, next_key):
    """M ← decay · M + β k ⊗ error (B, H, K, U), in place -> Mᵀ query, Mᵀ next_key, (B, H, U) each."""
    memory[...] = decay[..., None, None] * memory + outer(beta[..., None] * key, error)
    return recall(memory, query), recall(memory, next_key)


# %%
def stacked_step(p, memory_step):
    parts = [p[f"{at}.{who}weight"] * p[f"{at}.norm.weight"] for at in LOOKS for who in LOOKS[at]]
    W, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])[:-1]
    nothing, first_key = np.zeros_like(M, W.dtype), address(np.zeros((B, HK), W.dtype), p["write.key.bias"])

    def step(s, carried):  # carried: k of s^g_{t-1}, what M_{t-1} recalls for it, M_{t-1}
        key, expected, memory = carried or (first_key, nothing[:, :, 0], nothing.copy())
        normed, _ = ops.rms_norm_forward(s, np.ones(D, s.dtype))
        to_gate, to_ffn, ffn_value, to_query, to_read, value, beta, pre, to_key = np.split(normed @ W.T, ends, axis=1)
        query, next_key = address(to_query, p["layers.0.read.query.bias"]), address(to_key, p["write.key.bias"])
        decay = np.exp(-np.exp(p["write.log_rate"]) * np.logaddexp(0, pre + p["write.decay.bias"]))
        error = value.reshape(B, H, -1) - expected
        recalled, expected = memory_step(memory, key, error, ops.sigmoid(beta), decay, query, next_key)
        recalled, _ = ops.rms_norm_forward(recalled.reshape(B, HU), p["layers.0.read.out_norm.weight"])
        read = ops.swiglu_forward(to_read, recalled)[0] @ p["layers.0.read.out.weight"].T
        ffn = ops.swiglu_forward(to_ffn, ffn_value)[0] @ p["layers.0.ffn.out.weight"].T
        return ops.sigmoid(to_gate + p["layers.0.gate.bias"]) * s + ffn + read, (next_key, expected, memory)

    return step


assert np.allclose(loop(params, stacked_step(params, in_numpy)), right, rtol=0, atol=1e-10)

# %% [markdown]
# ## 5 · Loops for a compiler: each number comes once
#
# NumPy makes a new array of B H K U numbers for decay · M, for k ⊗ error, for their sum, and reads M twice more. Numba
# compiles plain loops, which do all that while a number is at hand: one pass over M, and no array. The next key is
# known by then, so they also say what M recalls for it. u is innermost: neighbours in memory are fetched together.


# %%
@njit
def in_one_pass(memory, key, error, beta, decay, query, next_key):
    recalled, expected = np.zeros_like(error), np.zeros_like(error)
    for b, h in np.ndindex(beta.shape):
        for j in range(key.shape[2]):
            row, k = memory[b, h, j], beta[b, h] * key[b, h, j]
            for u in range(len(row)):
                m = decay[b, h] * row[u] + k * error[b, h, u]
                row[u] = m
                recalled[b, h, u] += query[b, h, j] * m
                expected[b, h, u] += next_key[b, h, j] * m
    return recalled, expected


# %%
single = {name: x.astype(np.float32) for name, x in params.items()}
versions = {"reference": lambda: reference.forward(tokens).logits, "hoisted": lambda: loop(params, plain_step)}
ways = (("stacked", params, in_numpy), ("compiled", params, in_one_pass), ("float32", single, in_one_pass))
versions |= {name: lambda p=p, way=way: loop(p, stacked_step(p, way)) for name, p, way in ways}
assert np.allclose(versions["compiled"](), right, rtol=0, atol=1e-10)
assert np.allclose(versions["float32"](), right, rtol=0, atol=1e-4)
seconds = best(*versions.values())
for name, each in zip(versions, seconds, strict=True):
    print(f"{name:<10} {1e3 * each:6.1f} milliseconds, {seconds[0] / each:.1f} times as fast")
step = [rng.random((B, H, *shape)) for shape in ((32,), (32,), (), (), (32,), (32,))]  # K = U = 32
slow, fast = best(lambda: in_numpy(M, *step), lambda: in_one_pass(M, *step), rounds=20)
print(f"the memory's step alone: {slow / fast:.1f} times as fast")
assert seconds[0] > 1.3 * seconds[-1] and slow > 1.5 * fast

# %% [markdown]
# ## 6 · Break it
#
# Three bugs that only fast code has. `prange` shares a loop out to threads, and `+=` is a read, an add and a write: two
# threads that do it to one number lose additions (a *race*). To Numba a literal 1 is an int64 and 1.0 a float64, and
# either makes float64 of a float32 (NumPy does not): twice the bytes, and nobody is told. `fastmath=True` lets the
# compiler assume that no NaN comes, and a check for one says "never". A comparison, the types, and a NaN catch them.


# %%
@njit(parallel=True)
def tally(letters, rows):
    """How often each letter comes: piece p of the text adds to row rows[p] of the counts."""
    counts = np.zeros((8, 4), np.int64)
    for piece in prange(8):
        for i in range(piece, len(letters), 8):
            counts[rows[piece], letters[i]] += 1
    return counts.sum(axis=0)


letters = rng.integers(0, 4, 500_000)
wrong = lambda rows: np.any(tally(letters, rows) != np.bincount(letters))  # noqa: E731
own, common = any(wrong(np.arange(8)) for _ in range(20)), any(wrong(np.zeros(8, int)) for _ in range(500))
print("counts get lost with a row for each piece:", own, " with one row for all:", common)
assert not own and (common or get_num_threads() == 1)
ONE, bad = np.float32(1), np.array([1.0, np.nan])
sigmoids = njit(lambda x: 1 / (1 + math.exp(-x))), njit(lambda x: ONE / (ONE + math.exp(-x)))
kinds = [(f(ONE), str(f.nopython_signatures[0].return_type))[1] for f in sigmoids]
has_nan = lambda x: math.isnan(x[0]) or math.isnan(x[1])  # noqa: E731
careful, careless = njit(has_nan)(bad), njit(has_nan, fastmath=True)(bad)
print("1 / (1 + exp(-x)) with literals and without:", *kinds, " a NaN is seen:", careful, " with fastmath:", careless)
assert kinds == ["float64", "float32"] and careful and not careless

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `gpn_ref/fast/cpu/` and its README: `window.py` is the loop, there and back, `engine.py` what a window does at once,
# `memory.py` the one pass, `products.py` part 2's with few vectors. `python -m gpn_ref.fast.cpu.tricks` measures each.
#
# Exercises, `lessons/exercises/ex11_make_it_fast.py`: a hoisted loop, a stack, and write and read in one pass. Grade
# yourself: `python -m lessons.check 11`. Next: lesson 12, the same on a GPU.
