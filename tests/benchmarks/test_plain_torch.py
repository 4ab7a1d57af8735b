"""The equations of the PyTorch program, with NumPy in the place of PyTorch, against the reference.

What PyTorch itself does, differentiate and optimize, is seen by the device check, which compares losses of steps.
"""

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from strategies import largest_difference

from gpn_ref.benchmarks.agreement import jittered
from gpn_ref.config import ModelConfig
from gpn_ref.model import load_model
from gpn_ref.random_state import generator

SIZES = {"vocab_size": 7, "d_state": 6, "d_emb": 5, "d_ffn": 7}
MEMORY = {"n_heads": 2, "d_key": 4, "d_value": 5}
CONFIGS = [
    ModelConfig(**SIZES),
    ModelConfig(**SIZES, **MEMORY),
    ModelConfig(**SIZES, **MEMORY, n_layers=2, decode_bias=True),
    ModelConfig(**SIZES, **MEMORY, decay_first=True),
]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def plain():
    torch = ModuleType("torch")
    torch.rsqrt = lambda x: 1 / np.sqrt(x)
    torch.mean = lambda x, dim, keepdim: x.mean(dim, keepdims=keepdim)
    torch.sum = lambda x, dim, keepdim: x.sum(dim, keepdims=keepdim)
    torch.relu = lambda x: np.maximum(x, 0)
    torch.sigmoid, torch.exp, torch.stack, torch.zeros, torch.zeros_like = (
        sigmoid, np.exp, np.stack, np.zeros, np.zeros_like,
    )  # fmt: skip
    functional = SimpleNamespace(
        linear=lambda x, weight, bias=None: x @ weight.T + (0 if bias is None else bias),
        silu=lambda x: x * sigmoid(x),
        softplus=lambda x: np.log1p(np.exp(x)),
    )
    torch.nn = SimpleNamespace(functional=functional)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in (("torch", torch), ("torch.nn", torch.nn), ("torch.nn.functional", functional)):
            patch.setitem(sys.modules, name, module)
        spec = find_spec("gpn_ref.benchmarks.plain_torch")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_forward(plain, config):
    params = {name: value.astype(np.float64) for name, value in jittered(config).items()}
    inputs = generator(0, "test").integers(0, config.vocab_size, (3, 5))
    expected = load_model(config, "numpy").bind(params).forward(inputs).logits
    assert largest_difference(plain.forward(params, config, inputs), expected) < 1e-12
