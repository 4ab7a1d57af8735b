"""The engine "numba": the same function as the reference, as fast as its matrix products.

window.py has the recurrence and the plan; here is all that is done for a whole window at once.
"""

from contextlib import contextmanager
from math import isqrt

import numpy as np

from gpn_ref.fast.cpu import decode
from gpn_ref.fast.cpu.compiled import compiled
from gpn_ref.fast.cpu.layout import FFN, GATE, READ, named, zero_back, zero_trace, zero_weights, zeros
from gpn_ref.fast.cpu.optimizer import AdamW
from gpn_ref.fast.cpu.sequence import scale
from gpn_ref.fast.cpu.threads import N_THREADS, part_of, run, single_threaded_blas
from gpn_ref.fast.cpu.window import backward_steps, forward_steps
from gpn_ref.reference.gpn import State

SMALL = 1 << 20  # multiply-adds of a step that are worth a thread
FAR = 1 << 21  # weights that do not stay in the caches from one step to the next
FORWARD_STEPS = 64  # of a forward pass without a way back, at a time


class Engine:
    """Parameters, ready for the compiled loops. Its methods are those of model.Reference."""

    AdamW = AdamW

    def __init__(self, config, params):
        self.config = config
        self.dtype = next(iter(params.values())).dtype
        self._weights = zero_weights(config, self.dtype)
        self.params = named(self._weights, config)
        for name, value in params.items():
            self.params[name][...] = value
        self._n_weights = sum(weight.size for weight in self._weights[1:])  # of a step: all but the embedding
        self._workspaces = {}

    @single_threaded_blas()
    def forward(self, inputs, state):
        """-> logits (B, T, V), hidden (B, T, D), the final state."""
        B, T = inputs.shape
        hidden = np.empty((B, T, self.config.d_state), self.dtype)
        for first in range(0, T, FORWARD_STEPS):  # so that no more than their traces is ever kept
            here = inputs[:, first : first + FORWARD_STEPS]
            n_steps = here.shape[1]
            with self._workspace("forward", zero_trace, self.config, n_steps + 1, B, self.dtype) as trace:
                memory = self._begin(here, state, trace)[0]
                self._run(forward_steps, B, self._weights, trace, memory, 1, n_steps, self.config.decay_first)
                hidden[:, first : first + n_steps] = trace.state[-1, 1:].swapaxes(0, 1)
                state = final_state(trace, memory)
        logits = decode.logits_of(self._weights, hidden.reshape(B * T, -1))
        return logits.reshape(B, T, -1), hidden, state

    def step(self, tokens, state):
        """-> logits (B, V), the next state."""
        logits, _, state = self.forward(tokens[:, None], state)
        return logits[:, 0], state

    @single_threaded_blas()
    def loss_and_grads(self, inputs, targets, state, d_state, scale):
        """-> nll (B, T), grads, the final state, d_state of the initial state."""
        B, T = inputs.shape
        n_steps = isqrt(T - 1) + 1  # of a segment: the fewest memory states at hand, √T kept and √T made again
        sizes = (self.config, B, T, n_steps, self._n_pieces(B), self.dtype)
        with self._workspace("training", zero_workspace, *sizes) as arrays:
            return self._loss_and_grads(*arrays, n_steps, inputs, targets, state, d_state, scale)

    def _loss_and_grads(self, trace, back, states, tokens, looks, n_steps, inputs, targets, state, d_state, scale):
        w, (B, T), decay_first = self._weights, inputs.shape, self.config.decay_first
        memory, *embedded = self._begin(inputs, state, trace)
        segments = [(first, min(first + n_steps - 1, T)) for first in range(1, T + 1, n_steps)]
        kept = []
        for first, last in segments:
            kept.append(memory.copy())
            self._run(forward_steps, B, w, trace, memory, first, last, decay_first)

        grads = zero_weights(self.config, self.dtype)
        reset(back)
        predicted, d_predicted = rows_of(trace.state[-1, 1:]), rows_of(back.state[-1, 1:])
        targets = targets.T.reshape(-1).astype(np.int64)
        nll = decode.loss_and_grads(w, grads, tokens, predicted, d_predicted, targets, scale / (B * T))

        back.state[-1, T] += d_state.predicted
        back.state[0, T] += d_state.grounded
        back.memory[...] = d_state.memory
        trace.key[T] = 0  # the last state's key is never used
        for first, last in reversed(segments):
            states[0] = kept.pop()
            self._run(backward_steps, B, w, trace, back, states, first, last, decay_first)
        self._weight_grads(grads, trace, back, iter(looks), *embedded)
        d_initial = State(back.state[-1, 0].copy(), back.state[0, 0].copy(), back.memory.copy())
        return nll.reshape(T, B).T.copy(), named(grads, self.config), final_state(trace, memory), d_initial

    @contextmanager
    def _workspace(self, name, make, *sizes):
        """Arrays that a call fills, kept for the next one: fresh memory costs a page fault every 4 KB."""
        key, arrays = self._workspaces.pop(name, (None, None))  # popped, so that no other thread takes them
        if key != sizes:
            arrays = make(*sizes)
        yield arrays
        self._workspaces[name] = sizes, arrays

    def _begin(self, inputs, state, trace):
        """What does not wait for a step. -> the memory to move on, tokens, and the embedded ones, to come back to."""
        w, (B, T) = self._weights, inputs.shape
        memory = zeros(state.memory.shape, self.dtype)
        memory[...] = state.memory
        trace.state[0, 0], trace.state[-1, 0] = state.grounded, state.predicted
        tokens = inputs.T.reshape(-1).astype(np.int64)  # time first
        embedded = w.embedding[tokens]  # (T·B, E)
        inverse, normed = np.empty(T * B, self.dtype), np.empty_like(embedded)
        seen = rows_of(trace.state[0, 1:])

        def part(piece, n_pieces, barrier):
            mine = part_of(piece, n_pieces, T * B)
            decode.rms_norm_rows(embedded[mine], w.ground_norm, inverse[mine], normed[mine])
            np.matmul(normed[mine], w.ground_proj.T, out=seen[mine])

        run(N_THREADS if T > 1 else 1, part)
        return memory, tokens, embedded, inverse, normed

    def _run(self, steps, batch_size, *arguments):
        """Run steps of the recurrence in as many threads as they are worth."""
        run(self._n_pieces(batch_size), steps, self._n_weights > FAR, *arguments)

    def _n_pieces(self, batch_size):
        return max(1, min(N_THREADS, batch_size * self._n_weights // SMALL))

    def _weight_grads(self, g, z, d, looks, tokens, embedded, inverse, normed):
        """All that is a sum over the window: each matrix's gradient is one product, d_outᵀ input."""
        w, B, N, H = self._weights, z.gate.shape[2], len(z.gate), self.config.n_heads

        def look(state, inverse_rms, weight):
            """rms(state; weight), for each slot and sequence once more."""
            out = next(looks)[: inverse_rms.size]
            run(N_THREADS, scale_rows, rows_of(state), inverse_rms.reshape(-1), weight, out)
            return out

        d_seen = rows_of(d.state[0, 1:])
        x = look(z.state[N, :-1], z.inverse_rms[N, :-1], w.ground_gate_norm)
        products = [  # gradient of the output (n, rows), input (n, columns), gradients of the matrix and of a bias
            (d_seen, normed, g.ground_proj, None),
            (z.ground_gate[1:], x, g.ground_gate, g.ground_gate_bias),
        ]
        if H:
            x = look(z.state[0], z.inverse_rms[0], w.write_norm)  # the first B rows are slot 0
            products += [
                (z.key, x, g.key, g.key_bias),
                (z.error[1:], x[B:], g.value, None),
                (z.beta[1:], x[B:], g.beta, None),
                (z.decay_pre[1:], x[B:], g.decay, g.decay_bias),
            ]
        for i in range(N):
            x = look(z.state[i, 1:], z.inverse_rms[i, 1:], w.norms[i, GATE])
            products.append((z.gate[i, 1:], x, g.gate[i], g.gate_bias[i]))
            x = look(z.state[i, 1:], z.inverse_rms[i, 1:], w.norms[i, FFN])
            products += [(z.ffn_gate[i, 1:], x, g.ffn_gate[i], None), (z.ffn_value[i, 1:], x, g.ffn_value[i], None)]
            products.append((d.state[i + 1, 1:], rows_of(z.hidden[i, 1:]), g.ffn_out[i], None))
            if H:
                x = look(z.state[i, 1:], z.inverse_rms[i, 1:], w.norms[i, READ])
                products.append((z.query[i, 1:], x, g.query[i], g.query_bias[i]))
                products.append((z.read_gate[i, 1:], x, g.read_gate[i], None))
                products.append((d.state[i + 1, 1:], rows_of(z.read[i, 1:]), g.read_out[i], None))

        d_norms = np.zeros((N_THREADS, embedded.shape[1]), self.dtype)
        d_embedded = np.zeros_like(embedded)
        tasks = iter(blocks(products))  # each thread takes the next one when it is done with its last

        def part(piece, n_pieces, barrier):
            for d_out, x, grad, d_bias in tasks:
                np.matmul(d_out.T, x, out=grad)
                if d_bias is not None:
                    np.matmul(np.ones(len(x), x.dtype), d_out, out=d_bias)
            mine = part_of(piece, n_pieces, len(tokens))
            d_normed = d_seen[mine] @ w.ground_proj
            scratch = np.zeros(embedded.shape[1], self.dtype)
            decode.rms_norm_rows_back(
                d_normed, embedded[mine], w.ground_norm, inverse[mine], d_norms[piece], d_embedded[mine], scratch
            )

        run(N_THREADS, part)
        run(N_THREADS, add_embedded, tokens, d_embedded, g.embedding)
        g.ground_norm[...] = d_norms.sum(axis=0)
        for name in ("ground_gate_norm", "write_norm", "log_rate", "norms", "out_norm"):
            getattr(d, name).sum(axis=0, out=getattr(g, name))


def blocks(products):
    """The products, the largest first, in blocks of rows that share out well: BLAS likes them as tall as can be."""
    largest = sum(grad.size for *_, grad, _ in products) // (2 * N_THREADS)
    found = []
    for d_out, x, grad, d_bias in products:
        height = max(64, largest // grad.shape[1])
        for start in range(0, len(grad), height):
            rows = slice(start, start + height)
            found.append((rows_of(d_out)[:, rows], x, grad[rows], None if d_bias is None else d_bias[rows]))
    return sorted(found, key=lambda block: -block[2].size)


def zero_workspace(config, batch_size, window, n_steps, n_pieces, dtype):
    trace = zero_trace(config, window + 1, batch_size, dtype)
    back = zero_back(config, window + 1, batch_size, n_pieces, dtype)
    states = zeros((n_steps + 1, *back.memory.shape), dtype)
    n_looks = 2 + config.n_layers * (3 if config.n_heads else 2)
    looks = zeros((n_looks, (window + 1) * batch_size, config.d_state), dtype)
    return trace, back, states, decode.zero_arrays(config, batch_size * window, dtype), looks


def reset(back):
    """Zero what the way back adds to."""
    back.state[...] = 0
    for sums in (back.norms, back.out_norm, back.ground_gate_norm, back.write_norm, back.log_rate):
        sums[...] = 0


def rows_of(x):
    """(slots, B, n) -> (slots · B, n)."""
    return x.reshape(-1, x.shape[-1])


def final_state(trace, memory):
    return State(trace.state[-1, -1].copy(), trace.state[0, -1].copy(), memory)


@compiled
def scale_rows(piece, n_pieces, barrier, x, inverse, weight, out):
    """out = rms(x; weight), row by row, given 1 / rms."""
    for r in range(len(x) * piece // n_pieces, len(x) * (piece + 1) // n_pieces):
        scale(x[r], inverse[r], weight, out[r])


@compiled
def add_embedded(piece, n_pieces, barrier, tokens, d_embedded, d_embedding):
    """d_embedding[token] += d_embedded, for a thread's share of the columns: a token may stand in many rows."""
    E = d_embedding.shape[1]
    for r in range(len(tokens)):
        for e in range(E * piece // n_pieces, E * (piece + 1) // n_pieces):
            d_embedding[tokens[r], e] += d_embedded[r, e]
