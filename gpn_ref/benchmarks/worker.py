"""A process that does one thing each time it is asked, and both ends of the pipe to it.

Each contestant is a process of its own: so its peak memory is its own, and no library's threads stand in another's way.
A worker waits, without work, until its standard input brings a line; then it does all of its works once and answers
with a line of JSON, an object; {"error": message} if it can't. It ends when its input does, hence with its parent.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from time import perf_counter, sleep

from gpn_ref.benchmarks.agreement import agreement
from gpn_ref.benchmarks.products import machine_works, product_works
from gpn_ref.blas import blas_threads
from gpn_ref.config import ModelConfig, TrainConfig
from gpn_ref.model import load_model
from gpn_ref.parameters import count_params, init_params
from gpn_ref.random_state import generator

LEARNING_RATE = 1e-4
GENERATED = 16  # tokens that one timing of the generation makes
PAUSE = 0.2  # seconds before each turn: the threads of the last one's BLAS go on spinning for half of that


# --------------------------------------------------------------------------------------------- the parent's end
class Worker:
    """`with Worker(task, ...) as worker:` a process at the works of TASKS[task]; the block's end is the process's."""

    def __init__(self, task, environment=None, **arguments):
        command = [sys.executable, "-m", __name__, json.dumps({"task": task} | arguments)]
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | (environment or {}),
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with suppress(BrokenPipeError):  # a question that was never read
            self.process.stdin.close()

    def ended(self):
        return self.process.poll() is not None

    def ask(self):
        """Do all once -> what the worker answers; a failure there is a ValueError."""
        with suppress(BrokenPipeError):  # it has ended, and may have said why
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ValueError(f"a process of the benchmark ended by itself, status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer


def take_turns(workers, turns, tick):
    """Ask the workers in the order of the names in `turns` -> name -> {"seconds": the best by work, "peak_bytes"}.

    The first answer of each, when caches are cold and functions not compiled, does not count.
    """
    found = {}
    for name in turns:
        sleep(PAUSE)
        answer = workers[name].ask()
        tick()
        if name in found:
            for work, seconds in found[name]["seconds"].items():
                answer["seconds"][work] = min(seconds, answer["seconds"][work])
        found[name] = answer if name in found else answer | {"seconds": {}}
    return found


# --------------------------------------------------------------------------------------------- the worker's end
def timing(works, context=nullcontext):
    """works: name -> (function, calls of a timing) -> a function that times each once: seconds of a call, by name."""

    def answer():
        seconds = {}
        with context():
            for name, (work, calls) in works.items():
                began = perf_counter()
                for _ in range(calls):
                    work()
                seconds[name] = (perf_counter() - began) / calls
        return {"seconds": seconds, "peak_bytes": peak_bytes()}

    return answer


def peak_bytes():
    """The most memory that this process ever had; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def batch(config, batch_size, window):
    """Random inputs and targets (B, T)."""
    tokens = generator(0, "bench").integers(0, config.vocab_size, (batch_size, window + 1))
    return tokens[:, :-1], tokens[:, 1:]


def model(backend, config, batch_size, window, only=None):
    """Times a backend: forward, loss and gradients, optimizer, the step of all these, and tokens one at a time."""
    inputs, targets = batch(config, batch_size, window)
    bound = load_model(config, backend).bind(init_params(config))
    training = bound.in_training(TrainConfig())
    params, optimizer = training.arrays, training.optimizer
    tokens, kept = generator(0, "bench tokens").integers(0, config.vocab_size, (GENERATED, 1)), []

    def loss():
        kept[:] = [bound.loss_and_grads(inputs, targets).grads]

    def step():  # what a learner does for a batch and a window in one piece; its own would be a second set of arrays
        out = bound.loss_and_grads(inputs, targets)
        optimizer.update(params, out.grads, LEARNING_RATE)

    def generate():
        state = None
        for token in tokens:
            _, state = bound.step(token, state)

    works = {
        "forward": (lambda: bound.forward(inputs), 1),
        "loss": (loss, 1),
        "optimizer": (lambda: optimizer.update(params, kept.pop(), LEARNING_RATE), 1),
        "step": (step, 1),
        "generate": (generate, 1),
    }
    works = {name: works[name] for name in only or works}
    return timing(works, lambda: blas_threads(count_params(config)))  # as in training


def peer(config, batch_size, window):
    """Times the JAX program."""
    contestant = peer_class()(config, TrainConfig(), init_params(config))
    inputs, targets = batch(config, batch_size, window)
    works = {
        "forward": lambda: contestant.forward(inputs),
        "loss": lambda: contestant.loss_and_grads(inputs, targets),
        "step": lambda: contestant.step(inputs, targets, LEARNING_RATE),
    }
    return timing({name: (work, 1) for name, work in works.items()})


def peer_class():
    try:
        from gpn_ref.benchmarks.peer import Peer
    except ImportError as error:
        raise ValueError(f"--peer jax needs JAX (pip install jax), which does not import: {error}") from None
    return Peer


def products(config, batch_size, window):
    """Times what products_only adds up."""
    return timing(product_works(config, batch_size, window))


def machine(size, n_bytes):
    """Times what the machine can do at best."""
    return timing(machine_works(size, n_bytes))


def agree(config, backends, peer):
    """How far each backend, and the peer, is from the reference: name -> (tensor, error)."""
    found = agreement(config, backends, peer_class() if peer else None)
    return lambda: found


def train(backend, config, batch_size, window):
    """A training step of a learner of its own."""
    inputs, targets = batch(config, batch_size, window)
    learner = load_model(config, backend).learner(init_params(config), TrainConfig())

    def answer():
        learner.step(inputs, targets, LEARNING_RATE)
        return {"peak_bytes": peak_bytes()}

    return answer


TASKS = {task.__name__: task for task in (model, peer, products, machine, agree, train)}


def main():
    arguments = json.loads(sys.argv[1])
    try:
        if "config" in arguments:
            arguments["config"] = ModelConfig(**arguments["config"])
        answer = TASKS[arguments.pop("task")](**arguments)
        for _ in sys.stdin:
            print(json.dumps(answer()), flush=True)
    except (ValueError, OSError, MemoryError) as error:
        print(json.dumps({"error": str(error) or "out of memory"}), flush=True)


if __name__ == "__main__":
    main()
