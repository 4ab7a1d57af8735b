"""Measure a trained model on text that it has not seen: how well it predicts, and whether it uses what it has read.

The loss, by position in the window too; last words that only the text before them tells, where the corpus has such
questions or --cloze brings them; and values recalled, of a model trained on the recall task. Every number has an
interval, [low, high]: 95 % by bootstrap over whole sequences or passages. It prints tables, and writes
summary.json and figures.

RUN is a run directory (its newest good checkpoint is used) or a checkpoint file; without one, the model that ships.
"""

from math import isnan

import numpy as np

from gpn_ref import cli, cloze
from gpn_ref.blas import blas_threads
from gpn_ref.config import config_to_dict
from gpn_ref.evaluation_figures import draw_positions, draw_recall
from gpn_ref.figures import save, shown
from gpn_ref.files import write_json
from gpn_ref.measures import recall_grid, score_text
from gpn_ref.text import corpora
from gpn_ref.trained import Trained, add_arguments
from gpn_ref.training.tasks import RecallTask

PROG = "python -m gpn_ref.evaluate"
EXAMPLES = """examples:
  python -m gpn_ref.evaluate
  python -m gpn_ref.evaluate runs/stories --window 256
  python -m gpn_ref.evaluate runs/docs --text book.txt --tokens 100000
  python -m gpn_ref.evaluate runs/docs --cloze lambada
  python -m gpn_ref.evaluate runs/recall --recall
"""
TOKENS = 2**20
NOTHING = 0.001  # nats: rounding alone can make a difference that small look sure
GAPS = (0, 4, 8, 16, 32, 64)  # of --recall, beside those of the training


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    add_arguments(parser, "evaluate")

    def add(flag, kind, metavar, text, **more):
        parser.add_argument(flag, type=kind, metavar=metavar, help=text, **more)

    add("--window", cli.integer(1, 10**7), "N", "tokens of a sequence (default: as in training)")
    what = f"tokens of text at most, but no less than one sequence (default {TOKENS:,})"
    add("--tokens", cli.integer(1), "N", what, default=TOKENS)
    what = "a UTF-8 file to measure on, and again for more (default: the validation text of RUN)"
    add("--text", cli.path, "FILE", what, action="append", default=[])
    what = 'passages whose last word is to be told, a line each: {"text": ...}; lambada: LAMBADA, downloaded once'
    add("--cloze", cli.path, "FILE", f"{what} (default: the cloze set of the corpus, where it has one)")
    what = "of a run on the recall task: also with more pairs and longer gaps than in training"
    parser.add_argument("--recall", action="store_true", help=what)
    add("--seed", cli.SEED, "N", "of the intervals, and of recall's sequences (default 0)", default=0)
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    trained = Trained(options.run, options.backend, PROG)
    task = trained.task(options.text)
    if options.window and isinstance(task, RecallTask):
        raise ValueError("--window has no effect on the recall task; leave it out")
    if options.recall and not isinstance(trained.own_task, RecallTask):
        raise ValueError(
            f"--recall needs a model trained on the recall task, but {trained.path} was trained on "
            f"{trained.own_task.name}; python -m gpn_ref.train_tiny --corpus recall trains one"
        )
    cloze_set = find_questions(options.cloze, task)
    out = trained.folder(options.out, "evaluate")
    try:
        with blas_threads(sum(value.size for value in trained.checkpoint.params.values())), np.errstate(all="ignore"):
            return evaluate(options, trained, task, cloze_set, out)
    except MemoryError as error:
        error.add_note("a smaller --window needs less")
        raise


def find_questions(file, task):
    """The name of a cloze set, its questions and the faults of its lines; no questions where there is no set."""
    if file == "lambada":
        return "LAMBADA", *cloze.read_questions(corpora.lambada(), task.encoding)
    if file:
        return file, *cloze.read_questions(file, task.encoding)
    return f"the cloze set of {task.name}", task.cloze_questions(), {}


def evaluate(options, trained, task, cloze_set, out):
    """Measure, write, print."""
    label = trained.path.resolve().name
    size = options.window or trained.checkpoint.train_config.window, options.tokens
    summary = {
        "command": vars(options) | {"run": str(options.run)},
        "model": {"described": trained.describe(), **config_to_dict(trained.config)},
    }
    score = score_text(trained.bound, task.windows(*size), task.target_bytes(*size))
    summary["text"] = summarize_text(task, score, options.seed)
    figures = {"loss_by_position": draw_positions(label, summary["text"], trained.checkpoint.train_config.window)}

    name, questions, faults = cloze_set
    if questions:
        answers = cloze.ask(trained.bound, questions)
        summary["cloze"] = {"name": name, "chance": answers.chance, "faults": faults}
        summary["cloze"]["by_distance"] = answers.estimates(options.seed)

    if options.recall or isinstance(task, RecallTask):
        summary["recall"] = summarize_recall(trained.own_task, trained.bound, options)
        figures["recall"] = draw_recall(label, summary["recall"])

    try:
        paths = [path for name, figure in figures.items() for path in save(figure, out / name)]
        write_json(out / "summary.json", summary)
    finally:  # what was measured is told even where it can't be kept
        print(f"{'model':13} {shown(trained.describe())}")
        print_text(summary["text"])
        if "cloze" in summary:
            print_cloze(summary["cloze"])
        if "recall" in summary:
            print_recall(summary["recall"])
    print(f"\n{'files':13} {shown(out)}/: " + ", ".join(path.name for path in [out / "summary.json", *paths]))
    return 0


