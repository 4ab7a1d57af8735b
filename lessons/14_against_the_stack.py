# %% [markdown]
# # 14 · Against the stack
#
# | | |
# |---|---|
# | **You will be able to** | write attention, size models for a fair comparison, and say what a table shows |
# | **You need** | lessons 07, 09 and 13 |
# | **Minutes** | 60, and 40 for the exercises |
# | **You will see** | two ways to look up a key, what a second layer buys, a table, and three ways to rig it |
#
# The paper's claim is about depth: one layer that steps through a text, against stacks of ten and twelve. This lesson
# builds what is in such a stack, as far as it is new to you, and then reads the table of a full run.

# %%
import json
from itertools import combinations
from time import perf_counter

import numpy as np
from kit import show

from gpn_ref import TransformerConfig, init_params, load_model
from gpn_ref.baselines.gated_deltanet import memory_forward
from gpn_ref.baselines.transformer import mix_forward
from gpn_ref.figures import new_figure, styles
from gpn_ref.files import DATA
from gpn_ref.parameters import count_params
from gpn_ref.reproduction.findings import compare
from gpn_ref.sizes import baseline_like, choose_model, deeper, without_memory

np.set_printoptions(precision=2, suppress=True)

# %% [markdown]
# ## 1 · Attention looks up a key too, and keeps every one of them
#
# A *Transformer* keeps the key and the value of each token. A query is compared with all keys so far, and gets the mean
# of their values, weighted by a softmax:
#
#     attention_t = Σ_{j ≤ t} w_tj v_j,    w_t = softmax over j ≤ t of (q_t · k_j / √K)       (U), (T)
#
# A memory's read is such a sum too (lesson 13); only the weights differ. Below, three tokens write v₁ under k₁, v₂
# under k₂, v₃ under k₁. Asked for k₁, the memory returns v₃, which replaced v₁. Attention returns the mean of v₁ and
# v₃: it forgets nothing and replaces nothing. To tell the later one it needs positions: Transformer++ turns queries and
# keys by them. And to find one key it needs long queries: their length is learned, and here it is given.


# %%
def attention(query, key, value):
    """query, key (T, K), value (T, U) -> the mean of the values so far, weighted by the softmax: (T, U)."""
    scores = query @ key.T / np.sqrt(key.shape[1])  # (T, T)
    scores[np.triu_indices(len(scores), 1)] = -np.inf  # what is to come gets no weight
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ value


def memory(query, key, value):
    """The same for a memory with β = decay = 1, by the package: what each read returns, after each write."""
    query, key, value = (part[None, :, None] for part in (query, key, value))  # (B, T, H, ·), B = H = 1
    beta = decay = np.ones(key.shape[:3])  # (B, T, H)
    empty = np.zeros((1, 1, key.shape[-1], value.shape[-1]))  # (B, H, K, U)
    return memory_forward(empty, query, key, value, beta, decay)[0][0, :, 0]


# %%
k1, k2 = np.array([0.6, 0.8]), np.array([0.8, -0.6])  # (K), at right angles
key, query = np.stack([k1, k2, k1]), np.stack([k1, k1, k1])  # (T, K)
value = np.array([[1.0, 2.0], [-1.0, 3.0], [5.0, 1.0]])  # (T, U)
attended, read = attention(20 * query, key, value), memory(query, key, value)  # long queries: the softmax is sharp
print("at the last token attention returns", attended[-1], "and the memory", read[-1])
assert np.allclose(attended[-1], (value[0] + value[2]) / 2, atol=1e-5) and np.allclose(read[-1], value[2])
assert np.allclose(attended, mix_forward(*(x[None, None] for x in (20 * query, key, value)))[0][0, 0])
n, K, errors = 64, 16, []
keys, values = np.random.default_rng(0).standard_normal((2, n, K))
keys /= np.linalg.norm(keys, axis=1, keepdims=True)  # n pairs; then one of them is asked for, each in turn
for look, c in ((attention, 1), (attention, 200), (memory, 1)):  # c is the length of the queries
    returned = np.array([look(c * np.tile(asked, (n, 1)), keys, values)[-1] for asked in keys])  # (n, U)
    errors.append(np.mean((returned - values) ** 2))
