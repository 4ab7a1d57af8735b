# %% [markdown]
# # 13 · Look inside
#
# | | |
# |---|---|
# | **You will be able to** | measure what a trained state and its memory do, and test whether it matters |
# | **You need** | lessons 02 and 07; covariance, logarithms |
# | **Minutes** | 60, and 30 for the exercises |
# | **You will see** | a mean that speaks, a head that holds on for 1,000 tokens, a pretty pattern of little use |
#
# The model that ships has a state of 128 numbers and 8 heads, and nobody told it what to do with them. We measure what
# it does. The paper measured a model of 130 million parameters; its numbers stand beside ours.

# %%
import numpy as np
from kit import show

from gpn_ref.figures import BLACK, BLUE, GREY, VERMILION, new_figure
from gpn_ref.files import TRAINED
from gpn_ref.inspect import geometry
from gpn_ref.inspect.ablations import changed, compare, effects, passage_rows, sizes, text_rows, without_heads
from gpn_ref.inspect.default_token import cosine, spearman, top_tokens
from gpn_ref.inspect.heads import read_weights, retrieved_amounts
from gpn_ref.inspect.horizons import Retention, StateCosines, head_lives, is_fast, lags_up_to
from gpn_ref.model import Interventions
from gpn_ref.text.tokenizer import END, encode
from gpn_ref.trained import Trained

np.set_printoptions(precision=2, suppress=True)
trained = Trained(TRAINED, backend="numpy")
task, bound, encoding = trained.task(), trained.bound, trained.encoding
inputs = np.concatenate([windows for windows, _ in task.windows(128, 6272)])  # (B, T): text held back from training
trace = bound.trace(inputs, keep=("predicted", "decay"))  # the forward pass, and by name what went on inside
states, decay = trace.predicted.astype(float), trace.decay.astype(float)  # s^p (B, T, D), (B, T, H)
(B, T, D), H = states.shape, decay.shape[2]  # 49 sequences of 128 tokens; 128 numbers, 8 heads

# %% [markdown]
# ## 1 · The states have a mean, and the mean speaks
#
# s̄, the mean of s^p over all tokens, shape (D), is what a state is when nothing in particular has been read. Its length
# is a quarter of a state's, and two halves of the text agree on where it points. Give it to the decoder like any
# state: it says common words, and the stories' names. The paper calls it the *default token*; there its share is .81.

# %%
mean = states.mean(axis=(0, 1))  # (D): s̄
share = np.linalg.norm(mean) / np.linalg.norm(states, axis=-1).mean()
halves = cosine(states[::2].mean(axis=(0, 1)), states[1::2].mean(axis=(0, 1)))
logits = bound.decode(mean)  # (V)
says = [encoding.decode([int(token)]).strip() for token in top_tokens(logits)]
alike = spearman(logits, trained.token_counts())  # of ranks, with counts in the training text: 1 is the same order
print(f"share {share:.2f}, cosine of halves {halves:.3f}, rank correlation {alike:.2f}; it says: {' '.join(says)}")
assert 0.2 < share < 0.3 and halves > 0.95 and alike > 0.6 and {".", "the", "and", "Lily"} < set(says)

# %% [markdown]
# ## 2 · How many directions do the states fill?
#
# Each direction has a variance, an eigenvalue λ_i of the covariance C, shape (D, D). The *participation ratio*,
# (Σ λ_i)² / Σ λ_i², is D where all are equal, and 1 where one has it all. No eigenvalue is needed: Σ λ_i is the trace
# of C, and Σ λ_i² = Σ_ij C_ij². On paper: the corners (±2, ±1) have C = diag(4, 1), and 25 / 17 = 1.47 directions. But
# n states span n - 1 directions at most, so few states look flat: say how many you measured.


# %%
def participation_ratio(states):
    """states (n, D) -> a number from 1 to D."""
    centred = states - states.mean(axis=0)
    covariance = centred.T @ centred / len(centred)  # (D, D)
    return np.trace(covariance) ** 2 / np.sum(covariance**2)


