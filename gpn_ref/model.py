"""The interface that trainers, samplers, evaluations and benchmarks speak to, whatever computes behind it.

model = load_model(config)                      # sizes; no parameters yet
bound = model.bind(params)                      # checked once; a snapshot of the parameters
out = bound.loss_and_grads(inputs, targets)     # out.loss, .nll, .grads, .state, .d_state
out = bound.forward(inputs)                     # out.logits, .hidden, .state
logits, state = bound.step(tokens, state)       # streaming, one token a sequence, constant memory
trace = bound.trace(inputs)                     # trace.beta, .decay, .query, ...: what went on inside
"""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from gpn_ref.architectures import ARCHITECTURES, BACKENDS, default_backend
from gpn_ref.config import ModelConfig, TrainConfig, require_integer, require_number
from gpn_ref.parameters import check_params
from gpn_ref.reference.decode import decode_forward
from gpn_ref.reference.gpn import State
from gpn_ref.reference.trace import NAMES, Interventions, Trace, window_trace
from gpn_ref.training.learner import Learner, Training

__all__ = [
    "BACKENDS",
    "BoundModel",
    "Forward",
    "Interventions",
    "LossAndGrads",
    "Model",
    "State",
    "Trace",
    "default_backend",
    "load_model",
]


class LossAndGrads(NamedTuple):
    loss: float  # the mean of nll, in nats a token
    nll: np.ndarray  # (B, T), in nats
    grads: dict[str, np.ndarray]  # by name, shaped as the parameters
    state: Any  # after the last token
    d_state: Any  # gradient of the initial state, of the state's type


class Forward(NamedTuple):
    logits: np.ndarray  # (B, T, V)
    hidden: np.ndarray  # (B, T, D): what the decoder reads, the predicted state
    state: Any  # after the last token


def load_model(config, backend: str | None = None) -> "Model":
    """The model of this configuration, a GPN's or a baseline's, computed by `backend` (None: `default_backend()`)."""
    if type(config) not in ARCHITECTURES:
        known = ", ".join(kind.__name__ for kind in ARCHITECTURES)
        raise ValueError(f"config is a {type(config).__name__}; it must be one of {known}")
    backend = default_backend() if backend is None else backend
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; it must be one of {', '.join(BACKENDS)}")
    return Model(config, backend)


class Model:
    """A model without its parameters; `backend` names what computes it."""

    def __init__(self, config, backend: str):
        self.config, self.backend = config, backend
        self._architecture = ARCHITECTURES[type(config)]
        if backend not in self._architecture.engines:
            there = ", ".join(self._architecture.engines)
            raise ValueError(f"backend {backend!r} has no {config.name}; it must be one of {there}")
        self._engine = self._architecture.engines[backend]()

    def bind(self, params: dict[str, np.ndarray]) -> "BoundModel":
        """Check names, shapes, type and finiteness of `params`, and keep a copy: later changes do not reach it."""
        check_params(params, self.config)
        return BoundModel(self.config, self._engine(self.config, params))

    def initial_state(self, batch_size: int, dtype=np.float32):
        """The zero state, in which every text starts."""
        if dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype is {dtype!r}; it must be float32 or float64")
        batch_size = require_integer("batch_size", batch_size, at_least=1)
        return self._architecture.initial_state(self.config, batch_size, dtype)

    def loss_and_grads(self, params, inputs, targets, state=None, d_state=None, scale=1.0) -> LossAndGrads:
        """Short for `bind(params).loss_and_grads(...)`."""
        return self.bind(params).loss_and_grads(inputs, targets, state, d_state, scale)

    def forward(self, params, inputs, state=None) -> Forward:
        """Short for `bind(params).forward(...)`."""
        return self.bind(params).forward(inputs, state)

    def learner(self, params: dict[str, np.ndarray], train_config: TrainConfig) -> Learner:
        """The parameters and their optimizer together."""
        return Learner(self, params, train_config)


