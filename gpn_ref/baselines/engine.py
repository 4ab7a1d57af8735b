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
        self.dtype = next(iter(params.values())).dtype

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
    """The engine "numba": NumPy's products, but parts of the batch in threads; recurrence and optimizer compiled.

    Parts of a batch add up, and a part of PART tokens fits into a core's caches with all that is made of it.
    """
    from gpn_ref.fast.cpu import delta, optimizer
    from gpn_ref.fast.cpu.threads import N_THREADS, run, single_threaded_blas

    class Compiled(engine):
        AdamW = optimizer.AdamW
        recurrence = gated_deltanet.Recurrence(delta.memory_forward, delta.memory_backward)

        def loss_and_grads(self, inputs, targets, state, d_state, scale):
            rows, found = parts_of(inputs.shape), {}

            def part(piece, n_pieces, barrier):
                grads = None
                for here in rows[piece::n_pieces]:  # each thread its own, so that sums come out the same every time
                    share = scale * len(inputs[here]) / len(inputs)
                    nll, more, *states = super(Compiled, self).loss_and_grads(
                        inputs[here], targets[here], of_rows(state, here), of_rows(d_state, here), share
                    )
                    grads = more if grads is None else add(grads, more)
                    found[here.start] = nll, *states
                found["grads", piece] = grads

            with single_threaded_blas():
                run(n_threads(rows), part)
            nll, *states = zip(*(found[here.start] for here in rows), strict=True)
            grads = found["grads", 0]
            for piece in range(1, n_threads(rows)):
                add(grads, found["grads", piece])
            return np.concatenate(nll), grads, *map(joined, states)

        def forward(self, inputs, state):
            rows, found = parts_of(inputs.shape), {}

            def part(piece, n_pieces, barrier):
                for here in rows[piece::n_pieces]:
                    found[here.start] = super(Compiled, self).forward(inputs[here], of_rows(state, here))

            with single_threaded_blas():
                run(n_threads(rows), part)
            logits, hidden, states = zip(*(found[here.start] for here in rows), strict=True)
            return np.concatenate(logits), np.concatenate(hidden), joined(states)

    def parts_of(shape):
        """Slices of a batch's rows, of about PART tokens, and no fewer than there are threads."""
        B, T = shape
        count = min(B, max(N_THREADS, round(B * T / PART)))
        return [slice(B * i // count, B * (i + 1) // count) for i in range(count)]

    def n_threads(rows):
        return min(N_THREADS, len(rows))

    return Compiled


def with_card(engine):
    """The engine "cuda" of a GDN: its recurrence on the card, all else NumPy's."""
    from gpn_ref.fast.cuda import delta

    class OnTheCard(engine):
        recurrence = gated_deltanet.Recurrence(delta.memory_forward, delta.memory_backward)

    return OnTheCard


PART = 1024  # tokens


def of_rows(state, rows):
    """The sequences `rows` of a state, whose second axis is the batch; None stays None."""
    return None if state is None else type(state)(*(part[:, rows] for part in state))


def joined(states):
    """States of parts of a batch as one."""
    if states[0] is None:
        return None
    return type(states[0])(*(np.concatenate(parts, axis=1) for parts in zip(*states, strict=True)))


def add(grads, more):
    """grads += more."""
    for name, value in more.items():
        grads[name] += value
    return grads
