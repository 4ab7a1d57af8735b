"""The losses of a run by step, as a picture."""

from gpn_ref.figures import BLUE, GREY, VERMILION, new_figure, save


def draw_losses(path, title, metrics, baselines):
    """Write a PNG: training and validation loss of `metrics` (a dict a step), and a line for each of `baselines`.

    `baselines` maps a name to a loss in nats per token.
    """
    figure, axes = new_figure(title)
    trained = [(m["step"], m["loss"]) for m in metrics if "loss" in m]
    validated = [(m["step"], m["validation_loss"]) for m in metrics if "validation_loss" in m]
    axes.plot(*zip(*trained, strict=True), color=BLUE, linewidth=0.8, alpha=0.8, label="training, one batch a step")
    axes.plot(*zip(*validated, strict=True), color=VERMILION, marker="o", markersize=4, label="validation")
    for (name, loss), style in zip(baselines.items(), ("--", ":", "-."), strict=False):
        axes.axhline(loss, color=GREY, linestyle=style, linewidth=1.2, label=f"{name} ({loss:.2f})")
    axes.set(xlabel="optimizer steps", ylabel="loss (nats per token)", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, path.with_suffix(""), ["png"])
