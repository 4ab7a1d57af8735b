"""What a device check found, in Markdown: for the screen and for the README."""

import importlib.metadata
import platform
import shutil
import subprocess
import sys
from datetime import date

from gpn_ref.cli import shell

GOAL_SHARE, GOAL_FLOOR = 0.7, 2.0  # of the copy bandwidth; times the floor, at 130M
PACKAGES = ("numba-cuda", "nvmath-python", "numpy", "jax", "torch")
PARTS = ("parity", "race", "card", "memory", "training", "rivals")
STEP_PARTS = ("upload", "forward", "decoder and loss", "backward", "weight gradients", "optimizer")


def facts(card, prog):
    """The card, the driver, the date, the command and the versions."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    command = " ".join([prog, *map(shell_word, sys.argv[1:])])
    return {"device": device(card), "date": date.today().isoformat(), "command": command, "versions": versions}


def shell_word(text):
    """Flags as they are, all else as a shell takes it."""
    return text if text.startswith("--") else shell(text)


def device(card):
    """The card and its driver in words."""
    if card.simulated:
        return "simulated: no time means anything"
    from numba import cuda

    here = cuda.get_current_device()
    major, minor = here.compute_capability
    return f"{here.name}, compute capability {major}.{minor}, driver {driver()}"


def driver():
    """The driver's version where nvidia-smi tells it, else that of CUDA that it knows."""
    from numba.cuda.cudadrv.driver import get_version

    version = "for CUDA {}.{}".format(*get_version())
    if path := shutil.which("nvidia-smi"):
        command = [path, "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=20)
        if done.returncode == 0 and done.stdout.strip():
            return f"{done.stdout.split()[0]} ({version})"
    return version


def any_failed(found):
    """Whether a check failed, or could not be made where it must be."""
    rows = [row for part in PARTS for row in found.get(part, [])]
    return any(row.get("passed") is False for row in rows) or any(
        row.get("passed") is not True for row in found.get("parity", [])
    )


# --------------------------------------------------------------------------------------------------------- table
def table(found):
    """The lines."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [f"{found['device']}; {found['date']}; {versions}; float32", "", f"    {found['command']}", ""]
    lines += grid(["check", "result"], checks(found))
    if "card" in found:
        lines += grid(["the card", "measured"], card_rows(found["card"][0]))
    lines += grid(["memory kernel", "B, H, K, U", "µs", "GB", "GB/s", "of the copy"], memory_rows(found))
    heads = ["training step", "B, T", "tokens/s", "times the floor", "GiB", "JAX tokens/s", "PyTorch tokens/s"]
    lines += grid(heads, training_rows(found))
    lines += grid(["milliseconds of", "B, T", *STEP_PARTS, "whole step"], part_rows(found))
    return lines + list(goals(found))


def grid(heads, rows):
    """A table in Markdown and an empty line; nothing without rows."""
    rows = list(rows)
    if not rows:
        return []
    rule = ["---"] * len(heads)
    return [f"| {' | '.join(cells)} |" for cells in ([*heads], rule, *rows)] + [""]


def checks(found):
    parity = found.get("parity", [])
    for precision in ("float64", "float32"):
        rows = [row for row in parity if row.get("precision") == precision]
        if rows:
            worst = max(rows, key=lambda row: row["error"])
            text = f"furthest {worst['error']:.1e}: {worst['tensor']}, {worst['case']}"
            drawn = sum(row.get("discarded", 0) for row in rows)
            yield f"parity, {precision}", f"{len(rows)} checks, {text}; {drawn} points discarded; seed {found['seed']}"
    for row in parity:
        if row.get("passed") is not True:
            where = ", ".join(str(row[name]) for name in ("case", "window", "precision", "products") if name in row)
            yield f"FAILED: {where}", what_failed(row)
    for row in found.get("race", []):
        yield ("FAILED: " if row.get("passed") is False else "") + row["tool"], row["told"]


def what_failed(row):
    if "told" in row:
        return row["told"]
    moved = f"; other bits the second time: {', '.join(row['moved'])}" if row["moved"] else ""
    return f"{row['tensor']} differs by {row['error']:.1e}{moved}"


def card_rows(card):
    yield "copy from the card to the card", f"{card['bandwidth'] / 1e9:,.0f} GB/s, read and written"
    product = f"product of {card['product size']}³, float32, {card['products']}"
    yield product, f"{card['product rate'] / 1e12:.1f} TFLOP/s"


def memory_rows(found):
    for row in found.get("memory", []):
        sizes = ", ".join(map(str, row["B, H, K, U"]))
        if "seconds" in row:
            moved = [f"{row['bytes'] / 1e9:.3f}", f"{row['bytes'] / row['seconds'] / 1e9:,.0f}", f"{row['share']:.0%}"]
            yield row["kernel"], sizes, f"{row['seconds'] * 1e6:.1f}", *moved
        else:
            yield row["told"], sizes, "", "", "", ""


def training_rows(found):
    for row in found.get("training", []):
        head = row["size"], ", ".join(map(str, row["window"]))
        if "rate" not in row:
            yield *head, row["told"], "", "", "", ""
            continue
        rivals = [
            f"{rival['rate']:,.0f}" if "rate" in rival else rival["told"]
            for name in ("jax", "torch")
            for rival in rivals_at(found, row, name) or [{"told": "-"}]
        ]
        yield *head, f"{row['rate']:,.0f}", f"{row['times the floor']:.2f}", f"{row['bytes'] / 2**30:.2f}", *rivals


def rivals_at(found, row, name):
    """What this rival told at the size of a row."""
    where = row["size"], row["window"], name
    return [rival for rival in found.get("rivals", []) if (rival["size"], rival["window"], rival["rival"]) == where]


def part_rows(found):
    for row in found.get("training", []):
        if "parts" in row:
            times = [
                f"{1e3 * seconds:.2f}" for seconds in (*(row["parts"][name] for name in STEP_PARTS), row["seconds"])
            ]
            yield row["size"], ", ".join(map(str, row["window"])), *times


def goals(found):
    """A line for each goal that this run can tell of."""
    ours = ("write_and_read", "write_and_read_back")
    kernels = [row for row in found.get("memory", []) if row.get("kernel") in ours]
    shares = [row["share"] for row in kernels if row["size"] == "130M"]
    if shares:
        yield f"goal: memory kernels at {GOAL_SHARE:.0%} of the copy bandwidth: {met(min(shares) >= GOAL_SHARE)}"
    steps = [row for row in found.get("training", []) if "rate" in row]
    floors = [row["times the floor"] for row in steps if row["size"] == "130M"]
    if floors:
        yield f"goal: within {GOAL_FLOOR:.0f} times the larger floor at 130M: {met(max(floors) <= GOAL_FLOOR)}"
    faster = [
        row["rate"] > rival["rate"]
        for row in steps
        for name in ("jax", "torch")
        for rival in rivals_at(found, row, name)
        if "rate" in rival
    ]
    if faster:
        yield f"goal: faster than JAX and PyTorch wherever they told a rate: {met(all(faster))}"


def met(reached):
    return "met" if reached else "not met"
