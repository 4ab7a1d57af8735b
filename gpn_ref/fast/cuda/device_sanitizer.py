"""NVIDIA's compute-sanitizer on our kernels: does a thread read what another one writes, or beside an array?"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from gpn_ref.config import ModelConfig, TrainConfig
from gpn_ref.model import load_model
from gpn_ref.parameters import init_params

# two pieces of M a head, and edges everywhere
CONFIG = ModelConfig(30, d_state=24, d_emb=20, d_ffn=28, n_heads=2, d_key=20, d_value=40, n_layers=2, decode_bias=True)
TOOLS = {"racecheck": [], "memcheck": ["--report-api-errors", "no"]}  # calls that fail are no errors of ours
LIMIT = 90  # seconds, of a tool: every access to memory goes through it
DONE = "all kernels have run"
PROGRAM = f"from {__name__} import small_run; small_run()"
SETTINGS = {"GPN_REF_PRODUCTS": "own", "GPN_REF_CUDA_GRAPHS": "0"}  # so that all kernels are ours, and seen


def small_run(config=CONFIG):
    """A learner's step: every kernel of the model's training."""
    learner = load_model(config, "cuda").learner(init_params(config), TrainConfig())
    inputs, targets = np.random.default_rng(0).integers(0, config.vocab_size, (2, 2, 3))
    learner.step(inputs, targets, 1e-3)
    print(DONE, flush=True)


def run(tool, simulated=False, limit=LIMIT):
    """One row: whether the tool found nothing, or why it told nothing."""
    path = shutil.which("compute-sanitizer")
    if simulated or not path:
        yield {"told": "simulated" if simulated else "compute-sanitizer is not on PATH"}
        return
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [path, "--tool", tool, *TOOLS[tool], sys.executable, "-c", PROGRAM],
            env=os.environ | SETTINGS | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        yield {"told": f"not done in {limit:.0f} s"}
    else:
        yield judged(done.stdout)


def judged(text):
    """A row, from what the tool and the program printed."""
    if "device not supported" in text.lower():
        return {"told": "not available here: it does not support this device"}
    summary = re.findall(r"SUMMARY: (.*)", text)
    if DONE not in text or not summary:
        last = (text.strip().splitlines() or ["it said nothing"])[-1]
        return {"told": f"the program did not end well: {last:.200}", "passed": False}
    return {"told": summary[-1], "passed": bool(re.match("0 (hazards|errors)", summary[-1]))}
