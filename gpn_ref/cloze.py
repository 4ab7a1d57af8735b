"""Words that only the text before them tells: questions from files, and what a model makes of them.

    {"text": "Tom had a red kite. Ann wanted the red kite"}

A line is a JSON object. Its last word, what follows the last white space, is to be told from all before it: the format
of LAMBADA. A line may say more: "answer", what the text ends with; "distance", how many tokens ago the text last named
it (null: never); "candidates", the answers that a guesser who understood nothing else would draw from.

By the paper's definition an answer is right if the FIRST token of the last word, given what comes before it, is the
likeliest of all tokens, and the perplexity is exp of the mean cross entropy over all tokens of the last words.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import regex
from tqdm import tqdm

from gpn_ref.measures import BATCH_TOKENS, Answers, cross_entropy, estimate, perplexity
from gpn_ref.text.tokenizer import END, encode

LONGEST = 4096  # tokens of a passage: a longer one would want a batch larger than all others
DISTANCES = (  # tokens since a passage last named its answer
    ("up to 20 tokens", 0, 20),
    ("21-60 tokens", 21, 60),
    ("61-150 tokens", 61, 150),
    ("over 150 tokens", 151, math.inf),
)
NEVER = "never mentioned before"

_LETTERS = r"[\p{L}\p{M}\p{N}]+"
_WORD = rf"{_LETTERS}(?:['’](?!s\b){_LETTERS})*"  # can't is one word, but Tom's names Tom
_UNIT = regex.compile(rf"{_WORD}|\S")
_HALF = regex.compile("[\ud800-\udfff]")
_INSIDE_A_WORD = regex.compile(r"(?<=[\p{L}\p{M}\p{N}])[\p{L}\p{M}\p{N}]")
_INNER = regex.compile(rf"{_WORD}(?:.*{_WORD})?")  # a word without the marks around it


class Question(NamedTuple):
    prefix: list[int]  # the tokens of all before the last word, END first
    answer: list[int]  # those of the last word, with the space before it
    distance: int | None  # tokens since the passage last named it; None: never
    chance: float | None  # of drawing it blindly from the candidates; None: nobody named any


class Fault(ValueError):
    """What is wrong with a line: empty, one-word, malformed or over-long, and why."""


def read_questions(path, encoding, longest=LONGEST):
    """The questions of a file, and its faults: what is wrong -> the numbers of the lines.

    A file with no question in it is a ValueError. Blank lines at its end are none.
    """
    questions, faults = [], defaultdict(list)
    with open(path, "rb") as file:
        for number, line in enumerate(_without_blank_end(file), 1):
            try:
                questions.append(question(_item(line), encoding, longest))
            except Fault as fault:
                faults[str(fault)].append(number)
    if not questions:
        found = "; ".join(describe_faults(faults)) or "it is empty"
        raise ValueError(f'{path} has no question: {found}; it must hold lines like {{"text": "a red kite"}}')
    return questions, dict(faults)


def describe_faults(faults, most=10):
    """A line for each kind of fault, with the numbers of the lines, of many the first `most`."""
    for fault, numbers in faults.items():
        named = ", ".join(map(str, numbers[:most])) + f" and {len(numbers) - most:,} more" * (len(numbers) > most)
        s = "s" * (len(numbers) > 1)
        yield f"{len(numbers):,} line{s} {fault}: line{s} {named}"


def _without_blank_end(lines):
    blank = []
    for line in lines:
        blank.append(line)
        if line.strip():
            yield from blank
            blank = []


def _item(line):
    if not line.strip():
        raise Fault("empty")
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Fault("malformed (not UTF-8)") from None
    except (ValueError, RecursionError):
        raise Fault("malformed (not JSON)") from None


def question(item, encoding, longest=LONGEST):
    """The Question of a line's object; a Fault says why there is none."""
    if not isinstance(item, dict):
        raise Fault("malformed (not an object)")
    before, answer = _cut(item)
    chance, distance = _chance(item, answer), item.get("distance")
    prefix, tokens = encode(encoding, before), encode(encoding, answer)
    if distance is not None and (type(distance) is not int or not 0 <= distance <= len(prefix)):
        raise Fault('malformed ("distance" is neither null nor a count of tokens before)')
    if len(prefix) + len(tokens) > longest:
        raise Fault(f"over-long (more than {longest:,} tokens)")
    if "distance" not in item:
        distance = last_mention(before, answer, encoding)
    return Question([encoding.encode_single_token(END), *prefix], tokens, distance, chance)


