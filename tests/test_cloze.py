"""Questions from lines, the faults of lines, and scoring by the paper's definition."""

import json
from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from gpn_ref import PRESETS, init_params, load_model
from gpn_ref.cloze import Fault, Question, ask, describe_faults, last_mention, question, read_questions
from gpn_ref.files import DATA, TRAINED
from gpn_ref.measures import cross_entropy
from gpn_ref.text.tokenizer import SPLIT, decode_stream, encode, encoding_from_ranks, load_tokenizer, train_bpe
from gpn_ref.trained import Trained

BYTES = encoding_from_ranks({bytes([value]): value for value in range(256)})
END = 256
STORIES = load_tokenizer(DATA / "stories" / "tokenizer.ranks")
WORDS = encoding_from_ranks(train_bpe("the cat sat. Where is Tom's cat? the cats' hat, a concat " * 9, 46))


# --- questions


def text_of(tokens, encoding):
    return b"".join(data for _, data in decode_stream(tokens, encoding)).decode()


def test_the_last_word_is_what_follows_the_last_white_space():
    found = question({"text": "Tom had a red kite. Ann took the red kite"}, STORIES)
    assert found.prefix[0] == STORIES.n_vocab - 2
    assert text_of(found.prefix[1:], STORIES) == "Tom had a red kite. Ann took the red"
    assert found.answer == encode(STORIES, " kite") and len(found.answer) == 1
    assert (found.distance, found.chance) == (6, None)  # . Ann took the red kite


@pytest.mark.parametrize(
    ("text", "before", "answer"),
    [
        ("a ball", "a", " ball"),
        ("a ball \n", "a", " ball"),  # white space at the end is no word
        ("a  ball", "a ", " ball"),
        ("a\nball", "a\n", "ball"),
        ("a\tball", "a\t", "ball"),
        ("a\u00a0ball", "a\u00a0", "ball"),
        (" a ball", " a", " ball"),
        ('she said "ball."', "she said", ' "ball."'),
        ("日本 語", "日本", " 語"),
        ("<|end|> <|end|>", "<|end|>", " <|end|>"),
    ],
)
def test_where_a_text_is_cut(text, before, answer):
    found = question({"text": text}, BYTES)
    assert found.prefix == [END, *before.encode()]
    assert found.answer == list(answer.encode())


@given(st.text(alphabet=" \n\t'.,“’aAbé日🙂\u0301", max_size=40))
def test_prefix_and_answer_are_the_text_and_its_tokens(text):
    try:
        found = question({"text": text}, WORDS)
    except Fault as fault:
        assert len(text.split()) < 2 and str(fault).startswith("one-word" if text.strip() else "empty")
        return
    assert found.prefix[1:] + found.answer == encode(WORDS, text.rstrip())
    assert text_of(found.answer, WORDS).strip() == text.split()[-1]


def test_a_line_may_name_answer_distance_and_candidates():
    item = {"text": "Is it a red kite", "answer": " red kite", "distance": None, "candidates": [" red kite", " hat"]}
    assert question(item, BYTES) == Question([END, *b"Is it a"], list(b" red kite"), None, 0.5)
    without_space = {"text": "Is it a kite", "answer": "kite", "distance": 7, "candidates": ["hat", "kite"]}
    assert question(without_space, BYTES) == Question([END, *b"Is it a"], list(b" kite"), 7, 0.5)
    inside = {"text": "x=A..A", "answer": "A", "distance": 3}
    assert question(inside, BYTES) == Question([END, *b"x=A.."], list(b"A"), 3, None)


@pytest.mark.parametrize(
    ("before", "word", "distance"),
    [
        ("the hat", " hat", 1),
        ("the hat, a", " hat", 3),
        ("the hat and the hat. A", " hat", 3),  # the last mention counts
        ("Hat of a", " hat", 3),  # in capitals or not
        ("a cat", " hat", None),
        ("chat hats that", " hat", None),  # parts of longer words
        ("Tom's hat", " Tom", 3),  # 's is no part of a name
        ("Tom’s hat", " Tom", 4),
        ("can't you", " can", None),
        ("you can't if", " can't", 2),
        ("you can if", " can't", None),
        ("“hat!” he said:", " hat.”", 5),  # without the marks around it
        ("a well-known man is", " well-known", 3),
        ("a well man is known", " well-known", None),
        ("wait ... and", " ...", 2),  # nothing but marks
    ],
)
def test_tokens_since_the_last_mention_of_the_whole_word(before, word, distance):
    pieces = dict.fromkeys(regex.findall(SPLIT, before))
    one_token_a_piece = encoding_from_ranks({piece.encode(): rank for rank, piece in enumerate(pieces)})
    assert last_mention(before, word, one_token_a_piece) == distance


def test_a_word_of_many_tokens_counts_from_its_last():
    assert last_mention("the kite, a", " kite", BYTES) == 4  # , space a
    assert question({"text": "the kite, a kite"}, BYTES).distance == 4


