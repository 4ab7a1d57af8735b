# %% [markdown]
# # 01 · Text to tokens, and counting as the bar to beat
#
# | | |
# |---|---|
# | **You will be able to** | make a tokenizer by hand, price a text in three units, build a model by counting |
# | **You need** | lesson 00; logarithms, and Python's `Counter` |
# | **Minutes** | 45, and 30 for the exercises |
# | **You will see** | a vocabulary grow, a better model with a worse perplexity, and a result too good to be true |
#
# A model sees whole numbers below V, its vocabulary, and nothing else. This lesson makes them of text, prices them, and
# sets the bar: what counting alone can do, every later lesson must beat.

# %%
import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
from kit import show

from gpn_ref import TrainConfig
from gpn_ref.figures import BLACK, BLUE, VERMILION, new_figure
from gpn_ref.files import TRAINED
from gpn_ref.measures import perplexity
from gpn_ref.text.corpora import load_corpus
from gpn_ref.text.tokenizer import byte_lengths, decode_stream, encode, train_bpe
from gpn_ref.text.trigram import Trigram
from gpn_ref.trained import Trained
from gpn_ref.training.tasks import load_task

# %% [markdown]
# ## 1 · Text is bytes already
#
# UTF-8 writes any text as bytes, numbers from 0 to 255. So V = 256 would do: nothing is ever unknown, and nothing is
# lost. But a model that reads a byte a step takes many steps for a word, and must first learn to spell.

# %%
for word in ("kite", "café", "凧"):
    numbers = list(word.encode())
    print(f"{word}: {len(word)} characters, {len(numbers)} bytes: {numbers}")
    assert bytes(numbers).decode() == word
assert len("凧".encode()) == 3  # a kite, in Japanese

# %% [markdown]
# ## 2 · Byte-pair encoding joins what stands together most often
#
# Begin with the single letters. Count all neighbours, inside words only. Make the commonest pair a token, join it
# wherever it stands, and count again. Of equal counts the pair that comes first in the alphabet wins. Do the first
# three steps on paper: the text has eleven words. (Here a pair is known by the letters that it makes up. In the
# exercise tokens are numbers, which can't be strung together: a pair is `left` and `right`, and becomes `new`.)

# %%
text = "the cat that sat on the mat that the cat had"
words = [list(word) for word in re.findall(" ?[a-z]+", text)]  # a word has the space before it
ranks = {letter: rank for rank, letter in enumerate(sorted(set(text)))}  # token -> its number


def join(tokens, new):
    """A word's tokens, with neighbours that make up `new` joined, from the left."""
    joined = []
    for token in tokens:
        if joined and joined[-1] + token == new:
            joined[-1] = new
        else:
            joined.append(token)
    return joined


while len(ranks) < 16:
    counts = Counter(a + b for word in words for a, b in pairwise(word))
    new = min(counts, key=lambda pair: (-counts[pair], pair))
    ranks[new] = len(ranks)
    words = [join(word, new) for word in words]
    print(f"{new!r:>7}, {counts[new]} times:  ", "  ".join("|".join(word) for word in words))
assert {token.encode(): rank for token, rank in ranks.items()} == train_bpe(text, 18)  # 16, and two special ones

# %% [markdown]
# ## 3 · A vocabulary must bring back every text unchanged
#
# The tokenizer of the stories was not merged but listed. They use few words, so each whole word and each mark is a
# token, and a letter that is no word has none. Two tokens are special, END of lesson 00 and BYTE: V = 295. A byte with
# no token of its own is written with three, BYTE and two digits. That is dear, and rare. Each token completes some
# bytes of the text, possibly none; together they are the text.

# %%
task = load_task("stories")
encoding, V = task.encoding, task.encoding.n_vocab
for line in ("One day Tom had a red kite.", "A red 凧!"):
    pieces = [data for _, data in decode_stream(encode(encoding, line), encoding)]
    print(f"{len(pieces)} tokens:", pieces)
    assert b"".join(pieces).decode() == line
bytes_a_token = byte_lengths(task.tokens, encoding).mean()
print(f"V = {V}; {bytes_a_token:.2f} bytes of the stories a token")
assert V == 295 and 3.8 < bytes_a_token < 4

