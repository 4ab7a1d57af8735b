"""The learner: any model's `loss_and_grads`, with AdamW."""

import numpy as np

from gpn_ref.config import TrainConfig, require_number


class Learner:
    """Parameters and optimizer together; the trainer knows nothing else of a model's inside.

    `model` is anything whose `bind(params)` has `loss_and_grads(...)` and `in_training(...)`. The parameters are copied
    once, and then change where the bound model keeps them.
    """

    def __init__(self, model, params: dict[str, np.ndarray], train_config: TrainConfig):
        if not isinstance(train_config, TrainConfig):
            raise ValueError(f"train_config is a {type(train_config).__name__}; it must be a TrainConfig")
        self._model, self._config = model, train_config
        self._bound = model.bind(params)  # checks and copies them
        self._params, self._optimizer = self._bound.in_training(train_config)

    def step(self, inputs: np.ndarray, targets: np.ndarray, learning_rate: float) -> tuple[float, float]:
        """One optimizer step on inputs, targets (B, T) -> loss in nats a token, norm of the gradient before clipping.

        The batch is taken in `accumulation` parts, and each window in segments of `bptt` tokens with the state carried
        and the gradient cut between them; all gradients add up to one. If the loss or the norm is not finite, neither
        parameters nor optimizer change.
        """
        require_number("learning_rate", learning_rate, at_least=0)
        inputs, targets = np.asarray(inputs), np.asarray(targets)
        if inputs.ndim != 2 or inputs.size == 0 or targets.shape != inputs.shape:
            raise ValueError(
                f"inputs has shape {inputs.shape} and targets {targets.shape}; both must be (B, T), not empty"
            )
        n_parts = self._config.accumulation
        if len(inputs) < n_parts:
            raise ValueError(f"the batch has {len(inputs)} sequences, fewer than accumulation, {n_parts}")
        segment = self._config.bptt or inputs.shape[1]
        loss, grads = 0.0, None
        parts = zip(*(np.array_split(tokens, n_parts) for tokens in (inputs, targets)), strict=True)
        for part_inputs, part_targets in parts:
            state = None
            for start in range(0, inputs.shape[1], segment):
                here = np.s_[:, start : start + segment]
                share = part_inputs[here].size / inputs.size
                out = self._bound.loss_and_grads(part_inputs[here], part_targets[here], state, scale=share)
                state, loss = out.state, loss + share * out.loss
                grads = out.grads if grads is None else {name: grads[name] + out.grads[name] for name in grads}
        if not np.isfinite(loss):
            return loss, float("nan")
        return loss, self._optimizer.update(self._params, grads, learning_rate)

    def params(self) -> dict[str, np.ndarray]:
        """A copy of the parameters."""
        return {name: value.copy() for name, value in self._params.items()}

    def state(self) -> dict[str, np.ndarray]:
        """A copy of the optimizer's arrays: `first/NAME`, `second/NAME`, and `updates`, their count."""
        optimizer = self._optimizer
        arrays = {f"first/{name}": value.copy() for name, value in optimizer.first.items()}
        arrays |= {f"second/{name}": value.copy() for name, value in optimizer.second.items()}
        return arrays | {"updates": np.array(optimizer.updates, np.int64)}

    def load(self, params: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> None:
        """Go on from what `params()` and `state()` gave; names and shapes must be this learner's."""
        self._model.bind(params)  # checks them
        wanted = self.state()
        for name in sorted(wanted.keys() | state.keys()):
            if name not in wanted or name not in state:
                raise ValueError(f"optimizer state {name!r} is {'missing' if name in wanted else 'not this model`s'}")
            value, like = np.asarray(state[name]), wanted[name]
            if value.shape != like.shape or value.dtype != like.dtype or not np.isfinite(value).all():
                raise ValueError(f"optimizer state {name!r} must be a finite {like.dtype} array of shape {like.shape}")
            if not name.startswith("first/") and value.min(initial=0) < 0:
                raise ValueError(f"optimizer state {name!r} has negative entries")
        if next(iter(params.values())).dtype != next(iter(self._params.values())).dtype:
            raise ValueError("the parameters to load are not of this learner's type")
        for name in self._params:
            self._params[name][...] = params[name]
            self._optimizer.first[name][...] = state[f"first/{name}"]
            self._optimizer.second[name][...] = state[f"second/{name}"]
        self._optimizer.updates = int(state["updates"])
