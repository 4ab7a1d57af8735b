# %% [markdown]
# # 10 · Sampling
#
# | | |
# |---|---|
# | **You will be able to** | let a model write, and say what temperature and top-p leave of its choice |
# | **You need** | lessons 02, 03 and 07 |
# | **Minutes** | 45, and 30 for the exercises |
# | **You will see** | a story in constant memory, two ways to narrow a choice, and tokens that float32 loses |
#
# A trained model gives logits; something has to choose. This lesson writes that something, and a loop around it. The
# model is the one that ships with the package, a GPN with a memory, trained on little stories.

# %%
import textwrap

import numpy as np
from kit import show

from gpn_ref import init_params, load_model
from gpn_ref.figures import BLACK, BLUE, GREY, VERMILION, new_figure
from gpn_ref.files import TRAINED
from gpn_ref.generate import token_probabilities
from gpn_ref.measures import cross_entropy
from gpn_ref.sizes import choose_model
from gpn_ref.text.corpora import load_corpus
from gpn_ref.text.tokenizer import END, encode
from gpn_ref.trained import Trained

trained = Trained(TRAINED, backend="numpy")
bound, encoding, V = trained.bound, trained.encoding, trained.config.vocab_size
end = encoding.encode_single_token(END)  # every text begins with it

# %% [markdown]
# ## 1 · A step a token gives what the whole text gives
#
# `bound.forward(inputs)` reads a text (B, T) at once; `bound.step(tokens, state)` reads one token (B) and hands on the
# state. The logits are the same: all that the model knows of a text is its state. To write n tokens and read the whole
# text anew for each costs n (n + 1) / 2 steps; with the state it costs n.

# %%
story = "Once there was a boy, Tim, who lived by the pond and had a green hat. The rabbit wanted the green hat."
tokens = np.array([end, *encode(encoding, story)])  # (T)
whole = bound.forward(tokens[None]).logits[0]  # (T, V)
state, one_by_one = None, []  # None: the zero state
for token in tokens:
    logits, state = bound.step(np.array([token]), state)  # (1, V)
    one_by_one.append(logits[0])
apart = np.abs(np.stack(one_by_one) - whole).max() / np.abs(whole).max()
print(f"the logits of {len(tokens)} tokens agree; 200 more take 200 steps, or {200 * 201 // 2:,} without the state")
assert apart < 1e-5

# %% [markdown]
# ## 2 · The state of a GPN keeps its size; a Transformer's grows by every token
#
# s^p and s^g have D numbers each and M has H · K · U: 8,448 for the model that ships, after one token or a million. A
# Transformer compares each token with all before it (lesson 14), so it keeps two vectors of each, in every layer.

# %%
rival_config = choose_model("mini", "transformer", layers=None, vocab_size=V)  # as many parameters
rival = load_model(rival_config, "numpy").bind(init_params(rival_config, seed=0))
print("tokens   GPN+M   Transformer")
sizes = {}
for n in (1, 7, 8, 100):
    text = np.full((1, n), end)
    sizes[n] = [sum(part.size for part in model.forward(text).state) for model in (bound, rival)]
    print(f"{n:6} {sizes[n][0]:7,} {sizes[n][1]:13,}")
assert {gpn for gpn, _ in sizes.values()} == {8448} and sizes[100][1] == 100 * sizes[1][1] and sizes[8][1] > 8448

# %% [markdown]
# ## 3 · A draw is one random number and a sum
#
# The likeliest token, always, is *greedy*: one text, again and again. To draw instead, add the probabilities up; the
# token is the first at which the sum exceeds u, a uniform random number in [0, 1). So a text is made of its seed.
#
# Sum in float64. In float32 the sum of many small numbers stops growing where they fall below its last digit: those
# tokens can never be drawn. Nor does it end at 1 (in float64 all but), and a u above its end draws nothing at all.


# %%
def draw(probabilities, u):
    return int(np.searchsorted(np.cumsum(probabilities), u, side="right"))


probabilities = token_probabilities(whole[0])  # (V) float64, after the END
ours = [draw(probabilities, u) for u in np.random.default_rng(0).random(1000)]
random = np.random.default_rng(0)
numpys = [int(random.choice(V, p=probabilities)) for _ in range(1000)]
print("a thousand draws, ours and NumPy's with the same seed, are the same:", ours == numpys)
many = np.random.default_rng(1).standard_normal(200_000) * 3  # logits of a large vocabulary
weights = np.exp(many - many.max())
sums = {kind: np.cumsum((weights / weights.sum()).astype(kind)) for kind in (np.float64, np.float32)}
lost = {kind.__name__: np.mean(np.diff(total) == 0) for kind, total in sums.items()}
print(f"tokens that no u draws: float64 {lost['float64']:.2f} of them, float32 {lost['float32']:.2f}")
assert ours == numpys and lost["float64"] == 0 and lost["float32"] > 0.2 and abs(sums[np.float32][-1] - 1) > 1e-6

