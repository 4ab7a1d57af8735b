"""The table as files that people and programs read: Markdown and CSV."""

import csv
import io

from gpn_ref.reproduction.plan import SWEEP_CORPUS, SWEEP_SEED
from gpn_ref.reproduction.table import METRICS

MAIN = {"stories": ("perplexity", "cloze_accuracy"), "python-docs": ("perplexity",), "recall": ("recall_accuracy",)}
SHARES = ("cloze_accuracy", "recall_accuracy", "recall_untrained_gaps")
FROM_RESULT = (
    "tokens",
    "parameters",
    "state_floats",
    "state_tokens",
    "tokens_per_second",
    "validation_loss",
    *dict.fromkeys(metric for metrics in METRICS.values() for metric in metrics),
    "message",
)
COLUMNS = ("row", "corpus", "seed", "learning_rate", "steps", "sweep", "status", *FROM_RESULT)  # of the CSV


def csv_text(table):
    """A line a run."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table["runs"])
    return file.getvalue()


def markdown(table):
    """The table as a page."""
    parts = ["# The paper's table in small", introduction(table)]
    for corpus in table["corpora"]:
        parts += [f"## {corpus}", corpus_table(table, corpus)]
    parts += ["## What the numbers say", *(f"**{topic}.** {text}" for topic, text in table["findings"].items())]
    parts += ["## Each seed", seeds_table(table)]
    parts += ["## The models", models_table(table)]
    if any(row["sweep"] for row in table["rows"].values()):
        parts += ["## Learning rates", rates_table(table)]
    return "\n\n".join(parts) + "\n"


def introduction(table):
    choices, seeds = table["plan"]["choices"], ", ".join(map(str, table["seeds"]))
    text = (
        f"{len(table['rows'])} models, equally large to {100 * _largest_gap(table):.1f} %, trained on the same tokens "
        f"in the same order: {choices['steps']} steps of {choices['batch_size']} sequences (of text, "
        f"{choices['window']} tokens each), seed {seeds}. Numbers are mean ± standard deviation over seeds, of text "
        "held back. "
        "Beside them stands what the paper reports of models of 130M parameters, on FineWeb-Edu and LAMBADA."
    )
    return text + f" This is a quick look: it leaves out {'; '.join(table['leaves_out'])}." * bool(table["leaves_out"])


def _largest_gap(table):
    return max(abs(share - 1) for row in table["rows"].values() for share in row["of_reference"].values())


def corpus_table(table, corpus):
    """The corpus's metrics, and beside those of stories the paper's."""
    metrics, beside = METRICS[corpus], corpus == "stories"
    head = ["model", *metrics.values()]
    head += ["paper: perplexity", "LAMBADA right", "its perplexity"] * beside
    lines = []
    for row in table["rows"].values():
        line = [row["name"], *(told_mean(row["measured"][corpus][metric], metric) for metric in metrics)]
        lines.append(line + told_paper(row["paper"]) * beside)
    return md_table(head, lines)


def told_paper(paper):
    """The paper's numbers of a row, a dict, or None."""
    if not paper:
        return ["-"] * 3
    return [f"{paper['perplexity']:.2f}", f"{paper['cloze_accuracy']:.3f}", f"{paper['cloze_perplexity']:.4g}"]


def told_mean(found, metric):
    """`3.404 ± 0.031`, with the number of seeds that diverged or are not there yet."""
    if found["mean"] is None:
        return "diverged" if "diverged" in found["statuses"] else "-"
    spread = "" if found["sd"] is None else f" ± {figure(found['sd'], metric, '.2g')}"
    lost = [f"{found['statuses'].count(status)} {status}" for status in ("diverged", "missing")]
    lost = [text for text in lost if text[0] != "0"]
    return figure(found["mean"], metric) + spread + f" ({', '.join(lost)})" * bool(lost)


