"""AdamW with a clipped global norm, and the learning rate of each step (section 5 of the paper)."""

from math import cos, pi

import numpy as np

from gpn_ref.config import TrainConfig
from gpn_ref.parameters import is_decayed


def learning_rate_at(step: int, config: TrainConfig) -> float:
    """Learning rate of a step, counted from 0: a linear warm-up to the peak, then a cosine down to its share of it."""
    peak = config.learning_rate
    if step < config.warmup_steps:
        return peak * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    share = config.final_learning_rate
    return peak * (share + (1 - share) * 0.5 * (1 + cos(pi * min(1.0, progress))))


def global_norm(grads: dict[str, np.ndarray]) -> float:
    """The length of all gradients taken as one vector, summed in float64."""
    return float(np.sqrt(sum(np.sum(np.square(grad, dtype=np.float64)) for grad in grads.values())))


class AdamW:
    """Moments of the gradient, one array a parameter each, and the number of updates so far."""

    def __init__(self, params: dict[str, np.ndarray], config: TrainConfig):
        self.config = config
        self.updates = 0
        self.first = {name: np.zeros_like(value) for name, value in params.items()}
        self.second = {name: np.zeros_like(value) for name, value in params.items()}

    def update(self, params: dict[str, np.ndarray], grads: dict[str, np.ndarray], learning_rate: float) -> float:
        """One step, in place on `params`; returns the norm of the gradient before clipping.

        g ← g · min(1, clip / ‖g‖);  m ← β₁ m + (1 - β₁) g;  v ← β₂ v + (1 - β₂) g²;
        p ← p - η (m̂ / (√v̂ + ε) + λ p), m̂ and v̂ corrected for their start at zero, λ for matrices only.
        A norm that is not finite changes nothing.
        """
        norm = self._norm(grads)
        if np.isfinite(norm):
            clip = min(1.0, self.config.clip_norm / norm) if norm > 0 else 1.0
            self.updates += 1
            self._move(params, grads, clip, learning_rate)
        return norm

    def _norm(self, grads):
        return global_norm(grads)

    def _move(self, params, grads, clip, learning_rate):
        config = self.config
        first_correction = 1 - config.beta1**self.updates
        second_correction = 1 - config.beta2**self.updates
        for name, param in params.items():
            grad, first, second = grads[name] * clip, self.first[name], self.second[name]
            first += (1 - config.beta1) * (grad - first)
            second += (1 - config.beta2) * (grad * grad - second)
            change = first / first_correction / (np.sqrt(second / second_correction) + config.epsilon)
            if is_decayed(name, param.shape):
                change += config.weight_decay * param
            param -= learning_rate * change