# %% [markdown]
# ## 4 · A token costs its surprise, and only bytes compare across tokenizers
#
# A model that gave the probability p to the token that came pays -ln p, in *nats*. The mean over a text is the *loss*.
# exp(loss) is the *perplexity*: as unsure as if so many tokens were equally likely. But what is a token? We price the
# same text twice, in bytes and in words, by the simplest of models: each token has the share that it had in training.


# %%
def cost_by_share(training, text):
    """The nats of each token of the text (n), where each has its share of the training text."""
    shares = np.bincount(training, minlength=V) / len(training)  # (V)
    return -np.log(shares[text])


corpus = load_corpus("stories")  # .train and .validation: lists of texts
as_bytes = [np.frombuffer("".join(part).encode(), np.uint8) for part in (corpus.train, corpus.validation)]
prices = {}
for unit, (training, held_back) in {"bytes": as_bytes, "words": (task.tokens, task.validation_tokens)}.items():
    nats = cost_by_share(training, held_back)
    bits_per_byte = nats.sum() / math.log(2) / len(as_bytes[1])
    prices[unit] = perplexity(nats.mean()), bits_per_byte
    print(
        f"{unit}: {nats.mean():.3f} nats per token, perplexity {prices[unit][0]:.1f}, {bits_per_byte:.3f} bits per byte"
    )
assert prices["bytes"][0] < prices["words"][0] and prices["bytes"][1] > 2 * prices["words"][1]

# %% [markdown]
# By perplexity, bytes look better; a byte is easier to guess than a word. But there are four times as many of them, and
# the whole text costs more than twice as much. So compare models of one tokenizer by perplexity, and all others by
# *bits per byte*: the nats of the whole text / ln 2 / its bytes.

# %% [markdown]
# ## 5 · A zero count is an infinite loss, so lend from the shorter context
#
# A *bigram* gives the token w after v its share among all that followed v: c(v w) / c(v ·), where c counts the training
# text. The first pair that training lacks has the share 0 and costs infinity; then so does the mean. The cure: take
# d = 0.75 from each count, and deal out what that frees in proportion to p_{n-1}, that of the shorter context. `kinds`
# is how many different tokens followed. A context never seen leaves all to the shorter one. And c(v ·) counts v as a
# context: a text's last token, which nothing follows, is not counted there.
#
#     p_n(w | context) = (max(c(context w) - d, 0) + d · kinds(context ·) · p_{n-1}(w | shorter)) / c(context ·)
#
# From p_0 = 1 / V we climb: *unigram*, bigram, *trigram*, and on. Each step is a probability: over w, it sums to 1.


# %%
def count(tokens, n):
    """c(context w), c(context ·) and kinds(context ·), for the contexts of n - 1 tokens."""
    grams, total, kinds = Counter(zip(*(tokens[i:] for i in range(n)), strict=False)), Counter(), Counter()
    for gram, times in grams.items():
        total[gram[:-1]] += times
        kinds[gram[:-1]] += 1
    return grams, total, kinds


def climb(row, t, tables, d=0.75):
    """p_1, p_2, … of the token row[t], t ≥ 1, given those before it in the row."""
    p, found = 1 / V, []
    for n, (grams, total, kinds) in enumerate(tables, 1):
        context = tuple(row[max(t - n + 1, 0) : t])  # n - 1 tokens, or what the row has
        if len(context) == n - 1 and total[context]:  # else p stays that of the shorter context
            p = (max(grams[*context, row[t]] - d, 0) + d * kinds[context] * p) / total[context]
        found.append(p)
    return found


# %%
N, training, held_back = 6, task.tokens.tolist(), task.validation_tokens.tolist()
tables = [count(training[1:], 1)] + [count(training, n) for n in range(2, N + 1)]  # the first END is a context only
context = encode(encoding, " a")
for word in (" red", " Tom"):
    row = [*context, *encode(encoding, word)]
    (_, smoothed), (_, plain) = climb(row, 1, tables[:2]), climb(row, 1, tables[:2], d=0)
    print(f"p_2({word!r} after ' a') = {smoothed:.6f}; its share, unsmoothed, is {plain:.6f}")
everything = [climb([*context, w], 1, tables[:2])[-1] for w in range(V)]
assert plain == 0 < smoothed and np.isclose(sum(everything), 1)