def test_every_distance_of_the_stories_is_the_one_computed():
    lines = (DATA / "stories" / "cloze.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    assert len(items) == 560
    for item in items:
        found = question({"text": item["text"]}, STORIES)
        assert found.distance == item["distance"]
        assert found == question(item, STORIES)._replace(chance=None)


# --- files


def written(folder, *lines):
    path = folder / "questions.jsonl"
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


GOOD = {"text": "Tom had a kite. Ann took the kite"}


def test_a_file_in_the_format_of_lambada(tmp_path):
    path = written(
        tmp_path, b"\xef\xbb\xbf", GOOD, {"text": "In my palm is a clear stone, she said to Gabriel"}, b"\r\n\n"
    )
    questions, faults = read_questions(path, STORIES)
    assert [text_of(found.answer, STORIES) for found in questions] == [" kite", " Gabriel"]
    assert [found.distance for found in questions] == [5, None]
    assert [found.chance for found in questions] == [None, None]
    assert faults == {}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"\n", "empty"),
        (b"  \t\n", "empty"),
        ({"text": ""}, "empty"),
        ({"text": " \n"}, "empty"),
        ({"text": "kite"}, "one-word (nothing before it tells it)"),
        ({"text": " \tkite "}, "one-word (nothing before it tells it)"),
        ({"text": "red kite", "answer": "red kite"}, "one-word (nothing before it tells it)"),
        (b"{'text': 'a kite'}\n", "malformed (not JSON)"),
        (b'{"text": "a kite"\n', "malformed (not JSON)"),
        (b"[" * 100_000 + b"\n", "malformed (not JSON)"),
        (b'{"text": "a k\xffite"}\n', "malformed (not UTF-8)"),
        (b"a kite\n", "malformed (not JSON)"),
        ("a kite", "malformed (not an object)"),
        (["a kite"], "malformed (not an object)"),
        (None, "malformed (not an object)"),
        ({}, 'malformed (no string "text")'),
        ({"text": 5}, 'malformed (no string "text")'),
        ({"text": ["a kite"]}, 'malformed (no string "text")'),
        (b'{"text": "a \\ud800 kite"}\n', 'malformed ("text" has half a character)'),
        ({"text": "a kite", "answer": ""}, 'malformed ("answer" is no word)'),
        ({"text": "a kite", "answer": " "}, 'malformed ("answer" is no word)'),
        ({"text": "a kite", "answer": None}, 'malformed ("answer" is no word)'),
        ({"text": "a kite.", "answer": " kite"}, 'malformed ("text" does not end with "answer")'),
        ({"text": "a kite", "distance": -1}, 'malformed ("distance" is neither null nor a count of tokens before)'),
        (
            {"text": "a kite", "distance": 2.5},
            'malformed ("distance" is neither null nor a count of tokens before)',
        ),
        (
            {"text": "a kite", "distance": True},
            'malformed ("distance" is neither null nor a count of tokens before)',
        ),
        ({"text": "a kite", "candidates": []}, 'malformed ("candidates" is no list with the answer in it)'),
        ({"text": "a kite", "candidates": "kite"}, 'malformed ("candidates" is no list with the answer in it)'),
        ({"text": "a kite", "candidates": ["hat"]}, 'malformed ("candidates" is no list with the answer in it)'),
        ({"text": "a " * 30}, "over-long (more than 20 tokens)"),
    ],
)
def test_every_kind_of_fault_is_named_with_its_lines(tmp_path, line, fault):
    questions, faults = read_questions(written(tmp_path, GOOD, line, GOOD, GOOD, line, GOOD), STORIES, longest=20)
    assert len(questions) == 4
    assert faults == {fault: [2, 5]}
    assert list(describe_faults(faults)) == [f"2 lines {fault}: lines 2, 5"]


def test_the_longest_passage_is_no_fault(tmp_path):
    path = written(tmp_path, {"text": "abc d"}, {"text": "abcd e"})  # 5 and 6 tokens
    questions, faults = read_questions(path, BYTES, longest=5)
    assert len(questions) == 1 and faults == {"over-long (more than 5 tokens)": [2]}


def test_many_faults_are_counted_and_the_first_named():
    faults = {"empty": [3], "malformed (not JSON)": list(range(1, 1500))}
    assert list(describe_faults(faults, most=3)) == [
        "1 line empty: line 3",
        "1,499 lines malformed (not JSON): lines 1, 2, 3 and 1,496 more",
    ]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b'{"text": "kite"}\n\nx', "1 line one-word (nothing before it tells it): line 1; 1 line empty: line 2; "),
        (b"\x00\x01\xff\n", "1 line malformed (not UTF-8): line 1"),
    ],
)
def test_a_file_without_a_question_is_one_line(tmp_path, content, found):
    path = written(tmp_path, content)
    with pytest.raises(ValueError) as error:
        read_questions(path, BYTES)
    assert str(error.value).startswith(f"{path} has no question: {found}")
    assert str(error.value).endswith('; it must hold lines like {"text": "a red kite"}')