corners = np.array([[2.0, 1.0], [2.0, -1.0], [-2.0, 1.0], [-2.0, -1.0]])  # (n, D)
flat = np.random.default_rng(0).permutation(states.reshape(-1, D))  # (B·T, D), in any order
ratio = participation_ratio(flat)
print(f"corners fill {participation_ratio(corners):.2f} of 2; our states {ratio:.1f} of {D}; the paper's 398 of 2496")
print("of only 4, 16, 64, 256 states:", *(f"{participation_ratio(flat[:n]):.1f}" for n in (4, 16, 64, 256)))
assert np.isclose(ratio, geometry.participation_ratio(geometry.eigenvalues(np.cov(flat.T, bias=True))))
assert np.isclose(participation_ratio(corners), 25 / 17) and 15 < ratio < 27 and participation_ratio(flat[:4]) < 3

# %% [markdown]
# ## 3 · The state resembles the one before it a little, and earlier ones by its mean alone
#
# How alike are s_t and s_{t+lag}? Take the mean cosine over all t, once raw, once less each sequence's own mean. Raw,
# it falls, swings until lag 13, then sinks slowly, about .05. That is the mean: vectors that share s̄ and nothing else
# have a cosine near share², .24² = .06. The paper finds .65 far out; .81² is .66. Centred, hardly anything is left from
# lag 2 on, mostly below 0: a sequence's centred states sum to 0, which makes about -1 / (T - 1) for a pair of them.


# %%
def lag_cosine(states, lag):
    """Mean cosine of states (B, T, D) that are `lag` tokens apart."""
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    return np.mean(np.sum(unit[:, lag:] * unit[:, :-lag], axis=-1))


centred, lags = states - states.mean(axis=1, keepdims=True), lags_up_to(96)  # lags 1 to 32, then in growing steps
raw_curve, centred_curve = ([lag_cosine(x, lag) for lag in lags] for x in (states, centred))
print(f"raw: {raw_curve[0]:.2f} at lag 1, {np.mean(raw_curve[31:]):.3f} beyond 31; share² = {share**2:.3f}")
print(f"centred: {centred_curve[0]:.2f} at lag 1, then from {min(centred_curve):.2f} to {max(centred_curve[1:]):.2f}")
package = StateCosines(lags)
package.add(states)
assert np.allclose([raw_curve, centred_curve], [package.raw(), package.centred()])
assert abs(np.mean(raw_curve[31:]) - share**2) < 0.02 and centred_curve[0] > 0.08 > max(np.abs(centred_curve[1:]))

# %% [markdown]
# ## 4 · A head's life is -1 over the mean of its log decay
#
# What a head held n tokens ago has since been multiplied by n decays (lesson 07). Their product is
# exp(n · mean log decay), which is 1/e after -1 / mean log decay tokens. On paper: .9, .9 and .1 leave .081, and the
# life is 3 / 2.51 = 1.19 tokens. The package asks when what is left *on average* is 1/e, the mean of the products over
# all stretches of a length. A head that keeps a sentence and clears at its full stop leaves nothing over most long
# stretches and much over a few, so its average lives longer. By this (last row) four of our heads are fast, three live
# for a clause, 7 to 9 tokens, head 7 for some 1,000, extrapolated. The paper's model has 6 of 1 to 3, 9 of 5 to 322.

# %%
lives = -1 / np.log(decay).mean(axis=(0, 1))  # (H) tokens
retention = Retention(lags, H)
retention.add(decay)
left = retention.means()  # (L, H): the mean of the products, by lag
on_average = head_lives(lags, left)  # (H)
order, stop = np.argsort(lives), inputs == encoding.encode_single_token(".")
slowest, sentence = order[-1], (decay[stop].mean(axis=0) - decay[~stop].mean(axis=0)).argmin()
print("rows: head, -1 / mean log decay, on average", np.array([order, lives[order], on_average[order]]), sep="\n")
at_stop, elsewhere = decay[stop, sentence].mean(), decay[~stop, sentence].mean()
print(f"head {sentence}: mean decay {at_stop:.2f} at a full stop, {elsewhere:.2f} elsewhere")
assert (on_average > 0.98 * lives).all() and is_fast(on_average).sum() == 4 and 500 < lives[slowest] < 2000
assert at_stop < 0.3 and elsewhere > 0.9

# %%
figure, ((cosines, lefts),) = new_figure("States soon differ; heads forget at many paces", columns=2, width=10)
cosines.plot(lags, raw_curve, color=VERMILION, label="raw")
cosines.plot(lags, centred_curve, "--", color=BLUE, label="less the sequence's mean")
cosines.axhline(share**2, color=GREY, linestyle=":", label="share of the mean, squared")
cosines.set(xlabel="lag, tokens", ylabel="mean cosine of two states")
for head, colour in ((slowest, BLACK), (sentence, BLUE), (order[0], VERMILION)):
    lefts.plot(lags, left[:, head], color=colour, label=f"head {head}: left on average")
    lefts.plot(lags, np.exp(-lags / lives[head]), ":", color=colour, label=f"exp(-lag / {lives[head]:.1f})")
