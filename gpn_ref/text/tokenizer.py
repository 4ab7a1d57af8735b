"""Tokenizers: a `tiktoken.Encoding` built from a rank file, and two small trainers that make rank files.

A rank file has a line a token: its bytes in base64, a space, its rank; the ranks count 0, 1, 2, ... down the file.
To encode, text is cut into pieces with SPLIT. A piece that is a token stays whole; any other starts as single bytes,
and the two neighbours whose joint bytes have the lowest rank are joined, again and again.

The trainers give a token only to what their text uses, because tokens that never occur are not harmless: the embedding
serves both ends, and training pushes the rows of all unused ones away from what the decoder reads, all used ones along
it. On the recall task 256 of them make the difference between all and nothing (`data/README.md` has the measurement).
A byte that is no token of its own is written with three: BYTE, then its two hexadecimal digits, for which the first
sixteen tokens stand. So any bytes come back unchanged.
"""

import base64
import heapq
import os
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import regex
import tiktoken
from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.files import atomic_write, read_text

END = "<|end|>"  # every document begins with it
BYTE = "<|byte|>"  # a byte that is no token follows, as two digits
DIGITS = 16  # the tokens of ranks 0 to 15, behind BYTE
SMALLEST_VOCAB = DIGITS + 2
# A word with the space or apostrophe before it; punctuation with the space before it; line ends; other white
# space, whose last space is left to the word that follows. The bound of 64 is there because the matcher
# backtracks through that run, and a long one would overflow its stack.
SPLIT = r"[ ']?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]+|[\r\n]+|[^\S\r\n]{1,64}(?!\S)|\s"


def load_tokenizer(path):
    """The tokenizer of a rank file; `encoding.n_vocab` is V: the ranks, then END, then BYTE.

    A file that is cut, empty or not a rank file is a ValueError that names the file and the line.
    """
    return encoding_from_ranks(parse_ranks(Path(path).read_bytes(), path), name=Path(path).stem)


def encoding_from_ranks(ranks, name="gpn_ref"):
    """A `tiktoken.Encoding` from `ranks` (token bytes -> rank, 0 to n - 1); END has the id n, BYTE n + 1."""
    special = {END: len(ranks), BYTE: len(ranks) + 1}
    return tiktoken.Encoding(name, pat_str=SPLIT, mergeable_ranks=ranks, special_tokens=special)


def ranks_of(encoding):
    """The ranks (token bytes -> rank) that `encoding_from_ranks` made the encoding from."""
    return {encoding.decode_single_token_bytes(rank): rank for rank in range(encoding.n_vocab - 2)}


def encode(encoding, text):
    """The tokens of a text, a list of integers; what looks like END or BYTE in it is ordinary text."""
    return encode_bytes(encoding, text.encode("utf-8"))


def encode_bytes(encoding, data):
    """The tokens of any bytes, UTF-8 or not."""
    singles = {value: _token(encoding, _single(value)) for value in set(data)}  # None: no token of its own
    missing = {value for value, token in singles.items() if token is None}
    text = data.decode("utf-8", "surrogateescape")
    if not missing and not _BROKEN.search(text):
        return encoding.encode_ordinary(text)
    tokens, byte = [], encoding.encode_single_token(BYTE)
    for piece in regex.findall(SPLIT, text):
        data = piece.encode("utf-8", "surrogateescape")
        whole = _token(encoding, data)
        if whole is not None:
            tokens.append(whole)
        elif missing.isdisjoint(data) and not _BROKEN.search(piece):
            tokens += encoding.encode_ordinary(piece)
        else:
            for value in data:
                tokens += [byte, *divmod(value, DIGITS)] if value in missing else [singles[value]]
    return tokens


def decode_stream(tokens, encoding):
    """For each token as it comes (END apart): yield it and the bytes that it completes, which may be none."""
    byte, digits = encoding.encode_single_token(BYTE), None
    end = encoding.encode_single_token(END)
    for token in tokens:
        if digits is not None and token < DIGITS:
            digits.append(token)
            yield token, bytes([digits[0] * DIGITS + token]) if len(digits) == 2 else b""
            digits = digits if len(digits) < 2 else None
        else:
            digits = [] if token == byte else None
            yield token, b"" if token in (byte, end) else encoding.decode_single_token_bytes(token)


def byte_lengths(tokens, encoding):
    """How many bytes of text each of tokens (..., T) stands for: END for none, BYTE and its two digits for one."""
    lengths = np.array([len(token) for token in ranks_of(encoding)] + [0, 1])[tokens]
    byte = np.asarray(tokens) == encoding.n_vocab - 1
    lengths[..., 1:][byte[..., :-1]] = 0
    lengths[..., 2:][byte[..., :-2]] = 0
    return lengths


_BROKEN = regex.compile("[\ud800-\udfff]")  # a byte that is not UTF-8, after decoding with surrogateescape


def _single(value):
    return bytes((value,))