print("error: attention {:.2f}, long queries {:.2f}, memory {:.2f};".format(*errors), f"{2 * n * K} floats and {K * K}")
assert errors[1] < 0.01 < 0.9 < errors[0] < errors[2]

# %% [markdown]
# ## 2 · At one count of parameters, what is carried differs by up to 288 times
#
# A fair comparison gives each model as many parameters. A step multiplies by nearly all of them once, so it is about
# as much work, too. What is carried from token to token is another matter. A Transformer of N layers carries 2 N d
# floats *a token*. GPN+M carries 2 D + H · K · U in all, whatever its depth; GDN a memory a layer, and the last three
# queries, keys and values. All of these are as large as the model of lesson 00, and so the deeper, the narrower.

# %%
reference = choose_model("mini", "gpn+m", None, vocab_size=295)
deep = {f"{kind}-deep": baseline_like(kind, reference) for kind in ("transformer", "gdn")}
flat = {f"{kind}-1": baseline_like(kind, reference, 1) for kind in ("gdn", "transformer")}
gpn = {"gpn+m-1": reference, "gpn+m-2": deeper(reference, 2), "gpn": without_memory(reference)}
configs = deep | gpn | flat  # by the names of the table in part 5
models = {name: load_model(config, "numpy").bind(init_params(config)) for name, config in configs.items()}
state = {name: bound.forward(np.zeros((1, 64), int)).state for name, bound in models.items()}  # after 64 tokens
floats = {name: sum(part.size for part in carried) for name, carried in state.items()}
for name, config in configs.items():
    print(f"{name:<17}{count_params(config):>8,} parameters, {floats[name]:>6,} floats   {config.sizes()}")
    assert abs(count_params(config) / count_params(reference) - 1) < 0.001
assert floats["transformer-deep"] == 64 * 24 * 48 == 288 * floats["gpn"] and floats["gpn+m-1"] == 2 * 128 + 8 * 32 * 32

# %% [markdown]
# ## 3 · What the second layer buys: the token before
#
# "What followed this?" needs keys that know the token *before* (lesson 07). In a first layer of attention a key is
# made of its own token alone: asked at an a, it finds the a's, and not what came behind them. In a second layer a
# token has looked at its neighbours (by position, part 1), and its key can be that of the one before. GPN+M has this
# in one layer: its key comes from s^g_{t-1}. So has Gated DeltaNet, *GDN*: its keys are a convolution of the last 4
# tokens. The rest you know: each layer has a memory as in lesson 07, decay first, written from the layer below.


# %%
def found(look, text, late):
    """The letter that is found at the last letter of the text, with keys `late` letters late. Letters are one-hot."""
    letters = np.eye(3)[["abc".index(letter) for letter in text]]  # (T, K)
    keys = np.concatenate([np.zeros((late, 3)), letters])[: len(text)]
    return "abc"[look(50 * letters, keys, letters)[-1].argmax()]


for late, whose in ((0, "its own token"), (1, "the token before")):
    letters = [found(look, "abca", late) for look in (attention, memory)]
    print(f"abca, keys made of {whose}: attention finds {letters[0]}, a memory {letters[1]}")
    assert letters == ["ab"[late]] * 2

# %% [markdown]
# ## 4 · What depth costs: waiting
#
# A layer waits for the one below: in a stack for 4 products with weights, one after the other. A stack computes all
# tokens of a layer at once, so a window takes it 4 N waits, however long; the small steps of GDN's memory come on top.
# GPN+M takes 1 + 2 N waits *a token*, T (1 + 2 N) a window: one for ground, two a layer (lesson 11's stack, and what
# comes out of it). So stacks train well on wide machines, and the flat model writes with less waiting.

