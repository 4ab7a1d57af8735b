"""Looking inside: the forward pass once more, keeping by name what goes on in it, and changing it where asked."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpn_ref.reference.decode import decode_forward
from gpn_ref.reference.gpn import State, StepCache
from gpn_ref.reference.ground import ground_forward
from gpn_ref.reference.memory import recall, write_forward
from gpn_ref.reference.ops import linear_forward
from gpn_ref.reference.predict import predict_forward


@dataclass(frozen=True)
class Interventions:
    """What to change inside a forward pass; what is None stays as it is. Heads are chosen by (H,) bool."""

    ground_offset: np.ndarray | None = None  # (D): taken from s^p before it is grounded; the zero state stays
    decode_offset: np.ndarray | None = None  # (D): taken from s^p before it is decoded
    no_write: np.ndarray | None = None  # (H): these heads write nothing (β = 0); what they hold only decays
    no_read: np.ndarray | None = None  # (H): their share of every read is 0, after the norm over all heads
    no_past: np.ndarray | None = None  # (H): they lose what they hold before each write
    clear_at: np.ndarray | None = None  # (B) integers: the step before whose write all heads lose it; -1, or any
    # other that the window does not have: never


class Trace(NamedTuple):
    """What went on inside; None what was not asked for. Without a memory H, K and U are 0."""

    grounded: np.ndarray | None = None  # (B, T, D): s^g
    predicted: np.ndarray | None = None  # (B, T, D): s^p
    ground_gate: np.ndarray | None = None  # (B, T, D): gate_f
    key: np.ndarray | None = None  # (B, T, H, K)
    value: np.ndarray | None = None  # (B, T, H, U)
    beta: np.ndarray | None = None  # (B, T, H)
    decay: np.ndarray | None = None  # (B, T, H)
    recalled: np.ndarray | None = None  # (B, T, H, U): M_{t-1}ᵀ k
    layers: np.ndarray | None = None  # (B, T, N, D): what each layer predicts; the last is s^p
    gate: np.ndarray | None = None  # (B, T, N, D): gate_p
    ffn: np.ndarray | None = None  # (B, T, N, D)
    query: np.ndarray | None = None  # (B, T, N, H, K)
    retrieved: np.ndarray | None = None  # (B, T, N, H, U): M_tᵀ q, before the norm
    gated: np.ndarray | None = None  # (B, T, N, H, U): normed and gated, what W_o takes
    read: np.ndarray | None = None  # (B, T, N, D)
    logits: np.ndarray | None = None  # (B, T, V)
    state: State | None = None  # after the last token


class Step(NamedTuple):
    """One token: all that a Trace is made of."""

    state: State
    cache: StepCache
    layers: list[np.ndarray]  # (B, D) a layer
    gated: list[np.ndarray]  # (B, H·U) a layer


def of_layers(get):
    """A function of a Step: `get` of the cache of each layer, side by side."""
    return lambda step: np.stack([get(cache) for cache in step.cache.predict], axis=1)


def reads(step):
    """W_o gated, a layer."""
    pairs = zip(step.gated, step.cache.predict, strict=True)
    return [linear_forward(gated, cache.read.out.weight)[0] for gated, cache in pairs]


PARTS = {  # name -> its axes behind (B, T), and how a Step has it
    "grounded": ("D", lambda step: step.state.grounded),
    "predicted": ("D", lambda step: step.state.predicted),
    "ground_gate": ("D", lambda step: step.cache.ground.gate.gate),
    "key": ("HK", lambda step: step.cache.write.delta.key),
    "value": ("HU", lambda step: linear_forward(*step.cache.write.value)[0]),
    "beta": ("H", lambda step: step.cache.write.delta.beta),
    "decay": ("H", lambda step: step.cache.write.delta.decay),
    "recalled": ("HU", lambda step: step.cache.write.delta.recalled),
    "layers": ("ND", lambda step: np.stack(step.layers, axis=1)),
    "gate": ("ND", of_layers(lambda cache: cache.gate.gate)),
    "ffn": ("ND", of_layers(lambda cache: linear_forward(*cache.ffn.out)[0])),
    "query": ("NHK", of_layers(lambda cache: cache.read.query)),
    "retrieved": ("NHU", of_layers(lambda cache: recall(cache.read.memory, cache.read.query))),
    "gated": ("NHU", lambda step: np.stack(step.gated, axis=1)),
    "read": ("ND", lambda step: np.stack(reads(step), axis=1)),
}
OF_THE_MEMORY = {"key", "value", "beta", "decay", "recalled", "query", "retrieved", "gated", "read"}
NAMES = (*PARTS, "logits")


def window_trace(params, config, inputs, state, change, keep):
    """The loop of window_forward.  inputs (B, T), an Interventions, the names to keep -> Trace."""
    names = [name for name in PARTS if name in keep and (config.n_heads or name not in OF_THE_MEMORY)]
    kept = {name: [] for name in {*names, "predicted"}}
    for t in range(inputs.shape[1]):
        step = trace_step(params, config, inputs[:, t], state, t, change)
        state = step.state
        for name, values in kept.items():
            values.append(PARTS[name][1](step))
    sizes = {"D": config.d_state, "N": config.n_layers, "H": config.n_heads, "K": config.d_key, "U": config.d_value}
    found = {}
    for name in keep:
        shape = inputs.shape + tuple(sizes[axis] for axis in PARTS.get(name, ("",))[0])
        if name == "logits":
            predicted = np.stack(kept["predicted"], axis=1)  # (B, T, D)
            found[name] = decode_forward(params, less(predicted, change.decode_offset))[0]
        elif name in kept:
            found[name] = np.stack(kept[name], axis=1).reshape(shape)
        else:
            found[name] = np.zeros(shape, state.predicted.dtype)
    return Trace(**found, state=state)


def trace_step(params, config, tokens, state, t, change):
    """step_forward with the changes: step t of a window, tokens (B), state s_{t-1} -> Step."""
    predicted = state.predicted
    if change.ground_offset is not None:
        begun = state.predicted.any(axis=1, keepdims=True)  # (B, 1): a text that starts has predicted nothing yet
        predicted = predicted - np.where(begun, change.ground_offset, 0)
    grounded, ground_cache = ground_forward(params, predicted, tokens)  # (B, D)
    memory, write_cache = state.memory, None
    if config.n_heads:
        if change.no_past is not None or change.clear_at is not None:
            memory = memory * holds_on(len(tokens), t, config, change)
        written, write_cache = write_forward(params, config, state.grounded, grounded, memory)  # (B, H, K, U)
        if change.no_write is not None:
            decayed = write_cache.delta.decay[..., None, None] * memory  # what β = 0 leaves
            written = np.where(change.no_write[:, None, None], decayed, written)
        memory = written
    x, layers, gated, caches = grounded, [], [], []
    for i in range(config.n_layers):
        x, cache = predict_forward(params, config, i, x, memory)  # (B, D)
        if config.n_heads:
            heads, weight = cache.read.out  # (B, H·U), W_o
            if change.no_read is not None:
                silenced = heads * np.repeat(change.no_read, config.d_value)
                heads, x = heads - silenced, x - linear_forward(silenced, weight)[0]
            gated.append(heads)
        layers.append(x)
        caches.append(cache)
    return Step(State(x, grounded, memory), StepCache(ground_cache, write_cache, caches), layers, gated)


def less(predicted, offset):
    return predicted if offset is None else predicted - offset


def holds_on(batch_size, t, config, change):
    """(B, H, 1, 1) bool: whether a head still holds at step t what it held before."""
    kept = np.ones((batch_size, config.n_heads, 1, 1), bool)
    if change.no_past is not None:
        kept[:, change.no_past] = False
    if change.clear_at is not None:
        kept[change.clear_at == t] = False
    return kept
