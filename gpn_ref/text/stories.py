"""The stories corpus: small-child English in which the story so far determines words again and again.

Four people come into each story, each with a thing of a colour of its own. Colours and things are drawn anew
for every story, independently of each other, so that nothing but the story says which thing is the red one.
The things are played with, given away, swapped, hidden and found, and each mention after the first (`the red
kite`, `Tom's red kite`, `my red kite`) has a word to recall: the thing, given its colour.

    python -m gpn_ref.text.stories --out data/stories

writes train.txt and validation.txt (a story a line, blank lines between) and cloze.jsonl (a passage a line,
whose last word is to be told). The same seed gives the same bytes on every machine.
"""

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

from gpn_ref.cli import Parser, integer, path, run
from gpn_ref.files import atomic_write
from gpn_ref.text.story_sentences import BOYS, COLOURS, FILLERS, GIRLS, SENTENCES, THINGS

TRAIN_BYTES = 1_250_000
VALIDATION_BYTES = 100_000
CLOZE_ITEMS = 560
PEOPLE = 4  # people, and things, of a story
STORY_TOKENS = (60, 220)  # shortest and longest story; short ones are the more frequent
TWO = 0.3  # chance that two people come in one sentence
EARLY = 0.7  # chance of an event, for each thing that there is, before the next person comes
FIRST_ECHO = 0.8  # chance that a new thing is named again within a few tokens: recall is learned from these
ECHO = 0.2  # the same for a thing that is known
IN_TURN = 0.5  # share of the echoes that name two things in turn, so that `the last one named` is no answer
EVENTS = {  # shares of the kinds of event, of those that can happen at the time
    **{"hold": 8, "give": 4, "swap": 3, "hide": 4, "seek": 12, "find": 16},
    **{"both": 7, "wish": 4, "like": 6, "many": 6, "wander": 5},
}
OWNER = 0.4  # chance that a thing is `Tom's red kite` or `his red kite` where that is possible
PRONOUN = 0.6  # chance that a sentence begins with `He` or `She` where that is clear
AGAIN = 0.25  # chance that a sentence is about the thing that the last one was about
HIDDEN = 0.2  # chance that it is about one that lies somewhere, if there is any
FOCUS = 0.7  # chance, otherwise, that it is about one of the scene's two; the others wait: they come far apart
SCENE = 0.2  # chance, each sentence, that a new scene begins
DISTANCES = ((5, 20), (21, 60), (61, 150))  # tokens since the last mention: near, middle, far; a third each
OVERLAP = 30  # tokens in a row that no validation story and no passage shares with the training text

PIECE = re.compile(r"'s| ?[A-Za-z]+| ?[^\sA-Za-z]+|\s+")  # the tokenizer's pieces, as far as these texts go
SLOT = re.compile(r"{(.+?)}")
NEEDS = {line: set(SLOT.findall(line)) for lines in SENTENCES.values() for line in lines}


@dataclass
class Thing:
    name: str  # `red kite`
    owner: str
    holder: str | None  # a person, or nobody: then it lies at `spot`
    spot: str = ""


