"""Random generators: one for each purpose, seeded by name, and saved and restored as plain JSON types."""

import hashlib

import numpy as np


def generator(seed, name):
    """A `numpy.random.Generator` (PCG64) of its own for `name`: the same numbers on every machine and run."""
    words = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u4")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words.tolist()])))


def save(random):
    """The generator's state as JSON types."""
    return random.bit_generator.state


def load(random, state):
    """Put the generator into a state that `save` returned; ValueError if it is not one."""
    try:
        random.bit_generator.state = state
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(f"{state!r:.60} is not the state of a random generator") from None
