# %% [markdown]
# # 00 · First sample
#
# | | |
# |---|---|
# | **You will be able to** | make a trained model write, ask it what it expects next, and say what it remembers with |
# | **You need** | Python, and the package installed: the first lines of `README.md` |
# | **Minutes** | 20 |
# | **You will see** | a story written in a blink, two kinds of guess, and a question that only a reader can answer |
#
# A small language model ships with this package, trained. This lesson plays with it; the fifteen that follow build
# it, from nothing. Run the file whole, `python lessons/00_first_sample.py`, or cell by cell in VS Code or Jupyter.

# %%
import itertools
import textwrap

import numpy as np
from kit import show

from gpn_ref.cloze import ask, question
from gpn_ref.figures import BLUE, VERMILION, new_figure
from gpn_ref.files import TRAINED
from gpn_ref.generate import generate, stream_text, token_probabilities
from gpn_ref.random_state import generator
from gpn_ref.text.corpora import load_corpus
from gpn_ref.text.story_sentences import BOYS, COLOURS, GIRLS, THINGS
from gpn_ref.text.tokenizer import END, encode
from gpn_ref.trained import Trained

# %% [markdown]
# ## 1 · It writes, at once
#
# Text goes in and out of the model in *tokens*: here a word with the space before it, or a mark. `generate` draws one
# token after the other, without end; we take the first 70. The token END closes a text, and so every text begins
# behind one: END is what the model reads first. Change `seed`, and there is another story.

# %%
trained = Trained(TRAINED, backend="numpy")
bound, encoding = trained.bound, trained.encoding
end = encoding.encode_single_token(END)  # the number of END


def write(prompt="", n=70, temperature=0.8, seed=0):
    """The prompt, and n tokens that the model goes on with."""
    random = generator(seed, "samples")
    tokens = generate(bound, random, end, encode(encoding, prompt), temperature)
    return prompt + "".join(stream_text(itertools.islice(tokens, n), encoding))


story = write()
print(textwrap.fill(story, 100))
assert story == write() and story != write(seed=1)

# %% [markdown]
# To be honest about it: the model has 367,888 numbers to compute with, a thousandth or less of those that any
# assistant you know has. It knows 295 tokens. It was trained for a minute or two, on stories that a program wrote.
# It is small enough to see through, and that is what we want it for.

# %%
n_parameters = sum(parameter.size for parameter in trained.checkpoint.params.values())
print(f"{n_parameters:,} parameters, {encoding.n_vocab} tokens, {trained.checkpoint.step} steps of training")
assert n_parameters == 367_888 and encoding.n_vocab == 295

# %% [markdown]
# ## 2 · A language model says how likely each next token is
#
# That is all it says. Given the tokens so far, it gives a score to every token of its vocabulary: the *logits*, shape
# (V) with V = 295. `token_probabilities` makes probabilities of them, which sum to 1: the larger a score, the likelier
# its token. To write, draw a token from them, put it behind the text, and ask again.
#
# After "One day Sam went to the" nobody can know the place, and the model spreads its guess. After a text that names
# a red kite, and says "the red", it is sure.


# %%
def next_token(text):
    """(V) probabilities of the token after the text."""
    logits = bound.forward([[end, *encode(encoding, text)]]).logits  # (1, T, V): a guess after each of the tokens
    return token_probabilities(logits[0, -1])


def likeliest(probabilities, n):
    """The n likeliest tokens, as words, each with its probability."""
    return {encoding.decode([int(token)]).strip(): probabilities[token] for token in np.argsort(-probabilities)[:n]}


def listed(words):
    return ", ".join(f"{word} {probability:.4f}" for word, probability in words.items())


prompts = {"One day Sam went to the": BLUE, "Once Tom had a red kite. Ann wanted the red": VERMILION}
figure, panels = new_figure("One guess is open, the other is settled by the text", columns=2, width=8, height=3)
for axes, (prompt, colour) in zip(panels.flat, prompts.items(), strict=True):
    words = likeliest(next_token(prompt), 6)
    print(f"{prompt} …", listed(words))
    axes.barh(list(words)[::-1], list(words.values())[::-1], color=colour)
    axes.set(title=prompt.rsplit(". ")[-1] + " …", xlabel="probability of the next token", xlim=(0, 1))
