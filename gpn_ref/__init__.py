"""Grounded Prediction Networks: a NumPy reference with hand-written gradients, and the tools to train and read them."""

from gpn_ref.config import PRESETS, GDNConfig, ModelConfig, TrainConfig, TransformerConfig
from gpn_ref.model import State, load_model
from gpn_ref.parameters import init_params

__all__ = [
    "PRESETS",
    "GDNConfig",
    "ModelConfig",
    "State",
    "TrainConfig",
    "TransformerConfig",
    "init_params",
    "load_model",
]
