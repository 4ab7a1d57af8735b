"""Tokenizers: a `tiktoken.Encoding` built from a rank file, and two small trainers that make rank files.

A rank file has a line a token: its bytes in base64, a space, its rank; the ranks count 0, 1, 2, ... down the
file. To encode, tiktoken cuts text into pieces with SPLIT. A piece that is a token stays whole; any other
starts as single bytes, and the two neighbours whose joint bytes have the lowest rank are joined, again and
again. All 256 single bytes are tokens, so any bytes come back unchanged.
"""

import base64
import heapq
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import regex
import tiktoken
from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.files import atomic_write, read_text

END = "<|end|>"  # the one special token: every document begins with it
SINGLE_BYTES = [bytes([value]) for value in range(256)]
SMALLEST_VOCAB = len(SINGLE_BYTES) + 1
# A word with the space or apostrophe before it; punctuation with the space before it; line ends; other white
# space, whose last space is left to the word that follows. The bound of 64 is there because the matcher
# backtracks through that run, and a long one would overflow its stack.
SPLIT = r"[ ']?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]+|[\r\n]+|[^\S\r\n]{1,64}(?!\S)|\s"


def load_tokenizer(path):
    """The tokenizer of a rank file, with END added as its last token: `encoding.n_vocab` is V, ranks and END.

    A file that is cut, empty or not a rank file is a ValueError that names the file and the line.
    """
    return encoding_from_ranks(parse_ranks(Path(path).read_bytes(), path), name=Path(path).stem)


def encoding_from_ranks(ranks, name="gpn_ref"):
    """A `tiktoken.Encoding` from `ranks` (token bytes -> rank, 0 to n - 1); END has the id n."""
    special = {END: len(ranks)}
    return tiktoken.Encoding(name, pat_str=SPLIT, mergeable_ranks=ranks, special_tokens=special)


def ranks_of(encoding):
    """The ranks (token bytes -> rank) that `encoding_from_ranks` made the encoding from."""
    return {encoding.decode_single_token_bytes(rank): rank for rank in range(encoding.n_vocab - 1)}


def parse_ranks(data, name):
    """The ranks (token bytes -> rank) in the bytes of a rank file; errors name `name` and the line."""
    if not data:
        raise ValueError(f"{name} is empty; a rank file has a line a token: base64, space, rank")
    lines = data.split(b"\n")
    if lines.pop():
        raise ValueError(f"{name}, line {len(lines) + 1}: no line end; it is cut, or no rank file")
    ranks = {}
    for rank, line in enumerate(lines):
        try:
            code, number = line.split(b" ")
            token = base64.b64decode(code, validate=True)
        except ValueError:  # binascii.Error is one
            raise ValueError(f"{name}, line {rank + 1}: {_shown(line)} is not base64, space, rank") from None
        if number != b"%d" % rank:
            raise ValueError(f"{name}, line {rank + 1}: the rank is {_shown(number)}; it must be {rank}")
        if not token or token in ranks:
            problem = f"repeats line {ranks[token] + 1}" if token else "is empty"
            raise ValueError(f"{name}, line {rank + 1}: the token {_shown(code)} {problem}")
        ranks[token] = rank
    missing = [byte for byte in SINGLE_BYTES if byte not in ranks]
    if missing:
        raise ValueError(f"{name} ends at line {len(lines)} without the single byte 0x{missing[0].hex()}")
    return ranks


def format_ranks(ranks):
    """The text of a rank file."""
    ordered = sorted(ranks, key=ranks.get)
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ordered))


def save_ranks(ranks, path):
    """Write a rank file."""
    with atomic_write(path) as file:
        file.write(format_ranks(ranks))


def train_bpe(text, vocab_size):
    """Byte-pair encoding: ranks for `vocab_size` tokens, END included, from the counts of `text`.

    Starting from single bytes, the neighbours within a piece whose joint bytes are most frequent become the
    next token; of equal counts the smaller bytes go first. ValueError if the text cannot give so many tokens.
    """
    _require_vocab(vocab_size)
    words = [([bytes([value]) for value in piece], count) for piece, count in _pieces(text).items()]
    counts, places = Counter(), defaultdict(set)  # of joint bytes: how often they occur, and in which words
    for index, (tokens, count) in enumerate(words):
        for joint in _joints(tokens):
            counts[joint] += count
            places[joint].add(index)
    queue = [(-count, joint) for joint, count in counts.items()]
    heapq.heapify(queue)
    ranks = {byte: rank for rank, byte in enumerate(SINGLE_BYTES)}
    for _ in tqdm(range(vocab_size - SMALLEST_VOCAB), desc="merges", disable=None, leave=False):
        while queue and -queue[0][0] != counts[queue[0][1]]:  # outdated; the present count is queued too
            heapq.heappop(queue)
        if not queue or queue[0][0] == 0:
            raise _too_few(len(ranks) + 1, vocab_size)
        new = heapq.heappop(queue)[1]
        ranks[new] = len(ranks)
        changes = Counter()
        for index in places.pop(new):
            tokens, count = words[index]
            for joint in _joints(tokens):
                changes[joint] -= count
            tokens[:] = _join(tokens, new)
            for joint in _joints(tokens):
                changes[joint] += count
                places[joint].add(index)
        for joint, change in changes.items():
            counts[joint] += change
            heapq.heappush(queue, (-counts[joint], joint))
    return ranks


