"""A device check in the simulator with a fault planted: `python device_faults.py FAULT`, with the smallest model."""

import sys

import numpy as np

from gpn_ref import cli
from gpn_ref.fast.cuda import device_check, device_parity
from gpn_ref.fast.cuda.card import Card

launch = Card.launch


def unwritten(card, kernel, grid, threads, *arguments):
    """The last row that is mixed is never written."""
    launch(card, kernel, grid - 1 if kernel.name == "mix" else grid, threads, *arguments)


def race(card, kernel, grid, threads, *arguments, times=[]):  # noqa: B006
    """Another last bit each time, far within the tolerance."""
    launch(card, kernel, grid, threads, *arguments)
    if kernel.name == "predict":
        times.append(1)
        arguments[4]._ary[...] *= 1 + np.finfo(np.float32).eps * (len(times) % 2)


def broken(card, kernel, grid, threads, *arguments):
    """What no check expects."""
    if kernel.name == "predict":
        raise RuntimeError("planted")
    launch(card, kernel, grid, threads, *arguments)


FAULTS = {"none": launch, "unwritten": unwritten, "race": race, "broken": broken}

if __name__ == "__main__":
    Card.launch = FAULTS[sys.argv[1]]
    model = next(case for case in device_parity.SIMULATED if case.name == "no memory")
    device_parity.SIMULATED = [model._replace(windows=[(2, 1)])]
    arguments = ["--only", "parity", "--seed", "3", "--json", sys.argv[2]]
    cli.run(lambda: device_check.main(arguments), device_check.PROG)
