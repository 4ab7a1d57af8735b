"""The losses of a run by step, as a picture."""

import warnings

from gpn_ref.files import atomic_write

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#555555"  # of Okabe and Ito: told apart by every kind of eye


def draw_losses(path, title, metrics, baselines):
    """Write a PNG: training and validation loss of `metrics` (a dict a step), and a line for each of
    `baselines`.

    `baselines` maps a name to a loss in nats per token.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    trained = [(m["step"], m["loss"]) for m in metrics if "loss" in m]
    validated = [(m["step"], m["validation_loss"]) for m in metrics if "validation_loss" in m]
    axes.plot(*zip(*trained, strict=True), color=BLUE, linewidth=0.8, alpha=0.8, label="training, one batch a step")
    axes.plot(*zip(*validated, strict=True), color=VERMILION, marker="o", markersize=4, label="validation")
    for (name, loss), style in zip(baselines.items(), ("--", ":", "-."), strict=False):
        axes.axhline(loss, color=GREY, linestyle=style, linewidth=1.2, label=f"{name} ({loss:.2f})")
    axes.set_title(title.encode("utf-8", "backslashreplace").decode(), parse_math=False)
    axes.set(xlabel="optimizer steps", ylabel="loss (nats per token)", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    with atomic_write(path, "wb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the font lacks
        figure.savefig(file, format="png")
