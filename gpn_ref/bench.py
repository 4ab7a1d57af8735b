"""Measure how fast a backend is: tokens/s of the forward pass, of loss and all gradients, and of a whole step.

Every figure is the best of a few runs, because other programs on the machine only ever make one slower. Machines
differ: compare figures of one run.
"""

from time import perf_counter

import numpy as np
from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.blas import blas_threads
from gpn_ref.config import PRESETS, TrainConfig
from gpn_ref.model import BACKENDS, load_model
from gpn_ref.parameters import count_params, init_params
from gpn_ref.random_state import generator

PROG = "python -m gpn_ref.bench"
SIZES = {"tiny": ("tiny", 16, 256), "small": ("small", 16, 64), "130M": ("paper-1layer", 8, 16)}  # preset, B, T
EXAMPLES = """examples:
  python -m gpn_ref.bench
  python -m gpn_ref.bench --sizes tiny small --repeat 5
"""


def measure(preset, batch_size, window, backend, repeat, bar):
    """Seconds of a forward pass, of loss and gradients, of a step with clipping and AdamW: the best of `repeat`."""
    config = PRESETS[preset]
    tokens = generator(0, "bench").integers(0, config.vocab_size, (batch_size, window + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    model, params = load_model(config, backend), init_params(config)
    bound = model.bind(params)
    learner = model.learner(params, TrainConfig(batch_size=batch_size, window=window))
    works = [
        lambda: bound.forward(inputs),
        lambda: bound.loss_and_grads(inputs, targets),
        lambda: learner.step(inputs, targets, 1e-4),
    ]
    seconds = []
    for work in works:
        times = []
        for _ in range(1 + repeat):  # the first run, which fills caches, does not count
            began = perf_counter()
            work()
            times.append(perf_counter() - began)
            bar.update()
        seconds.append(min(times[1:]))
    return seconds


def parser():
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
        default=BACKENDS[0],
        metavar="NAME",
        help=f"what computes: {', '.join(BACKENDS)} (default {BACKENDS[0]})",
    )
    parser.add_argument("--repeat", type=cli.integer(1), default=3, metavar="N", help="runs of each (default 3)")
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    rows = []
    with tqdm(total=3 * (1 + options.repeat) * len(options.sizes), unit="run", leave=False, disable=None) as bar:
        for size in options.sizes:
            bar.set_description(size)
            preset, batch_size, window = SIZES[size]
            with blas_threads(count_params(PRESETS[preset])):  # as in training
                seconds = measure(preset, batch_size, window, options.backend, options.repeat, bar)
            rates = [f"{batch_size * window / time:12,.0f}" for time in seconds]
            shape = f"{count_params(PRESETS[preset]):>12,} {batch_size:4} {window:5}"
            rows.append(f"{size:8} {shape} {rates[0]} {rates[1]:>16} {rates[2]}")
    print(f"tokens/s, float32, backend {options.backend}, NumPy {np.__version__}")
    print(f"{'size':8} {'parameters':>12} {'B':>4} {'T':>5} {'forward':>12} {'loss, gradients':>16} {'whole step':>12}")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    cli.run(main, PROG)
