"""The learner: any model's `loss_and_grads`, with AdamW."""

import numpy as np

from gpn_ref.config import TrainConfig, require_number
from gpn_ref.parameters import check_params


class Training:
    """What a learner does with the arrays of an engine: `step`, and what can be saved and loaded.

    A backend that keeps all this elsewhere has a class of its own, with these methods.
    """

    def __init__(self, bound, engine, train_config: TrainConfig):
        self._bound = bound
        self.arrays, self.optimizer = engine.params, engine.AdamW(engine.params, train_config)  # changed in place

    def step(self, parts, learning_rate):
        """One optimizer step -> loss, norm of the gradient before clipping.

        parts: lists of segments, (inputs, targets, share of the loss), which are windows that follow each other.
        """
        loss, grads = 0.0, None
        for segments in parts:
            state = None
            for inputs, targets, share in segments:
                out = self._bound.loss_and_grads(inputs, targets, state, scale=share)
                state, loss = out.state, loss + share * out.loss
                grads = out.grads if grads is None else {name: grads[name] + out.grads[name] for name in grads}
        if not np.isfinite(loss):
            return loss, float("nan")
        return loss, self.optimizer.update(self.arrays, grads, learning_rate)

    def params(self):
        """A copy of the parameters."""
        return {name: value.copy() for name, value in self.arrays.items()}

    def moments(self):
        """Copies of the optimizer's first and second moments, by name, and its count of updates."""
        first, second = self.optimizer.first, self.optimizer.second
        return *({name: value.copy() for name, value in arrays.items()} for arrays in (first, second)), (
            self.optimizer.updates
        )

    def load(self, params, first, second, updates):
        """Go on from what `params()` and `moments()` gave."""
        for name in self.arrays:
            self.arrays[name][...] = params[name]
            self.optimizer.first[name][...] = first[name]
            self.optimizer.second[name][...] = second[name]
        self.optimizer.updates = updates


class Learner:
    """Parameters and optimizer together; the trainer knows nothing else of a model's inside.

    `model` is anything whose `bind(params)` has `checked_windows(...)` and `in_training(...)`. The parameters are
    copied once, and then change where the bound model keeps them.
    """

    def __init__(self, model, params: dict[str, np.ndarray], train_config: TrainConfig):
        if not isinstance(train_config, TrainConfig):
            raise ValueError(f"train_config is a {type(train_config).__name__}; it must be a TrainConfig")
        self._model, self._config = model, train_config
        self._bound = model.bind(params)  # checks and copies them
        self._training = self._bound.in_training(train_config)

    def step(self, inputs: np.ndarray, targets: np.ndarray, learning_rate: float) -> tuple[float, float]:
        """One optimizer step on inputs, targets (B, T) -> loss in nats a token, norm of the gradient before clipping.

        The batch is taken in `accumulation` parts, and each window in segments of `bptt` tokens with the state carried
        and the gradient cut between them; all gradients add up to one. If the loss or the norm is not finite, neither
        parameters nor optimizer change.
        """
        require_number("learning_rate", learning_rate, at_least=0)
        inputs, targets = self._bound.checked_windows(inputs, targets)
        n_parts = self._config.accumulation
        if len(inputs) < n_parts:
            raise ValueError(f"the batch has {len(inputs)} sequences, fewer than accumulation, {n_parts}")
        length = self._config.bptt or inputs.shape[1]
        parts = []
        for part in zip(*(np.array_split(tokens, n_parts) for tokens in (inputs, targets)), strict=True):
            segments = []
            for start in range(0, inputs.shape[1], length):
                part_inputs, part_targets = (tokens[:, start : start + length] for tokens in part)
                segments.append((part_inputs, part_targets, part_inputs.size / inputs.size))
            parts.append(segments)
        return self._training.step(parts, learning_rate)

    def params(self) -> dict[str, np.ndarray]:
        """A copy of the parameters."""
        return self._training.params()

    def state(self) -> dict[str, np.ndarray]:
        """A copy of the optimizer's arrays: `first/NAME`, `second/NAME`, and `updates`, their count."""
        first, second, updates = self._training.moments()
        arrays = {f"first/{name}": value for name, value in first.items()}
        arrays |= {f"second/{name}": value for name, value in second.items()}
        return arrays | {"updates": np.array(updates, np.int64)}

    def load(self, params: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> None:
        """Go on from what `params()` and `state()` gave; names and shapes must be this learner's."""
        check_params(params, self._model.config)
        wanted = self.state()
        for name in sorted(wanted.keys() | state.keys()):
            if name not in wanted or name not in state:
                raise ValueError(f"optimizer state {name!r} is {'missing' if name in wanted else 'not this model`s'}")
            value, like = np.asarray(state[name]), wanted[name]
            if value.shape != like.shape or value.dtype != like.dtype or not np.isfinite(value).all():
                raise ValueError(f"optimizer state {name!r} must be a finite {like.dtype} array of shape {like.shape}")
            if not name.startswith("first/") and value.min(initial=0) < 0:
                raise ValueError(f"optimizer state {name!r} has negative entries")
        if next(iter(params.values())).dtype != wanted[f"first/{next(iter(params))}"].dtype:
            raise ValueError("the parameters to load are not of this learner's type")
        first, second = ({name: state[f"{kind}/{name}"] for name in params} for kind in ("first", "second"))
        self._training.load(params, first, second, int(state["updates"]))
