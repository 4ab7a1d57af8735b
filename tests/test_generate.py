import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpn_ref.generate as generation
from gpn_ref.generate import generate, stream_text, token_probabilities
from gpn_ref.text.tokenizer import END, encoding_from_ranks

LOGITS = np.log([0.1, 0.4, 0.2, 0.3])
ENCODING = encoding_from_ranks({bytes([value]): value for value in range(256)})
LAST = ENCODING.encode_single_token(END)


@pytest.mark.parametrize(
    ("options", "probabilities"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0}, [0, 1, 0, 0]),
        ({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        ({"temperature": 1e-308}, [0, 1, 0, 0]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 99}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.35}, [0, 1, 0, 0]),
        ({"top_p": 0.45}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.75}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 1.0}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 1e-12}, [0, 1, 0, 0]),
        ({"top_k": 3, "top_p": 0.5}, [0, 4 / 7, 0, 3 / 7]),  # 4/9 < 0.5 <= 7/9
        ({"temperature": 0.5, "top_p": 0.6}, [0, 16 / 25, 0, 9 / 25]),  # 16/30 < 0.6 <= 25/30
    ],
)
def test_known_distributions(options, probabilities):
    np.testing.assert_allclose(token_probabilities(LOGITS, **options), probabilities, rtol=1e-12)


def test_of_equal_logits_the_first_goes_first():
    np.testing.assert_array_equal(token_probabilities(np.zeros(4), temperature=0), [1, 0, 0, 0])
    np.testing.assert_array_equal(token_probabilities(np.zeros(4), top_k=2), [0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(token_probabilities(np.zeros(4), top_p=0.5), [0.5, 0.5, 0, 0])


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=9),
    st.floats(0, 100),
    st.integers(0, 12),
    st.floats(0, 1, exclude_min=True),
)
def test_always_a_distribution_with_the_likeliest_in_it(logits, temperature, top_k, top_p):
    logits = np.array(logits, np.float32)
    before = logits.copy()
    probabilities = token_probabilities(logits, temperature, top_k, top_p)
    assert probabilities.min() >= 0
    assert abs(probabilities.sum() - 1) < 1e-12
    assert probabilities[logits.argmax()] == probabilities.max() > 0
    if top_k:
        assert np.count_nonzero(probabilities) <= top_k
    np.testing.assert_array_equal(logits, before)


class Counter:
    """A model whose next token is the last one + 1; its state is how many tokens of the text it has read."""

    def __init__(self):
        self.states = []

    def step(self, tokens, state):
        state = 1 if state is None else state + 1
        self.states.append(state)
        logits = np.zeros((1, 5))
        logits[0, (tokens[0] + 1) % 5] = 1e3
        return logits, state


def test_generation_goes_on_from_the_prompt_and_starts_anew_after_the_end():
    model = Counter()
    tokens = generate(model, np.random.default_rng(0), end=4, prompt=[2])
    assert [next(tokens) for _ in range(7)] == [3, 4, 0, 1, 2, 3, 4]
    assert model.states == [1, 2, 3, 1, 2, 3, 4, 5]  # END, 2, 3 | END, 0, 1, 2, 3


def test_a_prompt_is_read_under_a_bar(monkeypatch):
    bars = []
    monkeypatch.setattr(generation, "tqdm", lambda tokens, **options: bars.append((tokens, options["desc"])) or tokens)
    assert next(generate(Counter(), np.random.default_rng(0), end=4, prompt=[2, 0])) == 1
    assert bars == [([2, 0], "reading the prompt")]


def test_without_a_prompt_the_end_token_starts_the_text():
    tokens = generate(Counter(), np.random.default_rng(0), end=4)
    assert [next(tokens) for _ in range(3)] == [0, 1, 2]


def test_draws_follow_the_distribution():
    class Fixed:
        def step(self, tokens, state):
            return LOGITS[None], 0

    tokens = generate(Fixed(), np.random.default_rng(0), end=-1)
    counts = np.bincount([next(tokens) for _ in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, [0.1, 0.4, 0.2, 0.3], atol=0.025)


def test_text_comes_in_whole_characters():
    assert list(stream_text("aé€😀".encode(), ENCODING)) == ["a", "é", "€", "😀"]


def test_bytes_that_are_no_character_are_replaced():
    assert list(stream_text(b"\xffa\xe2\x82", ENCODING)) == ["\ufffd", "a", "\ufffd"]
    assert "".join(stream_text([0xE2, LAST, ord("b")], ENCODING)) == "\ufffd\n\nb"


def test_the_end_of_a_text_is_a_blank_line():
    assert list(stream_text([97, LAST, 98], ENCODING)) == ["a", "\n\n", "b"]


@given(st.text(max_size=30))
def test_any_text_streams_unchanged(text):
    assert "".join(stream_text(text.encode(), ENCODING)) == text