def _pieces(text):
    """How often each piece occurs, as bytes."""
    return Counter(piece.group().encode() for piece in regex.finditer(SPLIT, text))


def _joints(tokens):
    """The joint bytes of every two neighbours."""
    return map(bytes.__add__, tokens, tokens[1:])


def _join(tokens, new):
    """The tokens with the neighbours that make up `new` joined, from the left."""
    joined = []
    for token in tokens:
        if joined and len(joined[-1]) + len(token) == len(new) and joined[-1] + token == new:
            joined[-1] = new
        else:
            joined.append(token)
    return joined


def train_words(text, vocab_size):
    """Whole words: ranks for `vocab_size` tokens: the bytes, the most frequent pieces of `text`, and END.

    Of equal counts the smaller bytes go first. ValueError if the text cannot give so many tokens.
    """
    _require_vocab(vocab_size)
    words = sorted((-count, piece) for piece, count in _pieces(text).items() if len(piece) > 1)
    if len(words) < vocab_size - SMALLEST_VOCAB:
        raise _too_few(SMALLEST_VOCAB + len(words), vocab_size)
    tokens = SINGLE_BYTES + [piece for _, piece in words[: vocab_size - SMALLEST_VOCAB]]
    return {token: rank for rank, token in enumerate(tokens)}


def token_byte_lengths(encoding):
    """(V,) int64: how many bytes of text each token stands for; END stands for none."""
    return np.array([len(token) for token in ranks_of(encoding)] + [0])


def encode_bytes(encoding, data):
    """Tokens of any bytes: UTF-8 as `encode_ordinary` does it, other bytes as their single-byte tokens."""
    tokens = []
    while data:
        try:
            return tokens + encoding.encode_ordinary(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            tokens += encoding.encode_ordinary(data[: error.start].decode("utf-8"))
            tokens.append(encoding.encode_single_token(data[error.start : error.start + 1]))
            data = data[error.start + 1 :]
    return tokens


def _require_vocab(vocab_size):
    if vocab_size < SMALLEST_VOCAB:
        raise ValueError(
            f"the vocabulary size is {vocab_size}; it must be {SMALLEST_VOCAB} (256 bytes and {END}) or more"
        )


def _too_few(possible, vocab_size):
    return ValueError(f"the text allows at most {possible} tokens; {vocab_size} were asked for")


def _shown(data):
    return repr(data[:40]).removeprefix("b")


def main(arguments=None):
    parser = cli.Parser(prog="python -m gpn_ref.text.tokenizer", description=__doc__, epilog=EXAMPLES)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train = commands.add_parser("train", help="make a rank file from text", epilog=EXAMPLES)
    train.add_argument("--text", nargs="+", required=True, metavar="FILE", help="UTF-8 text to learn from")
    size = cli.integer(SMALLEST_VOCAB)
    train.add_argument("--vocab-size", type=size, required=True, metavar="N", help=f"tokens, {END} included")
    train.add_argument("--out", required=True, metavar="FILE", help="the rank file to write")
    kind = cli.one_of("kind", list(TRAINERS))
    train.add_argument("--kind", type=kind, default="bpe", help="bpe (the default), or words: whole words")
    show = commands.add_parser("show", help="print the tokens of a text", epilog=EXAMPLES)
    show.add_argument("--tokenizer", required=True, metavar="FILE", help="a rank file")
    show.add_argument("text", help="the text to cut into tokens")
    options = parser.parse_args(arguments)
    return train_command(options) if options.command == "train" else show_command(options)


def train_command(options):
    text = "\n\n".join(read_text(path) for path in options.text)
    ranks = TRAINERS[options.kind](text, options.vocab_size)
    save_ranks(ranks, options.out)
    bytes_a_token = len(text.encode()) / len(encoding_from_ranks(ranks).encode_ordinary(text))
    print(f"{options.out}: {options.vocab_size} tokens; {bytes_a_token:.2f} bytes of this text a token")


def show_command(options):
    encoding = load_tokenizer(options.tokenizer)
    for token in encoding.encode_ordinary(options.text):
        piece = encoding.decode_single_token_bytes(token).decode("utf-8", "backslashreplace")
        print(f"{token:6d}  {piece!r}")


TRAINERS = {"bpe": train_bpe, "words": train_words}
EXAMPLES = """examples:
  python -m gpn_ref.text.tokenizer train --text book.txt --vocab-size 1024 --out book.ranks
  python -m gpn_ref.text.tokenizer show --tokenizer book.ranks "Once upon a time"
"""


if __name__ == "__main__":
    cli.run(main, "python -m gpn_ref.text.tokenizer")
