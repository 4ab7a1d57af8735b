import base64
import os
import socket
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from gpn_ref.text.tokenizer import (
    END,
    SINGLE_BYTES,
    SPLIT,
    encode_bytes,
    encoding_from_ranks,
    format_ranks,
    load_tokenizer,
    parse_ranks,
    ranks_of,
    save_ranks,
    token_byte_lengths,
    train_bpe,
    train_words,
)

TEXT = "The cat sat on the mat. The cat's hat sat on that mat, and that was that.\n\nNo: it isn't!\n" * 3
BYTES_ONLY = dict(zip(SINGLE_BYTES, range(256), strict=True))
BPE = encoding_from_ranks(train_bpe(TEXT, 280))
WORDS = encoding_from_ranks(train_words(TEXT, 270))


def naive_bpe(text, vocab_size):
    """The definition: join the most frequent neighbours; of equal counts, the smaller joint bytes."""
    pieces = [[bytes([value]) for value in piece.encode()] for piece in regex.findall(SPLIT, text)]
    ranks = dict(BYTES_ONLY)
    while len(ranks) + 1 < vocab_size:
        counts = Counter(a + b for piece in pieces for a, b in pairwise(piece))
        if not counts:
            return ranks, pieces
        new = min(counts, key=lambda joint: (-counts[joint], joint))
        assert new not in ranks
        ranks[new] = len(ranks)
        for piece in pieces:
            position = 0
            while position + 1 < len(piece):
                if piece[position] + piece[position + 1] == new:
                    piece[position : position + 2] = [new]
                position += 1
    return ranks, pieces


@pytest.mark.parametrize(
    ("text", "new"),
    [
        # ab twice, bc once; then abc once
        ("abc ab", [b"ab", b" ab", b"abc"]),
        # overlapping neighbours are joined from the left: aa aa a, then aa aaa
        ("aaaaa", [b"aa", b"aaa", b"aaaaa"]),
        # equal counts: the smaller bytes first
        ("yx\nba\nyx\nba", [b"ba", b"yx"]),
    ],
)
def test_bpe_by_hand(text, new):
    assert list(train_bpe(text, 257 + len(new)))[256:] == new


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="abc \n", max_size=60), st.integers(257, 290))
def test_bpe_equals_its_definition_and_tiktoken(text, vocab_size):
    expected, pieces = naive_bpe(text, vocab_size)
    if len(expected) + 1 < vocab_size:
        with pytest.raises(ValueError, match=f"^the text allows at most {len(expected) + 1} tokens; {vocab_size} were"):
            train_bpe(text, vocab_size)
        vocab_size = len(expected) + 1
    ranks = train_bpe(text, vocab_size)
    assert list(ranks.items()) == list(expected.items())
    encoding = encoding_from_ranks(ranks)
    assert encoding.n_vocab == vocab_size
    decoded = [encoding.decode_single_token_bytes(token) for token in encoding.encode_ordinary(text)]
    assert decoded == [token for piece in pieces for token in piece]


def test_words_are_the_most_frequent_pieces():
    ranks = train_words("red red red a blue blue cat cat", 257 + 3)
    assert list(ranks)[256:] == [b" blue", b" cat", b" red"]  # twice each; "red" is a piece of its own
    encoding = encoding_from_ranks(ranks)
    tokens = encoding.encode_ordinary("a cat red bl")
    assert [encoding.decode_single_token_bytes(token) for token in tokens] == [
        b"a",
        b" cat",
        b" red",
        b" ",
        b"b",
        b"l",
    ]


def test_words_too_few():
    with pytest.raises(ValueError, match=r"^the text allows at most 261 tokens; 300 were asked for$"):
        train_words("one two one a", 300)


@pytest.mark.parametrize("train", [train_bpe, train_words])
def test_smallest_vocabulary_is_the_bytes(train):
    assert train("any", 257) == BYTES_ONLY
    with pytest.raises(ValueError, match=r"^the vocabulary size is 256; it must be 257 "):
        train("any", 256)