show(figure, "00_next_token")
place, thing = map(next_token, prompts)  # (V) each
assert np.isclose(place.sum(), 1) and np.isclose(thing.sum(), 1)
assert place.max() < 0.4 and likeliest(thing, 1)["kite"] > 0.9

# %% [markdown]
# ## 3 · The temperature says how daring the draw is
#
# Dividing the logits by a temperature above 1 levels the probabilities; below 1, it sharpens them. At 0 the
# likeliest token always wins, and the story is the same whatever the seed. At 2 the words come apart. Which one
# do you like best?

# %%
for temperature in (0, 0.5, 1, 2):
    print(textwrap.fill(f"{temperature}: {write(n=45, temperature=temperature, seed=3)}", 100, subsequent_indent="   "))
assert write(temperature=0, seed=1) == write(temperature=0, seed=2)
logits = bound.forward([[end, *encode(encoding, "One day Sam went to the")]]).logits[0, -1]  # (V)
sharp, plain, level = (token_probabilities(logits, temperature).max() for temperature in (0.5, 1, 2))
print(f"the likeliest place has {sharp:.2f} at temperature 0.5, {plain:.2f} at 1, {level:.2f} at 2")
assert sharp > plain > level

# %% [markdown]
# ## 4 · All that it carries is one vector and 8 matrices
#
# While it reads, the model keeps a *state*, and nothing else of the text: a vector of D = 128 numbers, in two
# versions, as it was predicted and as what was seen corrected it (grounded); and a memory of 8 matrices, 32 × 32 each.
# The state is as large after a thousand tokens as after one. Put it aside, take it up again: the model goes on as if
# nothing had been.

# %%
tokens = np.array([[end, *encode(encoding, write(n=999))]])  # (1, T): one text
first_half = bound.forward(tokens[:, :500])
second_half = bound.forward(tokens[:, 500:], first_half.state)  # the text so far is gone; its state is here
at_once = bound.forward(tokens)
for name, part in at_once.state._asdict().items():
    print(f"{name:<10}{part.shape}")
print(f"{sum(part.size for part in at_once.state):,} numbers after {tokens.shape[1]:,} tokens")
_, after_one = bound.step([end])  # one token
assert [part.shape for part in after_one] == [part.shape for part in at_once.state]
assert np.allclose(second_half.logits, at_once.logits[:, 500:], atol=1e-3)

# %% [markdown]
# ## 5 · It answers from what it has read
#
# Here is a story that it never saw. Its last word is hidden, and nothing but the story tells it: four things are
# named, each of another colour, and the white one was last named 33 tokens before the end. We ask twice. The second
# time the first half of the story is hidden too.