class BoundModel:
    """A model with its parameters. Nothing that it is given is ever changed. Its type is that of the parameters."""

    def __init__(self, config, engine):
        self._config, self._engine, self._architecture = config, engine, ARCHITECTURES[type(config)]
        self._dtype = engine.dtype

    def loss_and_grads(self, inputs, targets, state=None, d_state=None, scale=1.0) -> LossAndGrads:
        """Gradients of scale · loss + Σ d_state · final state.

        inputs, targets (B, T): integers below V. `state` is where the window starts (None: the zero state), `d_state`
        the gradient that flows into its final state (None: zero). Windows of lengths T_i chain with scale T_i / T.
        """
        require_number("scale", scale)
        inputs, targets = self.checked_windows(inputs, targets)
        state = self._state("state", state, len(inputs))
        if self._architecture.growing is None:
            d_state = self._state("d_state", d_state, len(inputs))
        elif d_state is not None:
            raise ValueError(f"d_state must be None: the state of a {self._config.name} gets no gradient")
        nll, grads, state, d_state = self._engine.loss_and_grads(inputs, targets, state, d_state, float(scale))
        return LossAndGrads(float(nll.mean(dtype=np.float64)), nll, grads, state, d_state)

    def forward(self, inputs, state=None) -> Forward:
        """inputs (B, T) -> logits (B, T, V), hidden (B, T, D), the final state."""
        inputs = self._tokens("inputs", inputs, ("B", "T"))
        state = self._state("state", state, len(inputs))
        return Forward(*self._engine.forward(inputs, state))

    def step(self, tokens, state=None) -> tuple[np.ndarray, Any]:
        """One token for each sequence: tokens (B), state -> logits (B, V) of the next token, state."""
        tokens = self._tokens("tokens", tokens, ("B",))
        state = self._state("state", state, len(tokens))
        return self._engine.step(tokens, state)

    def decode(self, hidden) -> np.ndarray:
        """Logits (..., V) that the decoder makes of hidden (..., D), a predicted state or anything in its place."""
        self._require_a_gpn("decode")
        hidden, D = np.asarray(hidden), self._config.d_state
        with np.errstate(over="ignore"):  # what float32 can't hold is told below
            rounded = hidden.astype(self._dtype) if hidden.dtype.kind == "f" else hidden
        if hidden.dtype.kind != "f" or hidden.shape[-1:] != (D,) or not np.isfinite(rounded).all():
            raise ValueError(
                f"hidden must hold finite numbers of {self._dtype}, (..., {D}); it is {hidden.dtype} {hidden.shape}"
            )
        return decode_forward(self._engine.params, rounded)[0]

    def trace(self, inputs, state=None, interventions=None, keep=NAMES) -> Trace:
        """The forward pass by the reference, whatever the backend: inputs (B, T) -> what went on inside.

        `keep` names the arrays to return, all by default; `interventions` says what to change on the way.
        """
        keep = (keep,) if isinstance(keep, str) else tuple(keep)
        self._require_a_gpn("trace")
        inputs = self._tokens("inputs", inputs, ("B", "T"))
        state = self._state("state", state, len(inputs))
        for name in keep:
            if name not in NAMES:
                raise ValueError(f"a trace has no {name!r:.60}; it has {', '.join(NAMES)}")
        change = self._interventions(interventions, len(inputs))
        return window_trace(self._engine.params, self._config, inputs, state, change, keep)

    def checked_windows(self, inputs, targets) -> tuple[np.ndarray, np.ndarray]:
        """inputs and targets as arrays (B, T) of tokens of this model, or a ValueError."""
        inputs = self._tokens("inputs", inputs, ("B", "T"))
        targets = self._tokens("targets", targets, ("B", "T"))
        if inputs.shape != targets.shape:
            raise ValueError(f"targets has shape {targets.shape}, but inputs has shape {inputs.shape}")
        return inputs, targets

    def in_training(self, train_config: TrainConfig) -> Training:
        """The parameters themselves, not a copy, and an optimizer for them: for a learner, which changes both."""
        if hasattr(self._engine, "training"):
            return self._engine.training(train_config)
        return Training(self, self._engine, train_config)

    def _require_a_gpn(self, what):
        if not isinstance(self._config, ModelConfig):
            raise ValueError(f"{what} looks inside a GPN; this model is a {self._config.name}")

    def _tokens(self, name, tokens, axes):
        wanted = f"({', '.join(axes)})"
        try:
            tokens = np.asarray(tokens)
        except ValueError:
            raise ValueError(f"{name} has rows of different lengths; it must hold integers, {wanted}") from None
        if tokens.dtype.kind not in "iu":
            raise ValueError(f"{name} has type {tokens.dtype}; it must hold integers, {wanted}")
        if tokens.ndim != len(axes) or tokens.size == 0:
            raise ValueError(f"{name} has shape {tokens.shape}; it must be {wanted}, none of them 0")
        V = self._config.vocab_size
        if tokens.min() < 0 or tokens.max() >= V:
            at = tuple(int(i) for i in np.argwhere((tokens < 0) | (tokens >= V))[0])
            raise ValueError(f"{name} has token {tokens[at]} at {at}; tokens go from 0 to {V - 1}")
        return tokens

    def _state(self, name, state, batch_size):
        zero = self._architecture.initial_state(self._config, batch_size, self._dtype)
        if state is None:
            return zero
        if not isinstance(state, type(zero)):
            raise ValueError(f"{name} is a {type(state).__name__}; it must be a {type(zero).__name__} or None")
        arrays = []
        for field, value, start in zip(zero._fields, state, zero, strict=True):
            kind = getattr(value, "dtype", None)
            if kind not in (np.float32, np.float64):
                kind = kind or type(value).__name__
                raise ValueError(f"{name}.{field} is {kind}; it must be a float32 or float64 array")
            wanted = self._grown(start.shape, np.shape(state[0]))
            if value.shape != wanted:
                raise ValueError(f"{name}.{field} has shape {value.shape}; it must be {wanted}")
            with np.errstate(over="ignore"):  # what float32 can't hold is told below
                arrays.append(np.asarray(value, self._dtype))
            if not np.isfinite(arrays[-1]).all():
                raise ValueError(f"{name}.{field} has entries that are not finite in {self._dtype}")
        return type(zero)(*arrays)

    def _grown(self, shape, first):
        """The shape that a part of the state must have, when its first part has the shape `first`."""
        axis = self._architecture.growing
        if axis is None or len(first) != len(shape):
            return shape
        return (*shape[:axis], first[axis], *shape[axis + 1 :])

    def _interventions(self, given, batch_size):
        if not isinstance(given, Interventions | None):
            raise ValueError(f"interventions is a {type(given).__name__}; it must be an Interventions or None")
        D, H = self._config.d_state, self._config.n_heads
        wanted = {
            "offset": ("f", (D,), f"finite numbers of {self._dtype}"),
            "no": ("b", (H,), "bool"),
            "at": ("iu", (batch_size,), "integers"),
        }
        found = {}
        for name in [field.name for field in fields(Interventions) if given and getattr(given, field.name) is not None]:
            value = np.asarray(getattr(given, name))
            kinds, shape, what = next(wanted[part] for part in name.split("_") if part in wanted)
            with np.errstate(over="ignore"):  # what float32 can't hold is told below
                found[name] = value.astype(self._dtype) if kinds == "f" == value.dtype.kind else value
            if value.dtype.kind not in kinds or value.shape != shape or not np.isfinite(found[name]).all():
                raise ValueError(f"{name} is {value.dtype} of shape {value.shape}; it must be {what}, shape {shape}")
        return Interventions(**found)
