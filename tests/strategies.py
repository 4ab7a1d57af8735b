"""Hypothesis strategies and random inputs that several tests draw from."""

import numpy as np
from hypothesis import strategies as st

from gpn_ref.config import ModelConfig
from gpn_ref.gradcheck import draw_point
from gpn_ref.random_state import generator

seeds = st.integers(0, 2**32 - 1)


@st.composite
def configs(draw, memory=st.booleans(), smallest=4, largest=9, layers=3):
    """Small models of every kind; widths of 4 and more, because a key with one active entry is a step function."""
    size = st.integers(smallest, largest)
    sizes = {"d_state": draw(size), "d_emb": draw(size), "d_ffn": draw(size)}
    if draw(memory):
        sizes |= {"n_heads": draw(st.integers(1, 3)), "d_key": draw(size), "d_value": draw(size)}
        sizes["decay_first"] = draw(st.booleans())
    return ModelConfig(
        vocab_size=draw(st.integers(2, 12)),
        n_layers=draw(st.integers(1, layers)),
        decode_bias=draw(st.booleans()),
        **sizes,
    )


def point(config, seed, batch=2, length=5):
    """Jittered parameters, tokens, a state and a gradient of the final state."""
    return draw_point(config, generator(seed, "test"), batch, length)


def largest_difference(one, other):
    """max |one - other| over max |other|, 0 for empty arrays; shapes must agree."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape
    scale = np.abs(other).max(initial=0)
    return float(np.abs(one - other).max(initial=0) / scale) if scale else float(np.abs(one).max(initial=0))
