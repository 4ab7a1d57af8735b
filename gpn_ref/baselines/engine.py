"""The engines of the baselines: model.Reference's methods for models that compute a window as a whole."""

import numpy as np

from gpn_ref.baselines import gated_deltanet, transformer
from gpn_ref.reference.ops import cross_entropy_backward, cross_entropy_forward
from gpn_ref.training.optimizer import AdamW


class Engine:
    """The engine "numpy". `params` is its own copy, which its learner changes in place."""

    AdamW = AdamW

    def __init__(self, config, params):
        self.config = config
        self.params = {name: value.copy() for name, value in params.items()}

    def loss_and_grads(self, inputs, targets, state, d_state, scale):
        """-> nll (B, T), grads, the final state, d_state of the initial state (None where the state gets none)."""
        logits, _, final_state, cache = self.window_forward(inputs, state)
        nll, cross_entropy_cache = cross_entropy_forward(logits, targets)  # (B, T)
        d_logits = cross_entropy_backward(np.full_like(nll, scale / nll.size), cross_entropy_cache)
        grads, d_state = self.window_backward(d_logits, d_state, cache)
        return nll, grads, final_state, d_state

    def forward(self, inputs, state):
        """-> logits (B, T, V), hidden (B, T, d), the final state."""
        return self.window_forward(inputs, state)[:3]

    def step(self, tokens, state):
        """-> logits (B, V), the next state."""
        logits, _, state = self.forward(tokens[:, None], state)
        return logits[:, 0], state


class TransformerEngine(Engine):
    def window_forward(self, inputs, state):
        return transformer.window_forward(self.params, self.config, inputs, state)

    def window_backward(self, d_logits, d_state, cache):
        return transformer.window_backward(d_logits, cache, self.params, self.config), None


class GDNEngine(Engine):
    recurrence = gated_deltanet.REFERENCE

    def window_forward(self, inputs, state):
        return gated_deltanet.window_forward(self.params, self.config, inputs, state, self.recurrence)

    def window_backward(self, d_logits, d_state, cache):
        return gated_deltanet.window_backward(d_logits, d_state, cache, self.params, self.config, self.recurrence)


def with_numba(engine):
    """The engine "numba": the optimizer and the recurrence are compiled, the products are NumPy's."""
    from gpn_ref.fast.cpu import delta, optimizer

    class Compiled(engine):
        AdamW = optimizer.AdamW
        recurrence = gated_deltanet.Recurrence(delta.memory_forward, delta.memory_backward)

    return Compiled
