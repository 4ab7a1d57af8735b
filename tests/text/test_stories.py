"""The stories corpus: what the committed files must be, measured on them, and the script that wrote them."""

import collections
import itertools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from gpn_ref.files import DATA
from gpn_ref.text import stories
from gpn_ref.text.stories import PIECE, Draw, Story
from gpn_ref.text.story_sentences import BOYS, COLOURS, FILLERS, GIRLS, SENTENCES, THINGS
from gpn_ref.text.tokenizer import encode, format_ranks, load_tokenizer, train_words

FOLDER = DATA / "stories"
FILES = ["cloze.jsonl", "train.txt", "validation.txt"]
NAMED = re.compile(rf"({'|'.join(COLOURS)}) ({'|'.join(THINGS)})\b")
THING = re.compile(rf"\b({'|'.join(THINGS)})\b")


def read(name):
    return (FOLDER / name).read_text(encoding="utf-8")


TRAIN, VALIDATION = (read(name).rstrip("\n").split("\n\n") for name in ("train.txt", "validation.txt"))
CLOZE = [json.loads(line) for line in read("cloze.jsonl").splitlines()]
RANKS = load_tokenizer(FOLDER / "tokenizer.ranks")


def sentences(text):
    return re.split(r'(?<=[.?!]) | (?=")|(?<=[.?!]") ', text)


def candidates_before(item):
    """The candidates' mentions in the passage, in order, without the asked one."""
    return [word for word in PIECE.findall(item["text"])[:-1] if word in item["candidates"]]


