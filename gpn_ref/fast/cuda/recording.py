"""A card that writes down what it is told to launch, and does nothing: so that a plan can be looked at without a card.

Its arrays are zeros that take no room. What the CUDA path launches for a model, with which types and how many threads,
is what its own code launches here: no list that could be forgotten when a kernel is added.
"""

import os
from dataclasses import replace
from importlib import import_module
from inspect import getclosurevars
from typing import NamedTuple
from unittest import mock

import numpy as np
from numba import typeof, types
from numba.np.numpy_support import from_dtype

from gpn_ref.config import PRESETS, TrainConfig
from gpn_ref.fast.cuda.card import Kernel, Tuning
from gpn_ref.fast.cuda.engine import Engine
from gpn_ref.parameters import parameter_shapes
from gpn_ref.reference.gpn import initial_state

BATCH, WINDOW = 2, 2  # kernels do not depend on them


class Launch(NamedTuple):
    """A kernel with the types that it was given: what the compiler makes one function of."""

    kernel: Kernel
    threads: int  # of a block
    types: tuple  # of the arguments

    @property
    def name(self):
        """Module and function, with the switches of its factory that are on: `products.multiply a_down keep`."""
        function = self.kernel.function
        switches = [name for name, value in getclosurevars(function).nonlocals.items() if value is True]
        module = function.__module__.rpartition(".")[2]
        return " ".join([f"{module}.{self.kernel.name}", *sorted(name for name in switches if name.islower())])


class Recorder:
    """What card.py's Card is to the code that launches. `launches` has each Launch once, in order."""

    simulated = False
    tuning = Tuning()

    def __init__(self):
        self._launches = {}

    @property
    def launches(self):
        return list(self._launches)

    def empty(self, shape, dtype):
        return np.broadcast_to(np.zeros((), dtype), shape)

    def put(self, array, value):
        pass

    def get(self, array):
        return array

    def launch(self, kernel, grid, threads, *arguments):
        self._launches[Launch(kernel, threads, tuple(map(type_of, arguments)))] = True

    def wait(self):
        pass

    def capture(self, work):
        return None


def type_of(argument):
    """As numba-cuda types what a kernel is given: all arrays of this path are contiguous."""
    if isinstance(argument, np.ndarray):
        return types.Array(from_dtype(argument.dtype), argument.ndim, "C")
    return typeof(argument)


def of_a_model(config, dtype=np.float32):
    """All that the engine launches for such a model: forward, loss and gradients, a training step; its own products."""
    card, dtype = Recorder(), np.dtype(dtype)
    config = replace(config, decode_bias=True)  # a launch more, and no other kernel
    nothing = {name: np.empty(0, dtype) for name in parameter_shapes(config)}
    with mock.patch.dict(os.environ, GPN_REF_PRODUCTS="own"):  # cuBLAS would need a card
        engine = Engine(config, nothing, card)
    tokens, state = np.zeros((BATCH, WINDOW), np.int64), initial_state(config, BATCH, dtype)
    engine.forward(tokens, state)
    engine.loss_and_grads(tokens, tokens, state, state, 1.0)
    half = tokens, tokens, 0.5
    engine.training(TrainConfig()).step([[half, half]], 0.1)  # two windows, the second goes on from the first
    return card.launches


def of_a_module(name, dtype=np.float32):
    """All that a module launches which the engine does without: what its `launches(card, dtype)` does."""
    card = Recorder()
    import_module(f"gpn_ref.fast.cuda.{name}").launches(card, np.dtype(dtype))
    return card.launches


def launches(names, dtype=np.float32):
    """Launch -> those of `names`, presets and modules, that launch it."""
    found = {}
    for name in names:
        for launch in of_a_model(PRESETS[name], dtype) if name in PRESETS else of_a_module(name, dtype):
            found.setdefault(launch, []).append(name)
    return found
