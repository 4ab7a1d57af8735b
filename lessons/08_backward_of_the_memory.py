# %% [markdown]
# # 08 · The backward of the memory
#
# | | |
# |---|---|
# | **You will be able to** | send a gradient through the reads and writes of a memory, by hand, in few gigabytes |
# | **You need** | lessons 04, 06 and 07 |
# | **Minutes** | 75, and 45 for the exercises |
# | **You will see** | one matrix that turns memory and gradient, 4 GB that become 0.18, and three bugs caught |
#
# Lesson 07's memory M (K, U) is written and read at every step. Its gradient d_M (K, U) goes back the same way, step by
# step, through two functions of one line and of six. You can check both on paper.

# %%
import numpy as np
from kit import show

from gpn_ref import PRESETS
from gpn_ref.figures import BLUE, VERMILION, new_figure
from gpn_ref.reference import memory as finished
from gpn_ref.reference.ops import sigmoid

np.set_printoptions(precision=3, suppress=True)
assert_close = np.testing.assert_allclose


def differences(f, *arguments, by, h=1e-6):
    """The slope of the number f(*arguments) by each entry of argument number `by`, as lesson 04 measures it."""
    x = np.asarray(arguments[by], float)
    at = lambda moved: f(*arguments[:by], moved, *arguments[by + 1 :])  # noqa: E731
    moves = h * np.eye(x.size).reshape(-1, *x.shape)
    return np.array([(at(x + move) - at(x - move)) / (2 * h) for move in moves]).reshape(x.shape)


# %% [markdown]
# ## 1 · A read sends back an outer product
#
# The read is recalled = Mᵀ q (U), or recalled_u = Σ_k M_ku q_k. So M_ku moves recalled_u alone, q_k times as far, and
# q_k moves every recalled_u, M_ku times as far. With d_recalled (U) given:
#
#     d_memory = q ⊗ d_recalled     (K, U)     d_query = M d_recalled     (K): recall went through Mᵀ, this through M
#
# In the model d_recalled comes from read = W_o (silu(W_rg m) ⊙ rms(recalled, all heads)), by lesson 05: back through
# W_o, then SwiGLU, whose value is the normed recall, then the norm. m gets two gradients: by W_rg, and by the query.

# %%
read_backward = lambda d_recalled, memory, query: (np.outer(query, d_recalled), memory @ d_recalled)  # noqa: E731
memory, query, d_recalled = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([0.6, 0.8]), np.array([1.0, -2.0])
d_memory, d_query = read_backward(d_recalled, memory, query)
print("read: d_memory", d_memory.tolist(), "d_query", d_query)
for i, d in enumerate((d_memory, d_query)):
    assert_close(d, differences(lambda M, q: M.T @ q @ d_recalled, memory, query, by=i), atol=1e-8)

# %% [markdown]
# ## 2 · A write sends back five gradients, and the key's has two terms
#
# The write is three lines. Undo them from the last to the first, with G = d_written (K, U), and add where a name is
# used twice: M is, and so is k, once to say where the error goes, and once to ask what is there.
#
#     written = decay · M + β k ⊗ error  (K, U)    d_error = β Gᵀ k (U)    d_β = kᵀ G error    d_decay = Σ G ⊙ M
#     error = v - recalled               (U)       d_value = d_error       d_recalled = -d_error
#     recalled = Mᵀ k                    (U)       d_memory = decay · G + k ⊗ d_recalled       (K, U)
#                                                  d_key = β G error + M d_recalled            (K)
#
# Do it on paper with the numbers below: recalled (0.6, 1.4), error (1, -1), Gᵀk (2.2, 0), d_error (1.1, 0).


# %%
def write(memory, key, value, beta, decay):
    return decay * memory + beta * np.outer(key, value - memory.T @ key)  # (K, U)


def write_backward(d_written, memory, key, value, beta, decay):
    """d_written (K, U) -> d_memory (K, U), d_key (K), d_value (U), d_beta, d_decay."""
    error = value - memory.T @ key  # (U)
    d_memory, d_decay = decay * d_written, np.sum(d_written * memory)
    d_beta, d_key = key @ d_written @ error, beta * d_written @ error
    d_error = beta * d_written.T @ key  # (U); error = value - recalled
    d_value, d_recalled = d_error, -d_error
    return d_memory + np.outer(key, d_recalled), d_key + memory @ d_recalled, d_value, d_beta, d_decay


# %%
key, value, beta, decay = np.array([0.6, 0.8]), np.array([1.6, 0.4]), 0.5, 0.5
point, G = (memory, key, value, beta, decay), np.array([[1.0, 0.0], [2.0, 0.0]])
by_hand = write_backward(G, *point)
for i, name in enumerate(("memory", "key", "value", "beta", "decay")):
    numeric = differences(lambda *x: np.sum(G * write(*x)), *point, by=i)
    print(f"d_{name:<7}{np.round(by_hand[i], 3).tolist()!s:<33} by differences {np.round(numeric, 3).tolist()}")
    assert_close(by_hand[i], numeric, atol=1e-8)
