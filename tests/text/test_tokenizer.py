import base64
import os
import socket
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from gpn_ref.text.tokenizer import (
    BYTE,
    END,
    SPLIT,
    byte_lengths,
    decode_stream,
    encode,
    encode_bytes,
    encoding_from_ranks,
    format_ranks,
    load_tokenizer,
    parse_ranks,
    ranks_of,
    save_ranks,
    train_bpe,
    train_words,
)

EIGHTEEN = "".join(f"{letter}\n" for letter in "0123456789ABCDEFGH")  # so that every text has enough tokens
TEXT = "The cat sat on the mat. The cat's hat sat on that mat, and that was that.\n\nNo: it isn't!\n" * 3
ALL_BYTES = {bytes([value]): value for value in range(256)}
FULL = encoding_from_ranks(ALL_BYTES | {b"th": 256, b"the": 257})
BPE = encoding_from_ranks(train_bpe(TEXT, 50))
WORDS = encoding_from_ranks(train_words(TEXT, 24))
ENCODINGS = [FULL, BPE, WORDS]


def decoded(tokens, encoding):
    """The tokens' bytes, piece by piece; what BYTE and its digits make up is one piece."""
    return [data for _, data in decode_stream(tokens, encoding) if data]


def naive_bpe(text, vocab_size):
    """The definition: join the most frequent neighbours; of equal counts, the smaller joint bytes."""
    pieces = [[bytes([value]) for value in piece.encode()] for piece in regex.findall(SPLIT, text)]
    ranks = {byte: rank for rank, byte in enumerate(sorted({byte for piece in pieces for byte in piece}))}
    while len(ranks) + 2 < vocab_size:
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
    text = EIGHTEEN + text
    singles = len(set(text.encode()))
    ranks = list(train_bpe(text, singles + 2 + len(new)))
    assert ranks == sorted({bytes([value]) for value in text.encode()}) + new


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="abc \n", max_size=60), st.integers(24, 56))
def test_bpe_equals_its_definition_and_tiktoken(text, vocab_size):
    text = EIGHTEEN + text
    vocab_size = max(vocab_size, len(set(text)) + 2)
    expected, pieces = naive_bpe(text, vocab_size)
    if len(expected) + 2 < vocab_size:
        with pytest.raises(ValueError, match=f"^the text allows at most {len(expected) + 2} tokens; {vocab_size} were"):
            train_bpe(text, vocab_size)
        vocab_size = len(expected) + 2
    ranks = train_bpe(text, vocab_size)
    assert list(ranks.items()) == list(expected.items())
    encoding = encoding_from_ranks(ranks)
    assert encoding.n_vocab == vocab_size
    assert decoded(encode(encoding, text), encoding) == [token for piece in pieces for token in piece]


def test_words_are_the_most_frequent_pieces():
    text = EIGHTEEN + "red red red a blue blue cat cat"
    ranks = train_words(text, 2 + 24)
    # 18 times; twice each; then once each by their bytes, where "red" after a line end is a piece of its own
    assert list(ranks)[:6] == [b"\n", b" blue", b" cat", b" red", b" a", b"0"]
    encoding = encoding_from_ranks(ranks)
    assert decoded(encode(encoding, "red cat"), encoding) == [b"red", b" cat"]


def test_the_words_left_out_keep_their_bytes():
    """25 pieces are there and 22 places: all five words of `a` and `b` must go before their two bytes fit."""
    ranks = train_words(EIGHTEEN + "yes\nyes\nab\nba\naab\nbba\nabab", 2 + 22)
    assert set(ranks) == {*map(str.encode, EIGHTEEN), b"yes", b"a", b"b"}


def test_the_size_that_is_advised_is_possible():
    """26 words of two letters: all of them, or else their 26 letters and the space, which are more."""
    text = " " + " ".join(
        a + b for a, b in zip("abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba", strict=True)
    )
    with pytest.raises(ValueError, match="for this text it must be 28 or more"):
        train_words(text, 20)
    assert len(train_words(text, 28)) == 26


def test_words_too_few():
    with pytest.raises(ValueError, match=r"^the text is too small for a tokenizer: it allows 6 tokens, not 18$"):
        train_words("one two one a", 300)


