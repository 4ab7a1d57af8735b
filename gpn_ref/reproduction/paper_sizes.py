"""The paper's five models at their full size: each is built, counted, and takes one step in a process of its own."""

import math
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from gpn_ref.benchmarks.worker import peak_bytes
from gpn_ref.config import PAPER_BASELINES, PRESETS
from gpn_ref.model import load_model
from gpn_ref.parameters import count_params, init_params
from gpn_ref.random_state import generator

CONFIGS = {  # by the rows' names, and the parameters that they should have
    "Transformer++ 12 layers": (PAPER_BASELINES["transformer"], 128_994_048),
    "GDN 10 layers": (PAPER_BASELINES["gdn"], 129_012_088),
    "GPN+M 1 layer": (PRESETS["paper-1layer"], 129_151_902),
    "GPN+M 2 layers": (PRESETS["paper-2layer"], 129_837_206),
    "GPN 1 layer": (PRESETS["paper-gpn"], 129_846_176),
}
B, T = 1, 16
MOST = 20 * 2**30  # bytes


def take_step(config):
    """A forward and a backward step of a new model -> its loss in nats per token, and the peak of memory in bytes."""
    tokens = generator(0, "paper sizes").integers(0, config.vocab_size, (B, T + 1))
    out = load_model(config).loss_and_grads(init_params(config), tokens[:, :-1], tokens[:, 1:])
    return out.loss, peak_bytes()


def step_apart(config):
    """`take_step` in a new process, whose memory is its own; ValueError if it ends before its answer."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(take_step, config).result()
        except BrokenProcessPool:
            raise ValueError(f"the process of {config.sizes()} ended by itself: out of memory, most likely") from None


def main(configs=CONFIGS):
    """Print each model's parameters against those that the paper's sizes have, and what its step came to."""
    print(f"A step of {B} × {T} tokens; an untrained model loses about ln V = {math.log(32000):.2f} nats a token.\n")
    print(f"{'model':24} {'parameters':>13} {'paper sizes':>13} {'loss':>7} {'peak GiB':>9}", flush=True)
    for name, (config, wanted) in configs.items():
        count = count_params(config)
        if count != wanted:
            raise ValueError(f"{name} has {count:,} parameters; it must have {wanted:,}")
        print(f"{name:24} {count:13,} {wanted:13,} ", end="", flush=True)
        loss, peak = step_apart(config)
        print(f"{loss:7.3f} {peak / 2**30:9.2f}", flush=True)
        if peak > MOST:
            raise ValueError(f"{name} took {peak / 2**30:.1f} GiB; it must stay within {MOST / 2**30:.0f}")
    return 0
