"""Check the CUDA path on a real card, and measure it: everything that a machine without one cannot tell.

parity    all that the card computes, against the reference, on fresh random inputs; twice, so that a race shows
race      compute-sanitizer's racecheck and memcheck on the memory kernels, where it is on PATH and the card allows it
memory    what the card's memory and products can do; the memory kernels' share of that bandwidth
training  tokens/s of a learner's step, the time of its parts, and its distance from what the card can do
rivals    the same step in JAX and in PyTorch, where they are on this machine (with training)

A table comes last. With --json everything is kept after each single check: a run that is stopped loses only what it
was at. Under numba-cuda's simulator all is run at tiny sizes, and no time means anything.
"""

import sys
import traceback
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from gpn_ref import cli
from gpn_ref.benchmarks.agreement import jittered
from gpn_ref.config import PRESETS, ModelConfig
from gpn_ref.files import write_json
from gpn_ref.model import load_model
from gpn_ref.random_state import generator

PROG = "python -m gpn_ref.fast.cuda.device_check"
PARTS = ("parity", "race", "memory", "training", "rivals")
EXAMPLES = """examples:
  python -m gpn_ref.fast.cuda.device_check --json check.json
  python -m gpn_ref.fast.cuda.device_check --only parity race --sizes tiny

exit status: 0; 1 if a check fails
"""


class Size(NamedTuple):
    config: ModelConfig
    windows: list  # of (B, T)


SIZES = {
    "tiny": Size(PRESETS["tiny"], [(16, 256)]),
    "small": Size(PRESETS["small"], [(16, 64)]),
    "130M": Size(PRESETS["paper-1layer"], [(128, 64), (128, 512)]),
}
MEMORIES = {"small": (16, 6, 64, 128), "130M": (128, 15, 128, 256)}  # B, H, K, U
SEGMENT = 7  # tokens that `replay` goes through: there are SEGMENT² in the window
COPY_BYTES, PRODUCT = 2 * 10**9, 4096
# what the simulator is given in their place
TINY_CONFIG = ModelConfig(vocab_size=7, d_state=4, d_emb=4, d_ffn=5, n_heads=1, d_key=4, d_value=5)
TINY_SIZES = {"tiny": Size(TINY_CONFIG, [(1, 2)])}
TINY_MEMORIES = {"tiny": (1, 1, 4, 4)}


class Check:
    """A run: what it found so far, kept in a file after each step."""

    def __init__(self, card, options):
        self.card, self.options, self.began = card, options, perf_counter()
        self.sizes = TINY_SIZES if card.simulated else {name: SIZES[name] for name in SIZES if name in options.sizes}
        memories = TINY_MEMORIES if card.simulated else MEMORIES
        self.memories = {name: memories[name] for name in memories if name in self.sizes}
        self.found = {"seed": options.seed, "finished": False}
        self.params = cache(lambda name: jittered(self.sizes[name].config))

    def keep(self, part, row):
        """Add a row to a part, tell it, and write all of it."""
        self.found.setdefault(part, []).append(row)
        self.write()
        text = ", ".join(f"{name} {shown(value)}" for name, value in row.items() if value not in ([], {}))
        print(f"[{perf_counter() - self.began:4.0f} s] {part}: {text}", file=sys.stderr, flush=True)

    def write(self):
        if self.options.json:
            write_json(self.options.json, self.found)

    def attempt(self, part, facts, work, *arguments):
        """keep() the rows that work(...) gives; what it raises is kept too, so that what follows is still tried."""
        try:
            for row in work(*arguments):
                self.keep(part, facts | row)
        except MemoryError as error:
            self.keep(part, facts | {"told": str(error) or "out of memory"})
        except Exception as error:
            if not isinstance(error, ValueError):  # those tell all in their line
                traceback.print_exc()
            message = " ".join(f"{type(error).__name__}: {error}".split())
            self.keep(part, facts | {"told": message, "passed": False})

    def limits(self):
        """What the card can do, measured once a run."""
        if "card" not in self.found:
            from gpn_ref.fast.cuda import device_speed

            sizes = (4096, 8) if self.card.simulated else (COPY_BYTES, PRODUCT)
            self.keep("card", device_speed.limits(self.card, *sizes))
        return self.found["card"][0]


# --------------------------------------------------------------------------------------------------------- parts
def parity(check):
    from gpn_ref.fast.cuda import device_parity

    card, rng = check.card, generator(check.options.seed, "device check")
    for case in device_parity.SIMULATED if card.simulated else device_parity.CASES:
        check.attempt("parity", {"case": case.name}, device_parity.check, card, case, rng)
    if not card.simulated:
        for name, size in check.sizes.items():
            case = device_parity.timed_case(name, size.config, check.params(name))
            check.attempt("parity", {"case": name}, device_parity.check, card, case, rng)
    sizes = (1, 4, 5) if card.simulated else (3, 37, 70)
    check.attempt("parity", {"case": "ladder"}, device_parity.check_ladder, card, *sizes, rng)