class Draw:
    """Draws that are the same in every Python: all of them come from `random()` alone."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def one(self, items):
        return items[int(self.random() * len(items))]

    def some(self, items, count):
        """`count` different items, in drawn order."""
        items, drawn = list(items), []
        for _ in range(count):
            drawn.append(items.pop(int(self.random() * len(items))))
        return drawn

    def weighted(self, shares):
        """A key of `shares`, each as often as its whole number says."""
        return self.one([key for key, share in shares.items() for _ in range(share)])


class Story:
    """A small world that tells what happens in it; `text` is the story so far."""

    def __init__(self, draw):
        self.draw = draw
        self.sentences, self.size, self.things = [], 0, []  # `size` in tokens
        self.focus, self.last, self.subject, self.told = [], None, None, set()
        shortest, longest = STORY_TOKENS
        length = shortest + (longest - shortest) * draw.random() ** 2
        people = draw.some(BOYS + GIRLS, PEOPLE)
        named = zip(draw.some(COLOURS, PEOPLE), draw.some(THINGS, PEOPLE), people, strict=True)
        self.waiting = [Thing(f"{colour} {noun}", person, person) for colour, noun, person in named]
        while self.waiting:
            self.meet()
            for _ in self.things:
                if draw.random() < EARLY and self.size < length * len(self.things) / PEOPLE:
                    self.happen()
        while self.size < length - 10:
            self.happen()
        x = draw.one([thing for thing in self.things if thing.holder] or self.things)
        self.tell("ending", x.holder or x.owner, x=x)

    @property
    def text(self):
        return " ".join(self.sentences)

    def meet(self):
        """The next person, or the next two, come with their things."""
        two = self.things != [] and len(self.waiting) > 1 and self.draw.random() < TWO
        new = [self.waiting.pop() for _ in range(1 + two)]
        self.things += new
        if two:
            self.tell("meet two", new[0].owner, new[1].owner, *new)
        else:
            self.tell("meet" if len(self.things) > 1 else "begin", new[0].owner, x=new[0])
        self.echo(new[-1], FIRST_ECHO)

    def happen(self):
        """One event; what can happen depends on where its thing is."""
        draw, x = self.draw, self.pick()
        others = [thing for thing in self.things if thing is not x]
        y, z = (draw.some(others, min(2, len(others))) + [None, None])[:2]
        possible = {"wander", "like", "hold" if x.holder else "seek"}
        if y:
            possible.add("wish")
        if x.holder is None:
            possible.add("find")
        elif y:
            possible |= {"hide", "give"}
            if y.holder not in (None, x.holder):
                possible |= {"both", "swap"}
        if z:
            possible.add("many")
        kind = draw.weighted({kind: share for kind, share in EVENTS.items() if kind in possible})
        if kind in ("hold", "hide", "give", "both", "swap"):
            a = x.holder
        else:
            a = self.someone(but=x.holder if kind == "wish" else None)
        b = y.holder if kind in ("both", "swap") else self.someone(but=a)
        self.tell(kind, a, b, x, y, z)
        if kind != "wander":
            self.echo(x, ECHO)

    def echo(self, x, chance):
        """Name the thing again at once: alone, or in turn with another."""
        if self.draw.random() < chance:
            others = [thing for thing in self.things if thing is not x]
            if others and self.draw.random() < IN_TURN:
                x, y = self.draw.some([x, self.draw.one(others)], 2)
                self.tell("echo two", x.owner, y.owner, x, y)
            else:
                self.tell("echo", x.owner, x=x)

    def pick(self):
        """The thing that the next sentence is about."""
        draw, hidden = self.draw, [thing for thing in self.things if not thing.holder]
        if not self.focus or draw.random() < SCENE:
            self.focus = draw.some(self.things, min(2, len(self.things)))
        if not self.last or draw.random() >= AGAIN:
            if hidden and draw.random() < HIDDEN:
                self.last = draw.one(hidden)
            else:
                self.last = draw.one(self.focus if draw.random() < FOCUS else self.things)
        return self.last

    def someone(self, but=None):
        others = [thing.owner for thing in self.things if thing.owner != but]
        return self.draw.one(others) if others else None

    def tell(self, kind, a=None, b=None, x=None, y=None, z=None):
        """Say one sentence of `kind`, and do to the world what it says."""
        if kind == "hide":
            x.spot, x.holder = self.draw.one(FILLERS["spot"]), None
        slots = self.slots(a, b, x, y, z)
        missing = {name for name, words in slots.items() if words is None}
        fitting = [line for line in SENTENCES[kind] if missing.isdisjoint(NEEDS[line])]
        line = self.draw.one([line for line in fitting if line not in self.told] or fitting)
        self.told.add(line)
        if line.startswith("{A} ") and a == self.subject and self.draw.random() < PRONOUN:
            line = line.replace("{A}", slots["he"].capitalize(), 1)
        clear = "{B}" not in line or (a in BOYS) != (b in BOYS)  # who `he` or `she` is in the next sentence
        self.subject = {"{A} ": a, "{B} ": b}.get(line[:4]) if clear else None
        self.sentences.append(SLOT.sub(lambda match: slots[match[1]], line))
        self.size += len(PIECE.findall(" " + self.sentences[-1]))
        if kind == "give":
            x.holder = b
        elif kind == "swap":
            x.holder, y.holder = b, a
        elif kind == "find":
            x.holder = a

    def slots(self, a, b, x, y, z):
        """What each name in braces stands for in this sentence; None if there is no such person or thing."""
        draw = self.draw
        slots = {name: draw.one(words) for name, words in FILLERS.items()}
        slots["spot"] = draw.one([spot for spot in FILLERS["spot"] if not x or spot != x.spot])
        slots["second"] = draw.one([animal for animal in FILLERS["animal"] if animal != slots["animal"]])
        slots["he"], slots["his"], slots["him"] = ("he", "his", "him") if a in BOYS else ("she", "her", "her")
        slots |= {"boy": "boy" if a in BOYS else "girl", "A": a, "B": b, "at": x and x.spot}
        for name, thing in {"x": x, "y": y, "z": z}.items():
            owner = thing and thing.owner
            whose = {None: "", a: slots["his"], b: "the"}.get(owner, f"{owner}'s")
            for article in ("a", "the", "The"):
                slots[f"{article} {name}"] = thing and f"{article} {thing.name}"
            slots[name] = thing and f"{whose if draw.random() < OWNER else 'the'} {thing.name}"
            slots[f"bare {name}"] = thing and thing.name
            slots[f"my {name}"] = thing and f"{'my' if owner == a else 'the'} {thing.name}"
        return slots


def stretches(pieces):
    """Every run of OVERLAP pieces."""
    return {tuple(pieces[start : start + OVERLAP]) for start in range(len(pieces) - OVERLAP + 1)}


def cuts(text):
    """The cloze items that end in a thing of `text`, with what the guessing rules would see of each."""
    pieces = PIECE.findall(text)
    named = [(at, piece) for at, piece in enumerate(pieces) if piece[1:] in THINGS]
    ends = [at for at, piece in enumerate(pieces) if re.search("[.?!]", piece)]
    for index, (at, answer) in enumerate(named):
        before = [noun for _, noun in named[:index]]
        candidates = list(dict.fromkeys(before))
        if answer not in candidates or len(candidates) < PEOPLE:
            continue
        last = max(i for i, noun in named[:index] if noun == answer)
        if not any(last < end < at for end in ends):  # named in the last sentence too
            continue
        by_count = sorted(candidates, key=lambda noun: (-before.count(noun), before[::-1].index(noun)))
        by_last = sorted(candidates, key=lambda noun: before[::-1].index(noun))
        band = [low <= at - last <= high for low, high in DISTANCES]
        if any(band):
            item = {"text": "".join(pieces[: at + 1]), "answer": answer, "kind": "thing"}
            item |= {"distance": at - last, "candidates": candidates}
            ranks = [ranking.index(answer) for ranking in (candidates, by_last, by_count)]
            yield item, [("band", band.index(True)), *zip(("first", "last", "most"), ranks, strict=True)]


def choose(draw, seen):
    """CLOZE_ITEMS passages, each of its own story; distances and ranks of the answer about equally often."""
    room = {("band", band): -(-CLOZE_ITEMS // len(DISTANCES)) for band in range(len(DISTANCES))}
    room |= {(rule, rank): CLOZE_ITEMS // PEOPLE + 10 for rule in ("first", "last", "most") for rank in range(PEOPLE)}
    items = []
    while len(items) < CLOZE_ITEMS:
        text = fresh(draw, seen)
        fitting = [(item, marks) for item, marks in cuts(text) if all(room[mark] for mark in marks)]
        if fitting:
            item, marks = max(fitting, key=lambda pair: sum(room[mark] for mark in pair[1]))
            items.append(item)
            for mark in marks:
                room[mark] -= 1
    return items


def fresh(draw, seen):
    """A story of the right length that shares no long stretch with those of `seen`."""
    while True:
        text = Story(draw).text
        pieces = PIECE.findall(text)
        if STORY_TOKENS[0] <= len(pieces) <= STORY_TOKENS[1] and seen.isdisjoint(stretches(pieces)):
            return text


def fill(draw, size, seen=frozenset()):
    """Stories of about `size` bytes in all."""
    stories, written = [], 0
    while written < size:
        stories.append(fresh(draw, seen))
        written += len(stories[-1]) + 2
    return stories


def main(arguments=None):
    parser = Parser(
        prog="python -m gpn_ref.text.stories",
        description="Write the stories corpus: train.txt, validation.txt and cloze.jsonl.",
        epilog="example:\n  python -m gpn_ref.text.stories --out data/stories",
    )
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="folder to write into; made if missing")
    parser.add_argument("--seed", type=integer(at_least=0), default=0, help="number that fixes every draw (default 0)")
    options = parser.parse_args(arguments)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    draw = Draw(options.seed)
    train = fill(draw, TRAIN_BYTES)
    seen = set().union(*(stretches(PIECE.findall(story)) for story in train))
    validation = fill(draw, VALIDATION_BYTES, seen)
    items = choose(draw, seen)
    for name, lines in (("train.txt", "\n\n".join(train)), ("validation.txt", "\n\n".join(validation))):
        with atomic_write(folder / name) as file:
            file.write(lines + "\n")
    with atomic_write(folder / "cloze.jsonl") as file:
        file.writelines(json.dumps(item) + "\n" for item in items)
    print(f"{folder}: {len(train)} stories, {len(validation)} for validation, {len(items)} cloze passages")


if __name__ == "__main__":
    run(main, "python -m gpn_ref.text.stories")