def test_bpe_does_not_depend_on_hash_seeds():
    code = (
        "from gpn_ref.text.tokenizer import *; import sys;"
        f"sys.stdout.write(format_ranks(train_bpe({TEXT!r}, 280)) + format_ranks(train_words({TEXT!r}, 270)))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "2")
    ]
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0].decode() == format_ranks(train_bpe(TEXT, 280)) + format_ranks(train_words(TEXT, 270))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Mia's red\tkite, isn't it?", ["Mia", "'s", " red", "\t", "kite", ",", " isn", "'t", " it", "?"]),
        ("a\n\n    b = 3.14\n", ["a", "\n\n", "   ", " b", " =", " 3", ".", "14", "\n"]),
        ("k07 v13 f3 Ünïcödé ヒト", ["k07", " v13", " f3", " Ünïcödé", " ヒト"]),
        ("end  \n  ", ["end", "  ", "\n", "  "]),
        (" " * 100 + "x", [" " * 64, " " * 35, " x"]),
    ],
)
def test_pieces(text, pieces):
    assert regex.findall(SPLIT, text) == pieces
    encoding = encoding_from_ranks(train_words(text, 257 + len({p for p in pieces if len(p.encode()) > 1})))
    decoded = [encoding.decode_single_token_bytes(token).decode() for token in encoding.encode_ordinary(text)]
    assert decoded == pieces  # tiktoken cuts as the trainer does


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_bytes_round_trip(data):
    for encoding in (BPE, WORDS):
        assert encoding.decode_bytes(encode_bytes(encoding, data)) == data


@settings(deadline=None)
@given(st.text())
def test_any_text_round_trips(text):
    for encoding in (BPE, WORDS):
        tokens = encoding.encode_ordinary(text)
        assert encoding.decode(tokens) == text
        assert max(tokens, default=0) < encoding.n_vocab - 1  # never END
        assert encode_bytes(encoding, text.encode()) == tokens


@pytest.mark.parametrize("character", [" ", "\n", "\t", "a", "^", "é"])
def test_long_runs_do_not_overflow_the_matcher(character):
    text = character * 1_000_000
    assert BPE.decode(BPE.encode_ordinary(text)) == text


def test_end_in_ordinary_text_is_text():
    tokens = BPE.encode_ordinary(f"a{END}b")
    assert BPE.n_vocab - 1 not in tokens
    assert BPE.decode(tokens) == "a<|end|>b"
    assert BPE.encode(END, allowed_special={END}) == [BPE.n_vocab - 1] == [279]


def test_byte_lengths():
    lengths = token_byte_lengths(WORDS)
    assert lengths.shape == (270,)
    assert lengths[-1] == 0
    assert (lengths[:256] == 1).all()
    assert lengths[WORDS.encode_ordinary(TEXT)].sum() == len(TEXT.encode())


def test_file_round_trip(tmp_path):
    path = tmp_path / "own.ranks"
    save_ranks(ranks_of(BPE), path)
    loaded = load_tokenizer(path)
    assert loaded.name == "own"
    assert loaded.n_vocab == 280
    assert ranks_of(loaded) == ranks_of(BPE)
    assert loaded.encode_ordinary(TEXT) == BPE.encode_ordinary(TEXT)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == "AA== 0"
    assert parse_ranks(format_ranks(ranks_of(BPE)).encode(), "x") == ranks_of(BPE)


GOOD = format_ranks(BYTES_ONLY | {b"th": 256, b"he": 257}).encode()


def changed(line, text):
    lines = GOOD.split(b"\n")
    lines[line - 1] = text
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; a rank file has a line a token: base64, space, rank"),
        (GOOD[:-1], "line 258: no line end; it is cut, or no rank file"),
        (GOOD[:-4], "line 258: no line end; it is cut, or no rank file"),
        (GOOD[: GOOD.index(b" 200\n") + 5], "ends at line 201 without the single byte 0xc9"),
        (b"\x80\x00\n", r"line 1: '\x80\x00' is not base64, space, rank"),
        (
            b"Hello world, this is prose.\n",
            "line 1: 'Hello world, this is prose.' is not base64, space, rank",
        ),
        (changed(7, b"!!!! 6"), "line 7: '!!!! 6' is not base64, space, rank"),
        (changed(7, b"Bg= 6"), "line 7: 'Bg= 6' is not base64, space, rank"),
        (changed(7, b""), "line 7: '' is not base64, space, rank"),
        (changed(257, b"dGg= 257"), "line 257: the rank is '257'; it must be 256"),
        (changed(257, b"dGg= two"), "line 257: the rank is 'two'; it must be 256"),
        (changed(258, b"dGg= 257"), "line 258: the token 'dGg=' repeats line 257"),
        (changed(258, b" 257"), "line 258: the token '' is empty"),
        (changed(66, base64.b64encode(b"zz") + b" 65"), "ends at line 258 without the single byte 0x41"),
        (GOOD.replace(b"\n", b"\r\n"), r"line 1: the rank is '0\r'; it must be 0"),
    ],
)
def test_bad_rank_files(tmp_path, data, message):
    path = tmp_path / "bad.ranks"
    path.write_bytes(data)
    with pytest.raises(ValueError) as error:
        load_tokenizer(path)
    text = str(error.value)
    assert text.startswith(str(path))
    assert text.removeprefix(str(path)).lstrip(", ") == message
    assert "\n" not in text