# %%
def half_hidden(asked):
    """The question without the first half of the story."""
    return asked._replace(prefix=[end, *asked.prefix[1 + (len(asked.prefix) - 1) // 2 :]])


items = load_corpus("stories").cloze
item = items[21]
asked = question(item, encoding)  # .prefix, the tokens before the last word, and .answer, its token
doll = []
for name, prefix in (("all", asked.prefix), ("second half", half_hidden(asked).prefix)):
    print(textwrap.fill(f"{name}: {encoding.decode(prefix[1:])} …", 100))
    p = token_probabilities(bound.forward([prefix]).logits[0, -1])
    told = {word.strip(): p[encoding.encode_single_token(word)] for word in item["candidates"]}
    print("  its things:", listed(told), "  the likeliest tokens:", listed(likeliest(p, 3)))
    doll.append(told["doll"])
assert asked.distance == 33 and doll[0] > 0.9 and doll[1] < 0.01
assert likeliest(p, 1)["bell"] > 0.5 and sum(told.values()) < 0.4 and "bell" not in item["text"]

# %% [markdown]
# Without the first half the model still knows that a thing must come. But it has read of no white one: more than half
# of its probability goes to the bell, which is nowhere in the story.
#
# One question is an anecdote. There are 560 such stories. Of these, 135 name the answer in their first half alone.
# Who guesses blindly among the four things of a story gets a quarter of them right.

# %%
questions = [question(item, encoding) for item in items]
chosen = [q for q in questions if q.answer[0] not in half_hidden(q).prefix]
whole, hidden = ask(bound, chosen), ask(bound, [half_hidden(q) for q in chosen])
print(f"{len(chosen)} questions: {whole.accuracy:.2f} right; with the first half hidden {hidden.accuracy:.2f}")
assert len(chosen) == 135 and whole.accuracy > 0.85 and hidden.accuracy < 0.15

# %% [markdown]
# ## 6 · Its world ends where its 295 tokens end
#
# Here are its people, its things and its colours. Told of four things in such words, it still knows two of them fifty
# sentences later, and has lost the other two.

# %%
for what, words in {"people": BOYS + GIRLS, "things": THINGS, "colours": COLOURS}.items():
    print(f"{what:<8}", *words)
told = "One day Tom had a red kite. Ann had a blue cup. Max had a green drum. Zoe had a white doll."
things = {"red": " kite", "blue": " cup", "green": " drum", "white": " doll"}
kept = {}
for n in (0, 10, 50):
    for colour, thing in things.items():
        p = next_token(told + n * " They played by the pond." + f" Lily wanted the {colour}")
        kept[thing] = p[encoding.encode_single_token(thing)]
    print(f"after {n:2} sentences:", ", ".join(f"{thing.strip()} {p:.2f}" for thing, p in kept.items()))
    assert n or min(kept.values()) > 0.98
assert min(kept[" cup"], kept[" doll"]) > 0.8 and max(kept[" kite"], kept[" drum"]) < 0.3

# %% [markdown]
# A word that was in no story has no token. It is spelled byte by byte, three tokens for a byte, which the model never
# saw in training. So is "Tom" with no space before it, for no story begins with Tom. The model will say something all
# the same. It does not know what it does not know.

# %%
spelled = {word: len(encode(encoding, word)) for word in (" Tom", "Tom", " dragon")}
print("tokens:", ", ".join(f"{count} for {word!r}" for word, count in spelled.items()))
print(textwrap.fill(write("The dragon flew over London.", n=30), 100))
assert list(spelled.values()) == [1, 9, 21]

# %% [markdown]
# ## 7 · Break it
#
# The bug that everybody writes once: reading token by token, and not handing on the state. Nothing complains, for a
# text may well start at any token. But the model then knows one token, ever: what it writes hops from word to
# word. A check against reading the whole text at once catches it.


# %%
def read(tokens, remember=True):
    """(V) logits after the last of the tokens, read one by one."""
    state = None  # the zero state, in which every text starts
    for token in tokens:
        logits, state = bound.step([token], state if remember else None)
    return logits[0]


text, random = [end], generator(0, "samples")
for _ in range(30):
    probabilities = token_probabilities(read(text, remember=False), temperature=0.8)
    text.append(int(random.choice(len(probabilities), p=probabilities)))
print("without a state:", encoding.decode(text[1:]))
correct = bound.forward([asked.prefix]).logits[0, -1]
right, forgetful = (np.allclose(read(asked.prefix, remember), correct, atol=1e-3) for remember in (True, False))
print("as when read at once: handing on the state", right, "  forgetting it", forgetful)
assert right and not forgetful

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `gpn_ref/sample.py` is this lesson as a command: `python -m gpn_ref.sample --prompt "One day" --temperature 0.5`.
# `generate` and `token_probabilities` are in `gpn_ref/generate.py`, `Trained` in `gpn_ref/trained.py`, and `ask` in
# `gpn_ref/cloze.py`. `make tiny` trains such a model in front of your eyes, in about a minute.
#
# This lesson has no exercises. Play with the last line of part 6, in words that it knows: other friends, other
# sentences between, a thing that changes hands. How far back does the model still know? Next: lesson 01, text to
# tokens, and what counting does.