# %% [markdown]
# ## 4 · Temperature turns between the likeliest token and any token
#
# p_i ∝ exp(z_i / τ), for logits z (V) and a *temperature* τ. At τ = 1 these are the model's own probabilities. As τ
# falls to 0 all goes to the largest logit; as it grows, each token gets 1 / V. The *entropy*, -Σ p_i log p_i, is the
# surprise to be expected, in nats: it rises with τ, from 0 to ln V, and rests at ln 6 where six places are as likely.


# %%
def entropy(p):
    return -np.sum(p[p > 0] * np.log(p[p > 0]))


pond = tokens.tolist().index(encode(encoding, " pond")[0])
open_place, told_place = whole[pond - 1], whole[-4]  # after … by the, … wanted the
temperatures = np.geomspace(0.003, 100, 80)
figure, axes = new_figure("What temperature does to the next token", columns=2, width=10)
for place, color, dash, name in (
    (open_place, BLUE, "-", "… lived by the"),
    (told_place, VERMILION, "--", "… wanted the"),
):
    curve = np.array([entropy(token_probabilities(place, t)) for t in temperatures])
    axes[0, 0].semilogx(temperatures, curve, dash, color=color, label=name)
    assert (np.diff(curve) > -1e-12).all() and curve[0] < 0.05 and np.log(V) - curve[-1] < 0.05
axes[0, 0].axhline(np.log(V), color=GREY, linestyle=":", label=f"ln {V}")
axes[0, 0].set(xlabel="temperature", ylabel="entropy, nats")
axes[0, 0].legend()

# %%
order = np.argsort(-open_place)[:8]
words = [encoding.decode([token]).strip() for token in order]
for t, color, marker in ((0.5, BLACK, "^--"), (1.0, BLUE, "o-"), (2.0, VERMILION, "s:")):
    axes[0, 1].plot(words, token_probabilities(open_place, t)[order], marker, color=color, label=f"temperature {t:g}")
axes[0, 1].set(xlabel="after “… lived by the”", ylabel="probability")
axes[0, 1].legend()
show(figure, "10_temperature")

# %% [markdown]
# ## 5 · Top-p takes the fewest tokens that together have probability p
#
# Rank the tokens by probability, and keep them until their sum reaches p: a token stays if those before it have less
# than p together. So the one that crosses the threshold is in: of .5, .25, .15, .1 top-p .7 keeps .5 and .25, and
# divides by .75. A low temperature is timid everywhere. Top-p 0.9 cuts tails, and leaves all six places “by the …”.

# %%
ranked = np.array([0.5, 0.25, 0.15, 0.1])
before = np.cumsum(ranked) - ranked
for row in zip(ranked, before, before < 0.7, token_probabilities(np.log(ranked), top_p=0.7), strict=True):
    print("probability {:.2f}, before it {:.2f}, stays: {!s:5}, gets {:.3f}".format(*row))
kept = np.where(before < 0.7, ranked, 0)
assert np.allclose(kept / kept.sum(), token_probabilities(np.log(ranked), top_p=0.7))
left = np.array([np.count_nonzero(token_probabilities(logits, top_p=0.9)) for logits in whole[:-1]])  # (T - 1)
figure, axes = new_figure("How many tokens top-p 0.9 leaves, before each token of a story", width=10)
axes.bar(np.arange(len(left)), left, color=BLUE)
axes.set_xticks(np.arange(len(left)), [encoding.decode([token]).strip() for token in tokens[1:]], rotation=70)
axes.set(ylabel=f"tokens, of {V}", yticks=range(0, 21, 5))
show(figure, "10_top_p")
print(
    f"tokens left: from {left.min()} to {left.max()}; before “pond” {left[pond - 1]}, before the last “hat” {left[-2]}"
)
assert left.min() == 1 and left.max() > 5 and left[-2] == 1 and left[pond - 1] == 6

# %% [markdown]
# ## 6 · The narrower the choice, the less a model's own text surprises it, and that proves nothing
#
# Perplexity is exp of the mean surprise (lesson 03). We let 64 texts be written at once, and ask the model itself. At
# τ = 1 its surprise is its entropy, as must be: it draws from what it believes. And it is that of stories held back, as
# should be (2.60 here, 3.40 in lesson 01: these are their first 64 tokens alone, a window of its training). Below τ = 1
# it is less, and least where one text is written 64 times. So a low perplexity of one's own text proves nothing.