def test_rank_file_that_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_tokenizer(tmp_path / "none.ranks")
    with pytest.raises(IsADirectoryError):
        load_tokenizer(tmp_path)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "gpn_ref.text.tokenizer", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def test_command_trains_and_shows(tmp_path):
    one, two, out = tmp_path / "one.txt", tmp_path / "two.txt", tmp_path / "out.ranks"
    one.write_text(TEXT, encoding="utf-8")
    two.write_text("zebra " * 50, encoding="utf-8")
    done = command("train", "--text", one, two, "--vocab-size", 290, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{out}: 290 tokens; ")
    assert ranks_of(load_tokenizer(out)) == train_bpe(TEXT + "\n\n" + "zebra " * 50, 290)
    shown = command("show", "--tokenizer", out, "zebra é")
    assert shown.stdout.splitlines()[-2:] == ["   195  '\\\\xc3'", "   169  '\\\\xa9'"]
    assert command("train", "--text", one, "--vocab-size", 270, "--out", out, "--kind", "words").returncode == 0
    assert ranks_of(load_tokenizer(out)) == ranks_of(WORDS)


def test_command_help_has_an_example():
    for arguments in (["--help"], ["train", "--help"], ["show", "--help"]):
        done = command(*arguments)
        assert done.returncode == 0
        assert "python -m gpn_ref.text.tokenizer train --text book.txt --vocab-size 1024" in done.stdout


@pytest.mark.parametrize(
    ("make", "size", "message"),
    [
        (lambda path: None, 300, "No such file or directory"),
        (lambda path: path.mkdir(), 300, "Is a directory"),
        (lambda path: path.write_bytes(b""), 300, "is empty"),
        (lambda path: path.write_bytes(b"abc\xff"), 300, "is not UTF-8 text: byte 3 is 0xff"),
        (
            lambda path: path.write_bytes(b"aab"),
            300,
            "the text allows at most 259 tokens; 300 were asked for",
        ),
        (lambda path: path.write_bytes(b"aab"), 256, "256 is too small; it must be 257 or more"),
        (lambda path: path.write_bytes(b"aab"), -1, "-1 is too small; it must be 257 or more"),
        (lambda path: path.write_bytes(b"aab"), "many", "'many' is not a whole number"),
    ],
)
def test_command_bad_input(tmp_path, make, size, message):
    path, out = tmp_path / "text.txt", tmp_path / "out.ranks"
    make(path)
    done = command("train", "--text", path, "--vocab-size", size, "--out", out)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not out.exists()


def test_command_unwritable_place_and_unknown_kind(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    done = command("train", "--text", path, "--vocab-size", 260, "--out", tmp_path / "none" / "out.ranks")
    assert done.returncode == 2
    assert done.stderr.endswith("No such file or directory\n")
    assert done.stderr.count("\n") == 1
    done = command("train", "--text", path, "--vocab-size", 260, "--out", tmp_path / "o", "--kind", "wrods")
    assert done.returncode == 2
    assert "unknown kind 'wrods'; did you mean 'words'?" in done.stderr
    assert sorted(tmp_path.iterdir()) == [path]


def test_nothing_is_downloaded(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a tokenizer asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    save_ranks(BYTES_ONLY, tmp_path / "bytes.ranks")
    assert load_tokenizer(tmp_path / "bytes.ranks").encode_ordinary("hi") == [104, 105]
