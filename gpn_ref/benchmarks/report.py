"""From seconds to what is told of them: rates, shares of what the machine can do, the table and the verdict."""

from gpn_ref.benchmarks.products import operations, products_only
from gpn_ref.benchmarks.worker import GENERATED
from gpn_ref.config import PRESETS
from gpn_ref.parameters import count_params

GOALS = {"tiny": 0.8, "small": 1.0, "130M": 1.25}  # loss and gradients, as a share of products-only
FLOAT = 4  # bytes
ADAMW_FLOATS = 7  # a parameter: itself and both moments read and written, its gradient read
BLANK = "-"


def _rate(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


COLUMNS = {  # head -> figure, how it is written
    "forward": ("forward", _rate),
    "loss, grads": ("loss", _rate),
    "full step": ("step", _rate),
    "generate": ("generate", _rate),
    "/products": ("loss_to_products", "{:.2f}".format),
    "/peer": ("loss_to_peer", "{:.2f}".format),
    "fwd /peer": ("forward_to_peer", "{:.2f}".format),
    "GFLOP/s": ("gflops", "{:.0f}".format),
    "of peak": ("of_peak", "{:.0%}".format),
    "gen. read": ("generate_of_read", "{:.0%}".format),
    "AdamW GB/s": ("adamw_gb", "{:.1f}".format),
    "of read": ("adamw_of_read", "{:.0%}".format),
    "GiB": ("peak_gib", "{:.2f}".format),
}
LEGEND = (
    "forward, loss with all gradients, full step (with clipping and AdamW), generate (one sequence): tokens/s.",
    "/products, /peer: loss with gradients against the products alone and the peer's; fwd /peer: forward likewise.",
    "GFLOP/s: the matrix products' operations only, 6 a matrix entry and token, in loss and gradients; of peak: of the",
    "machine's best product. gen. read: bytes of all weights once a generated token, as a share of the read bandwidth.",
    "AdamW: with clipping, 28 bytes a parameter; of read: of the read bandwidth. GiB: peak memory of the process.",
)


def machine_figures(size, n_bytes, answers):
    """GFLOP/s and GB/s from the machine's answers, the best of all sizes' rounds."""
    best = {work: min(answer["seconds"][work] for answer in answers) for work in ("product", "read")}
    return {"peak_gflops": 2e-9 * size**3 / best["product"], "read_gb": 1e-9 * n_bytes / best["read"]}


def figures(preset, batch_size, window, answers, machine):
    """name -> figures of each contestant of one size, from the answers of take_turns.

    Rates are tokens/s. What a contestant doesn't do is left out.
    """
    config, n_tokens = PRESETS[preset], batch_size * window
    n_params = count_params(config)
    products = n_tokens / products_only(config, window, answers["products"]["seconds"])
    found = {"products": {"loss": products} | _arithmetic(config, products, machine)}
    for name, answer in answers.items():
        if name in ("products", "machine"):
            continue
        seconds = answer["seconds"]
        row = {work: n_tokens / seconds[work] for work in ("forward", "loss", "step")}
        row |= {"loss_to_products": row["loss"] / products, "peak_gib": answer["peak_bytes"] / 2**30}
        row |= _arithmetic(config, row["loss"], machine)
        if "generate" in seconds:
            row["generate"] = GENERATED / seconds["generate"]
            row["generate_of_read"] = 1e-9 * FLOAT * n_params * row["generate"] / machine["read_gb"]
            row["adamw_gb"] = 1e-9 * FLOAT * ADAMW_FLOATS * n_params / seconds["optimizer"]
            row["adamw_of_read"] = row["adamw_gb"] / machine["read_gb"]
        found[name] = row
    if peer := found.get("jax"):
        for name in found.keys() - {"products", "jax"}:
            for work in ("forward", "loss"):
                found[name][f"{work}_to_peer"] = found[name][work] / peer[work]
    return found


def _arithmetic(config, rate, machine):
    gflops = 1e-9 * operations(config, backward=True) * rate
    return {"gflops": gflops, "of_peak": gflops / machine["peak_gflops"]}


def table(sizes):
    """The lines of the table. sizes: name -> contestant -> figures; columns that nobody fills are left out."""
    all_rows = [row for rows in sizes.values() for row in rows.values()]
    columns = {head: column for head, column in COLUMNS.items() if any(column[0] in row for row in all_rows)}
    lines = [["size", "", *columns]]
    for size, rows in sizes.items():
        for name, row in rows.items():
            cells = [write(row[key]) if key in row else BLANK for key, write in columns.values()]
            lines.append([size, name, *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(_aligned(line, widths)).rstrip() for line in lines]


def _aligned(line, widths):
    for i, (cell, width) in enumerate(zip(line, widths, strict=True)):
        yield f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}"


def verdict(sizes, backend):
    """One line: the figure that counts, of each size, with its goal where it has one."""
    parts = []
    for size, rows in sizes.items():
        goal = f" (goal {GOALS[size]})" if size in GOALS else ""
        parts.append(f"{size} {rows[backend]['loss_to_products']:.2f}{goal}")
    return f"verdict: loss with all gradients, {backend} against the products alone: {', '.join(parts)}"