# %%
milliseconds = {}
for name, window, token in (("transformer-deep", 48, 48), ("gdn-deep", 40, 40), ("gpn+m-1", 3 * 64, 3)):
    times, carried = [perf_counter()], state[name]
    for _ in range(40):
        _, carried = models[name].step([0], carried)
        times.append(perf_counter())
    milliseconds[name] = 1e3 * min(np.diff(times))
    print(f"{name:<17} {window:>3} waits for 64 tokens, {token:>2} for one more: {milliseconds[name]:.1f} milliseconds")
assert milliseconds["transformer-deep"] > 1.5 * milliseconds["gpn+m-1"]

# %% [markdown]
# ## 5 · The table: eight models, three seeds, 1.2 million tokens each
#
# `python -m gpn_ref.reproduce` made it: each model with the best of four learning rates, on the same stories in the
# same order. *Last words* are told by the story alone; .25 is a guess among its things. Each mark is a seed.

# %%
rows = json.loads((DATA / "reproduce" / "table.json").read_text(encoding="utf-8"))["rows"]


def seeds(row, metric, corpus="stories"):
    """One number for each seed that finished."""
    return [x for x in rows[row]["measured"][corpus][metric]["seeds"] if x is not None]


figure, (panels,) = new_figure("All seeds of the table, and what the paper reports", columns=3, width=11)
for (row, content), height, style in zip(rows.items(), range(8), styles(), strict=False):
    shown = [seeds(row, "cloze_accuracy"), seeds(row, "perplexity"), [(content["paper"] or {}).get("perplexity")]]
    print(f"{content['name']:<28} last words {np.array(shown[0])} perplexity {np.array(shown[1])} paper {shown[2][0]}")
    for panel, values in zip(panels, shown, strict=True):
        panel.plot(values, [height] * len(values), markerfacecolor="none", **style | {"linestyle": "none"})
for panel, label in zip(panels, ("last words right, share", "perplexity", "perplexity in the paper"), strict=True):
    panel.set_yticks(range(8), [content["name"] for content in rows.values()] if panel is panels[0] else [""] * 8)
    panel.set(xlabel=label, ylim=(7.5, -0.5))
show(figure, "14_table")
assert all(rows[row]["parameters"]["stories"] == count_params(config) for row, config in configs.items())

# %% [markdown]
# ## 6 · What it shows, and what three seeds cannot show
#
# Both stacks stand behind all models of one and two layers but the GPN. They are 48 wide here, and 600 steps are few:
# this says nothing of 130 million parameters, where the paper finds them first. Without a memory the GPN guesses among
# the ten things of all stories. One layer of attention guesses among the four of one story, as part 3 foretells. And a
# GDN of one layer, not in the paper, has the most last words. So on these stories the memory makes one layer do.
#
# And smaller differences? GPN+M alone has .70 to .96 of the last words. Deal the numbers of two models anew, three and
# three, in all 20 ways: even where every seed of one beats all of the other, 2 deals set them as far apart, p = .1.
# The package's rule, more than the sum of the deviations, calls what three seeds can't prove. Four each could: 2 of 70.


# %%
def chance(one, other):
    """Share of the ways to deal all numbers to two models that set their means as far apart as they are."""
    both, far = np.array([*one, *other]), abs(np.mean(one) - np.mean(other))
    deals = [list(deal) for deal in combinations(range(len(both)), len(one))]
    return np.mean([abs(both[deal].mean() - np.delete(both, deal).mean()) > far - 1e-12 for deal in deals])


perplexities = {row: seeds(row, "perplexity") for row in rows}
for row in [row for row in rows if row != "gpn+m-1"]:
    one, other = (rows[name]["measured"]["stories"]["perplexity"] for name in (row, "gpn+m-1"))
    told = {1: "better", -1: "worse", 0: "a tie", None: "not told"}[compare(one, other, "perplexity")]
    p = chance(perplexities[row], perplexities["gpn+m-1"])
    print(f"{row:<18} against gpn+m-1: {told:<7} p = {p:.2f}")
    assert p > 0.1 - 1e-12  # 2 deals of 20
