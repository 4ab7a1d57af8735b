from itertools import pairwise
from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest

from gpn_ref import PRESETS, init_params, load_model, measures
from gpn_ref.measures import (
    PositionSums,
    Validation,
    cross_entropy,
    perplexity,
    recall,
    recall_grid,
    recall_rows,
    score_text,
    spans,
)
from gpn_ref.text.recall import RecallConfig
from gpn_ref.text.tokenizer import byte_lengths, encoding_from_ranks
from gpn_ref.text.trigram import Trigram

ENCODING = encoding_from_ranks({bytes([value]): value for value in range(256)})
END = 256


def row_bytes(batches, encoding=ENCODING):
    return [byte_lengths(targets, encoding).sum(axis=1) for _, targets in batches]


def scored(bound, batches, encoding=ENCODING):
    return score_text(bound, batches, row_bytes(batches, encoding))


def bound_model():
    params = init_params(PRESETS["nano"], seed=1)
    return load_model(PRESETS["nano"], "numpy").bind({name: value * 3 for name, value in params.items()})


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
    batches = [(inputs[:300], targets[:300]), (inputs[300:], targets[300:])]
    validation = Validation(batches, row_bytes(batches))
    loss = validation.loss(bound_model())
    assert loss == pytest.approx(bound_model().loss_and_grads(inputs, targets).loss, rel=1e-5)
    n_bytes = (targets != END).sum()
    assert validation.bits_per_byte(loss) == pytest.approx(loss / log(2) * targets.size / n_bytes)
    assert validation.record(loss)["validation_perplexity"] == pytest.approx(exp(loss))


def test_the_trigram_scores_the_same_targets_row_by_row():
    rows = np.array([[END, 97, 98, 97], [END, 98, 97, 98]])
    trigram = Trigram([END, 97, 98, 97, 98], 258)
    batches = [(rows[:, :-1], rows[:, 1:])]
    validation = Validation(batches, row_bytes(batches))
    expected = np.mean([trigram.nll(rows[0]), trigram.nll(rows[1])])
    assert validation.trigram_loss(trigram) == pytest.approx(expected)


def test_cross_entropy_in_parts_is_the_same(monkeypatch):
    logits = np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32)
    targets = np.arange(15).reshape(3, 5) % 7
    whole = cross_entropy(logits, targets)
    for part in (1, 7, 20):  # logits: less than a position, one position, two
        monkeypatch.setattr(measures, "PART", part)
        np.testing.assert_array_equal(cross_entropy(logits, targets), whole)


# --- text


class Counting:
    """Knows that every token is the one before it plus 1, more surely the longer it reads: the loss is known_loss."""

    def forward(self, inputs):
        logits = np.zeros((*inputs.shape, 258), np.float32)
        for t in range(inputs.shape[1]):
            logits[np.arange(len(inputs)), t, inputs[:, t] + 1] = t
        return SimpleNamespace(logits=logits)


def known_loss(t):
    return np.log(1 + 257 * np.exp(-np.asarray(t, float)))


def counting(rows, T, first=0):
    tokens = first + np.arange(rows)[:, None] + np.arange(T + 1)
    return tokens[:, :-1], tokens[:, 1:]


def test_the_loss_at_each_position_is_known():
    score = scored(Counting(), [counting(3, 24), counting(2, 24)])
    np.testing.assert_array_equal(score.positions.spans, [(t, t + 1) for t in range(24)])
    count, mean, error = score.positions.statistics()
    np.testing.assert_array_equal(count, 5)
    np.testing.assert_allclose(mean, known_loss(np.arange(24)), rtol=1e-6)
    np.testing.assert_allclose(error, 0, atol=1e-7)
    count, mean, _ = score.halves.statistics()
    np.testing.assert_array_equal(count, [0] * 12 + [5] * 12)
    assert np.isnan(mean[:12]).all()
    np.testing.assert_allclose(mean[12:], known_loss(np.arange(12)), rtol=1e-6)
    estimates = score.estimates()
    assert (estimates["sequences"], estimates["tokens"], estimates["bytes"]) == (5, 120, 120)
    assert estimates["loss"]["value"] == pytest.approx(known_loss(np.arange(24)).mean())
    first, second, _, last = known_loss(np.arange(24)).reshape(4, 6).mean(axis=1)
    hidden = known_loss(np.arange(6, 12)).mean()
    for name, value in {
        "more_than_first_quarter": last - first,
        "more_than_second_quarter": last - second,
        "more_without_first_half": hidden - last,
    }.items():
        assert score.context()[name]["value"] == pytest.approx(value, rel=1e-5)
        assert score.context()[name]["interval"] == pytest.approx([value, value], rel=1e-5)