lefts.axhline(np.exp(-1), color=GREY, linewidth=0.8)
lefts.set(xscale="log", xlabel="lag, tokens", ylabel="share left of what a head held; line: 1/e")
cosines.legend(), lefts.legend(fontsize=8, loc=(0.56, 0.5))
show(figure, "13_horizons")

# %% [markdown]
# ## 5 · A read is a sum of the values written: find out whose
#
# Given a pass's keys, queries, β and decays, a read is linear in the values: M_tᵀ q_t = Σ_j w_tj v_j, w (T, T). To find
# w, run the memory again, and let token j write the one-hot vector e_j, of width T. What the read returns then *is* the
# row w_t. Token j gives |w_tj| ‖v_j‖ to the read. At the last "red" below, the slowest head returns what was written at
# "kite": the answer, for its key is made of the state before it, that of "red" (lesson 07). Head 0, which lives for
# five tokens, returns the last thing named: "cup".


# %%
def whose(keys, queries, betas, decays):
    """Weights of each value in each read of one head.  keys, queries (T, K), betas, decays (T) -> (T, T)."""
    memory, weights = np.zeros((keys.shape[1], len(keys))), []
    for k, q, beta, decay, one_hot in zip(keys, queries, betas, decays, np.eye(len(keys)), strict=True):
        memory = decay * memory + beta * np.outer(k, one_hot - memory.T @ k)
        weights.append(memory.T @ q)
    return np.array(weights)


def parts(tokens):
    """key, query (B, H, T, K), beta, decay (B, H, T); value, and what reads return (B, H, T, U).  tokens (B, T)."""
    inside = bound.trace(tokens, keep=("key", "query", "beta", "decay", "value", "retrieved"))
    found = [inside.key, inside.query[:, :, 0], inside.beta, inside.decay]  # of layer 0, the only one
    return [np.moveaxis(part, 2, 1) for part in (*found, inside.value, inside.retrieved[:, :, 0])]


# %%
text = "One day Tom had a red kite and Ann had a blue cup. Ann wanted the red"
tokens = [encoding.encode_single_token(END), *encode(encoding, text)]
words = [encoding.decode([token]).strip() for token in tokens]
*written, value, returns = parts([tokens])
gives = retrieved_amounts(read_weights(*written), value)[0, :, -1]  # (H, T): to the last read; `whose` for all heads
assert all(np.allclose(whose(*(x[0, h] for x in written)) @ value[0, h], returns[0, h], atol=1e-4) for h in range(H))
print("most to the last read:", ", ".join(f"head {head} {words[gives[head].argmax()]!r}" for head in order))
figure, rows = new_figure("At the last word: whose values do two heads return?", rows=2, width=9)
for axis, head, colour in zip(rows[:, 0], (slowest, 0), (BLACK, VERMILION), strict=True):
    axis.bar(np.arange(len(words)), gives[head] / gives[head].sum(), color=colour)
    axis.set(ylabel=f"head {head}: share", ylim=(0, 0.7))
    axis.set_xticks(np.arange(len(words)), words, rotation=60, fontsize=9)
show(figure, "13_retrieved")
assert words[gives[slowest].argmax()] == "kite" and words[gives[0].argmax()] == "cup"

# %% [markdown]
# ## 6 · Looking is not enough: take it away
#
# In nearly all of 40 questions head 7 returns what was written at the answer; head 0 in a fifth. Head 2 clears at full
# stops, as if it knew what a sentence is. All of this is correlation. `Interventions` change the model instead. Below,
# the loss is that of 1,984 tokens of text; accuracy is the share of the 40 whose answer is the model's likeliest token,
# .25 for blind guesses among a story's four things. Without what head 7 writes, 7 are right, not 37. Without head 0, or
# 2, or all slow heads but 7, the answers stay. But without those slow heads the loss rises by .41, without 7 by .34: so
# they serve something else. Without the mean the answers stay, and a token costs .24 more on average. In brackets: 95 %
# of means by *bootstrap*, of sequences drawn anew, with repeats. No width, where no answer changed, is no certainty.

