"""How fast a learner's step is, where its time goes, and how much of the card's memory it takes."""

import gc

from numba import cuda

from gpn_ref.benchmarks.products import operations, products
from gpn_ref.benchmarks.worker import LEARNING_RATE, batch
from gpn_ref.config import TrainConfig
from gpn_ref.fast.cuda.card import SIMULATED
from gpn_ref.fast.cuda.device_speed import FLOAT, WallClock, as_graph, clock
from gpn_ref.model import load_model

WARM_UP = 1 if SIMULATED else 3  # steps: one launches kernels, one records graphs, one launches them
REPEAT = 1 if SIMULATED else 3  # steps, of which the best counts


def measure(card, config, batch_size, window, params):
    """The step of a learner at this size: loss and norm of the first, tokens/s, seconds of its parts, peak memory.

    A step is timed from tokens on the host to a loss on the host. Its parts are timed by the card's events, a graph
    each; "upload" is this process's time to sort the tokens and send them.
    """
    inputs, targets = batch(config, batch_size, window)
    before = bytes_in_use(card)
    training = load_model(config, "cuda").bind(params).in_training(TrainConfig())
    step = [[(inputs, targets, 1.0)]]
    loss, norm = [training.step(step, LEARNING_RATE) for _ in range(WARM_UP)][0]
    wall = WallClock(card)
    seconds = min(wall.seconds(lambda: training.step(step, LEARNING_RATE)) for _ in range(REPEAT))
    return {
        "loss": loss,
        "norm": norm,
        "seconds": seconds,
        "rate": batch_size * window / seconds,
        "bytes": bytes_in_use(card) - before,  # nothing is ever freed in a step
        "parts": part_seconds(card, training, inputs, targets),
    }


def part_seconds(card, training, inputs, targets):
    """Name -> seconds, of the parts of a step, in their order."""
    engine = training.engine
    window, grads = training.window(inputs.shape), engine.grads()

    def upload():
        engine.put_inputs(window, inputs)
        engine.put_targets(window, inputs, targets)

    def forward():
        window.begin()
        window.forward(kept=True)

    def loss():
        window.clear_back()
        window.loss_and_back(grads, 1.0)

    works = {
        "forward": forward,
        "decoder and loss": loss,
        "backward": window.backward,
        "weight gradients": lambda: window.weight_grads(grads),
        "optimizer": lambda: training.update(grads),
    }
    graphs = {name: as_graph(card, work) for name, work in works.items()}
    found = {"upload": [], **{name: [] for name in graphs}}
    for _ in range(REPEAT):
        found["upload"].append(WallClock(card).seconds(upload))
        for name, graph in graphs.items():
            found[name].append(clock(card).seconds(graph))
    return {name: min(seconds) for name, seconds in found.items()}


def floors(config, batch_size, window, bandwidth, rate):
    """Seconds that a step takes at the least, of a model of one layer.

    "weights": each token's recurrence, there and back, brings every matrix that it multiplies with from the card's
    memory once, float32, at `bandwidth` bytes/s. "products": 6 operations for each entry of a matrix and token, 2
    there and 4 back, at `rate` operations/s.
    """
    recurrent = sum(product.n_out * product.n_in for product in products(config) if product.every_step)
    return {
        "weights": 2 * window * FLOAT * recurrent / bandwidth,
        "products": batch_size * window * operations(config, backward=True) / rate,
    }


def bytes_in_use(card):
    """Of the card's memory, by all programs, after everything that nobody needs is freed; 0 in the simulator."""
    gc.collect()
    if card.simulated:
        return 0
    card.wait()
    cuda.current_context().memory_manager.deallocations.clear()
    free, total = cuda.current_context().get_memory_info()
    return total - free
