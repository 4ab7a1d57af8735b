"""The engine "numba": the same function as the reference, as fast as its matrix products.

window.py has the recurrence and the plan; here is all that is done for a whole window at once.
"""

from math import isqrt

import numpy as np

from gpn_ref.fast.cpu import decode
from gpn_ref.fast.cpu.compiled import compiled
from gpn_ref.fast.cpu.layout import FFN, GATE, READ, named, zero_back, zero_trace, zero_weights, zeros
from gpn_ref.fast.cpu.optimizer import AdamW
from gpn_ref.fast.cpu.threads import N_THREADS, run
from gpn_ref.fast.cpu.window import backward_steps, forward_steps
from gpn_ref.reference.gpn import State

SMALL = 1 << 20  # multiply-adds of a step that are not worth a second thread
FORWARD_STEPS = 64  # of a forward pass without a way back, at a time


class Engine:
    """Parameters, ready for the compiled loops. Its methods are those of model.Reference."""

    AdamW = AdamW

    def __init__(self, config, params):
        self.config = config
        self._dtype = next(iter(params.values())).dtype
        self._weights = zero_weights(config, self._dtype)
        self.params = named(self._weights, config)
        for name, value in params.items():
            self.params[name][...] = value

    def forward(self, inputs, state):
        """-> logits (B, T, V), hidden (B, T, D), the final state."""
        B, T = inputs.shape
        hidden = np.empty((B, T, self.config.d_state), self._dtype)
        for first in range(0, T, FORWARD_STEPS):  # so that no more than their traces is ever kept
            here = np.s_[:, first : first + FORWARD_STEPS]
            trace, memory = self._begin(inputs[here], state)[:2]
            self._run(forward_steps, B, self._weights, trace, memory, 1, len(trace.key) - 1, self.config.decay_first)
            hidden[here] = trace.state[-1, 1:].swapaxes(0, 1)
            state = final_state(trace, memory)
        logits = decode.logits_of(self._weights, hidden.reshape(B * T, -1), N_THREADS)[0]
        return logits.reshape(B, T, -1), hidden, state

    def step(self, tokens, state):
        """-> logits (B, V), the next state."""
        logits, _, state = self.forward(tokens[:, None], state)
        return logits[:, 0], state

    def loss_and_grads(self, inputs, targets, state, d_state, scale):
        """-> nll (B, T), grads, the final state, d_state of the initial state."""
        w, (B, T), decay_first = self._weights, inputs.shape, self.config.decay_first
        trace, memory, embedded = self._begin(inputs, state)
        n_steps = isqrt(T - 1) + 1  # of a segment: the fewest memory states at hand, √T kept and √T made again
        segments = [(first, min(first + n_steps - 1, T)) for first in range(1, T + 1, n_steps)]
        kept = []
        for first, last in segments:
            kept.append(memory.copy())
            self._run(forward_steps, B, w, trace, memory, first, last, decay_first)
        final = final_state(trace, memory)

        grads = zero_weights(self.config, self._dtype)
        predicted = trace.state[-1, 1:].swapaxes(0, 1).reshape(B * T, -1)
        nll, d_predicted = decode.loss_and_grads(
            w, grads, predicted, targets.reshape(-1).astype(np.int64), scale / (B * T), N_THREADS
        )

        back = zero_back(self.config, T + 1, B, N_THREADS, self._dtype)
        back.state[-1, 1:] = d_predicted.reshape(B, T, -1).swapaxes(0, 1)
        back.state[-1, T] += d_state.predicted
        back.state[0, T] += d_state.grounded
        back.memory[...] = d_state.memory
        trace.key[T] = 0  # the last state's key is never used
        states = zeros((n_steps + 1, *memory.shape), self._dtype)
        for first, last in reversed(segments):
            states[0] = kept.pop()
            self._run(backward_steps, B, w, trace, back, states, first, last, decay_first)

        self._weight_grads(grads, trace, back, *embedded)
        d_initial = State(back.state[-1, 0].copy(), back.state[0, 0].copy(), back.memory)
        return nll.reshape(B, T), named(grads, self.config), final, d_initial

    def _begin(self, inputs, state):
        """The trace with all that does not wait for a step, the memory to move on, and the embedded tokens."""
        w, (B, T) = self._weights, inputs.shape
        trace = zero_trace(self.config, T + 1, B, self._dtype)
        memory = zeros(state.memory.shape, self._dtype)
        memory[...] = state.memory
        trace.state[0, 0], trace.state[-1, 0] = state.grounded, state.predicted
        tokens = inputs.T.reshape(-1).astype(np.int64)  # time first
        embedded = w.embedding[tokens]  # (T·B, E)
        inverse, normed = np.empty(T * B, self._dtype), np.empty_like(embedded)
        run(1, decode.rms_norm_rows, embedded, w.ground_norm, inverse, normed)
        np.matmul(normed, w.ground_proj.T, out=rows_of(trace.state[0, 1:]))
        return trace, memory, (tokens, embedded, inverse, normed)

    def _run(self, steps, batch_size, *arguments):
        """Run steps of the recurrence in as many threads as they are worth."""
        n_weights = sum(weight.size for weight in self._weights) - self._weights.embedding.size
        run(N_THREADS if batch_size * n_weights > SMALL else 1, steps, *arguments)

    def _weight_grads(self, grads, z, d, tokens, embedded, inverse, normed):
        """All that is a sum over the window: each matrix's gradient is one product, d_outputᵀ input."""
        w, g, B, N = self._weights, grads, z.gate.shape[2], len(z.gate)

        # ground
        product_grad(d.state[0, 1:], normed, g.ground_proj)
        d_normed = rows_of(d.state[0, 1:]) @ w.ground_proj
        d_embedded, d_norms = np.zeros_like(embedded), np.zeros((N_THREADS, embedded.shape[1]), self._dtype)
        run(N_THREADS, decode.rms_norm_rows_back, d_normed, embedded, w.ground_norm, inverse, d_norms, d_embedded)
        run(N_THREADS, add_rows, tokens, d_embedded, g.embedding)
        g.ground_norm[...] = d_norms.sum(axis=0)
        x = normalized(z.state[N, :-1], z.inverse_rms[N, :-1]) * w.ground_gate_norm
        product_grad(z.ground_gate[1:], x, g.ground_gate)
        g.ground_gate_bias[...] = z.ground_gate[1:].sum(axis=(0, 1))
        g.ground_gate_norm[...] = d.ground_gate_norm.sum(axis=0)

        for i in range(N):
            x_hat = normalized(z.state[i], z.inverse_rms[i])  # (T·B + B, D); the first B rows are slot 0
            if self.config.n_heads and i == 0:
                x = x_hat * w.write_norm
                product_grad(z.key, x, g.key)
                product_grad(z.error[1:], x[B:], g.value)
                product_grad(z.beta[1:], x[B:], g.beta)
                product_grad(z.decay_pre[1:], x[B:], g.decay)
                g.key_bias[...] = z.key.sum(axis=(0, 1))
                g.decay_bias[...] = z.decay_pre[1:].sum(axis=(0, 1))
                g.log_rate[...] = d.log_rate.sum(axis=0)
                g.write_norm[...] = d.write_norm.sum(axis=0)
            x_hat = x_hat[B:]
            x = x_hat * w.norms[i, GATE]
            product_grad(z.gate[i, 1:], x, g.gate[i])
            g.gate_bias[i] = z.gate[i, 1:].sum(axis=(0, 1))
            np.multiply(x_hat, w.norms[i, FFN], out=x)
            product_grad(z.ffn_gate[i, 1:], x, g.ffn_gate[i])
            product_grad(z.ffn_value[i, 1:], x, g.ffn_value[i])
            product_grad(d.state[i + 1, 1:], rows_of(z.hidden[i, 1:]), g.ffn_out[i])
            if self.config.n_heads:
                np.multiply(x_hat, w.norms[i, READ], out=x)
                product_grad(z.query[i, 1:], x, g.query[i])
                product_grad(z.read_gate[i, 1:], x, g.read_gate[i])
                product_grad(d.state[i + 1, 1:], rows_of(z.read[i, 1:]), g.read_out[i])
                g.query_bias[i] = z.query[i, 1:].sum(axis=(0, 1))
        g.norms[...] = d.norms.sum(axis=0)
        g.out_norm[...] = d.out_norm.sum(axis=0)


def rows_of(x):
    """(slots, B, n) -> (slots · B, n)."""
    return x.reshape(-1, x.shape[-1])


def normalized(state, inverse_rms):
    """state (slots, B, D), inverse_rms (slots, B) -> (slots · B, D)."""
    return rows_of(state * inverse_rms[..., None])


def product_grad(d_out, x, grad):
    """For out = x Wᵀ: grad = d_outᵀ x.  d_out (slots, B, rows), x (slots · B, n) -> grad (rows, n)."""
    np.matmul(rows_of(d_out).T, x, out=grad)


def final_state(trace, memory):
    return State(trace.state[-1, -1].copy(), trace.state[0, -1].copy(), memory)


@compiled
def add_rows(piece, n_pieces, barrier, tokens, d_embedded, d_embedding):
    """d_embedding[token] += d_embedded, for a thread's share of the columns: a token may stand in many rows."""
    E = d_embedding.shape[1]
    for r in range(len(tokens)):
        for e in range(E * piece // n_pieces, E * (piece + 1) // n_pieces):
            d_embedding[tokens[r], e] += d_embedded[r, e]