def test_sequences_of_different_lengths():
    score = scored(Counting(), [counting(3, 9), counting(1, 4), counting(2, 3)])
    count, mean, error = score.positions.statistics()
    np.testing.assert_array_equal(count, [6, 6, 6, 4, 3, 3, 3, 3, 3])
    np.testing.assert_allclose(mean, known_loss(np.arange(9)), rtol=1e-6)
    assert score.estimates()["loss"]["value"] == pytest.approx(
        (3 * known_loss(np.arange(9)).sum() + known_loss(np.arange(4)).sum() + 2 * known_loss(np.arange(3)).sum()) / 37
    )
    np.testing.assert_array_equal(score.halves.statistics()[0], [0, 0, 1, 1, 3, 3, 3, 3, 3])
    assert sum(map(len, score.quarters)) == 4  # three tokens have no quarters


def test_positions_far_on_are_told_in_wider_spans():
    borders = spans(1000)
    assert borders[:33] == list(range(33)) and borders[33:35] == [34, 36] and borders[-1] == 1000
    assert all(b - a <= max(1, a / 16) for a, b in pairwise(borders))
    values = np.random.default_rng(0).normal(size=(50, 100))
    sums = PositionSums(100)
    sums.add(values[:20])
    sums.add(values[20:, :40])
    sums.add(values[20:, 40:], first=40)
    count, mean, error = sums.statistics()
    for (begin, end), n, middle, sure in zip(sums.spans, count, mean, error, strict=True):
        means = values[:, begin:end].mean(axis=1)
        assert n == 50 and middle == pytest.approx(means.mean())
        assert sure == pytest.approx(means.std(ddof=1) / 50**0.5)


class Uniform:
    def forward(self, inputs):
        return SimpleNamespace(logits=np.zeros((*inputs.shape, 258), np.float32))


def test_all_tokens_alike_have_the_perplexity_of_their_number():
    estimates = scored(Uniform(), [counting(4, 10)]).estimates()
    assert estimates["perplexity"]["value"] == pytest.approx(258)
    assert estimates["perplexity"]["interval"] == pytest.approx([258, 258])
    assert estimates["bits_per_byte"]["value"] == pytest.approx(log(258) / log(2))  # each token here is a byte


def test_bits_per_byte_count_the_bytes_of_the_targets_only():
    encoding = encoding_from_ranks({bytes([value]): value for value in range(128)} | {"é".encode(): 128, b" caf": 129})
    byte = encoding.n_vocab - 1
    tokens = np.array([[65, 129, 128, byte, 12, 3, 66]])  # A| caf é, one byte as three tokens, B: 4 + 2 + 1 + 1 bytes
    score = scored(Uniform(), [(tokens[:, :-1], tokens[:, 1:])], encoding)
    assert score.estimates()["bytes"] == 8
    assert score.estimates()["bits_per_byte"]["value"] == pytest.approx(6 * log(258) / log(2) / 8)


class Copying:
    """Knows that the second half of a row repeats the first, so long as it has read the first."""

    def forward(self, inputs):
        logits = np.zeros((*inputs.shape, 258), np.float32)
        for row, tokens in enumerate(inputs):
            for t, token in enumerate(tokens):
                if token in tokens[:t]:
                    logits[row, t, tokens[list(tokens).index(token) + 1]] = 30
        return SimpleNamespace(logits=logits)


