"""The table's figure: the loss as tokens come in, a band a model, a panel a corpus."""

import numpy as np

from gpn_ref.figures import new_figure, styles

EARLY = 1 / 8  # share of the tokens


def curves(table, corpus):
    """Row -> tokens (n), and the validation loss (seeds, n) in nats per token of the runs that are finished."""
    found = {}
    for row in table["rows"]:
        runs = [run["curve"] for run in table["runs"] if _belongs(run, row, corpus)]
        if runs:
            found[row] = np.array(runs[0])[:, 0], np.array([np.array(run)[:, 1] for run in runs])
    return found


def _belongs(run, row, corpus):
    return (run["row"], run["corpus"], run["sweep"], run["status"]) == (row, corpus, False, "finished")


def draw_losses(table):
    """A figure, or None if no run of the table is finished."""
    panels = {corpus: found for corpus in table["corpora"] if (found := curves(table, corpus))}
    if not panels:
        return None
    figure, axes = new_figure("Loss as tokens come in", columns=len(panels), width=1 + 4 * len(panels), height=5.5)
    axes = np.ravel(axes)
    look = dict(zip(table["rows"], styles(), strict=False))
    for panel, (corpus, found) in zip(axes, panels.items(), strict=True):
        for number, (row, (tokens, losses)) in enumerate(found.items()):
            name, every = table["rows"][row]["name"], max(1, len(tokens) // 4)
            marks = (number % every, every)  # of each line elsewhere
            panel.plot(tokens / 1e6, losses.mean(axis=0), label=name, markevery=marks, markersize=6, **look[row])
            low, high = losses.min(axis=0), losses.max(axis=0)
            panel.fill_between(tokens / 1e6, low, high, color=look[row]["color"], alpha=0.2, lw=0)
        panel.set(title=corpus, xlabel="tokens trained on (millions)", ylabel="validation loss (nats per token)")
        panel.set_ylim(limits(found))
        panel.grid(alpha=0.3)
    lines = {}
    for panel in axes:
        lines |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    title = "line: mean over seeds; band: lowest to highest; the first losses lie above the picture"
    columns = min(4, 2 * len(panels))
    figure.legend(lines.values(), lines, frameon=False, title=title, loc="outside lower center", ncols=columns)
    return figure


def limits(found):
    """The lowest and the highest loss after the first EARLY of the tokens, with a margin: the end is not squeezed."""
    late = np.concatenate([losses[:, tokens >= EARLY * tokens[-1]].ravel() for tokens, losses in found.values()])
    margin = 0.04 * (late.max() - late.min()) or 0.1
    return late.min() - margin, late.max() + margin
