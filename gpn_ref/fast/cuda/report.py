"""Compile every kernel of the CUDA path for cards that need not be here, and look at what the compiler made of it.

It needs neither a card nor a driver. Of each kernel it tells the registers of a thread, the shared memory of a block,
stack frame and spills (arrays and numbers that found no room in registers, and lie in slow memory), the float64
instructions (a literal in a float32 kernel makes them), and how many blocks a multiprocessor can hold.

The kernels are those that the engine's own code launches for models of the presets' sizes, and those of two modules
that it does without: delta, the memory of a Gated DeltaNet, and ladder, a lesson.
"""

import json
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.config import PRESETS
from gpn_ref.fast.cuda.ptx import LIMITS, architecture, clear_errors, faults, find_ptxas, measure
from gpn_ref.files import atomic_write

PROG = "python -m gpn_ref.fast.cuda.report"
MODULES = ("delta", "ladder")
NAMES = ("tiny", "small", "paper-1layer", "paper-2layer", "paper-gpn", *MODULES)
EXAMPLES = """examples:
  python -m gpn_ref.fast.cuda.report
  python -m gpn_ref.fast.cuda.report --preset tiny --cc 7.5 --keep ptx
  python -m gpn_ref.fast.cuda.report --preset paper-1layer --float64 --json report.json

exit status: 0, 1 if a kernel is not as it must be, 2 if a part of CUDA's toolkit is missing
"""
HEAD = ("kernel", "sizes", "threads", "registers", "shared", "stack", "spills", "float64")
FIT = ("registers", "shared", "threads")
LEGEND = """threads: of a block; registers: of a thread; shared: bytes of a block; stack, spills: bytes of a thread, in
slow memory; float64: instructions; by ...: blocks that a multiprocessor has so many of; occupancy: threads that fit, as
a share of those that it could hold. sizes: whose a kernel is made for, a preset's or module's; any: one for several.
"""


def measure_all(names, capabilities, float64, folder):
    """The rows of the table, one compute capability after the other. The PTX goes to `folder`."""
    ptxas = find_ptxas()
    with clear_errors():
        import numba_cuda  # noqa: F401  numba alone has an older numba.cuda

        from gpn_ref.fast.cuda import card, recording
    if card.SIMULATED:
        raise ValueError("the report needs the compiler and not the simulator: unset NUMBA_ENABLE_CUDASIM")
    launches = recording.launches(names, "float64" if float64 else "float32")
    launches = sorted(launches.items(), key=lambda launch: (launch[0].name, names.index(launch[1][0])))
    rows = []
    with tqdm(total=len(launches) * len(capabilities), unit="kernel", leave=False, disable=None) as bar:
        for cc in capabilities:
            for launch, users in launches:
                sizes = users[0] if len(users) == 1 else "any"
                name = f"{launch.name} {sizes} {architecture(cc)}.ptx".replace(" ", "-")
                row = {"sizes": sizes} | measure(launch, cc, ptxas, Path(folder, name))
                rows.append(row | {"faults": faults(row, float64)})
                bar.update()
    return rows


def table(rows):
    """The lines of a table, its head first."""
    lines = [[*HEAD, *(f"by {what}" for what in FIT), "occupancy"]]
    for row in rows:
        numbers = [f"{row[name]:,}" if name in row else "-" for name in HEAD[2:]]
        fit = [*(str(row["blocks"][what]) for what in FIT), f"{row['occupancy']:.0%}"] if "blocks" in row else ["-"] * 4
        lines.append([row["kernel"], row["sizes"], *numbers, *fit])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, widths, strict=True)
        yield "  ".join(f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}" for i, (cell, width) in enumerate(cells))


def lines(rows, float64=False):
    """All that is printed."""
    for cc in dict.fromkeys(row["cc"] for row in rows):
        limits = LIMITS[cc]
        yield (
            f"compute capability {cc}: a multiprocessor has {limits.registers:,} registers, {limits.shared >> 10} KiB "
            f"of shared memory, {limits.threads:,} threads and {limits.blocks} blocks"
        )
        yield from table([row for row in rows if row["cc"] == cc])
        yield ""
    yield LEGEND
    bad = [f"{row['kernel']} ({row['sizes']}, {row['cc']}) {fault}" for row in rows for fault in row["faults"]]
    yield from bad
    if not bad:
        wanted = (
            "no stack frame, no spills, " + "no float64 instructions, " * (not float64) + "within the card's limits"
        )
        yield f"all {len(rows)} as they must be: {wanted}"


def versions():
    """Of what compiled."""
    found = {}
    for name in ("numba", "numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-cuda-nvcc"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)

    def add(flag, kind, metavar, text, **more):
        parser.add_argument(flag, type=kind, metavar=metavar, help=text, **more)

    names = [*PRESETS, *MODULES]
    what = f"{', '.join(names)} (default: {' '.join(NAMES)})"
    add("--preset", cli.one_of("preset", names), "NAME", what, nargs="+", default=NAMES)
    what = f"compute capabilities: {', '.join(LIMITS)} (default: all)"
    add("--cc", cli.one_of("compute capability", list(LIMITS)), "N.N", what, nargs="+", default=list(LIMITS))
    parser.add_argument("--float64", action="store_true", help="the kernels for float64 parameters")
    add("--json", cli.path, "FILE", "keep the rows, and the versions of what compiled")
    add("--keep", cli.path, "DIR", "keep the PTX of each kernel")
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    names, capabilities = list(dict.fromkeys(options.preset)), list(dict.fromkeys(options.cc))
    if options.keep:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file = options.json and stack.enter_context(atomic_write(options.json))  # fails now, not after a minute
        folder = options.keep or stack.enter_context(TemporaryDirectory())
        rows = measure_all(names, capabilities, options.float64, folder)
        print("\n".join(lines(rows, options.float64)))
        if file:
            json.dump({"float64": options.float64, "versions": versions(), "kernels": rows}, file, indent=1)
    return int(any(row["faults"] for row in rows))


if __name__ == "__main__":
    cli.run(main, PROG)