def test_a_planted_use_of_the_context_is_found():
    rng = np.random.default_rng(0)
    halves = np.array([rng.permutation(256)[:8] for _ in range(20)])
    rows = np.concatenate([halves, halves, halves[:, :1]], axis=1)
    score = scored(Copying(), [(rows[:, :-1], rows[:, 1:])])
    context = score.context()
    assert context["more_without_first_half"]["value"] == pytest.approx(log(258), rel=1e-3)
    assert context["more_than_first_quarter"]["interval"] == pytest.approx([-log(258)] * 2, rel=1e-3)
    context = scored(Uniform(), [(rows[:, :-1], rows[:, 1:])]).context()
    assert [estimate["value"] for estimate in context.values()] == pytest.approx([0, 0, 0])


def test_one_sequence_has_no_interval_and_no_error():
    score = scored(Counting(), [counting(1, 8)])
    assert np.isnan(score.estimates()["perplexity"]["interval"]).all()
    assert np.isnan(score.positions.statistics()[2]).all()


def test_the_score_of_a_model_is_its_validation_loss():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 256, (90, 21))
    batches = [(tokens[:50, :-1], tokens[:50, 1:]), (tokens[50:, :-1], tokens[50:, 1:])]
    estimate = scored(bound_model(), batches).estimates()["loss"]
    assert estimate["value"] == pytest.approx(Validation(batches, row_bytes(batches)).loss(bound_model()), rel=1e-12)
    assert estimate["interval"][0] < estimate["value"] < estimate["interval"][1]


# --- recall


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


def test_recall_by_gap():
    config = RecallConfig(pairs=3, gaps=(0, 2))
    result = recall(Recalls(), config, (0, 2, 50), rows=20)
    assert result.chance == 1 / 32
    groups = result.by_distance()
    assert groups["gap of 0 tokens"] == {"accuracy": 1.0, "questions": 60}
    assert groups["gap of 2 tokens"] == {
        "accuracy": pytest.approx(2 / 3),
        "questions": 60,
    }  # the last is too late
    assert groups["gap of 50 tokens, never trained"] == {"accuracy": 0.0, "questions": 60}


def test_recall_over_pairs_and_gaps():
    config = RecallConfig(pairs=3, n_keys=5, gaps=(0, 2))
    grid = recall_grid(Recalls(), config, (1, 3, 5), (0, 2, 4))
    found = {(pairs, cell["gap"]): cell for pairs, cells in grid.items() for cell in cells}
    shares = {  # the last value of n pairs is asked at position 4 n + gap - 1, and 12 is the last that it knows
        **{(1, 0): 1, (1, 2): 1, (1, 4): 1},
        **{(3, 0): 1, (3, 2): 2 / 3, (3, 4): 1 / 3},
        **{(5, 0): 1 / 5, (5, 2): 0, (5, 4): 0},
    }
    assert {key: cell["accuracy"]["value"] for key, cell in found.items()} == pytest.approx(shares)
    assert {key: cell["accuracy"]["interval"] for key, cell in found.items()} == {
        key: pytest.approx([share, share]) for key, share in shares.items()
    }
    assert {key for key, cell in found.items() if cell["trained"]} == {(3, 0), (3, 2)}
    assert {cell["questions"] for cell in found.values()} == {256, 768, 1280}


def test_fewer_rows_of_long_sequences():
    assert recall_rows(RecallConfig(pairs=4), 0) == 256
    assert recall_rows(RecallConfig(pairs=4), 10_000) == 7
    assert recall_rows(RecallConfig(pairs=4), 10**6) == 1


def test_numbers_that_overflow_are_told_and_nothing_is_measured():
    class Wild:
        def forward(self, inputs):
            return SimpleNamespace(logits=np.full((*inputs.shape, 258), np.nan, np.float32))

    with pytest.raises(ValueError, match="the model's numbers overflow on this text: a loss is not finite"):
        scored(Wild(), [counting(1, 8)])