def run(*arguments):
    command = [sys.executable, "-m", "gpn_ref.text.stories", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


# --- the script ---


def test_the_committed_files_are_what_the_script_writes(tmp_path):
    assert stories.main(["--out", str(tmp_path / "made" / "here")]) is None
    folder = tmp_path / "made" / "here"
    assert sorted(os.listdir(folder)) == FILES
    for name in FILES:
        assert (folder / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_the_tokenizer_is_the_one_of_the_training_text():
    ranks = train_words(read("train.txt"), RANKS.n_vocab)
    assert format_ranks(ranks) == (FOLDER / "tokenizer.ranks").read_text(encoding="utf-8")


def test_another_seed_tells_other_stories(tmp_path, monkeypatch):
    monkeypatch.setattr(stories, "TRAIN_BYTES", 20_000)
    monkeypatch.setattr(stories, "VALIDATION_BYTES", 5_000)
    monkeypatch.setattr(stories, "CLOZE_ITEMS", 30)
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        stories.main(["--out", str(tmp_path / folder), "--seed", str(seed)])
    for name in FILES:
        a, b, c = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert a == b and a != c, name


def test_draws_are_fixed_for_all_versions_of_python():
    draw = Draw(7)
    assert [draw.one(range(100)) for _ in range(6)] == [32, 15, 65, 7, 53, 36]
    assert draw.some("abcdef", 4) == list("adbe")
    drawn = [draw.weighted({"x": 3, "y": 1}) for _ in range(4000)]
    assert drawn.count("x") / 4000 == pytest.approx(0.75, abs=0.03)


def test_bad_input_is_one_line_and_status_2(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    cases = {"file": ["--out", tmp_path / "file"], "-1": ["--out", tmp_path, "--seed", "-1"], "--out": []}
    for word, arguments in cases.items():
        result = run(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1 and word in result.stderr, result.stderr
    assert os.listdir(tmp_path) == ["file"]
    assert "example" in run("--help").stdout


class Watched(Story):
    """A story that checks, at each event, that it can happen and is told as it is."""

    seen = collections.Counter()

    def tell(self, kind, a=None, b=None, x=None, y=None, z=None):
        before = {thing.name: (thing.holder, thing.spot) for thing in self.things}
        super().tell(kind, a, b, x, y, z)
        sentence = self.sentences[-1]
        self.seen[kind] += 1
        if kind in ("hold", "give", "swap", "hide", "both"):
            assert before[x.name][0] == a != b, sentence
        if kind in ("swap", "both"):
            assert before[y.name][0] == b, sentence
        if kind in ("seek", "find"):
            holder, spot = before[x.name]
            assert holder is None and spot in FILLERS["spot"], sentence
            others = [other for other in FILLERS["spot"] if other in sentence and other != spot]
            assert not others or "was not there" in sentence, sentence
        now = {thing.name: thing.holder for thing in self.things}
        after = {"give": b, "swap": b, "hide": None, "find": a}
        changed = {x.name: after[kind]} if kind in after else {}
        changed |= {y.name: a} if kind == "swap" else {}
        assert now == {name: holder for name, (holder, _) in before.items()} | changed, sentence


def test_what_happens_is_possible():
    draw = Draw(3)
    for _ in range(400):
        Watched(draw)
    assert set(Watched.seen) == set(SENTENCES) and min(Watched.seen.values()) >= 20


# --- the text ---


def test_sizes():
    train, validation = ((FOLDER / name).stat().st_size for name in ("train.txt", "validation.txt"))
    assert 1_000_000 <= train <= 1_500_000
    assert 95_000 <= validation <= 105_000
    lengths = [len(PIECE.findall(story)) for story in TRAIN]
    assert min(lengths) >= 60 and max(lengths) <= 220
    assert min(np.quantile(lengths, 0.75) - np.quantile(lengths, 0.25), 40) == 40  # short ones and long ones


def test_each_word_is_one_token_and_each_token_occurs():
    words = {word.lower() for word in re.findall("[A-Za-z]+", read("train.txt"))}
    assert 230 <= len(words) <= 330
    used = set()
    for text in [*TRAIN, *VALIDATION, *(item["text"] for item in CLOZE)]:
        pieces = [RANKS.decode([token]) for token in encode(RANKS, text)]
        assert pieces == PIECE.findall(text)
        used.update(pieces)
    assert used == {piece for story in TRAIN for piece in PIECE.findall(story)}
    assert RANKS.n_vocab == len(used) + 4  # two kinds of line end between stories, and the two special tokens


def test_each_story_has_four_people_four_things_and_places():
    places = [*FILLERS["spot"], *FILLERS["place"], "house", "home"]
    for story in TRAIN + VALIDATION:
        named = set(NAMED.findall(story))
        assert len(named) == len({colour for colour, _ in named}) == len({thing for _, thing in named}) == 4
        assert len(NAMED.findall(story)) == len(THING.findall(story))  # never a thing without its colour
        assert sum(f" {name}" in story for name in BOYS + GIRLS) >= 4
        assert any(place in story for place in places), story


def test_colours_say_nothing_about_things():
    counts = collections.Counter(pair for story in TRAIN for pair in set(NAMED.findall(story)))
    table = np.array([[counts[colour, thing] for thing in THINGS] for colour in COLOURS])
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    chi_squared, freedom = ((table - expected) ** 2 / expected).sum(), (len(COLOURS) - 1) * (len(THINGS) - 1)
    assert chi_squared < freedom + 3 * (2 * freedom) ** 0.5
    assert table.min() > 0


def test_recalls_are_many_near_and_far():
    distances, tokens = [], 0
    for story in TRAIN:
        last = {}
        for at, piece in enumerate(PIECE.findall(story)):
            if piece[1:] in THINGS:
                distances += [at - last[piece]] if piece in last else []
                last[piece] = at
            tokens += 1
    assert len(distances) / len(TRAIN) > 10
    assert tokens / len(distances) < 12
    bands = ((3, 6), (7, 12), (13, 20), (21, 60), (61, 200))  # the nearest are what recall is first learned from
    shares = [np.mean([low <= distance <= high for distance in distances]) for low, high in bands]
    assert sum(shares) == pytest.approx(1) and min(shares) > 0.03
    assert shares[0] > 0.25 and shares[1] > 0.15 and shares[3] > 0.15


def test_it_reads_like_text():
    assert sum(map(len, SENTENCES.values())) > 150
    openings = collections.Counter(" ".join(sentences(story)[:2]) for story in TRAIN)
    assert openings.most_common(1)[0][1] < len(TRAIN) / 100
    for story in TRAIN + VALIDATION:
        assert story.count('"') % 2 == 0 and story[-1] in '."' and "\n" not in story
        assert not re.search(r"\ba [aeiou]|\ban\b|  |[{}]|[.,?!] ?[.,?!]", story), story
        assert not re.search(r"\b(\w+) \1\b", story), story


def test_pronouns_are_clear():
    """A sentence begins with `He` only after one that begins with a boy and names no other; `She`, so too."""
    count = 0
    for story in TRAIN:
        told, who = sentences(story), None
        for before, sentence in itertools.pairwise(told):
            match = re.match("(He|She) ", sentence)
            first = before.split(" ")[0]
            who = first if first in BOYS + GIRLS else who if first in ("He", "She") else None
            if match:
                count += 1
                kin = BOYS if match[1] == "He" else GIRLS
                assert who in kin, (before, sentence)
                own = [name for name in kin if re.search(rf"\b{name}\b(?!'s)", before)]
                assert set(own) <= {who}, (before, sentence)
    assert count > 500


# --- the cloze set ---


def test_cloze_items():
    assert len(CLOZE) >= 500
    assert len({item["text"] for item in CLOZE}) == len(CLOZE)
    for item in CLOZE:
        pieces = PIECE.findall(item["text"])
        assert pieces[-1] == item["answer"] and item["answer"][1:] in THINGS and item["kind"] == "thing"
        assert len(set(item["candidates"])) >= 4 and item["answer"] in item["candidates"]
        assert set(item["candidates"]) == {piece for piece in pieces[:-1] if piece[1:] in THINGS}
        last = max(at for at, piece in enumerate(pieces[:-1]) if piece == item["answer"])
        assert item["distance"] == len(pieces) - 1 - last
        last_sentence = re.split("[.?!]", item["text"])[-1]
        assert THING.findall(last_sentence).count(item["answer"][1:]) == 1  # the asked one
        colour = pieces[-2][1:]
        assert dict(NAMED.findall(item["text"].rsplit(" ", 1)[0]))[colour] == item["answer"][1:]


def test_cloze_distances_are_near_middle_and_far():
    distances = np.array([item["distance"] for item in CLOZE])
    assert distances.min() >= 5 and distances.max() <= 150
    for low, high in ((5, 20), (21, 60), (61, 150)):
        assert 0.3 < np.mean((distances >= low) & (distances <= high)) < 0.37
    assert distances.min() <= 7 and distances.max() >= 110


def test_guessing_rules_score_little():
    first, last, most = [], [], []
    for item in CLOZE:
        named = candidates_before(item)
        counts = collections.Counter(named)
        top = [word for word in counts if counts[word] == max(counts.values())]
        first.append(named[0] == item["answer"])
        last.append(named[-1] == item["answer"])
        most.append((item["answer"] in top) / len(top))
    for scores in (first, last, most):
        assert 0.15 < np.mean(scores) <= 0.35


def test_an_8_gram_model_scores_little():
    """It tells what in training most often follows the longest known context of 7, 6, ... 0 pieces."""
    contexts = [PIECE.findall(item["text"])[:-1] for item in CLOZE]
    contexts = [[tuple(pieces[len(pieces) - n :]) for n in range(7, -1, -1)] for pieces in contexts]
    followers = {context: collections.Counter() for backed_off in contexts for context in backed_off}
    for story in TRAIN:
        pieces = PIECE.findall(story)
        for at, piece in enumerate(pieces):
            for n in range(min(7, at) + 1):
                if (context := tuple(pieces[at - n : at])) in followers:
                    followers[context][piece] += 1
    known = [next(context for context in backed_off if followers[context]) for backed_off in contexts]
    guesses = [followers[context].most_common(1)[0][0] for context in known]
    assert np.mean([guess == item["answer"] for guess, item in zip(guesses, CLOZE, strict=True)]) <= 0.35


def test_nothing_that_is_measured_was_trained_on():
    def stretches(text):
        pieces = PIECE.findall(text)
        return {tuple(pieces[start : start + 30]) for start in range(len(pieces) - 29)}

    trained, texts = set().union(*map(stretches, TRAIN)), set(TRAIN)
    for text in [*VALIDATION, *(item["text"] for item in CLOZE)]:
        assert text not in texts
        assert trained.isdisjoint(stretches(text)), text
    assert len(set(TRAIN)) == len(TRAIN)
