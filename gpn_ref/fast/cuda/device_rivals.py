"""The same training step in JAX and in PyTorch, on the same card: a process each, with a limit of time.

Run as a program, it is such a process: it takes one step, tells its loss, and only then times some more.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

from safetensors.numpy import load_file

from gpn_ref.benchmarks.worker import LEARNING_RATE, batch
from gpn_ref.config import ModelConfig, TrainConfig

LIMIT = 60  # seconds, of a rival at one size
REPEAT = 3  # steps, of which the best counts
TOLERANCE = 1e-3  # of the loss, relative
SETTINGS = {  # JAX's: all products in float32 proper, memory as it is needed
    "JAX_DEFAULT_MATMUL_PRECISION": "highest",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


class Absent(Exception):
    """The rival is not on this machine, or sees no card."""


# ---------------------------------------------------------------------------------------------- the parent's end
def compete(name, config, batch_size, window, params_file, wanted_loss, simulated, limit=LIMIT):
    """One row, what the rival tells: loss, tokens/s, bytes; or {"told": why there is no rate}."""
    question = {"rival": name, "config": asdict(config), "batch_size": batch_size, "window": window}
    question |= {"params": str(params_file), "anywhere": simulated}
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, json.dumps(question)],
            env=os.environ | SETTINGS | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        yield {"told": f"not done in {limit:.0f} s"}
        return
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        answer = {"told": f"ended by itself, status {done.returncode}: {last:.200}"}
    yield judged(answer, batch_size * window, wanted_loss)


def judged(answer, n_tokens, wanted_loss):
    """The answer with its rate, unless its loss is not ours."""
    if "told" in answer:
        return answer
    difference = abs(answer["loss"] - wanted_loss) / abs(wanted_loss)
    if not difference <= TOLERANCE:
        return {"told": f"another function: its loss is {answer['loss']:.6f}, ours {wanted_loss:.6f}"}
    return answer | {"rate": n_tokens / answer["seconds"]}


# ---------------------------------------------------------------------------------------------- the rival's end
def jax_step(config, params, anywhere):
    """The JAX program of gpn_ref.bench, and a function that tells its peak memory."""
    try:
        import jax

        from gpn_ref.benchmarks.peer import Peer
    except ImportError as error:
        raise Absent(f"JAX does not import: {error}") from None
    device = jax.devices()[0]
    if device.platform != "gpu" and not anywhere:
        raise Absent(f"JAX sees no card, only {device.platform}")
    peer = Peer(config, TrainConfig(), params)
    return peer.step, lambda: (device.memory_stats() or {}).get("peak_bytes_in_use", 0)


def torch_step(config, params, anywhere):
    """The eager PyTorch program, likewise."""
    try:
        import torch

        from gpn_ref.benchmarks.plain_torch import Plain
    except ImportError as error:
        raise Absent(f"PyTorch does not import: {error}") from None
    there = torch.cuda.is_available()
    if not there and not anywhere:
        raise Absent("PyTorch sees no card")
    plain = Plain(config, TrainConfig(), params, "cuda" if there else "cpu")
    return plain.step, lambda: torch.cuda.max_memory_allocated() if there else 0


RIVALS = {"jax": jax_step, "torch": torch_step}


def main():
    question = json.loads(sys.argv[1])
    config = ModelConfig(**question["config"])
    inputs, targets = batch(config, question["batch_size"], question["window"])
    try:
        step, peak = RIVALS[question["rival"]](config, load_file(question["params"]), question["anywhere"])
        loss, norm = step(inputs, targets, LEARNING_RATE)
        step(inputs, targets, LEARNING_RATE)
        seconds = []
        for _ in range(REPEAT):
            began = perf_counter()
            step(inputs, targets, LEARNING_RATE)  # its loss is on the host when it returns
            seconds.append(perf_counter() - began)
        answer = {"loss": loss, "norm": norm, "seconds": min(seconds), "bytes": peak()}
    except Absent as error:
        answer = {"told": str(error)}
    except Exception as error:  # whatever a library raises: it is told, and no rate
        text = " ".join(str(error).split())
        full = any(sign in text.lower() for sign in ("out of memory", "resource_exhausted"))
        answer = {"told": "the card's memory is too small for it" if full else f"{type(error).__name__}: {text:.200}"}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
