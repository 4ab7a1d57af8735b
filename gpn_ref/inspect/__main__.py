"""Look inside a trained model: the paper's measurements, and what its heads write and read.

RUN is a run directory (its newest good checkpoint is used) or a checkpoint file; without one, the model that ships.
Prints the tables, and writes summary.json, each figure as PNG and SVG, and report.html, one file that needs no other.
"""

import numpy as np

from gpn_ref import cli
from gpn_ref.figures import image, shown
from gpn_ref.files import atomic_write, write_json
from gpn_ref.inspect.figures import figures
from gpn_ref.inspect.findings import structures
from gpn_ref.inspect.measure import measure
from gpn_ref.inspect.report import as_html, as_text
from gpn_ref.text.tokenizer import END, encode
from gpn_ref.trained import Trained, add_arguments

PROG = "python -m gpn_ref.inspect"
EXAMPLES = """examples:
  python -m gpn_ref.inspect
  python -m gpn_ref.inspect runs/stories --tokens 20000
  python -m gpn_ref.inspect runs/stories --passage "Once there was a boy, Tim, who had a green hat. Lily saw the green"
  python -m gpn_ref.inspect runs/docs --text book.txt --length 512 --out book
"""
LENGTH = 256  # tokens of a sequence, where the text has so many
PASSAGE = 48  # tokens that a figure has room for


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    add_arguments(parser, "inspect")

    def add(flag, kind, metavar, text, **more):
        parser.add_argument(flag, type=kind, metavar=metavar, help=text, **more)

    what = "tokens to measure at most, but no less than one sequence (default 100000)"
    add("--tokens", cli.integer(1), "N", what, default=100_000)
    how_long = f"tokens of a sequence (default {LENGTH}, or all of a shorter text)"
    add("--length", cli.integer(1), "N", f"{how_long}; those of the recall task have their own length")
    what = "a UTF-8 file to measure on, and again for more (default: the run's own validation text)"
    add("--text", cli.path, "FILE", what, action="append")
    what = f"what to show word by word, up to {PASSAGE} tokens (default: the first document's beginning)"
    add("--passage", cli.text, "TEXT", what)
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    trained = Trained(options.run, options.backend, PROG)
    trained.require_a_gpn("inspect")
    task = trained.task(options.text or ())
    batches = task.windows(options.length or default_length(task), options.tokens)
    passage = chosen_passage(trained, batches, options.passage)
    folder = trained.folder(options.out, "inspect")
    with np.errstate(all="ignore"):
        summary = measure(trained, batches, passage, training_counts(trained, options.text, task))
    summary["structures"] = structures(summary)
    images = {}
    for name, figure in figures(summary).items():
        for kind in ("png", "svg"):
            images[name] = image(figure, kind)
            write(folder / f"{name}.{kind}", images[name])
    write(folder / "report.html", as_html(summary, images).encode("utf-8", "backslashreplace"))
    write_json(folder / "summary.json", summary)
    print(shown(as_text(summary)))
    print(f"\nreport     {shown(folder / 'report.html')}")
    return 0


def default_length(task):
    """LENGTH, or what a text gives that has no more."""
    tokens = getattr(task, "validation_tokens", ())  # the recall task makes sequences of its own length
    return max(1, min(LENGTH, len(tokens) - 1))


def chosen_passage(trained, batches, text):
    """(T,) tokens: END and the beginning of `text`, or of the first document, as far as a figure has room."""
    end = trained.encoding.encode_single_token(END)
    if text is None:
        first = batches[0][0][0]
        ends = np.flatnonzero(first[1:] == end)
        return first[: min([PASSAGE, *(ends[:1] + 1)])]
    tokens = encode(trained.encoding, text)
    if not tokens:
        raise ValueError("the passage is empty; it must be text")
    if len(tokens) >= PASSAGE:
        trained.warn(f"the passage has {len(tokens):,} tokens; its first {PASSAGE - 1} are shown")
    return np.array([end, *tokens])[:PASSAGE]


def training_counts(trained, text_files, task):
    """(V,) how often each token occurs in the training text; where that is gone, in the text given."""
    try:
        return trained.token_counts()
    except (ValueError, OSError) as error:
        if not text_files:
            raise
        trained.warn(f"{error}; its tokens are counted in the text given instead")
        return np.bincount(task.validation_tokens, minlength=trained.config.vocab_size)


def write(path, data):
    with atomic_write(path, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    cli.run(main, PROG)
