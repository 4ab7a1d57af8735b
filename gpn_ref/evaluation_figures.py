"""The figures of an evaluation: the loss by position in the window, and what is recalled."""

import numpy as np

from gpn_ref.figures import BLUE, GREY, VERMILION, new_figure, styles

RING = {"linestyle": "", "marker": "o", "markersize": 13, "markerfacecolor": "none", "color": GREY}


def draw_positions(label, text, trained_window):
    """Does the model use its context? The loss by position, and of the second half when the first is hidden."""
    figure, axes = new_figure(f"{label}: loss by position in the window")
    by_position = text["by_position"]
    position = np.sqrt(by_position["first"] * by_position["last"])  # the middle of a span, on this axis
    for name, of, style in (
        ("all that came before is known", "", {"color": BLUE}),
        ("the window's first half is hidden", "_first_half_hidden", {"color": VERMILION, "linestyle": "--"}),
    ):
        mean, error = by_position[f"loss{of}"], by_position[f"standard_error{of}"]
        axes.plot(position, mean, label=name, marker=".", **style)
        axes.fill_between(position, mean - 1.96 * error, mean + 1.96 * error, color=style["color"], alpha=0.2, lw=0)
    axes.axhline(text["loss"]["value"], color=GREY, linestyle=":", label=f"mean ({text['loss']['value']:.3f})")
    if by_position["last"][-1] > trained_window:
        axes.axvline(trained_window, color=GREY, linestyle="-.", label="the training's window ends")
    axes.set(xlabel="position in the window (tokens)", ylabel="loss (nats per token)", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    title = "bands: 1.96 standard errors over sequences"
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, title=title, loc="outside lower center", ncols=2)
    return figure


def draw_recall(label, found):
    """Accuracy against the gap, a line for each number of pairs; what was trained is ringed."""
    figure, axes = new_figure(f"{label}: values recalled", width=8.0)
    rows = found["accuracy"]
    for (pairs, cells), style, shift in zip(rows.items(), styles(), np.linspace(-0.2, 0.2, len(rows)), strict=False):
        value, low, high = np.array([[c["accuracy"]["value"], *c["accuracy"]["interval"]] for c in cells]).T
        x = np.arange(len(cells)) + shift * (len(rows) > 1)  # side by side: where all is recalled, lines coincide
        axes.errorbar(x, value, [value - low, high - value], label=f"{pairs:,} pair{'s' * (pairs > 1)}", **style)
        ringed = [cell["trained"] for cell in cells]
        axes.plot(x[ringed], value[ringed], **RING)
    axes.plot([], [], **RING, label="as in training")
    axes.axhline(found["chance"], color=GREY, linestyle=":", label=f"chance ({found['chance']:.3f})")
    axes.set_xticks(np.arange(len(cells)), [f"{cell['gap']:,}" for cell in cells])
    axes.set(xlabel="gap between pairs and questions (tokens)", ylabel="share of values recalled", ylim=(-0.03, 1.05))
    axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, loc="outside right center")
    return figure
