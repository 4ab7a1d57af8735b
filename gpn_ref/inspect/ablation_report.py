"""What `ablate` found, in words by rule and in tables. A number is a change: with the change less without it."""

import textwrap
from math import floor, log10

UNITS = {"loss": " nats a token", "accuracy": ""}
DIGITS = {"loss": 3, "accuracy": 2}  # behind the point, more where a number would be 0
LENGTHS = {"mean_state": "length of the mean state", "share_of_norm": "share of a state's"}
WIDTH = 120


# ---------------------------------------------------------------------------------------------------------- numbers
def digits(values, name):
    """How many digits behind the point show the largest of the values with two of its own."""
    largest = max(map(abs, values))
    return max(DIGITS[name], 1 - floor(log10(largest))) if largest else DIGITS[name]


def number(effect, name):
    """A change with its interval: +0.448 [+0.423, +0.473]."""
    if effect is None:
        return ""
    change, *interval = values(effect)
    n = digits(values(effect), name)
    return f"{change:+.{n}f}" + (" [{:+.{n}f}, {:+.{n}f}]".format(*interval, n=n) if interval else " [one sequence]")


def spread(changes, name):
    """Several changes as their mean and between what they lie: +0.607 (+0.355 to +0.779)."""
    if not changes:
        return ""
    n = digits(changes, name)
    between = f" ({min(changes):+.{n}f} to {max(changes):+.{n}f})" if len(changes) > 1 else ""
    return f"{sum(changes) / len(changes):+.{n}f}{between}"


def values(effect):
    """The change, and the ends of its interval where it has one."""
    return [effect[name] for name in ("change", "low", "high") if effect[name] is not None]


def measured(summary):
    """The measures that this model has: the loss, and the accuracy where there are questions."""
    return [name for name in UNITS if summary["unchanged"][name]]


# ------------------------------------------------------------------------------------------------------------- words
def add_sentences(summary):
    """Say, by rule, what each row of the table and each figure shows: `says`."""
    for row in summary["changes"]:
        row["says"] = says(row)
    worst = max(summary["changes"], key=lambda row: row["loss"]["change"])
    summary["says"] = f"Of all changes this one costs most: {worst['what']}; {happens(worst['loss'], 'loss')}."
    if clearing := summary["clearing"]:
        clearing["says"] = clearing_says(clearing)


def says(row):
    """A sentence on a row of the table."""
    parts = [
        happens(row[name], name) + beside(row[name], [drawn[name] for drawn in row["random"]], name)
        for name in UNITS
        if row[name]
    ]
    if row["group"] == "decoder bias":
        longer = row["bias"]["mean_state"] / row["control"]["mean_state"] - 1
        parts.append(f"the mean state is {100 * abs(longer):.2g} % {'longer' if longer > 0 else 'shorter'}")
        parts.append(f"the bias moves no logit by more than {row['largest_move']:.2g}")
    return f"{row['what'][0].upper()}{row['what'][1:]}: {'; '.join(parts)}."


def happens(effect, name):
    """What becomes of the loss or the accuracy: it rises, it falls, or nothing can be told."""
    change, *interval = values(effect)
    if not interval:
        n = digits([change], name)
        return f"the {name} changes by {change:+.{n}f}{UNITS[name]} (one sequence tells no interval)"
    if interval[0] <= 0 <= interval[1]:
        return f"no change of the {name} that can be told from 0 ({number(effect, name)})"
    n = digits(values(effect), name)
    low, high = sorted(map(abs, interval))
    size = f"{abs(change):.{n}f} [{low:.{n}f}, {high:.{n}f}]{UNITS[name]}"
    return f"the {name} {'rises' if change > 0 else 'falls'} by {size}"


def beside(effect, drawn, name):
    """How that compares with random sets of as many heads: more or less harm than all of them, or neither."""
    if not drawn:
        return ""
    changes = [other["change"] for other in drawn]
    good = -1 if name == "loss" else 1
    milder = [good * effect["change"] > good * change for change in changes]
    harsher = [good * effect["change"] < good * change for change in changes]
    place = "worse than" if all(harsher) else "milder than" if all(milder) else "like"
    sets = f"{len(drawn)} random sets" if len(drawn) > 1 else "a random set"
    return f", {place} {sets} of as many heads, {spread(changes, name)}"


def clearing_says(clearing):
    """A sentence on what the loss, the accuracy, and answers mentioned before and since do: at most three."""
    sentences = []
    for name in UNITS:
        if curve := clearing[name]:
            ends = [curve[0], *curve[1:][-1:]]
            told = (f"{tokens(group)} after the memory is lost {happens(group, name)}" for group in ends)
            sentences.append("; ".join(told) + ".")
    before, since = (clearing["mentioned"][when]["all"] for when in ("before", "since"))
    if before and since:
        sentences.append(
            f"Where the answer was last mentioned before the memory was lost, {happens(before, 'accuracy')}; "
            f"where it was mentioned since, {happens(since, 'accuracy')}."
        )
    return sentences


