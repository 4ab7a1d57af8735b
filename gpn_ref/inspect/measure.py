"""All that inspect measures, in two passes over a text: the summary that tables, figures and report are made of."""

import numpy as np
from tqdm import tqdm

from gpn_ref.inspect.default_token import PairCosines, RunningMean
from gpn_ref.inspect.geometry import StateMoments, geometry
from gpn_ref.inspect.heads import (
    Eigenvalues,
    Retrievals,
    eigenvalue_along_key,
    parts_of_update,
    read_weights,
    retrieved_amounts,
    retrieved_tokens,
)
from gpn_ref.inspect.horizons import Retention, StateCosines, lags_up_to
from gpn_ref.inspect.summary import default_token, heads, horizons, passage_inside, plain

RETRIEVAL = 256  # tokens from a sequence's start whose reads are unrolled: the work grows with its square
OF_STATES = ("grounded", "layers", "gate", "ffn")
OF_HEADS = ("key", "value", "beta", "decay", "query", "gated")


def measure(trained, batches, passage, counts):
    """The summary: name -> numbers, lists and text, as JSON types; None is what can't be told.

    trained: a Trained; batches: a list of inputs (B, T) and targets (B, T), which may differ in shape; passage (T,)
    tokens; counts (V,): how often each token occurs in the training text.
    """
    config, bound = trained.config, trained.bound
    tokens = sum(inputs.size for inputs, _ in batches)
    with tqdm(total=2 * tokens, desc="looking inside", unit=" tokens", disable=None, leave=False) as progress:
        states = StatePass(config, batches)
        for inputs, _ in batches:
            hidden = bound.forward(inputs).hidden
            if not np.isfinite(hidden).all():
                raise ValueError("the model's numbers overflow on this text: a state is not finite")
            states.add(hidden)
            progress.update(inputs.size)
        inside = InsidePass(config, trained.checkpoint.params, states, batches)
        for inputs, targets in batches:
            inside.add(bound.trace(inputs, keep=inside.keep), inputs, targets)
            progress.update(inputs.size)
    summary = {
        "model": {
            "path": str(trained.path),
            "step": trained.checkpoint.step,
            "corpus": str(trained.checkpoint.corpus.get("name")),
            "d_state": config.d_state,
            "n_layers": config.n_layers,
            "n_heads": config.n_heads,
            "trained_on_windows_of": trained.checkpoint.train_config.window,
            "tokens": tokens,
            "sequences": sum(len(inputs) for inputs, _ in batches),
            "longest": longest(batches),
        },
        "geometry": [geometry(moments) for moments in inside.layers],
        "default_token": default_token(trained, states, inside.running, counts),
        "horizons": horizons(states, inside),
        "heads": heads(inside) if config.n_heads else None,
        "passage": passage_inside(trained, inside, passage) if config.n_heads else None,
    }
    return plain(summary)


def longest(batches):
    return max(inputs.shape[1] for inputs, _ in batches)


class StatePass:
    """The first pass, over the predicted states alone: fast, and the only way to the mean state."""

    def __init__(self, config, batches):
        self.lags = lags_up_to(longest(batches) - 1)
        self.moments, self.batch_means = StateMoments(config.d_state), PairCosines(config.d_state)
        self.cosines = StateCosines(self.lags)

    def add(self, hidden):
        """hidden (B, T, D)."""
        self.moments.add(hidden)
        self.batch_means.add(hidden.mean(axis=(0, 1), dtype=np.float64))
        self.cosines.add(hidden)

    @property
    def mean(self):
        """(D,): s̄."""
        return self.moments.states.mean


class InsidePass:
    """The second pass, over traces: each layer's states, the way to the mean state, and all that heads do."""

    def __init__(self, config, params, states, batches):
        N, H = config.n_layers, config.n_heads
        self.config, self.keep = config, OF_STATES + (OF_HEADS if H else ())
        self.out_weights = [params[f"layers.{i}.read.out.weight"] for i in range(N)] if H else []
        self.layers = [StateMoments(config.d_state) for _ in range(N)]
        self.running = RunningMean(states.mean, longest(batches))
        self.retention, self.eigenvalues = Retention(states.lags, H), Eigenvalues(H)
        self.retrievals = Retrievals((N, H), min(longest(batches), RETRIEVAL))
        self.parts, self.whole = np.zeros((N, 2 + H)), np.zeros(N)
        self.sums, self.count = np.zeros((2, H)), 0  # of β and decay

    def add(self, trace, inputs, targets):
        for i, moments in enumerate(self.layers):
            moments.add(trace.layers[:, :, i])
        self.running.add(trace.layers[:, :, -1])
        if self.config.n_heads == 0:
            return
        self.retention.add(trace.decay)
        self.sums += [values.sum(axis=(0, 1), dtype=np.float64) for values in (trace.beta, trace.decay)]
        self.count += inputs.size
        self.eigenvalues.add(self.along_key(trace), trace.decay)
        for i in range(self.config.n_layers):
            parts, whole = self.update(trace, i)
            self.parts[i] += parts.sum(axis=(0, 1))
            self.whole[i] += whole.sum()
        for row in range(len(inputs)):
            retrieved = retrieved_tokens(self.amounts(trace, row))
            self.retrievals.add(retrieved, inputs[row, :RETRIEVAL], targets[row, :RETRIEVAL])

    def along_key(self, trace):
        return eigenvalue_along_key(trace.key, trace.beta, trace.decay, self.config.decay_first)

    def update(self, trace, i):
        """Parts (B, T, 2 + H) of what layer i changes, and the whole (B, T)."""
        x = trace.layers[:, :, i - 1] if i else trace.grounded
        out, gate, ffn, gated = (part[:, :, i] for part in (trace.layers, trace.gate, trace.ffn, trace.gated))
        return parts_of_update(x, out, gate, ffn, gated, self.out_weights[i])

    def amounts(self, trace, row):
        """(N, H, T, T): how much the reads of a sequence's first RETRIEVAL tokens get from each token."""
        key, value, beta, decay = (
            np.moveaxis(part[row, :RETRIEVAL], 0, 1) for part in (trace.key, trace.value, trace.beta, trace.decay)
        )  # (H, T, ...)
        found = []
        for i in range(self.config.n_layers):
            query = np.moveaxis(trace.query[row, :RETRIEVAL, i], 0, 1)  # (H, T, K)
            found.append(retrieved_amounts(read_weights(key, query, beta, decay, self.config.decay_first), value))
        return np.stack(found)