def race(check):
    from gpn_ref.fast.cuda import device_sanitizer

    for tool in device_sanitizer.TOOLS:
        check.attempt("race", {"tool": tool}, device_sanitizer.run, tool, check.card.simulated)


def memory(check):
    from gpn_ref.fast.cuda import device_speed

    card = check.card
    for name, sizes in check.memories.items():
        facts = {"size": name, "B, H, K, U": list(sizes)}
        check.attempt(
            "memory", facts, shares, check, device_speed.memory_kernels, *sizes, 1 if card.simulated else SEGMENT
        )
        check.attempt("memory", facts, shares, check, device_speed.ladder_kernels, *sizes)


def shares(check, kernels, *sizes):
    """A row for each kernel that kernels(card, ...) times: its share of the copy bandwidth."""
    bandwidth = check.limits()["bandwidth"]
    for name, seconds, n_bytes in kernels(check.card, *sizes):
        yield {"kernel": name, "seconds": seconds, "bytes": n_bytes, "share": n_bytes / seconds / bandwidth}


def training(check):
    for name, size in check.sizes.items():
        with TemporaryDirectory() as folder:
            params_file = Path(folder, "params.safetensors")
            if "rivals" in check.options.only:
                save_file(check.params(name), params_file)
            for batch_size, window in size.windows:
                facts = {"size": name, "window": [batch_size, window]}
                check.attempt("training", facts, measured, check, name, batch_size, window)
                if "rivals" in check.options.only:
                    rivals(check, name, batch_size, window, params_file)


def measured(check, name, batch_size, window):
    """A row: our own step, with its floors."""
    from gpn_ref.fast.cuda import device_training

    config, card = check.sizes[name].config, check.card
    row = device_training.measure(card, config, batch_size, window, check.params(name))
    known = check.limits()
    row["floors"] = device_training.floors(config, batch_size, window, known["bandwidth"], known["product rate"])
    row["times the floor"] = row["seconds"] / max(row["floors"].values())
    device_training.bytes_in_use(card)  # frees what was taken: a rival may need it
    yield row


def rivals(check, name, batch_size, window, params_file):
    from gpn_ref.fast.cuda import device_rivals

    ours = check.found["training"][-1]
    for rival in device_rivals.RIVALS:
        facts = {"size": name, "window": [batch_size, window], "rival": rival}
        if "loss" in ours:
            size = check.sizes[name].config, batch_size, window
            asked = device_rivals.compete, rival, *size, params_file, ours["loss"], check.card.simulated
            check.attempt("rivals", facts, *asked)
        else:
            check.keep("rivals", facts | {"told": "there is no loss of ours to compare with"})


WORK = {"parity": parity, "race": race, "memory": memory, "training": training}


# -------------------------------------------------------------------------------------------------------- command
def shown(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    parser.add_argument(
        "--only",
        type=cli.one_of("part", list(PARTS)),
        nargs="+",
        default=list(PARTS),
        metavar="PART",
        help=f"{', '.join(PARTS)} (default: all)",
    )
    parser.add_argument(
        "--sizes",
        type=cli.one_of("size", list(SIZES)),
        nargs="+",
        default=list(SIZES),
        metavar="NAME",
        help=f"{', '.join(SIZES)} (default: all)",
    )
    parser.add_argument("--seed", type=cli.SEED, metavar="N", help="of the inputs (default: another one each time)")
    parser.add_argument("--json", type=cli.path, metavar="FILE", help="keep everything that was found")
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    options.seed = np.random.SeedSequence().entropy % 2**32 if options.seed is None else options.seed
    if "rivals" in options.only and "training" not in options.only:
        options.only.append("training")
    load_model(PRESETS["nano"], "cuda")  # one line where something is missing
    from gpn_ref.fast.cuda import device_table
    from gpn_ref.fast.cuda.card import the_card

    check = Check(the_card(), options)
    check.found |= device_table.facts(check.card, PROG)
    check.write()  # if it can't be written, then it is told now
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    for part, work in WORK.items():
        if part in options.only:
            work(check)
    check.found |= {"finished": True, "seconds": perf_counter() - check.began}
    check.found["table"] = device_table.table(check.found)
    check.write()
    print("\n".join(check.found["table"]))
    return int(device_table.any_failed(check.found))


if __name__ == "__main__":
    cli.run(main, PROG)