@pytest.mark.parametrize("train", [train_bpe, train_words])
def test_the_smallest_vocabulary(train):
    with pytest.raises(ValueError, match=r"^the vocabulary size is 17; for this text it must be 21 or more$"):
        train(EIGHTEEN, 17)
    letters = EIGHTEEN + "abcdefghijklmnopqrstuvwxyz"  # 18 + 26 letters and the line end, or 20 whole pieces
    needed = 2 + (45 if train is train_bpe else 20)
    with pytest.raises(ValueError, match=rf"^the vocabulary size is 21; for this text it must be {needed} or more$"):
        train(letters, 21)


def test_no_token_is_there_that_the_text_does_not_need():
    """Unused tokens spoil what a model learns of the others."""
    assert set(encode(WORDS, TEXT)) == set(range(WORDS.n_vocab - 2))
    assert {token for token in ranks_of(BPE) if len(token) == 1} == set(map(str.encode, TEXT))


def test_bpe_does_not_depend_on_hash_seeds():
    code = (
        "from gpn_ref.text.tokenizer import *; import sys;"
        f"sys.stdout.write(format_ranks(train_bpe({TEXT!r}, 50)) + format_ranks(train_words({TEXT!r}, 24)))"
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
    assert outputs[0].decode() == format_ranks(train_bpe(TEXT, 50)) + format_ranks(train_words(TEXT, 24))


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
    encoding = encoding_from_ranks(train_words(EIGHTEEN + text, 2 + len({*pieces, *regex.findall(SPLIT, EIGHTEEN)})))
    assert [data.decode() for data in decoded(encode(encoding, text), encoding)] == pieces
    tokens = [*ALL_BYTES, *(piece.encode() for piece in dict.fromkeys(pieces) if len(piece.encode()) > 1)]
    all_bytes = encoding_from_ranks({token: rank for rank, token in enumerate(tokens)})
    assert [data.decode() for data in decoded(all_bytes.encode_ordinary(text), all_bytes)] == pieces  # tiktoken's cuts


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_bytes_round_trip(data):
    for encoding in ENCODINGS:
        tokens = encode_bytes(encoding, data)
        assert b"".join(decoded(tokens, encoding)) == data
        assert byte_lengths(np.array([tokens], int), encoding).sum() == len(data)


@settings(deadline=None)
@given(st.text())
def test_any_text_round_trips(text):
    for encoding in ENCODINGS:
        tokens = encode(encoding, text)
        assert b"".join(decoded(tokens, encoding)).decode() == text
        assert encoding.encode_single_token(END) not in tokens
    assert encode(FULL, text) == FULL.encode_ordinary(text)


@pytest.mark.parametrize("character", [" ", "\n", "\t", "a", "^", "é"])
def test_long_runs_do_not_overflow_the_matcher(character):
    text = character * 1_000_000
    assert FULL.decode(encode(FULL, text)) == text


def test_end_in_ordinary_text_is_text():
    for encoding in ENCODINGS:
        tokens = encode(encoding, f"a{END}b{BYTE}")
        assert encoding.encode_single_token(END) not in tokens
        assert b"".join(decoded(tokens, encoding)) == b"a<|end|>b<|byte|>"
    assert (BPE.encode_single_token(END), BPE.encode_single_token(BYTE)) == (48, 49)


def test_a_byte_that_is_no_token_is_written_with_two_digits():
    """0xe2 is 14 and 2; the model may write digits that make no byte, and they stand for nothing or for themselves."""
    byte, end = WORDS.encode_single_token(BYTE), WORDS.encode_single_token(END)
    assert encode_bytes(WORDS, b"\xe2") == [byte, 14, 2]
    first = WORDS.decode_single_token_bytes(14)
    assert decoded([byte, 14, 2, 14], WORDS) == [b"\xe2", first]
    assert decoded([byte, byte, 14, end, 14], WORDS) == [first]
    tokens = np.array([[byte, 14, 2, 14, end]])
    np.testing.assert_array_equal(byte_lengths(tokens, WORDS), [[1, 0, 0, len(first), 0]])


def test_file_round_trip(tmp_path):
    path = tmp_path / "own.ranks"
    save_ranks(ranks_of(BPE), path)
    loaded = load_tokenizer(path)
    assert loaded.name == "own"
    assert loaded.n_vocab == 50
    assert ranks_of(loaded) == ranks_of(BPE)
    assert encode(loaded, TEXT) == encode(BPE, TEXT)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == "Cg== 0"
    assert parse_ranks(format_ranks(ranks_of(BPE)).encode(), "x") == ranks_of(BPE)


GOOD = format_ranks(ALL_BYTES | {b"th": 256, b"he": 257}).encode()


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
        (GOOD[: GOOD.index(b" 14\n") + 4], "has 15 tokens; a rank file has 16 or more"),
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
        (changed(258, base64.b64encode(b"<|end|>") + b" 257"), "line 258: the token 'PHxlbmR8Pg==' is a special one"),
        (changed(258, b" 257"), "line 258: the token '' is empty"),
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
    done = command("train", "--text", one, two, "--vocab-size", 60, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{out}: 60 tokens; ")
    assert ranks_of(load_tokenizer(out)) == train_bpe(TEXT + "\n\n" + "zebra " * 50, 60)
    shown = command("show", "--tokenizer", out, "zebra é").stdout.splitlines()
    assert shown[-6] == "    59  '<|byte|>'" and [int(line.split()[0]) for line in shown[-6:]] == [59, 12, 3, 59, 10, 9]
    assert command("train", "--text", one, "--vocab-size", 24, "--out", out, "--kind", "words").returncode == 0
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
        (lambda path: path.write_bytes(b"\xef\xbb\xbf"), 300, "is empty"),
        (lambda path: path.write_bytes(b"abc\xff"), 300, "is not UTF-8 text: byte 3 is 0xff"),
        (
            lambda path: path.write_bytes(b"aab"),
            300,
            "the text is too small for a tokenizer: it allows 6 tokens, not 18",
        ),
        (lambda path: path.write_bytes(b"aab"), 17, "17 is too small; it must be 18 or more"),
        (lambda path: path.write_bytes(b"aab"), -1, "-1 is too small; it must be 18 or more"),
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
    done = command("train", "--text", path, "--vocab-size", 30, "--out", tmp_path / "none" / "out.ranks")
    assert done.returncode == 2
    assert done.stderr.endswith("No such file or directory\n")
    assert done.stderr.count("\n") == 1
    done = command("train", "--text", path, "--vocab-size", 30, "--out", tmp_path / "o", "--kind", "wrods")
    assert done.returncode == 2
    assert "unknown kind 'wrods'; did you mean 'words'?" in done.stderr
    assert sorted(tmp_path.iterdir()) == [path]


def test_command_does_not_overwrite_its_text(tmp_path):
    path, link = tmp_path / "text.txt", tmp_path / "link"
    path.write_text(TEXT, encoding="utf-8")
    link.symlink_to(path)
    done = command("train", "--text", path, "--vocab-size", 30, "--out", link)
    message = f"python -m gpn_ref.text.tokenizer: --out {link} is also read as --text; it would be lost\n"
    assert (done.returncode, done.stderr) == (2, message)
    assert path.read_text(encoding="utf-8") == TEXT


def test_command_is_told_what_is_not_text(tmp_path, monkeypatch):
    save_ranks(ALL_BYTES, tmp_path / "bytes.ranks")
    done = command("show", "--tokenizer", tmp_path / "bytes.ranks", os.fsdecode(b"a\xff"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "argument text: this is not UTF-8 text: byte 1 is 0xff" in done.stderr
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    done = command("show", "--tokenizer", tmp_path / "bytes.ranks", "é")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["195", "169"]
    done = command("shwo", "--tokenizer", tmp_path / "bytes.ranks", "é")
    assert done.returncode == 2 and "unknown command 'shwo'; did you mean 'show'?" in done.stderr


def test_nothing_is_downloaded(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a tokenizer asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    save_ranks(ALL_BYTES, tmp_path / "bytes.ranks")
    assert encode(load_tokenizer(tmp_path / "bytes.ranks"), "hi") == [104, 105]
