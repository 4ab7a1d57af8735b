from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest

from gpn_ref import PRESETS, init_params, load_model
from gpn_ref.measures import Validation, cloze, cross_entropy, perplexity, recall
from gpn_ref.text.recall import RecallConfig
from gpn_ref.text.tokenizer import encoding_from_ranks
from gpn_ref.text.trigram import Trigram

ENCODING = encoding_from_ranks({bytes([value]): value for value in range(256)})
END = 256


def bound_model():
    params = init_params(PRESETS["nano"], seed=1)
    return load_model(PRESETS["nano"]).bind({name: value * 3 for name, value in params.items()})


def test_cross_entropy_by_hand():
    logits = np.log([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]]).astype(np.float32) + 100
    np.testing.assert_allclose(cross_entropy(logits, np.array([[1, 2]])), [[log(4), -log(0.7)]], rtol=1e-4)


def test_cross_entropy_of_large_logits_is_finite():
    assert cross_entropy(np.array([[1e4, 0.0]]), np.array([1])) == 1e4


def test_perplexity_is_always_finite():
    assert perplexity(log(37)) == pytest.approx(37)
    assert perplexity(1e9) == exp(700)


def test_validation_is_the_mean_loss_of_the_model_and_bits_count_text_bytes():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 256, (700, 9))
    tokens[::3, 4] = END
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    validation = Validation([(inputs[:300], targets[:300]), (inputs[300:], targets[300:])], ENCODING)
    loss = validation.loss(bound_model())
    assert loss == pytest.approx(bound_model().loss_and_grads(inputs, targets).loss, rel=1e-5)
    n_bytes = (targets != END).sum()
    assert validation.bits_per_byte(loss) == pytest.approx(loss / log(2) * targets.size / n_bytes)
    assert validation.record(loss)["validation_perplexity"] == pytest.approx(exp(loss))


def test_the_trigram_scores_the_same_targets_row_by_row():
    rows = np.array([[END, 97, 98, 97], [END, 98, 97, 98]])
    trigram = Trigram([END, 97, 98, 97, 98], 258)
    validation = Validation([(rows[:, :-1], rows[:, 1:])], ENCODING)
    expected = np.mean([trigram.nll(rows[0]), trigram.nll(rows[1])])
    assert validation.trigram_loss(trigram) == pytest.approx(expected)


class LastWord:
    """Predicts the last byte that came after a `=`, so long as the text is not longer than `reach`."""

    def __init__(self, reach):
        self.reach = reach

    def forward(self, inputs):
        logits = np.zeros((*inputs.shape, 258), np.float32)
        for row, tokens in enumerate(inputs):
            for t in range(len(tokens)):
                seen = bytes(token for token in tokens[: t + 1] if token != END)
                if b"=" in seen[:-1] and t < self.reach:
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


def test_cloze_by_distance():
    result = cloze(LastWord(reach=30), list(items()), ENCODING)
    np.testing.assert_array_equal(result.correct, [True, True, False, True, True, False])
    assert result.accuracy == pytest.approx(4 / 6)
    assert result.chance == pytest.approx((5 / 4 + 1 / 2) / 6)
    assert result.by_distance() == {
        "up to 20 tokens": {"accuracy": 1.0, "questions": 4},
        "21-60 tokens": {"accuracy": 0.0, "questions": 1},
        "over 150 tokens": {"accuracy": 0.0, "questions": 1},
    }


def test_cloze_equals_one_item_at_a_time():
    rng = np.random.default_rng(0)
    bound = bound_model()
    passages = []
    for _ in range(40):
        letters = "".join(map(chr, rng.integers(97, 123, rng.integers(1, 150))))
        prefix = [END, *letters.encode()]
        guess = int(bound.forward(np.array([prefix])).logits[0, -1].argmax())
        answer = chr(guess) if 32 < guess < 127 and rng.random() < 0.5 else "\x00"
        passages.append((letters + answer, answer, chr(guess) == answer))
    items = [{"text": t, "answer": a, "distance": 1, "candidates": "ab"} for t, a, _ in passages]
    result = cloze(bound, items, ENCODING)
    np.testing.assert_array_equal(result.correct, [right for *_, right in passages])
    assert 0 < result.accuracy < 1


def test_a_passage_that_does_not_end_with_its_answer_is_named():
    item = {"text": "a red kite.", "answer": " kite", "distance": 1, "candidates": []}
    with pytest.raises(ValueError, match=r"'a red kite\.' does not end with its answer ' kite'"):
        cloze(None, [item], ENCODING)


def test_recall_by_gap():
    config = RecallConfig(pairs=3, gaps=(0, 2))

    class Recalls:
        """Knows the value of a key so long as the text is no longer than 13 tokens."""

        def forward(self, inputs):
            logits = np.zeros((*inputs.shape, 400), np.float32)
            for row, tokens in enumerate(inputs):
                for t in range(1, min(len(tokens), 13)):
                    before = list(tokens[:t])
                    if tokens[t] in before:
                        logits[row, t, tokens[before.index(tokens[t]) + 1]] = 1
            return SimpleNamespace(logits=logits)

    result = recall(Recalls(), config, (0, 2, 50), rows=20)
    assert result.chance == 1 / 32
    groups = result.by_distance()
    assert groups["gap of 0 tokens"] == {"accuracy": 1.0, "questions": 60}
    assert groups["gap of 2 tokens"] == {
        "accuracy": pytest.approx(2 / 3),
        "questions": 60,
    }  # the last is too late
    assert groups["gap of 50 tokens, never trained"] == {"accuracy": 0.0, "questions": 60}