def _cut(item):
    """The text before the last word, and the last word with the space before it: joined, they are the text."""
    text = item.get("text")
    if not isinstance(text, str):
        raise Fault('malformed (no string "text")')
    if _HALF.search(text):
        raise Fault('malformed ("text" has half a character)')
    text = text.rstrip()
    if not text:
        raise Fault("empty")
    answer = item.get("answer", text.rsplit(None, 1)[-1])
    if not isinstance(answer, str) or not answer.strip():
        raise Fault('malformed ("answer" is no word)')
    answer = answer.rstrip()
    if not text.endswith(answer):
        raise Fault('malformed ("text" does not end with "answer")')
    begin = len(text) - len(answer)
    if _INSIDE_A_WORD.match(text, begin):
        raise Fault('malformed ("answer" begins inside a word)')
    if text[:begin].endswith(" ") and not answer[0].isspace():
        begin -= 1  # as the tokenizer writes words
    if not text[:begin].strip():
        raise Fault("one-word (nothing before it tells it)")
    return text[:begin], text[begin:]


def _chance(item, answer):
    candidates = item.get("candidates")
    if candidates is None:
        return None
    words = {str(word).strip() for word in candidates} if isinstance(candidates, list) else set()
    if answer.strip() not in words:
        raise Fault('malformed ("candidates" is no list with the answer in it)')
    return 1 / len(words)


def last_mention(before, word, encoding):
    """How many tokens before `word` the text `before` last names it: 1 if with its last token; None: it never does.

    Whole words count, in capitals or not, without the marks around them.
    """
    inner = _INNER.search(word)
    wanted = _UNIT.findall((inner[0] if inner else word).casefold())
    units = [(found[0].casefold(), found.end()) for found in _UNIT.finditer(before)]
    for last in reversed(range(len(wanted) - 1, len(units))):
        if [unit for unit, _ in units[last - len(wanted) + 1 : last + 1]] == wanted:
            end = units[last][1]
            return len(encode(encoding, before)) - len(encode(encoding, before[:end])) + 1
    return None


@dataclass(frozen=True)
class ClozeAnswers(Answers):
    """Answers, and what the last words cost the model: `losses` (n,) nats, each the sum over `sizes` (n,) tokens."""

    losses: np.ndarray
    sizes: np.ndarray

    def estimates(self, seed=0):
        """Accuracy and perplexity with their intervals over passages: of all, and by distance."""
        groups = {"all": np.ones(len(self.correct), bool), **self.groups}
        return {name: self._estimates(inside, seed) for name, inside in groups.items() if inside.any()}

    def _estimates(self, inside, seed):
        losses, sizes = self.losses[inside], self.sizes[inside]
        return {
            "passages": int(inside.sum()),
            "tokens": int(sizes.sum()),
            "accuracy": estimate(self.correct[inside], seed=seed),
            "loss": estimate(losses, sizes, seed),
            "perplexity": estimate(losses, sizes, seed, perplexity),
        }


def ask(bound, questions):
    """The ClozeAnswers of a bound model; each passage is read from the zero state."""
    lengths = np.array([len(question.prefix) + len(question.answer) - 1 for question in questions])
    correct, losses = np.zeros(len(questions), bool), np.zeros(len(questions))
    order = np.argsort(lengths, kind="stable")
    with tqdm(total=len(questions), desc="last words", unit=" passages", disable=None, leave=False) as progress:
        while len(order):
            count = max(1, BATCH_TOKENS // lengths[order[-1]])  # the longest first, so that padding stays short
            batch, order = order[-count:], order[:-count]
            correct[batch], losses[batch] = _ask_batch(bound, [questions[index] for index in batch])
            progress.update(len(batch))
    return ClozeAnswers(
        correct=correct,
        groups=_by_distance([question.distance for question in questions]),
        chance=None if any(q.chance is None for q in questions) else float(np.mean([q.chance for q in questions])),
        losses=losses,
        sizes=np.array([len(question.answer) for question in questions]),
    )


def _ask_batch(bound, questions):
    """Whether each first token is the likeliest, (n,) bool, and the loss of each whole answer, (n,) nats."""
    rows = [[*question.prefix, *question.answer[:-1]] for question in questions]
    inputs = np.zeros((len(rows), max(map(len, rows))), np.int64)  # what follows a row's tokens is ignored
    for row, tokens in enumerate(rows):
        inputs[row, : len(tokens)] = tokens
    logits = bound.forward(inputs).logits
    answers = [question.answer for question in questions]
    of = np.repeat(np.arange(len(rows)), [len(answer) for answer in answers])
    at = np.concatenate([len(q.prefix) - 1 + np.arange(len(q.answer)) for q in questions])
    losses = np.bincount(of, cross_entropy(logits[of, at], np.concatenate(answers)))
    firsts = logits[np.arange(len(rows)), [len(question.prefix) - 1 for question in questions]]
    return firsts.argmax(axis=-1) == [answer[0] for answer in answers], losses


def _by_distance(distances):
    """Name of a group -> (n,) bool, which questions are in it."""
    tokens = np.array([-1 if distance is None else distance for distance in distances])
    groups = {name: (tokens >= low) & (tokens <= high) for name, low, high in DISTANCES}
    return groups | {NEVER: tokens < 0}
