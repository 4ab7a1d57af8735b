"""The peer's equations, with NumPy in the place of JAX, against the reference: JAX need not be installed.

What JAX itself does, differentiate and compile, is checked by the benchmark's own agreement before anything is timed.
"""

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from strategies import largest_difference

from gpn_ref.benchmarks.agreement import jittered
from gpn_ref.config import ModelConfig, TrainConfig
from gpn_ref.model import load_model
from gpn_ref.random_state import generator
from gpn_ref.training.optimizer import AdamW

SIZES = {"vocab_size": 7, "d_state": 6, "d_emb": 5, "d_ffn": 7}
MEMORY = {"n_heads": 2, "d_key": 4, "d_value": 5}
CONFIGS = [
    ModelConfig(**SIZES),
    ModelConfig(**SIZES, **MEMORY),
    ModelConfig(**SIZES, **MEMORY, n_layers=2, decode_bias=True),
    ModelConfig(**SIZES, **MEMORY, decay_first=True),
]


def scan(step, state, inputs):
    outputs = []
    for x in inputs:
        state, output = step(state, x)
        outputs.append(output)
    return state, np.stack(outputs)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def peer():
    jax = ModuleType("jax")
    jax.numpy = np
    jax.lax = SimpleNamespace(rsqrt=lambda x: 1 / np.sqrt(x), scan=scan)
    jax.nn = SimpleNamespace(
        sigmoid=sigmoid,
        silu=lambda x: x * sigmoid(x),
        relu=lambda x: np.maximum(x, 0),
        softplus=lambda x: np.log1p(np.exp(x)),
        logsumexp=lambda x, axis: np.log(np.exp(x).sum(axis=axis)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "jax", jax)
        patch.setitem(sys.modules, "jax.numpy", np)
        spec = find_spec("gpn_ref.benchmarks.peer")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_forward_and_loss(peer, config):
    params = {name: value.astype(np.float64) for name, value in jittered(config).items()}
    inputs, targets = generator(0, "test").integers(0, config.vocab_size, (2, 3, 5))
    bound = load_model(config, "numpy").bind(params)
    mean, nll = peer.loss(params, config, inputs, targets)
    expected = bound.loss_and_grads(inputs, targets)
    assert largest_difference(peer.forward(params, config, inputs), bound.forward(inputs).logits) < 1e-12
    assert largest_difference(nll, expected.nll) < 1e-12 and mean == pytest.approx(expected.loss, rel=1e-12)


def test_the_optimizer(peer):
    params = {name: value.astype(np.float64) for name, value in jittered(CONFIGS[1]).items()}
    expected = {name: value.copy() for name, value in params.items()}
    config, rng = TrainConfig(clip_norm=5.0), generator(0, "test")
    optimizer = AdamW(expected, config)
    zero = {name: np.zeros_like(value) for name, value in params.items()}
    moments = peer.Moments(zero, zero, 0.0)
    for size in (3.0, 0.1):  # one that is clipped, and one that is not
        grads = {name: rng.normal(0, size, value.shape) for name, value in params.items()}
        params, moments, norm = peer.update(params, moments, grads, 0.1, config)
        assert norm == pytest.approx(optimizer.update(expected, grads, 0.1), rel=1e-12)
    for name, value in expected.items():
        assert largest_difference(params[name], value) < 1e-12, name