flat = [x for row in ("gpn+m-1", "gpn+m-2", "gdn-1", "transformer-1", "gpn+m-decay-first") for x in perplexities[row]]
assert min(perplexities["transformer-deep"] + perplexities["gdn-deep"]) > max(flat)
last = {row: seeds(row, "cloze_accuracy") for row in rows}
assert max(last["gpn"]) < 0.15 < 0.2 < min(last["transformer-1"]) and max(last["transformer-1"]) < 0.3
assert min(last.pop("gdn-1")) > max(np.concatenate(list(last.values())))

# %% [markdown]
# ## 7 · Break it
#
# Three ways to rig a table. Match the width, and don't count. Give all models one learning rate: with .001 the twelve
# layers stand .79 nats behind GPN+M, with rates of their own .29; with .008 GPN+M is second, with their own fourth. Or
# choose the corpus: on documentation GDN's ten layers are first, and the GPN, without a memory, beats GDN's one layer
# and GPN+M's two. The checks: a ratio, each model's own sweep, a second corpus.
#
# Nor is our table above suspicion. A sweep is done when its best is not at its edge; ours is, for four of eight. It
# stops after 300 steps, where GDN of one layer leads; after 600 GPN+M does. Its rates serve all corpora: on recall
# GPN+M finds nothing with .008, all with .002; on documentation GDN's layer has 34.8, with .008 31.9 (README.md).

# %%
same_width = TransformerConfig(vocab_size=295, d_model=128, n_layers=12, n_heads=4, d_ffn=341)
for config in (same_width, configs["transformer-deep"]):
    print(f"{config.sizes()}: {count_params(config) / count_params(reference):.2f} times the parameters of the GPN+M")
assert abs(count_params(same_width) / count_params(reference) - 1) > 0.001  # part 2 lets no such model pass
sweep = {row: {float(rate): loss for rate, loss in content["sweep"].items() if loss} for row, content in rows.items()}
best, told = {row: min(losses.values()) for row, losses in sweep.items()}, {}
for rate in (0.001, 0.002, 0.004, 0.008, "its own"):
    losses = best if rate == "its own" else {row: sweep[row][rate] for row in rows}
    stack, ours = losses["transformer-deep"], losses["gpn+m-1"]
    told[rate] = sorted(losses.values()).index(ours) + 1, round(stack - ours, 2)
    print(f"rate {rate}: gpn+m-1 {ours:.2f}, no. {told[rate][0]} of 8; 12 layers {stack:.2f}, {told[rate][1]} behind")
assert told[0.001] == (4, 0.79) and told[0.008] == (2, 0.29) and told["its own"] == (4, 0.29)

# %%
docs = {row: seeds(row, "perplexity", "python-docs") for row in rows}
for row in sorted(docs, key=lambda row: np.mean(docs[row])):
    print(f"python-docs: {row:<18} perplexity {np.array(docs[row])}")
edge = [row for row, loss in sweep.items() if rows[row]["learning_rate"] == max(loss) == min(loss, key=loss.get)]
print("the largest rate of the sweep is the best one for", *edge)
assert len(edge) == 4 and {"transformer-deep", "gdn-deep", "gpn+m-1"} < set(edge)
assert max(docs["gdn-deep"]) < min(min(docs[row]) for row in docs if row != "gdn-deep")
assert max(docs["gpn"]) < min(docs["gdn-1"] + docs["gpn+m-2"])  # with every seed
assert min(best, key=best.get) == "gdn-1" and min(perplexities, key=lambda row: np.mean(perplexities[row])) == "gpn+m-1"
assert max(seeds("gpn+m-1", "recall_accuracy", "recall")) < 0.2

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `gpn_ref/baselines/transformer.py`, `gpn_ref/baselines/gated_deltanet.py`, with their gradients; `gpn_ref/sizes.py`,
# which fits the sizes; `python -m gpn_ref.reproduce`, which makes the table; with `--quick` four models in minutes.
# Exercises, `lessons/exercises/ex14_against_the_stack.py`: attention, a stack's parameters, and the width that has as
# many as wanted. Grade yourself: `python -m lessons.check 14`. Next: lesson 15, an experiment of your own.