def test_no_file(tmp_path):
    for path in (str(tmp_path), str(tmp_path / "none")):
        with pytest.raises(OSError) as error:
            read_questions(path, BYTES)
        assert error.value.filename == path


# --- scores


class LastWord:
    """Gives the byte that came after the last `=` the logit 9, so long as the text is not longer than `reach`."""

    def __init__(self, reach):
        self.reach = reach

    def forward(self, inputs):
        logits = np.zeros((*inputs.shape, 258), np.float32)
        for row, tokens in enumerate(inputs):
            for t in range(min(len(tokens), self.reach)):
                seen = bytes(token for token in tokens[: t + 1] if token != END)
                if b"=" in seen[:-1]:
                    logits[row, t, seen[seen.rindex(b"=") + 1]] = 9
        return SimpleNamespace(logits=logits)


def items():
    for distance in (5, 17, 40, 20, 5, 200):
        yield {
            "text": "x=A" + "." * distance + "A",
            "answer": "A",
            "distance": distance,
            "candidates": ["A", "B", "C", "D"] if distance < 100 else ["A", "B"],
        }


def test_answers_by_distance():
    answers = ask(LastWord(reach=30), [question(item, BYTES) for item in items()])
    np.testing.assert_array_equal(answers.correct, [True, True, False, True, True, False])
    assert answers.accuracy == pytest.approx(4 / 6)
    assert answers.chance == pytest.approx((5 / 4 + 1 / 2) / 6)
    assert answers.by_distance() == {
        "up to 20 tokens": {"accuracy": 1.0, "questions": 4},
        "21-60 tokens": {"accuracy": 0.0, "questions": 1},
        "over 150 tokens": {"accuracy": 0.0, "questions": 1},
    }


def test_first_tokens_decide_and_all_tokens_are_surprising():
    asked = [
        question({"text": "x=A.. AB"}, BYTES),  # three tokens, none of them the likeliest
        question({"text": "x=A.A", "answer": "A"}, BYTES),
        question({"text": "x=A.AB", "answer": "AB"}, BYTES),  # the first right, the second not
    ]
    answers = ask(LastWord(reach=30), asked)
    sure, wrong = log(exp(9) + 257) - 9, log(exp(9) + 257)
    np.testing.assert_array_equal(answers.correct, [False, True, True])
    np.testing.assert_array_equal(answers.sizes, [3, 1, 2])
    np.testing.assert_allclose(answers.losses, [wrong + sure + wrong, sure, sure + wrong], rtol=1e-6)
    assert answers.chance is None
    found = answers.estimates()
    assert list(found) == ["all", "up to 20 tokens", "never mentioned before"]
    assert found["all"]["perplexity"]["value"] == pytest.approx(exp(answers.losses.sum() / 6))
    assert found["never mentioned before"]["accuracy"]["value"] == 0.5


def test_equal_to_one_question_at_a_time():
    rng = np.random.default_rng(0)
    params = init_params(PRESETS["nano"], seed=1)
    bound = load_model(PRESETS["nano"], "numpy").bind({name: value * 3 for name, value in params.items()})
    asked = []
    for _ in range(40):
        prefix = [END, *rng.integers(0, 256, rng.integers(1, 300)).tolist()]
        guess = int(bound.forward(np.array([prefix])).logits[0, -1].argmax())
        first = guess if rng.random() < 0.5 else int(rng.integers(0, 256))
        asked.append(Question(prefix, [first, *rng.integers(0, 256, rng.integers(0, 9)).tolist()], None, None))
    answers = ask(bound, asked)
    assert 0 < answers.accuracy < 1
    for found, right, loss in zip(asked, answers.correct, answers.losses, strict=True):
        logits = bound.forward(np.array([found.prefix + found.answer])).logits[0, len(found.prefix) - 1 : -1]
        assert right == (logits[0].argmax() == found.answer[0])
        assert loss == pytest.approx(cross_entropy(logits, found.answer).sum(), rel=1e-5)


def test_the_shipped_model_answers_541_of_560():
    trained = Trained(TRAINED)
    answers = ask(trained.bound, read_questions(DATA / "stories" / "cloze.jsonl", trained.encoding)[0])
    assert answers.correct.sum() == pytest.approx(541, abs=2)  # another machine rounds otherwise
    assert (len(answers.correct), answers.chance) == (560, 0.25)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"answer": "at"}, 'malformed ("answer" begins inside a word)'),
        ({"distance": 10**30}, 'malformed ("distance" is neither null nor a count of tokens before)'),
        ({"distance": 12}, 'malformed ("distance" is neither null nor a count of tokens before)'),
    ],
)
def test_what_a_line_cannot_mean(more, fault):
    with pytest.raises(Fault) as caught:
        question({"text": "Tom had the hat"} | more, BYTES)
    assert str(caught.value) == fault


def test_a_candidate_that_comes_twice_counts_once():
    item = {"text": "Tom had the hat", "candidates": ["hat", " hat", "kite"]}
    assert question(item, BYTES).chance == 0.5