A = decay * np.eye(2) - beta * np.outer(key, key)  # (K, K)
assert_close(write(*point), A @ memory + beta * np.outer(key, value))
assert_close(by_hand[0], A @ G)

# %% [markdown]
# So a write is M_t = A M_{t-1} + β k ⊗ v with A = decay · I - β k ⊗ k, (K, K), and d_memory is A G (it is Aᵀ G, and A
# is its own transpose). **The same matrix turns the memory on its way, and the gradient on its way back.** What a head
# has forgotten, it can't learn from either. For a key of length 1 both get decay across it, and decay - β along it.
#
# ## 3 · Around the write: in front of the key stands a norm, behind the decay two exponentials
#
# A key is k = l2(relu(z)), z (K). l2 takes the length away, so a gradient along the key would change nothing: it is
# taken out, and the rest divided by the length. relu lets pass where z > 0: there [z > 0] is 1, and else 0.
#
#     d_z = [z > 0] ⊙ (d_k - k (k · d_k)) / length          (K); length = sqrt(Σ relu(z)² + 1e-12)
#
# relu'(0) = 0 is no trifle. A text starts from s^g = 0, and a new model has b_k = 0: then z = 0 throughout, and the
# length is 1e-6. Write `>=` for `>`, and the gradient of that step is multiplied by a million.
#
# decay = exp(log_decay), log_decay = -exp(log_rate) softplus(a), one number a head each. exp' is exp, and softplus'
# is sigmoid. All steps of all texts share log_rate (H) and the bias in a (H): their gradients are sums.
#
#     d_log_decay = d_decay decay     d_log_rate = d_log_decay log_decay     d_a = -d_log_decay exp(log_rate) sigmoid(a)


# %%
def address_backward(d_address, z, passes=lambda z: z > 0):
    length = np.sqrt(np.sum(np.maximum(z, 0) ** 2) + 1e-12)
    address = np.maximum(z, 0) / length
    return passes(z) * (d_address - address * (address @ d_address)) / length  # (K)


z, d_address = np.array([3.0, 4.0, -2.0]), np.array([1.0, 0.0, 7.0])  # (K), K = 3
d_z, at_zero = (address_backward(d_address, at) for at in (z, 0 * z))
blown_up = address_backward(d_address, 0 * z, passes=lambda z: z >= 0)
print("z", z, " d_z", d_z, "  z = 0: d_z", at_zero, " with >= instead", blown_up)
_, cache = finished.address_forward(z[None], np.eye(3), np.zeros(3), n_heads=1)  # W = 1, b = 0
assert_close(d_z, finished.address_backward(d_address[None, None], cache)[0][0])
assert abs(d_z @ z) < 1e-12 and not at_zero.any() and np.allclose(blown_up, 1e6 * d_address)
log_rate, a = 0.7, -1.2
decay_of = lambda log_rate, a: np.exp(-np.exp(log_rate) * np.logaddexp(0, a))  # noqa: E731
d_log_decay = decay_of(log_rate, a)  # for d_decay = 1
d_log_rate, d_a = d_log_decay * np.log(decay_of(log_rate, a)), -d_log_decay * np.exp(log_rate) * sigmoid(a)
print(f"decay {decay_of(log_rate, a):.3f}  d_log_rate {d_log_rate:.3f}  d_a {d_a:.3f}")
assert_close((d_log_rate, d_a), [differences(decay_of, log_rate, a, by=i) for i in (0, 1)], rtol=1e-6)

# %% [markdown]
# ## 4 · Along a text, d_M adds up what all later reads want
#
# M_t is used twice: by the read of step t, and by the write of step t + 1, which makes M_{t+1} of it. So its gradient
# is part 1's d_memory plus the one that part 2 sends back. From here, `text` is the five things that T steps write and
# ask: keys (T, K), of the state before each, values (T, U), betas (T), decays (T), queries (T, K).


# %%
def run(memory, text):
    """M_0 (K, U) -> [M_0, M_1, … M_T]."""
    memories = [memory]
    for key, value, beta, decay in zip(*text[:4], strict=True):  # all but the queries
        memories.append(write(memories[-1], key, value, beta, decay))
    return memories


def backward(d_memory, d_reads, memories, text, write_backward=write_backward, read_backward=read_backward):
    """d_memory (K, U) of M_T, d_reads (T, U) of M_tᵀ q_t -> d_memory of M_0, gradients shaped as the text."""
    d_text = tuple(np.zeros_like(x) for x in text)
    for t in reversed(range(len(d_reads))):
        key, value, beta, decay, query = (x[t] for x in text)
        d_here, d_query = read_backward(d_reads[t], memories[t + 1], query)
        d_memory, *d_written = write_backward(d_memory + d_here, memories[t], key, value, beta, decay)
        for d, d_at_t in zip(d_text, (*d_written, d_query), strict=True):
            d[t] = d_at_t
    return d_memory, d_text