# %%
def write(n, T, temperature, p, seed):
    """n texts of T tokens, (n, T), and the model's surprise and entropy at each of these, in nats."""
    random, found = np.random.default_rng(seed), []
    logits, state = bound.step(np.full(n, end), None)
    for _ in range(T):
        choices = [token_probabilities(row, temperature, top_p=p) for row in logits]
        drawn = np.array([draw(choice, random.random()) for choice in choices])  # (n)
        found.append((drawn, cross_entropy(logits, drawn), [entropy(token_probabilities(row)) for row in logits]))
        logits, state = bound.step(drawn, state)
    return (np.stack(part, axis=1) for part in zip(*found, strict=True))


# %%
print("temperature  top-p   perplexity   different texts")
surprises = {}
for temperature, p in ((0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.5, 1.0), (1.0, 0.5)):
    texts, nll, entropies = write(64, 64, temperature, p, seed=0)
    surprises[temperature, p] = nll.mean()
    print(f"{temperature:11} {p:6} {np.exp(nll.mean()):12.2f} {len({tuple(text) for text in texts}):17}")
    if (temperature, p) == (1.0, 1.0):
        print(textwrap.fill(encoding.decode(texts[0].tolist()), 100, initial_indent="    ", subsequent_indent="    "))
        gap = (nll - entropies).mean(axis=1)  # (n)
        print(
            f"    surprise {nll.mean():.2f}, entropy {np.mean(entropies):.2f}, standard error {gap.std() / 8:.2f} nats"
        )
        assert abs(gap.mean()) < 4 * gap.std() / 8
real = [[end, *encode(encoding, text)][:65] for text in load_corpus("stories").validation]
real = np.array([text for text in real if len(text) == 65][:32])  # (32, 65)
real_nll = cross_entropy(bound.forward(real[:, :-1]).logits, real[:, 1:]).mean()
print(f"of 32 stories that it did not write: {np.exp(real_nll):.2f}")
assert surprises[0, 1.0] < surprises[0.5, 1.0] < surprises[1.0, 1.0] < surprises[1.5, 1.0]
assert surprises[1.0, 0.5] < surprises[1.0, 1.0] - 0.1 and abs(surprises[1.0, 1.0] - real_nll) < 0.1

# %% [markdown]
# ## 7 · Break it
#
# Three bugs. A temperature after the softmax is divided out again by the sum. Top-p without the token that crosses
# leaves nothing where that token alone has p, and 0 / 0 is not a number. And a state that is not carried makes a model
# of pairs of words, which forgets what was green. A claim of this lesson catches each.


# %%
def too_late(logits, temperature):
    return token_probabilities(logits) / temperature / np.sum(token_probabilities(logits) / temperature)


def without_the_crossing(logits, p):
    probabilities = token_probabilities(logits)
    order = np.argsort(-probabilities, kind="stable")
    kept = np.where(np.cumsum(probabilities[order]) <= p, probabilities[order], 0)[np.argsort(order)]
    with np.errstate(invalid="ignore"):
        return kept / kept.sum()


# %%
forgetful = np.concatenate([bound.step(np.array([token]), None)[0] for token in tokens])  # (T, V)
checks = {
    "temperature 0.1 lowers the entropy": lambda f: entropy(f(open_place, 0.1)) < entropy(f(open_place, 1)) - 0.1,
    "top-p leaves a probability, at any p": lambda f: all(np.isclose(f(z, 0.01).sum(), 1) for z in whole),
    "steps give what the whole text gives": lambda f: np.allclose(f, whole, atol=1e-4),
}
pairs = (
    (token_probabilities, too_late),
    (lambda z, p: token_probabilities(z, top_p=p), without_the_crossing),
    (np.stack(one_by_one), forgetful),
)
for (name, check), (right, wrong) in zip(checks.items(), pairs, strict=True):
    print(f"{name}: right {check(right)}, wrong {check(wrong)}")
    assert check(right) and not check(wrong)
nll, blind = (cross_entropy(logits[-3], tokens[-2]) for logits in (whole, forgetful))
print(f"surprise at the last “hat”: {nll:.1f} nats with the state, {blind:.1f} without")
assert nll < 0.3 and blind > 1.5

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `token_probabilities` and `generate` in `gpn_ref/generate.py`, with top-k beside top-p. After an END that is drawn,
# `generate` starts the next text from the zero state. The model that ships draws hardly any: it was trained on windows
# of 64 tokens, and its stories are longer. `python -m gpn_ref.sample --temperature 0.5` writes at once.
#
# Exercises, `lessons/exercises/ex10_sampling.py`: temperature, top-p, and the loop. Grade yourself:
# `python -m lessons.check 10`. Next: lesson 11, the same numbers, faster.
