"""What `ablate` found, as two figures: each change with its interval, and the memory lost so many tokens ago."""

import textwrap
from pathlib import Path

import numpy as np

from gpn_ref import figures
from gpn_ref.inspect.ablation_report import measured

AXES = {"loss": "change of the loss, nats a token", "accuracy": "change of the accuracy"}
STYLES = {  # group -> colour and marker
    "mean state": (figures.BLACK, "D"),
    "fast heads": (figures.VERMILION, "^"),
    "slow heads": (figures.BLUE, "o"),
    "decoder bias": (figures.GREEN, "s"),
}
ROW, GAP = 0.36, 0.6  # inches a row; rows between groups


def draw(summary, folder):
    """Write the figures into the folder, PNG and SVG. -> their paths."""
    paths = figures.save(changes(summary), folder / "changes")
    if summary["clearing"]:
        paths += figures.save(clearing(summary), folder / "clearing")
    return paths


def changes(summary):
    """A forest plot: the change and its interval a row, random sets of as many heads as grey bars."""
    names, rows = measured(summary), summary["changes"]
    heights, groups = [], []
    for row in rows:
        groups += [row["group"]] * (row["group"] not in groups)
        heights.append(len(heights) + GAP * (len(groups) - 1))
    height = 1.9 + ROW * (heights[-1] + 1)
    figure, axes = figures.new_figure(
        title(summary, "what is lost when a part is taken away"), 1, len(names), 5.2 + 3 * len(names), height
    )
    axes = np.ravel(axes)
    for axis, name in zip(axes, names, strict=True):
        axis.axvline(0, color=figures.GREY, linewidth=0.8)
        for row, at in zip(rows, heights, strict=True):
            drawn = [other[name]["change"] for other in row["random"]]
            axis.plot(drawn, [at] * len(drawn), "|", color=figures.GREY, markersize=11, markeredgewidth=1.6, zorder=2)
            colour, marker = STYLES[row["group"]]
            axis.errorbar(row[name]["change"], at, xerr=error(row[name]), color=colour, marker=marker, capsize=3)
        axis.set_yticks(heights, [row["what"] for row in rows] if axis is axes[0] else [""] * len(rows), fontsize=11)
        axis.set_ylim(heights[-1] + 0.6, -0.6)
        axis.set_xlabel(AXES[name], fontsize=11)
        axis.grid(axis="x", alpha=0.25)
    marks = "bars: 95 % intervals over sequences"
    if any(row["random"] for row in rows):
        marks += "; grey: random sets of as many heads"
    caption(figure, [summary["says"], marks])
    return figure


def title(summary, what):
    return f"{Path(summary['run']).resolve().name:.60}: {what}"


def error(effect):
    """The interval as matplotlib takes it, how far down and up; None where there is none."""
    if effect["low"] is None:
        return None
    return [[max(0, effect["change"] - effect["low"])], [max(0, effect["high"] - effect["change"])]]


def clearing(summary):
    """The rise of the loss, and the change of the accuracy, against the tokens since the memory was lost."""
    found = summary["clearing"]
    panels = [name for name in AXES if found[name]]
    figure, axes = figures.new_figure(
        title(summary, "after the memory is lost"), 1, len(panels), 1 + 5 * len(panels), 5
    )
    mentioned = found["mentioned"]
    for axis, name in zip(np.ravel(axes), panels, strict=True):
        curves = {"all": found[name]}
        if name == "accuracy":
            curves["answer mentioned before"] = mentioned["before"]["by_lag"]
            curves["answer mentioned since"] = mentioned["since"]["by_lag"]
        for (label, curve), style in zip(curves.items(), figures.styles(), strict=False):
            if curve:
                line(axis, curve, label, style)
        axis.axhline(0, color=figures.GREY, linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel("tokens since the memory was lost", fontsize=11)
        axis.set_ylabel(AXES[name], fontsize=11)
        axis.grid(alpha=0.25)
        if len(axis.lines) > 2:
            axis.legend(fontsize=10)
    caption(figure, found["says"])
    return figure


def line(axis, curve, label, style):
    """A curve by lag, a group of lags at its geometric middle, and the band of its intervals."""
    curve = [group for group in curve if group["low"] is not None] or curve  # one passage alone is no point
    at = [(group["from"] * group["to"]) ** 0.5 for group in curve]
    axis.plot(at, [group["change"] for group in curve], label=label, linewidth=2, markersize=5, **style)
    ends = [[group["change"] if group[end] is None else group[end] for group in curve] for end in ("low", "high")]
    axis.fill_between(at, *ends, color=style["color"], alpha=0.18, linewidth=0)


def caption(figure, sentences):
    """Sentences below a figure."""
    width = int(14.3 * figure.get_figwidth())
    figure.supxlabel(
        "\n".join(textwrap.fill(sentence, width) for sentence in sentences), fontsize=9.5, x=0.02, ha="left"
    )