# %%
questions, returned = passage_rows(task.cloze_questions(), 40), []  # stories without their last word, in two batches
for rows in questions:
    row, at = np.arange(len(rows.inputs)), rows.asked.argmax(axis=1)
    *written, value, _ = parts(rows.inputs)
    source = retrieved_amounts(read_weights(*written), value)[row, :, at].argmax(axis=-1)  # (B, H)
    returned.append(rows.inputs[row[:, None], source] == rows.targets[row, at][:, None])
returned = np.concatenate(returned).mean(axis=0)  # (H)
print("share of questions in which a head returns the answer:", returned)

# %%
slow = np.flatnonzero(~is_fast(on_average))
taken = {"head 7": [7], "head 0": [0], "head 2": [2], "slow heads": slow, "slow but 7": np.setdiff1d(slow, 7)}
changes = {name: without_heads("no_write", heads, H) for name, heads in taken.items()}  # these heads write nothing
changes["the mean"] = Interventions(decode_offset=mean)  # taken from s^p before it is decoded
batches = text_rows(task, 64, 2048) + questions  # sequences of 64 tokens, of which each counts for the loss
sums, differences = compare(changed(bound), {name: changed(bound, x) for name, x in changes.items()}, batches)
change, (loss, accuracy) = {}, sums.sum(axis=1) / sizes(batches).sum(axis=1)  # sums (2, n), a column a sequence
print(f"unchanged    loss {loss:5.2f}                  accuracy {accuracy:5.2f}")
for name, values in differences.items():
    effect = effects(values, sizes(batches))  # Σ values / Σ sizes: {"loss": …, "accuracy": …}
    told = (f"{what} {e['change']:+.2f} [{e['low']:+.2f}, {e['high']:+.2f}]" for what, e in effect.items())
    print(f"{name:<12}", "   ".join(told))
    change[name] = [e["change"] for e in effect.values()]
assert slowest == 7 and sentence == 2 and returned[7] > 0.8 and 0.1 < returned[0] < 0.3
assert accuracy > 0.9 and accuracy + change["head 7"][1] < 0.25 and change["head 2"][0] < 0.1 < change["the mean"][0]
assert min(change[name][1] for name in ("head 0", "head 2", "slow but 7", "the mean")) > -0.15

# %% [markdown]
# ## 7 · Break it
#
# Two bugs that everybody writes. The first measures without centring: with a default token as long as the paper's, our
# states all look alike. The check: a vector added to all states must not change what they fill. The second takes the
# mean of the decays, and then the logarithm. The check: the product of the decays that a text had.

# %%
uncentred = lambda x: np.trace(x.T @ x) ** 2 / np.sum((x.T @ x) ** 2)  # noqa: E731
before, after = states.reshape(-1, D), (states + 4.6 * mean).reshape(-1, D)
print(f"the mean made 5.6 times as long: raw cosine {lag_cosine(states + 4.6 * mean, 96):.2f} at lag 96")
for name, measure in (("centred", participation_ratio), ("uncentred", uncentred)):
    print(f"{name}: {measure(before):.1f} directions before, {measure(after):.1f} after")
assert np.isclose(participation_ratio(before), participation_ratio(after)) and uncentred(after) < 3 < uncentred(before)
head = decay[:, :, 2]  # (B, T)
right, wrong = -1 / np.log(head).mean(axis=1), -1 / np.log(head.mean(axis=1))  # (B) tokens
product, told, mistold = head.prod(axis=1), np.exp(-T / right), np.exp(-T / wrong)  # (B), over a whole text
print(f"head 2 leaves {product[0]:.1e} over a text; the right life says {told[0]:.1e}, the wrong one {mistold[0]:.1e}")
assert np.allclose(told, product, rtol=1e-9, atol=0) and (mistold > 1000 * product).all()

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `geometry.py`, `default_token.py`, `horizons.py`, `heads.py`, `ablations.py` in `gpn_ref/inspect/`. As commands, with
# a report, and with random heads to compare with: `python -m gpn_ref.inspect RUN`, `python -m gpn_ref.ablate RUN`.
# Exercises, `lessons/exercises/ex13_look_inside.py`: what is left on average, a read with decay first, an effect. Grade
# yourself: `python -m lessons.check 13`. Next: lesson 14, this model against a stack of layers.
