import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpn_ref.config import TrainConfig
from gpn_ref.text.batches import Batches, encode_documents, validation_windows
from gpn_ref.text.tokenizer import encoding_from_ranks

BYTES = encoding_from_ranks({bytes([value]): value for value in range(256)})


def numbered(*lengths):
    """Tokens 0, 1, 2, ... so that a token tells its place, in documents of these lengths."""
    return np.arange(sum(lengths), dtype=np.int32), np.cumsum([0, *lengths[:-1]])


def batches(lengths, **options):
    tokens, starts = numbered(*lengths)
    return Batches(tokens, starts, TrainConfig(**options))


def test_every_document_begins_with_end():
    tokens, starts = encode_documents(["ab", "", "é"], BYTES)
    assert tokens.tolist() == [256, 97, 98, 256, 256, 0xC3, 0xA9]
    assert starts.tolist() == [0, 3, 4]
    assert (tokens.dtype, starts.dtype) == (np.int32, np.int64)
    tokens, starts = encode_documents([], BYTES)
    assert (tokens.shape, starts.shape) == ((0,), (0,))


def test_documents_come_once_an_epoch_in_a_new_order():
    lengths, begins = [4, 9, 3, 5, 4], [0, 4, 13, 16, 21]
    source = batches(lengths, batch_size=2, window=6, window_start="document")
    epochs = np.array([source.next()[0][:, 0] for _ in range(10)]).reshape(4, 5)  # batches run across epochs
    for epoch in epochs:
        assert sorted(epoch) == begins
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 4


@pytest.mark.parametrize("window_start", ["document", "any"])
def test_windows_run_on_and_wrap(window_start):
    source = batches([4, 9, 3], batch_size=8, window=11, window_start=window_start)
    inputs, targets = source.next()
    assert inputs.shape == targets.shape == (8, 11)
    assert inputs.dtype == targets.dtype == np.int32
    assert inputs.flags.c_contiguous
    assert targets.flags.c_contiguous
    np.testing.assert_array_equal(inputs, (inputs[:, :1] + np.arange(11)) % 16)
    np.testing.assert_array_equal(targets, (inputs + 1) % 16)


def test_any_start_reaches_every_token_equally():
    source = batches([50], batch_size=100, window=3, window_start="any")
    counts = np.bincount(np.concatenate([source.next()[0][:, 0] for _ in range(200)]), minlength=50)
    assert counts.sum() == 20_000
    assert abs(counts - 400).max() < 100  # five standard deviations


def test_seed_decides():
    first, same, other = (batches([3] * 40, batch_size=20, window=4, seed=seed).next()[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["document", "any"]),
    st.integers(0, 9),
    st.integers(1, 7),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_restored_position_goes_on_to_the_bit(window_start, before, batch_size, documents, seed):
    options = {"batch_size": batch_size, "window": 5, "window_start": window_start}
    source = batches([6] * documents, seed=seed, **options)
    for _ in range(before):
        source.next()
    state = json.loads(json.dumps(source.state()))
    restored = batches([6] * documents, seed=seed + 1, **options)
    restored.load(state)
    assert restored.state() == state
    for _ in range(5):
        for expected, actual in zip(source.next(), restored.next(), strict=True):
            np.testing.assert_array_equal(actual, expected)


RANDOM = Batches(*numbered(6, 6, 6), TrainConfig(window=5)).state()["random"]


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"position": 0},
        {"random": RANDOM},
        {"random": RANDOM, "position": -1},
        {"random": RANDOM, "position": 2.0},
        {"random": RANDOM, "position": 4},
        {"random": {}, "position": 0},
    ],
)
def test_a_state_that_is_none(state):
    with pytest.raises(ValueError, match=r"position in the training data|not the state of a random generator"):
        batches([6] * 3, batch_size=2, window=5).load(state)


@pytest.mark.parametrize("size", [0, 1, 7])
def test_too_small_for_a_window(size):
    tokens, starts = np.arange(size, dtype=np.int32), np.arange(min(size, 1))
    message = f"text has {size} tokens, but a window of 7 needs 8: give more text or a smaller window$"
    with pytest.raises(ValueError, match="^the training " + message):
        Batches(tokens, starts, TrainConfig(window=7))
    with pytest.raises(ValueError, match="^the validation " + message):
        validation_windows(tokens, starts, batch_size=2, window=7, limit=10)
    tokens = np.arange(8, dtype=np.int32)
    assert Batches(tokens, np.array([0]), TrainConfig(window=7, batch_size=2)).next()[0].shape == (2, 7)
    ((inputs, targets),) = validation_windows(tokens, np.array([0]), batch_size=2, window=7, limit=10)
    assert (inputs.tolist(), targets.tolist()) == ([[0, 1, 2, 3, 4, 5, 6]], [[1, 2, 3, 4, 5, 6, 7]])


@pytest.mark.parametrize(
    ("lengths", "begins"),
    [
        ([17], [0, 4, 8, 12]),  # one long document: back to back; 16 is the last target
        ([16], [0, 4, 8]),
        ([6, 6, 6], [0, 6, 12]),  # each at its document; the two tokens that are left fill no window
        ([8, 9, 5], [0, 4, 8, 12, 17]),  # documents of two windows
        (
            [2, 2, 3, 9],
            [0, 4, 8],
        ),  # short documents share a window; 8 lies in the last, whose rest is long enough
        ([2, 3, 6, 2], [0, 5]),  # 4 lies in a document with one token left
    ],
)
def test_validation_windows_by_hand(lengths, begins):
    windows = validation_windows(*numbered(*lengths), batch_size=100, window=4, limit=100)
    assert windows[0][0][:, 0].tolist() == begins


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 20),
)
def test_validation_windows_do_not_overlap(lengths, window, batch_size, limit):
    tokens, starts = numbered(*lengths)
    if len(tokens) <= window:
        return
    windows = validation_windows(tokens, starts, batch_size, window, limit)
    assert all(len(inputs) == batch_size for inputs, _ in windows[:-1])
    inputs, targets = (np.concatenate(rows) for rows in zip(*windows, strict=True))
    assert 1 <= len(inputs) <= limit
    assert len(np.unique(targets)) == targets.size
    np.testing.assert_array_equal(inputs, inputs[:, :1] + np.arange(window))
    np.testing.assert_array_equal(targets, inputs + 1)
    every, _ = (np.concatenate(rows) for rows in zip(*validation_windows(tokens, starts, 4, window, 999), strict=True))
    for document in np.split(tokens, starts[1:])[:-1]:
        assert len(set(document.tolist()) - set(every.ravel().tolist())) < window  # left out of a document
    assert set(inputs[:, 0]) <= set(every[:, 0])