def figure(value, metric, form=".4g"):
    """The number in so many figures as a table has of the metric."""
    if value is None:
        return "-"
    return f"{value:.2f}" if metric in SHARES else f"{value:#{form}}".rstrip(".")


def seeds_table(table):
    """The main numbers of every seed."""
    places = [(corpus, metric) for corpus in table["corpora"] for metric in MAIN[corpus]]
    seeds = ", ".join(map(str, table["seeds"]))
    head = ["model", *(f"{corpus}: {METRICS[corpus][metric]}" for corpus, metric in places)]
    lines = [
        [row["name"], *(told_seeds(row["measured"][corpus][metric], metric) for corpus, metric in places)]
        for row in table["rows"].values()
    ]
    return f"In the order of the seeds {seeds}.\n\n{md_table(head, lines)}"


def told_seeds(found, metric):
    pairs = zip(found["seeds"], found["statuses"], strict=True)
    return ", ".join("diverged" if status == "diverged" else figure(value, metric) for value, status in pairs)


def models_table(table):
    """Sizes, state and speed."""
    corpora = table["corpora"]
    tokens = {state["tokens"] for row in table["rows"].values() for state in row["state"].values()}
    after = f"after {max(tokens)} tokens" if tokens else ""
    head = ["model", *(f"parameters, {corpus}" for corpus in corpora), f"state, floats {after}".strip()]
    head += ["tokens/s in training", "learning rate", f"sizes on {corpora[0]}"]
    lines = []
    for row in table["rows"].values():
        state, speed = row["state"].get(corpora[0]), row["tokens_per_second"]
        lines.append(
            [
                row["name"],
                *(told_parameters(row, corpus) for corpus in corpora),
                f"{state['floats']:,}" if state else "-",
                f"{speed:,.0f}" if speed else "-",
                f"{row['learning_rate']:g}" if row["learning_rate"] else "-",
                row["sizes"][corpora[0]],
            ]
        )
    note = f"State and speed are those on {corpora[0]}; speeds were timed one after another when all runs were done."
    note += " The state of a Transformer++ grows with every token; the others keep theirs."
    return f"{note}\n\n{md_table(head, lines)}"


def told_parameters(row, corpus):
    """`368,000 (+0.03 %)`: how many, and how many more than the reference has."""
    return f"{row['parameters'][corpus]:,} ({100 * (row['of_reference'][corpus] - 1):+z.2f} %)"


def rates_table(table):
    """The sweep: what each rate came to, and which was chosen."""
    plan = table["plan"]
    head = ["model", *(f"{rate:g}" for rate in plan["rates"]), "chosen"]
    lines = []
    for row in table["rows"].values():
        losses = [row["sweep"].get(rate, "-") for rate in plan["rates"]]
        losses = [loss if loss == "-" else "diverged" if loss is None else f"{loss:.4f}" for loss in losses]
        chosen = "-" if row["learning_rate"] is None else f"{row['learning_rate']:g}" + " (edge)" * row["at_edge"]
        lines.append([row["name"], *losses, chosen])
    note = f"Validation loss on {SWEEP_CORPUS} after {plan['sweep_steps']} steps, nats per token, seed {SWEEP_SEED}."
    return f"{note}\n\n{md_table(head, lines)}"


def md_table(head, lines):
    """A Markdown table whose columns are aligned for a terminal too: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    rule = ["-" * (widths[0] + 2), *("-" * width + ":" for width in widths[1:])]

    def shown(line):
        first, *others = zip(line, widths, strict=True)
        return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"

    return "\n".join([shown(head), "|" + "|-".join(rule) + "|", *map(shown, lines)])


def told_run(result):
    """What a run came to, in a line."""
    if result["status"] == "diverged":
        return f"diverged, {result['message']}"
    metrics = METRICS[result["cell"]["corpus"]]
    found = [f"{name} {figure(result[metric], metric)}" for metric, name in metrics.items() if metric in result]
    return ", ".join([*found, f"{result['tokens_per_second']:,.0f} tokens/s"])
