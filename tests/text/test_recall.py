import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpn_ref.config import TrainConfig
from gpn_ref.text.recall import RecallBatches, RecallConfig, recall_evaluation, recall_ranks
from gpn_ref.text.tokenizer import encoding_from_ranks


def letters(encoding, tokens):
    return "".join(encoding.decode([token]).strip()[0] for token in tokens)


def test_a_sequence_as_text():
    config = RecallConfig(pairs=2, gaps=(3,))
    encoding = encoding_from_ranks(recall_ranks(config))
    assert encoding.n_vocab == 31 + 32 + 16 + 2
    inputs, targets, answers = recall_evaluation(config, 5, gap=3)
    assert inputs.shape == targets.shape == answers.shape == (5, 11)
    for row, target, answer in zip(inputs, targets, answers, strict=True):
        text = encoding.decode([*row, target[-1]])
        assert letters(encoding, [*row, target[-1]]) == "<kvkvfffkvkv"
        assert [*encoding.encode(text, allowed_special="all")] == [*row, target[-1]]  # a symbol is a token
        assert answer.tolist() == [False] * 8 + [True, False, True]
        assert row[1:].tolist() == target[:-1].tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.integers(0, 9), st.integers(0, 20), st.integers(14, 40), st.integers(1, 12))
def test_every_answer_is_the_value_of_its_key(pairs, more_keys, gap, n_values, n_fillers):
    config = RecallConfig(pairs, pairs + more_keys, n_values, n_fillers, gaps=(gap,))
    encoding = encoding_from_ranks(recall_ranks(config))
    inputs, targets, answers = recall_evaluation(config, 4, gap)
    assert inputs.shape == (4, 4 * pairs + gap)
    assert inputs.dtype == targets.dtype == np.int32
    assert (answers.sum(axis=1) == pairs).all()
    for row, target, answer in zip(inputs, targets, answers, strict=True):
        assert row[0] == encoding.n_vocab - 2
        keys, values = row[1 : 2 * pairs + 1 : 2], row[2 : 2 * pairs + 1 : 2]
        assert len(set(keys.tolist())) == pairs
        assert sorted(row[answer]) == sorted(keys)
        table = dict(zip(keys.tolist(), values.tolist(), strict=True))
        assert [table[key] for key in row[answer].tolist()] == target[answer].tolist()
        assert letters(encoding, row) == "<" + "kv" * pairs + "f" * gap + ("kv" * pairs)[:-1]


def test_symbols_are_drawn_evenly_and_chance_is_right():
    config = RecallConfig(pairs=4, n_keys=8, n_values=5, n_fillers=3)
    inputs, targets, answers = recall_evaluation(config, 4000, gap=4)
    keys, values, fillers = inputs[:, 1:9:2], inputs[:, 2:9:2] - 8, inputs[:, 9:13] - 13
    for symbols, count in ((keys, 8), (values, 5), (fillers, 3)):
        share = np.bincount(symbols.ravel(), minlength=count) / symbols.size
        np.testing.assert_allclose(share, 1 / count, atol=0.02)
    guess = np.random.default_rng(0).integers(5, size=targets.shape) + 8
    assert config.chance == 0.2
    assert abs((guess == targets)[answers].mean() - config.chance) < 0.02
    asked = inputs[:, 13::2]
    assert abs((asked == keys).mean() - 1 / 4) < 0.02  # the order of the questions says nothing


def test_training_mixes_the_gaps():
    source = RecallBatches(RecallConfig(pairs=3, gaps=(0, 5)), TrainConfig(batch_size=4))
    shapes = [source.next()[0].shape for _ in range(100)]
    assert set(shapes) == {(4, 12), (4, 17)}
    assert 30 < shapes.count((4, 12)) < 70


def test_restored_position_goes_on_to_the_bit():
    source, restored = (RecallBatches(RecallConfig(), TrainConfig(seed=seed)) for seed in (0, 5))
    assert (source.next()[0].shape[0], restored.next()[0].shape[0]) == (16, 16)
    restored.load(json.loads(json.dumps(source.state())))
    for _ in range(5):
        for expected, actual in zip(source.next(), restored.next(), strict=True):
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("state", [None, {}, {"random": {}}, {"random": None, "position": 1}])
def test_a_state_that_is_none(state):
    with pytest.raises(ValueError, match=r"position in the recall task|not the state of a random generator"):
        RecallBatches(RecallConfig(), TrainConfig()).load(state)


def test_seeds_and_evaluation_differ_from_training():
    config = RecallConfig(gaps=(2,))
    rows = [RecallBatches(config, TrainConfig(seed=seed)).next()[0] for seed in (0, 1)]
    rows += [recall_evaluation(config, 16, 2, seed)[0] for seed in (0, 1)]
    assert len({row.tobytes() for row in rows}) == 4
    np.testing.assert_array_equal(recall_evaluation(config, 16, 2)[0], rows[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 0}, "recall pairs is 0; it must be a whole number, 1 or more"),
        ({"n_values": -2}, "recall n_values is -2; it must be a whole number, 1 or more"),
        ({"n_keys": 2.5}, "recall n_keys is 2.5; it must be a whole number, 1 or more"),
        ({"n_fillers": 0}, "recall n_fillers is 0; it must be a whole number, 1 or more"),
        ({"gaps": ()}, "recall gaps is empty; it must hold a length or more, 0 for none"),
        ({"gaps": (0, -1)}, "recall gap is -1; it must be a whole number, 0 or more"),
        ({"pairs": 9, "n_keys": 8}, "recall pairs is 9; it must be at most n_keys, 8"),
    ],
)
def test_bad_sizes(options, message):
    with pytest.raises(ValueError) as error:
        RecallConfig(**options)
    assert str(error.value) == message


def test_a_tokenizer_needs_sixteen_symbols():
    """Fewer could be trained on, but no checkpoint of that could be read: a byte is written with sixteen tokens."""
    assert len(recall_ranks(RecallConfig(pairs=1, n_keys=5, n_values=10, n_fillers=1))) == 16
    with pytest.raises(ValueError, match="recall has 15 keys, values and fillers; a tokenizer needs 16 or more"):
        recall_ranks(RecallConfig(pairs=1, n_keys=5, n_values=9, n_fillers=1))
