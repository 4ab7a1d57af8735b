"""What the compiler makes of a kernel, for a card that need not be here: NVVM writes its PTX, and ptxas assembles it.

`measure` tells all about one Launch (recording.py), `faults` what of that is not as it must be.
"""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

from gpn_ref.files import atomic_write

INSTALL = "pip install -r requirements-cuda-test.txt"


class Limits(NamedTuple):
    """What a multiprocessor has room for at a time."""

    threads: int
    blocks: int
    registers: int
    shared: int  # bytes
    reserved: int  # bytes of these that go with each block, beyond its own
    unit: int  # bytes that a block is given at a time


# CUDA C++ Programming Guide 13, table "Technical Specifications per Compute Capability". Not in it: `reserved` (Hopper
# Tuning Guide, "Unified Shared Memory/L1/Texture Cache"), and `unit`, REGISTER_UNIT and PARTS (the toolkit's
# occupancy calculator).
LIMITS = {
    "9.0": Limits(2048, 32, 65536, 228 << 10, reserved=1024, unit=128),  # H100, H200
    "7.5": Limits(1024, 16, 65536, 64 << 10, reserved=0, unit=256),  # T4
}
THREADS = 1024  # of a block, at most; more than 48 KiB of shared memory, the other limit of a block, ptxas refuses
WARP = 32
REGISTER_UNIT = 256  # registers that a warp is given at a time
PARTS = 4  # of a multiprocessor, each with its share of the registers


# ---------------------------------------------------------------------------------------------------- the toolkit
def find_ptxas():
    """The assembler of the wheel nvidia-cuda-nvcc, which fits the compiler's, or of CUDA_HOME, or on PATH."""
    try:
        places = [file.locate() for file in metadata.files("nvidia-cuda-nvcc") or () if file.stem == "ptxas"]
    except metadata.PackageNotFoundError:
        places = []
    if home := os.environ.get("CUDA_HOME"):
        places.append(Path(home, "bin", "ptxas"))
    for place in (*places, "ptxas"):
        if found := shutil.which(str(place)):
            return found
    raise ValueError(f"the report needs ptxas, in this environment ({INSTALL}), in CUDA_HOME/bin or on PATH")


@contextmanager
def clear_errors():
    """Where numba-cuda or a library that it loads is missing: one line, a ValueError."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the report needs numba-cuda and CUDA's compiler ({INSTALL}): {reason}") from None


@contextmanager
def as_if_on_a_card():
    """Without a card: what Numba asks it, before it compiles a device function, is its compute capability.

    A device function is compiled once a process, to what NVVM compiles again with each kernel that calls it. That does
    not depend on the capability, for any of LIMITS; so the oldest will do.
    """
    card = SimpleNamespace(compute_capability=min(map(capability, LIMITS)))
    with mock.patch("numba.cuda.dispatcher.get_current_device", lambda: card):
        yield


def capability(cc):
    """'9.0' -> (9, 0)."""
    return tuple(map(int, cc.split(".")))


def architecture(cc):
    """'9.0' -> 'sm_90'."""
    return "sm_" + cc.replace(".", "")


# ----------------------------------------------------------------------------------------------------- one kernel
def compile_ptx(launch, cc):
    from numba import cuda

    with clear_errors(), as_if_on_a_card():
        return cuda.compile_ptx(launch.kernel.function, launch.types, cc=capability(cc))[0]


def assemble(ptxas, path, cc):
    """What ptxas makes of a file of PTX: `registers`, `shared`, `stack` and `spills`, or why it is `refused`."""
    command = [ptxas, "-v", f"-arch={architecture(cc)}", str(path), "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.returncode:
        return usage(done.stderr)
    reasons = re.findall(r"(?:error|fatal)\s*:\s*(.*)", done.stderr) or [done.stderr.strip()]
    if re.search("Unsupported .version|not defined for option", reasons[0]):
        raise ValueError(f"the report needs a ptxas of the compiler's age ({INSTALL}); {ptxas} says: {reasons[0]}")
    return {"refused": re.sub(r"Entry function '\S+' ", "", reasons[0])}


def usage(text):
    """The numbers in what `ptxas -v` prints; of several functions the largest, and all that they spill."""
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", text)
    registers = re.findall(r"Used (\d+) registers", text)
    if not frames or not registers:
        raise ValueError(f"ptxas does not tell registers and stack frame: {text.strip()!r:.300}")
    return {
        "registers": max(map(int, registers)),
        "shared": max(map(int, re.findall(r"(\d+) bytes smem", text)), default=0),
        "stack": max(int(stack) for stack, _, _ in frames),
        "spills": sum(int(stores) + int(loads) for _, stores, loads in frames),
    }


def float64_instructions(ptx):
    """How many lines work on float64. What begins with a dot declares, and does no work."""
    return sum(".f64" in line for line in map(str.strip, ptx.splitlines()) if not line.startswith((".", "//")))


def blocks_that_fit(threads, registers, shared, limits):
    """Blocks that a multiprocessor has room for, by what they need of it; no more than it may have at all."""
    warps = -(-threads // WARP)
    of_a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    of_a_block = -(-(shared + limits.reserved) // limits.unit) * limits.unit
    fit = {
        "registers": limits.registers // PARTS // of_a_warp * PARTS // warps,
        "shared": limits.shared // max(1, of_a_block),
        "threads": limits.threads // (WARP * warps),
    }
    return {what: min(n, limits.blocks) for what, n in fit.items()}


def measure(launch, cc, ptxas, path):
    """A row of the table, as JSON types. The PTX goes to `path`."""
    ptx = compile_ptx(launch, cc)
    with atomic_write(path) as file:
        file.write(ptx)
    row = {"kernel": launch.name, "cc": cc, "threads": launch.threads, "float64": float64_instructions(ptx)}
    row |= assemble(ptxas, path, cc)
    if "refused" not in row:
        limits = LIMITS[cc]
        row["blocks"] = blocks_that_fit(launch.threads, row["registers"], row["shared"], limits)
        warps = min(row["blocks"].values()) * -(-launch.threads // WARP)
        row["occupancy"] = WARP * warps / limits.threads
    return row


def faults(row, float64=False):
    """What is not as it must be, each in a few words."""
    if "refused" in row:
        return [f"ptxas refuses it: {row['refused']}"]
    found = []
    if row["spills"]:
        found.append(f"spills {row['spills']} bytes")
    if row["stack"]:
        found.append(f"has a stack frame of {row['stack']} bytes")
    if row["float64"] and not float64:
        found.append(f"has {row['float64']} float64 instructions")
    if row["threads"] > THREADS:
        found.append(f"has {row['threads']} threads in a block, more than {THREADS}")
    if not row["blocks"]["registers"]:
        found.append(f"has {row['registers']} registers in each of {row['threads']} threads, more than there are")
    return found