# %%
rng, T = np.random.default_rng(8), 12
keys, values, queries, d_reads = rng.standard_normal((4, T, 2))  # K = U = 2
text, start = (keys / 2, values, *rng.uniform(0.3, 0.9, (2, T)), queries), rng.standard_normal((2, 2))
reads = lambda M, *text: [M_t.T @ q for M_t, q in zip(run(M, text)[1:], text[-1], strict=True)]  # noqa: E731  T of (U)
loss = lambda M, *text: np.sum(d_reads * reads(M, *text))  # noqa: E731
slopes = [differences(loss, start, *text, by=i) for i in range(6)]
d_start, d_text = backward(0.0, d_reads, run(start, text), text)
print(f"d_M_0 {d_start.round(3).tolist()}, by differences {slopes[0].round(3).tolist()}")
assert all(np.allclose(d, slope, atol=1e-7) for d, slope in zip((d_start, *d_text), slopes, strict=True))

# %% [markdown]
# ## 5 · Keep √T memories, and make the others again
#
# The loop needs every M_t, H · K · U numbers each: at 130M parameters 15 · 128 · 256, and 2048 of them fill 4 GB. So
# going forward keep every n-th. Going back, take n steps at a time, and make their memories again from the one kept
# before them: T / n + n at once, and fewest where n = √T. It costs a second forward pass, and no bit of the result.


# %%
def backward_by_segments(kept, n, d_reads, text):
    """kept: [M_0, M_n, M_2n, …] -> d_memory of M_0, gradients shaped as the text."""
    d_memory, d_text = 0.0, tuple(np.zeros_like(x) for x in text)
    for i in reversed(range(len(kept))):
        part = slice(i * n, (i + 1) * n)
        segment = [x[part] for x in text]
        d_memory, d_segment = backward(d_memory, d_reads[part], run(kept[i], segment), segment)
        for d, d_part in zip(d_text, d_segment, strict=True):
            d[part] = d_part
    return d_memory, d_text


d_again, d_text_again = backward_by_segments(run(start, text)[:-1:5], 5, d_reads, text)  # M_0, M_5, M_10 are kept
assert all(np.array_equal(x, y) for x, y in zip((d_start, *d_text), (d_again, *d_text_again), strict=True))

# %%
paper, window, n = PRESETS["paper-1layer"], 2048, np.arange(1, 2049)
each = paper.n_heads * paper.d_key * paper.d_value  # numbers of one M_t
floats = (-(-window // n) + n) * each  # those kept, window / n rounded up, and those made again
figure, axes = new_figure(f"Memories at hand in the backward pass: 130M parameters, T {window}, B 1")
axes.loglog(n, 4e-9 * floats, color=BLUE, marker="o", markerfacecolor=VERMILION, markevery=[45])
axes.annotate(f"n = 46: {4e-9 * floats[45]:.2f} GB", (46, 4e-9 * floats[45]), (46, 0.13), ha="center")
axes.set(xlabel="n: a memory is kept every n steps", ylabel="GB in float32", ylim=(0.1, 10), xlim=(1, 2048))
show(figure, "08_segments")
print(f"every M_t: {window * each:,} floats;  n = 46: {floats[45]:,} floats, {4e-9 * floats[45]:.3f} GB")
assert window * each == 1_006_632_960 and floats[45] == floats.min() == 44_728_320

# %% [markdown]
# ## 6 · Break it
#
# Three bugs that everybody writes: a key without its second term; the backward of the other order of decay and error;
# a read that sends the memory nothing. Each leaves some gradients right, so check them all, one by one.


# %%
def one_term(G, memory, *rest):
    d_memory, d_key, d_value, *others = write_backward(G, memory, *rest)
    return d_memory, d_key + memory @ d_value, d_value, *others  # d_recalled = -d_value: takes M d_recalled out again


def other_order(G, *point):
    """The forward pass is the paper's, the backward pass that of Gated DeltaNet; B = H = 1."""
    _, cache = finished.delta_forward(*(np.asarray(x)[None, None] for x in point), decay_first=False)
    return [d[0, 0] for d in finished.delta_backward(G[None, None], cache, decay_first=True)]


def wrong_ones(**planted):
    d_start, d_text = backward(0.0, d_reads, run(start, text), text, **planted)
    checks = zip(("M_0", "key", "value", "β", "decay", "query"), (d_start, *d_text), slopes, strict=True)
    return " ".join(name for name, d, slope in checks if not np.allclose(d, slope, atol=1e-7)) or "nothing"


mute = {"read_backward": lambda d_recalled, memory, query: (0 * memory, memory @ d_recalled)}
found = [wrong_ones(**bug) for bug in ({}, {"write_backward": one_term}, {"write_backward": other_order}, mute)]
print("wrong if nothing is planted: {}; one term: {}; other order: {}; mute read: {}".format(*found))
assert found == ["nothing", "key", "M_0 key value β decay", "M_0 key value β decay"]

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `delta_backward`, `address_backward`, `decay_backward`, `read_backward` in `gpn_ref/reference/memory.py`, with axes B
# and H. `step_backward` in `gpn_ref/reference/gpn.py` adds up d_M; `gpn_ref/fast/cpu/engine.py` keeps √T memories.
#
# Exercises, `lessons/exercises/ex08_backward_of_the_memory.py`: the backward of the other order, of the decay, and of
# the first memory. Grade yourself: `python -m lessons.check 08`. Next: lesson 09, training.