def tokens(group):
    """A group of lags: 1 token, 8-9 tokens."""
    first, last = group["from"], group["to"]
    return f"{first} token{'s' * (first > 1)}" if first == last else f"{first}-{last} tokens"


# ------------------------------------------------------------------------------------------------------------ tables
def lines(summary):
    """All that is printed."""
    result = [*about(summary), "", *changes_table(summary), "", *sentences(row["says"] for row in summary["changes"])]
    for row in summary["changes"]:
        if row["group"] == "decoder bias":
            result += ["", *bias_table(row)]
    if clearing := summary["clearing"]:
        result += ["", *clearing_table(clearing), "", *sentences(clearing["says"])]
    return result


def sentences(all_of_them):
    return [textwrap.fill(sentence, WIDTH, subsequent_indent="    ") for sentence in all_of_them]


def about(summary):
    """What was measured, on what, and what could not be."""
    text, questions, unchanged = summary["text"], summary["questions"], summary["unchanged"]
    found = f"loss {unchanged['loss']['change']:.3f} nats a token on {text['tokens']:,} tokens of text"
    if unchanged["accuracy"]:
        of = {"passages": "last words of passages", "values": "values recalled"}[questions["of"]]
        found += f"; accuracy {unchanged['accuracy']['change']:.2f} on {questions['number']:,} {of}"
    result = [
        f"model       {summary['model']}",
        f"unchanged   {found}",
        f"mean state  that of s^p on the same text: length {summary['mean_state']:.3g}, "
        f"{summary['share_of_norm']:.2f} of the mean length of a state",
    ]
    heads = summary["heads"]
    if not heads:
        return [*result, "heads       none: without a memory nothing can be silenced or cleared"]
    for pool, rule in (("fast", "less than"), ("slow", "at least")):
        lives = ["∞" if life is None else f"{life:.3g}" for life in (heads["lives"][head] for head in heads[pool])]
        found = f"{', '.join(lives)} tokens of 1/e life" if lives else "none"
        if len(lives) == len(heads["lives"]):
            found += "; they are all heads, so no random set can stand beside them"
        result.append(f"{pool} heads  {found} ({rule} {heads['fast_below']:g})")
    if summary["layers"] > 1:
        result.append(f"layers      heads that are not read are silent in all {summary['layers']}")
    return result


def changes_table(summary):
    """A row a change: of the loss, of the accuracy, and beside them what random sets of heads do."""
    names, rows = measured(summary), summary["changes"]
    columns = [["", *(row["what"] for row in rows)]]
    for name in names:
        columns.append([f"{name}{',' * bool(UNITS[name])}{UNITS[name]}", *(number(row[name], name) for row in rows)])
        drawn = [[other[name]["change"] for other in row["random"]] for row in rows]
        columns.append(["random sets" * any(drawn), *(spread(changes, name) for changes in drawn)])
    return aligned(columns)


def bias_table(row):
    """The two models of the second training, and their difference, side by side."""
    columns = [["after the second training", "without a bias", "with a bias", "difference"]]
    models = row["control"], row["bias"]
    found = {name: [model[name]["change"] for model in models] for name in UNITS if row[name]}
    found |= {title: [model[name] for model in models] for name, title in LENGTHS.items()}
    for name, (without, with_bias) in found.items():
        columns.append([name, f"{without:.5g}", f"{with_bias:.5g}", f"{with_bias - without:+.2g}"])
    return aligned(columns)


def clearing_table(clearing):
    """A row each power of 2, the lag since the memory was lost."""
    mentioned = clearing["mentioned"]
    curves = {
        "loss, nats a token": ("loss", clearing["loss"]),
        "accuracy": ("accuracy", clearing["accuracy"]),
        "mentioned before": ("accuracy", mentioned["before"]["by_lag"]),
        "mentioned since": ("accuracy", mentioned["since"]["by_lag"]),
    }
    lags = sorted({group["from"] for _, curve in curves.values() for group in curve if group["from"].bit_count() == 1})
    columns = [["tokens since the memory was lost", *map(str, lags)]]
    for title, (name, curve) in curves.items():
        if curve:
            at = {group["from"]: group for group in curve}
            columns.append([title, *(number(at.get(lag), name) for lag in lags)])
    return aligned(columns)


def aligned(columns):
    """Columns of text as lines."""
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