def _token(encoding, data):
    """The token of exactly these bytes, or None."""
    try:
        return encoding.encode_single_token(data)
    except KeyError:
        return None


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
        if not token or token in ranks or token.decode("utf-8", "replace") in (END, BYTE):
            problem = (
                f"repeats line {ranks[token] + 1}" if token in ranks else "is a special one" if token else "is empty"
            )
            raise ValueError(f"{name}, line {rank + 1}: the token {_shown(code)} {problem}")
        ranks[token] = rank
    if len(ranks) < DIGITS:
        raise ValueError(f"{name} has {len(ranks)} tokens; a rank file has {DIGITS} or more")
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
    """Byte-pair encoding: ranks for `vocab_size` tokens, END and BYTE included, from the counts of `text`.

    Starting from the single bytes that occur, the neighbours within a piece whose joint bytes are most frequent become
    the next token; of equal counts the smaller bytes go first. ValueError if the text cannot give so many tokens.
    """
    ranks = {byte: rank for rank, byte in enumerate(_bytes_in(text.encode()))}
    _require_vocab(vocab_size, len(ranks) + 2)
    words = [([bytes([value]) for value in piece], count) for piece, count in _pieces(text).items()]
    counts, places = Counter(), defaultdict(set)  # of joint bytes: how often they occur, and in which words
    for index, (tokens, count) in enumerate(words):
        for joint in _joints(tokens):
            counts[joint] += count
            places[joint].add(index)
    queue = [(-count, joint) for joint, count in counts.items()]
    heapq.heapify(queue)
    for _ in tqdm(range(vocab_size - 2 - len(ranks)), desc="merges", disable=None, leave=False):
        while queue and -queue[0][0] != counts[queue[0][1]]:  # outdated; the present count is queued too
            heapq.heappop(queue)
        if not queue or queue[0][0] == 0:
            raise _too_few(len(ranks), vocab_size)
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
    """Whole words: ranks for `vocab_size` tokens, END and BYTE included: the most frequent pieces of `text`, and the
    single bytes that the pieces left out need.

    Of equal counts the smaller bytes go first. ValueError if the text cannot give so many tokens.
    """
    counts = _pieces(text)
    kept = sorted(counts, key=lambda piece: (-counts[piece], piece))
    if len(kept) < vocab_size - 2:
        raise _too_few(len(kept), vocab_size)
    needed, single = set(), {piece for piece in kept if len(piece) == 1}
    while kept and len(kept) + len(needed - single) > vocab_size - 2:
        left_out = kept.pop()
        single.discard(left_out)
        needed.update(_bytes_in(left_out))
    _require_vocab(vocab_size, min(len(kept) + len(needed - single), len(counts)) + 2)
    return {token: rank for rank, token in enumerate(kept + sorted(needed - single))}


def _bytes_in(data):
    return [_single(value) for value in sorted(set(data))]


def _require_vocab(vocab_size, needed):
    needed = max(needed, SMALLEST_VOCAB)
    if vocab_size < needed:
        raise ValueError(f"the vocabulary size is {vocab_size}; for this text it must be {needed} or more")


def _too_few(ranks, vocab_size):
    if ranks + 2 < SMALLEST_VOCAB:
        return ValueError(f"the text is too small for a tokenizer: it allows {ranks + 2} tokens, not {SMALLEST_VOCAB}")
    return ValueError(f"the text allows at most {ranks + 2} tokens; {vocab_size} were asked for")


def _shown(data):
    return repr(data[:40]).removeprefix("b")


def main(arguments=None):
    parser = cli.Parser(prog="python -m gpn_ref.text.tokenizer", description=__doc__, epilog=EXAMPLES)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train = commands.add_parser("train", help="make a rank file from text", epilog=EXAMPLES)
    train.add_argument(
        "--text", type=cli.path, nargs="+", required=True, metavar="FILE", help="UTF-8 text to learn from"
    )
    size = cli.integer(SMALLEST_VOCAB, 10**6)
    train.add_argument("--vocab-size", type=size, required=True, metavar="N", help=f"tokens, {END} and {BYTE} included")
    train.add_argument("--out", type=cli.path, required=True, metavar="FILE", help="the rank file to write")
    kind = cli.one_of("kind", list(TRAINERS))
    train.add_argument("--kind", type=kind, default="bpe", help="bpe (the default), or words: whole words")
    show = commands.add_parser("show", help="print the tokens of a text", epilog=EXAMPLES)
    show.add_argument("--tokenizer", type=cli.path, required=True, metavar="FILE", help="a rank file")
    show.add_argument("text", type=cli.text, help="the text to cut into tokens")
    options = parser.parse_args(arguments)
    return train_command(options) if options.command == "train" else show_command(options)


def train_command(options):
    for path in options.text:
        if os.path.exists(options.out) and os.path.exists(path) and os.path.samefile(path, options.out):
            raise ValueError(f"--out {options.out} is also read as --text; it would be lost")
    text = "\n\n".join(read_text(path) for path in options.text)
    ranks = TRAINERS[options.kind](text, options.vocab_size)
    save_ranks(ranks, options.out)
    bytes_a_token = len(text.encode()) / len(encode(encoding_from_ranks(ranks), text))
    print(f"{options.out}: {options.vocab_size} tokens; {bytes_a_token:.2f} bytes of this text a token")


def show_command(options):
    encoding = load_tokenizer(options.tokenizer)
    for token, data in decode_stream(encode(encoding, options.text), encoding):
        special = token == encoding.encode_single_token(BYTE)
        piece = BYTE if special else data.decode("utf-8", "backslashreplace")
        print(f"{token:6d}  {piece!r}")


TRAINERS = {"bpe": train_bpe, "words": train_words}
EXAMPLES = """examples:
  python -m gpn_ref.text.tokenizer train --text book.txt --vocab-size 1024 --out book.ranks
  python -m gpn_ref.text.tokenizer show --tokenizer book.ranks "Once upon a time"
"""


if __name__ == "__main__":
    cli.run(main, "python -m gpn_ref.text.tokenizer")