# %% [markdown]
# ## 6 · The bar is 6.69
#
# We score validation text, held back from all counting, in B windows of T = 64 tokens. (They are whole: END in front
# of a text, and the last tokens of a text that fill no window, are not scored. So n = 1 differs a little from the words
# of part 4.) The trigram's perplexity is the bar that every training run prints. Longer contexts help a little: fewer
# and fewer of them were seen before. And which thing is the red one was often said 30 tokens back, where no such count
# looks. The model of lesson 00 looks there.


# %%
def losses(rows, tables, d=0.75):
    """Nats per token for contexts of up to 0, 1, 2, … tokens; rows (B, T + 1), whose first token is not scored."""
    with np.errstate(divide="ignore"):
        return -np.log([climb(row, t, tables, d) for row in rows for t in range(1, len(row))]).mean(axis=0)


validation = task.validation(TrainConfig(window=64))  # .batches: inputs (B, T), and targets, one token on
rows = np.concatenate([np.append(inputs, targets[:, -1:], axis=1) for inputs, targets in validation.batches]).tolist()
honest, unsmoothed = losses(rows, tables), losses(rows[:50], tables, d=0)
for n, loss in enumerate(honest, 1):
    price = f"{loss:.3f} nats, perplexity {perplexity(loss):6.3f}, {validation.bits_per_byte(loss):.3f} bits per byte"
    print(f"n = {n}: {price}")
print("unsmoothed, the first 50 windows:", ", ".join(f"{loss:.3f}" for loss in unsmoothed))
model = validation.loss(Trained(TRAINED, backend="numpy").bound)
print(f"the model that ships: {model:.3f} nats, perplexity {perplexity(model):.3f}")
assert np.isfinite(honest).all() and np.isinf(unsmoothed[1:]).all() and model < honest.min() - 0.4
assert np.isclose(honest[2], validation.trigram_loss(Trigram(task.tokens, V)), rtol=1e-12)

# %% [markdown]
# ## 7 · Break it
#
# The bug that everybody writes: count on all the text that there is, the validation text too. Nothing fails, and the
# numbers are wonderful. Longer contexts now help without end, and smoothing seems to harm, for there is nothing left
# to be surprised by. The check is not in the score. It looks for long runs of the scored text in the counted text.


# %%
def runs_shared(counted, scored, n=30):
    """The share of the scored text's runs of n tokens that stand in the counted text."""
    runs = {tuple(scored[i : i + n]) for i in range(len(scored) - n + 1)}
    return len({run for i in range(len(counted) - n + 1) if (run := tuple(counted[i : i + n])) in runs}) / len(runs)


leaked_tables = [count(held_back, n) for n in range(1, N + 1)]
leaked = losses(rows, leaked_tables, d=0)
print("leaked:", ", ".join(f"{perplexity(loss):.2f}" for loss in leaked))
print(f"runs shared: training text {runs_shared(training, held_back)}, leaked {runs_shared(held_back, held_back)}")
assert runs_shared(training, held_back) == 0 and runs_shared(held_back, held_back) == 1
assert perplexity(leaked[-1]) < 1.5 < perplexity(model)
assert (losses(rows[:50], leaked_tables, d=0) < losses(rows[:50], leaked_tables)).all()  # smoothing seems to harm

figure, axes = new_figure("Counting, with and without the answers in hand")
orders = range(1, N + 1)
axes.semilogy(orders, np.exp(honest), "o-", color=BLUE, label="counted on the training text, smoothed")
axes.semilogy(orders, np.exp(leaked), "s--", color=VERMILION, label="counted on the validation text")
axes.axhline(perplexity(model), color=BLACK, linestyle=":", label="the model that ships")
axes.set_xlabel("length of the n-gram, in tokens")
axes.set_ylabel("perplexity on the validation text")
axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
axes.legend()
show(figure, "01_ngrams")

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `train_bpe` and `encode` in `gpn_ref/text/tokenizer.py`, as a command `python -m gpn_ref.text.tokenizer`; `Trigram` in
# `gpn_ref/text/trigram.py`, the bar that `python -m gpn_ref.train_tiny` prints; `Validation` in `gpn_ref/measures.py`.
# The stories' makers saw to it that no 30 tokens in a row are in both parts: `gpn_ref/text/stories.py`.
#
# Exercises, `lessons/exercises/ex01_text_to_tokens.py`: a merge, bits per byte, and a smoothed bigram in arrays.
# Grade yourself: `python -m lessons.check 01`. Next: lesson 02, the model itself.
