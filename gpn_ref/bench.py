"""Measure how fast each backend is, against its own matrix products and against what the machine can do.

Before anything is timed, the backends are compared with the reference, tensor by tensor. Then the forward pass, loss
with all gradients, the full step with clipping and AdamW, and the generation of one sequence; and in the same run the
matrix products alone (gpn_ref/benchmarks/products.py), the machine's best product and its read bandwidth.

Other programs on the machine only ever make a run slower. So the contestants, each a process of its own, take turns,
and the best of each one's runs counts; its first does not. Machines differ: compare figures of one run.
"""

import importlib.metadata
import json
import os
import platform
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from threadpoolctl import threadpool_info
from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.benchmarks import report
from gpn_ref.benchmarks.agreement import TOLERANCE
from gpn_ref.benchmarks.worker import Worker, take_turns
from gpn_ref.config import PRESETS
from gpn_ref.files import atomic_write
from gpn_ref.parameters import count_params

BACKENDS = ("numpy", "numba")  # on the processor; a card has `python -m gpn_ref.fast.cuda.device_check`
PROG = "python -m gpn_ref.bench"
REFERENCE_ROUNDS = 2  # of the NumPy backend, at most: it takes many seconds, and is no match for the others
PRODUCT, READ_BYTES = 4096, 1 << 30  # the machine's best: a product of this size, a sum of so many bytes
EXAMPLES = """examples:
  python -m gpn_ref.bench
  python -m gpn_ref.bench --sizes tiny small --backend numba --repeat 5
  python -m gpn_ref.bench --peer jax --long --memory --json bench.json

exit status: 0, or 1 if a backend disagrees with the reference
"""


class Size(NamedTuple):
    preset: str
    batch_size: int
    window: int

    def arguments(self):
        return {"config": asdict(PRESETS[self.preset]), "batch_size": self.batch_size, "window": self.window}


SIZES = {"tiny": Size("tiny", 16, 256), "small": Size("small", 16, 64), "130M": Size("paper-1layer", 8, 16)}
FIRST = Size("tiny", 16, 256)  # whose first training step is timed from the start of the process
LONG = {"short": Size("tiny", 16, 256), "long": Size("tiny", 16, 2048)}
LARGE = Size("paper-1layer", 8, 512)  # whose training step shows how much memory a long window takes


class Disagreement(Exception):
    """A backend does not compute what the reference does: nothing is timed."""


def require_writable(path):
    """An OSError where the file could not be written: now, not after minutes."""

    class Enough(Exception):
        """Leaves the block below as a failure does: with nothing written."""

    with suppress(Enough), atomic_write(path):
        raise Enough


# ------------------------------------------------------------------------------------------------- measurements
def check_agreement(size, backends, peer):
    """name -> [tensor that differs most, its error]; a Disagreement if one is beyond the tolerance."""
    with Worker("agree", config=asdict(PRESETS[SIZES[size].preset]), backends=backends, peer=peer) as worker:
        found = worker.ask()
    for name, (tensor, error) in found.items():
        if not error <= TOLERANCE:
            raise Disagreement(
                f"{size}: {name} disagrees with the reference: {tensor} by {error:.1e}, more than {TOLERANCE:.0e}"
            )
    return found


def rounds(backends, peer, repeat):
    """The order in which the contestants are asked, by name."""
    turns = []
    for i in range(1 + repeat):
        turns += ["machine", "products"]
        turns += [backend for backend in backends if backend != "numpy" or i < 1 + REFERENCE_ROUNDS]
        turns += ["jax"] * peer
    return turns


def measure_size(size, backends, peer, turns, tick):
    """Answers of the machine, the products, each backend and the peer, by name."""
    arguments = SIZES[size].arguments()
    tasks = {
        "machine": ("machine", {"size": PRODUCT, "n_bytes": READ_BYTES}),
        "products": ("products", arguments),
        **{backend: ("model", {"backend": backend, **arguments}) for backend in backends},
        **({"jax": ("peer", arguments)} if peer else {}),
    }
    return contest(tasks, turns, tick)