def told(estimate, form="#.4g"):
    """An estimate with its interval: `1.225 [1.171, 1.279]`."""
    numbers = (estimate["value"], *estimate["interval"])
    form = ",.0f" if max(numbers) >= 1000 else form
    value, low, high = (f"{number:{form}}" for number in numbers)
    return f"{value} [{low}, {high}]" if low != "nan" else f"{value} [one sequence]"


# --- text


def summarize_text(task, score, seed):
    count, mean, error = score.positions.statistics()
    _, half_mean, half_error = score.halves.statistics()
    estimates = score.estimates(seed)
    return {
        "name": task.name,
        **estimates,
        "tokens_per_second": estimates["tokens"] / score.seconds,
        "context": score.context(seed),
        "by_position": {
            "first": score.positions.spans[:, 0] + 1,
            "last": score.positions.spans[:, 1],
            "sequences": count,
            "loss": mean,
            "standard_error": error,
            "loss_first_half_hidden": half_mean,
            "standard_error_first_half_hidden": half_error,
        },
    }


def print_text(text):
    by_position = text["by_position"]
    count = f"{text['sequences']:,} sequence{'s' * (text['sequences'] > 1)}"
    size = f"{text['tokens']:,} tokens, {text['bytes']:,} bytes, in {count}"
    print(f"{'text':13} {shown(text['name'])}: {size} of up to {by_position['last'][-1]:,} tokens")
    for name, unit in (("loss", "nats per token"), ("perplexity", ""), ("bits_per_byte", "")):
        print(f"{name.replace('_', ' '):13} {told(text[name])} {unit}".rstrip())
    print(f"{'speed':13} {text['tokens_per_second']:,.0f} tokens a second\n")
    print(f"{'position':>13} {'nats per token':>16} {'± 1.96 std. errors':>20} {'first half hidden':>20}")
    for at in some_spans(by_position["first"]):
        first, last, _, mean, error, hidden, _ = (column[at] for column in by_position.values())
        position = f"{first:,}" if first == last else f"{first:,}-{last:,}"
        error, hidden = ("-" if isnan(number) else f"{number:.3f}" for number in (1.96 * error, hidden))
        print(f"{position:>13} {mean:16.3f} {error:>20} {hidden:>20}")
    print("\n" + "\n".join(context_sentences(text["context"])))


def some_spans(firsts):
    """Indexes of the spans at the positions 1, 2, 4, 8, ... and of the last."""
    powers = [2**power for power in range(int(firsts[-1]).bit_length())]
    return sorted({*(int(np.searchsorted(firsts, power, "right")) - 1 for power in powers), len(firsts) - 1})


def context_sentences(context):
    """What the loss of the window's last quarter says about the use of its context, by rule."""
    if not context:
        return ["A window of fewer than 4 tokens is too short to tell whether the model uses its context."]
    first, second, hidden = (difference(estimate) for estimate in context.values())
    value, (low, high) = context["more_without_first_half"].values()
    verdict = "one sequence tells nothing" if isnan(low) else "no use of that half can be told"
    if low > 0 and value > NOTHING:
        verdict = "the model uses that half"
    elif high < 0 and value < -NOTHING:
        verdict = "the model does better without that half"
    return [
        f"The window's last quarter costs, a token, {first} than its first and {second} than its second quarter; "
        "each has text of its own.",
        f"With the first half hidden, the same tokens of the last quarter cost {hidden}: {verdict}.",
    ]


def difference(more):
    """`0.27 [0.18, 0.37] nats more`, or less, and whether chance does such a thing."""
    value, (low, high) = more["value"], more["interval"]
    chance = " (may be chance)" if low <= 0 <= high else ""
    if value < 0:
        more = {"value": -value, "interval": [-high, -low]}
    return f"{told(more, 'z.3f')} nats {'less' if value < 0 else 'more'}{chance}"


# --- last words


def print_cloze(found):
    groups = found["by_distance"]
    chance = "" if found["chance"] is None else f"; chance {found['chance']:.3g}"
    print(f"\n{'last words':13} {shown(found['name'])}: {groups['all']['passages']:,} passages{chance}")
    for line in cloze.describe_faults(found["faults"]):
        print(f"{'':13} left out: {line}")
    print(f"\n{'since the last mention':24} {'passages':>9}   {'right':22} perplexity")
    for name, group in groups.items():
        print(f"{name:24} {group['passages']:9,}   {told(group['accuracy'], '.3f'):22} {told(group['perplexity'])}")


# --- recall


def summarize_recall(task, bound, options):
    """Accuracy at what was trained and, with --recall, at fewer and more pairs and at longer gaps."""
    config, pairs, gaps = task.config, [task.config.pairs], task.asked_gaps
    if options.recall:
        powers = [2**power for power in range(config.n_keys.bit_length())]
        pairs, gaps = sorted({*powers, *pairs, config.n_keys}), sorted({*GAPS, *gaps})
    trained = {"pairs": config.pairs, "gaps": task.gaps}
    grid = recall_grid(bound, config, pairs, gaps, options.seed)
    return {"chance": config.chance, "trained": trained, "accuracy": grid}


def print_recall(found):
    print(f"\nvalues recalled, ± half of the interval; chance {found['chance']:.3f}; * as in training")
    rows = found["accuracy"]
    gaps = [f"gap {cell['gap']:,}" for cell in next(iter(rows.values()))]
    print(f"{'pairs':>12} " + "".join(f"{gap:>13} " for gap in gaps))
    for pairs, cells in rows.items():
        print(f"{pairs:12,} " + "".join(f"{recall_cell(cell):>14}" for cell in cells).rstrip())


def recall_cell(cell):
    low, high = cell["accuracy"]["interval"]
    return f"{cell['accuracy']['value']:.2f} ± {(high - low) / 2:.2f}" + ("*" if cell["trained"] else " ")


if __name__ == "__main__":
    cli.run(main, PROG)
