"""The engine "cuda": the same function as the reference, on one NVIDIA card.

Parameters, states, gradients and the optimizer's moments stay there. `Engine` has model.Reference's methods, with
arrays of the host going in and out; a learner uses `training()`: tokens go in, a loss and a norm come out.
"""

import numpy as np

from gpn_ref.fast.cuda.card import the_card
from gpn_ref.fast.cuda.layout import Sizes
from gpn_ref.fast.cuda.products import products
from gpn_ref.fast.cuda.training import Training
from gpn_ref.fast.cuda.weights import Grads, Weights
from gpn_ref.fast.cuda.window import Window
from gpn_ref.reference.gpn import State

FORWARD_STEPS = 64  # of a forward pass without a way back, at a time


class Engine:
    """Parameters on the card, with what windows need. None of its methods checks its input."""

    def __init__(self, config, params, card=None):
        self.config, self.card = config, card or the_card()
        self.dtype = next(iter(params.values())).dtype
        self.sizes = Sizes.of(config)
        self.multiply = products(self.card, self.dtype)
        self.weights = Weights(self.card, config, self.sizes, self.dtype, params)
        self._windows, self._grads = {}, None

    @property
    def params(self):
        """A copy of the parameters, on the host."""
        return self.weights.flat.get()

    def forward(self, inputs, state):
        """-> logits (B, T, V), hidden (B, T, D), the final state."""
        B, T = inputs.shape
        s = self.sizes
        logits, hidden = np.empty((B, T, s.V), self.dtype), np.empty((B, T, s.D), self.dtype)
        for start in range(0, T, FORWARD_STEPS):  # so that no more than their traces is ever kept
            here = slice(start, min(start + FORWARD_STEPS, T))
            window = self.window(B, here.stop - start, training=False)
            self.put_inputs(window, inputs[:, here])
            self.put_state(window, state)
            window.begin()
            window.forward()
            rows = [self.decoded(window, *part) for part in window.decoded_parts()]
            logits[:, here] = by_sequence(np.concatenate(rows), B)
            hidden[:, here] = by_sequence(self.card.get(window.trace.state[s.N][B:]), B)
            state = self.final_state(window)
        return logits, hidden, state

    def decoded(self, window, first, n):
        """Logits of some tokens of a window, (n, V)."""
        window.decode(first, n)
        return self.card.get(window.trace.logits[:n])

    def step(self, tokens, state):
        """-> logits (B, V), the next state."""
        logits, _, state = self.forward(tokens[:, None], state)
        return logits[:, 0], state

    def loss_and_grads(self, inputs, targets, state, d_state, scale):
        """-> nll (B, T), grads, the final state, d_state of the initial state."""
        (B, T), s, card = inputs.shape, self.sizes, self.card
        window, grads = self.window(B, T, training=True), self.grads()
        d = window.back
        self.put_inputs(window, inputs)
        self.put_targets(window, inputs, targets)
        self.put_state(window, state)
        grads.clear()
        window.begin()
        window.forward(kept=True)
        window.clear_back()
        window.loss_and_back(grads, scale)
        for i, gradient in ((s.N, d_state.predicted), (0, d_state.grounded)):
            card.put(d.normalized, gradient)  # any array of that size that is not in use now
            window.each_row(window.whole.add, B, d.normalized, 0, d.state[i], T * B)
        if s.H:
            card.put(d.memory, d_state.memory)
        window.backward()
        window.weight_grads(grads)
        grads.unfold()
        initial = State(card.get(d.state[s.N][:B]), card.get(d.state[0][:B]), self._memory(d.memory, B))
        return by_sequence(card.get(d.nll)[0], B), grads.flat.get(), self.final_state(window), initial

    def training(self, train_config):
        """What a learner uses in the place of all this."""
        return Training(self, train_config)

    # ------------------------------------------------------------------------------------- what windows need
    def window(self, batch_size, window, training):
        """The arrays for windows of this shape; those of the last shape are kept."""
        key = batch_size, window, training
        if key not in self._windows:
            self._windows = {other: kept for other, kept in self._windows.items() if other[2] != training}
            self._windows[key] = self.new_window(*key)
        return self._windows[key]

    def new_window(self, batch_size, window, training):
        return Window(self.weights, self.multiply, batch_size, window, self.dtype, training)

    def grads(self):
        self._grads = self._grads or Grads(self.weights, self.config, self.dtype)
        return self._grads

    def put_inputs(self, window, inputs):
        self.card.put(window.trace.tokens, inputs.T)

    def put_targets(self, window, inputs, targets):
        tokens = inputs.T.reshape(-1).astype(np.int64)
        counts = np.bincount(tokens, minlength=self.sizes.V)
        self.card.put(window.back.targets, targets.T)
        self.card.put(window.back.order, np.argsort(tokens, kind="stable"))
        self.card.put(window.back.starts, np.concatenate([[0], np.cumsum(counts)]))

    def put_state(self, window, state):
        z, B, s = window.trace, window.B, self.sizes
        for array, value in ((z.state[s.N], state.predicted), (z.state[0], state.grounded)):
            self.card.put(array[:B], value)
        if s.H:
            self.card.put(z.memory, state.memory)

    def final_state(self, window):
        z, B, s = window.trace, window.B, self.sizes
        predicted, grounded = (self.card.get(z.state[i][window.T * B :]) for i in (s.N, 0))
        return State(predicted, grounded, self._memory(z.memory, B))

    def _memory(self, array, batch_size):
        s = self.sizes
        if not s.H:
            return np.zeros((batch_size, 0, 0, 0), self.dtype)
        return self.card.get(array).reshape(batch_size, s.H, s.K, s.U)


def by_sequence(rows, batch_size):
    """(T · B, ...), time first -> (B, T, ...)."""
    return rows.reshape(-1, batch_size, *rows.shape[1:]).swapaxes(0, 1).copy()