def contest(tasks, turns, tick):
    """The workers of `tasks`, name -> (task, arguments), take turns -> name -> answer."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(task, **arguments)) for name, (task, arguments) in tasks.items()}
        return take_turns(workers, turns, tick)


def first_steps(tick):
    """Seconds from the start of a process to the end of its first training step: compiling all, and from the cache."""
    seconds = []
    with TemporaryDirectory() as cache:
        for _ in range(3):
            began = perf_counter()
            with Worker("train", {"NUMBA_CACHE_DIR": cache}, backend="numba", **FIRST.arguments()) as worker:
                worker.ask()
                seconds.append(perf_counter() - began)
            tick()
    return {"cold": seconds[0], "cached": min(seconds[1:])}


def linear_cost(backend, repeat, tick):
    """Tokens/s of loss and gradients in a short and in a long window, and their ratio."""
    tasks = {name: ("model", {"backend": backend, "only": ["loss"], **size.arguments()}) for name, size in LONG.items()}
    answers = contest(tasks, [*LONG] * (1 + repeat), tick)
    rates = {name: size.batch_size * size.window / answers[name]["seconds"]["loss"] for name, size in LONG.items()}
    return rates | {"ratio": rates["short"] / rates["long"]}


def large_step(backend, tick):
    """Peak memory of a process that makes a learner and takes a step with a long window."""
    with Worker("train", backend=backend, **LARGE.arguments()) as worker:
        answer = worker.ask()
    tick()
    return answer


def measure(options, bar):
    """All that was asked for, as JSON types."""
    backends, peer = options.backend, options.peer is not None
    fastest = backends[-1]
    turns = rounds(backends, peer, options.repeat)
    compiled = "numba" in backends
    n_long = len(LONG) * (1 + options.repeat) if options.long else 0
    bar.reset(len(options.sizes) * (1 + len(turns)) + 3 * compiled + n_long + options.memory)
    result = {"facts": facts(), "agreement": {}, "answers": {}}
    for size in options.sizes:  # all of them before the first is timed
        bar.set_description(f"{size}, agreement")
        result["agreement"][size] = check_agreement(size, backends, peer)
        bar.update()
    for size in options.sizes:
        bar.set_description(size)
        result["answers"][size] = measure_size(size, backends, peer, turns, bar.update)
    bar.set_description("others")
    if compiled:
        result["first step"] = first_steps(bar.update)
    if options.long:
        result["linear cost"] = linear_cost(fastest, options.repeat, bar.update)
    if options.memory:
        result["memory"] = large_step(fastest, bar.update)
    machine = report.machine_figures(PRODUCT, READ_BYTES, [answer["machine"] for answer in result["answers"].values()])
    result["machine"] = machine
    result["sizes"] = {
        size: report.figures(*SIZES[size], answers, machine) for size, answers in result["answers"].items()
    }
    result["verdict"] = report.verdict(result["sizes"], fastest)
    return result


def facts():
    """The command, the versions and the machine."""
    versions = {"python": platform.python_version()}
    for name in ("numpy", "numba", "jax", "jaxlib"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "command": [PROG, *sys.argv[1:]],
        "versions": versions,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "blas": [f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads" for pool in blas],
        "threads": {name: os.environ[name] for name in os.environ if name.endswith("_NUM_THREADS")},
    }


def cpu_name():
    """As the system tells it: Linux in a file."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# ------------------------------------------------------------------------------------------------------ the report
def lines(result):
    """What is printed: the machine, the table, what was asked for besides, and the verdict."""
    known, machine = result["facts"], result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in known["versions"].items())
    yield f"{known['cpu']}, {known['cores']} cores; {versions}; float32"
    yield f"best product {machine['peak_gflops']:.0f} GFLOP/s, read bandwidth {machine['read_gb']:.1f} GB/s"
    for size in result["sizes"]:
        preset, batch_size, window = SIZES[size]
        worst = ", ".join(
            f"{name} {error:.0e} ({tensor})" for name, (tensor, error) in result["agreement"][size].items()
        )
        shape = f"{count_params(PRESETS[preset]):,} parameters, B {batch_size}, T {window}"
        yield f"{size}: {shape}; furthest from the reference: {worst}"
    yield ""
    yield from report.table(result["sizes"])
    yield ""
    yield from report.LEGEND
    if "first step" in result:
        cold, cached = (f"{result['first step'][name]:.1f} s" for name in ("cold", "cached"))
        yield f"from nothing to the first training step: {cold} with an empty compile cache, {cached} with a full one"
    if "linear cost" in result:
        cost, windows = result["linear cost"], [LONG[name].window for name in ("short", "long")]
        yield (
            f"linear cost: {cost['short']:,.0f} tokens/s at T {windows[0]}, {cost['long']:,.0f} at T {windows[1]}: "
            f"a token costs {cost['ratio']:.2f} times as much"
        )
    if "memory" in result:
        peak = result["memory"]["peak_bytes"] / 2**30
        yield f"memory: a step of {LARGE.preset} with B {LARGE.batch_size}, T {LARGE.window} takes {peak:.1f} GiB"
    yield result["verdict"]


def parser():
    there = [name for name in BACKENDS if name == "numpy" or find_spec(name)]
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    parser.add_argument(
        "--sizes",
        type=cli.one_of("size", list(SIZES)),
        nargs="+",
        default=list(SIZES),
        metavar="NAME",
        help=f"{', '.join(SIZES)} (default: all)",
    )
    parser.add_argument(
        "--backend",
        type=cli.one_of("backend", list(BACKENDS)),
        nargs="+",
        default=there,
        metavar="NAME",
        help=f"what computes: {', '.join(BACKENDS)} (default: all that are installed)",
    )
    parser.add_argument(
        "--peer", type=cli.one_of("peer", ["jax"]), metavar="NAME", help="jax: the same equations in JAX, if installed"
    )
    rounds = f"rounds that count (default 5); numpy at most {REFERENCE_ROUNDS}"
    parser.add_argument("--repeat", type=cli.integer(1), default=5, metavar="N", help=rounds)
    parser.add_argument("--long", action="store_true", help="also what a token costs in a long window")
    parser.add_argument("--memory", action="store_true", help="also the peak memory of a large training step")
    parser.add_argument("--json", type=cli.path, metavar="FILE", help="keep everything that was measured")
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    options.sizes = [size for size in SIZES if size in options.sizes]
    options.backend = [backend for backend in BACKENDS if backend in options.backend]
    if (options.long or options.memory) and options.backend == ["numpy"]:
        raise ValueError("--long and --memory need a compiled backend: the reference keeps every memory state")
    if options.json:
        require_writable(options.json)
    try:
        with tqdm(total=1, unit="run", leave=False, disable=None) as bar:
            result = measure(options, bar)
    except Disagreement as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1
    if options.json:
        with atomic_write(options.json) as file:
            json.dump(result, file, indent=1)
    print("\n".join(lines(result)))
    return 0


if __name__ == "__main__":
    cli.run(main, PROG)
