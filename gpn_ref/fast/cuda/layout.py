"""Where everything lies on the card: the parameters, their stacks, and all that a window leaves behind.

Every array has two axes and is contiguous, vectors are one row: row t · B + b of a window's array is sequence b at
slot t. Slot 0 is the state carried in, slot t what token t did.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from gpn_ref.parameters import is_decayed, parameter_shapes


class Sizes(NamedTuple):
    """The model's sizes; kernels are made for them."""

    V: int
    D: int
    E: int
    F: int
    H: int
    K: int
    U: int
    N: int
    decay_first: bool

    @property
    def HK(self):
        return self.H * self.K

    @property
    def HU(self):
        return self.H * self.U

    @classmethod
    def of(cls, config):
        return cls(
            config.vocab_size, config.d_state, config.d_emb, config.d_ffn, config.n_heads, config.d_key,
            config.d_value, config.n_layers, config.decay_first,
        )  # fmt: skip


class Part(NamedTuple):
    """Some rows of a stack: a matrix that looks at a state, through a norm. Its outputs are columns of a window."""

    start: int
    matrix: str  # names of parameters
    norm: str
    size: int


ALIGN = 32  # numbers: libraries and loads like rows that begin at such multiples


def look(sizes, i):
    """All that looks at the state below layer i, by what it makes: one product a step makes it all.

    The grounded state, layer 0's, is what the memory is written from, too.
    """
    D, F, HK, HU, H = sizes.D, sizes.F, sizes.HK, sizes.HU, sizes.H
    layer = f"layers.{i}"
    wanted = [
        ("gate", f"{layer}.gate.weight", f"{layer}.gate.norm.weight", D),
        ("ffn_gate", f"{layer}.ffn.gate.weight", f"{layer}.ffn.norm.weight", F),
        ("ffn_value", f"{layer}.ffn.value.weight", f"{layer}.ffn.norm.weight", F),
    ]
    if H:
        wanted += [
            ("query", f"{layer}.read.query.weight", f"{layer}.read.norm.weight", HK),
            ("read_gate", f"{layer}.read.gate.weight", f"{layer}.read.norm.weight", HU),
        ]
    if H and i == 0:
        wanted += [
            ("value", "write.value.weight", "write.norm.weight", HU),
            ("key", "write.key.weight", "write.norm.weight", HK),
            ("beta", "write.beta.weight", "write.norm.weight", H),
            ("decay", "write.decay.weight", "write.norm.weight", H),
        ]
    parts, start = {}, 0
    for what, matrix, norm, size in wanted:
        parts[what] = Part(start, matrix, norm, size)
        start += size
    return parts


def width(parts):
    """Columns of what a look makes: all its parts, and some that stay zero."""
    last = list(parts.values())[-1]
    return -(-(last.start + last.size) // ALIGN) * ALIGN


class Flat:
    """One array for each parameter, all of them in one: what AdamW and the norm go through. Decayed ones come first."""

    def __init__(self, card, config, dtype):
        self.shapes = parameter_shapes(config)
        names = sorted(self.shapes, key=lambda name: not is_decayed(name, self.shapes[name]))
        sizes = {name: int(np.prod(self.shapes[name])) for name in names}
        self.n_decayed = sum(sizes[name] for name in names if is_decayed(name, self.shapes[name]))
        self.size = sum(sizes.values())
        self.card, self.dtype = card, dtype
        self.all = card.empty(self.size, dtype)
        self._views, start = {}, 0
        for name in names:
            shape = self.shapes[name] if len(self.shapes[name]) == 2 else (1, sizes[name])
            self._views[name] = self.all[start : start + sizes[name]].reshape(shape)
            start += sizes[name]

    def __getitem__(self, name):
        """A parameter on the card, (rows, columns)."""
        return self._views[name]

    def put(self, arrays):
        """From arrays by name, on the host."""
        self.card.put(self.all, np.concatenate([arrays[name].reshape(-1) for name in self._views], dtype=self.dtype))

    def get(self):
        """Copies by name, on the host."""
        everything, arrays, start = self.card.get(self.all), {}, 0
        for name in self._views:
            size = int(np.prod(self.shapes[name]))
            arrays[name] = everything[start : start + size].reshape(self.shapes[name]).copy()
            start += size
        return {name: arrays[name] for name in self.shapes}


class Stacks(NamedTuple):
    """Matrices joined, so that one product does them all, each with the scale of its norm folded in."""

    ground: object  # (D, E)
    ground_gate: object  # (D, D)
    looks: list  # layer i: (width, D)
    outs: list  # layer i: (D, F + H·U): W_2 and W_o side by side
    decode: object  # (E, D)


def empty_stacks(card, s, dtype):
    return Stacks(
        card.empty((s.D, s.E), dtype),
        card.empty((s.D, s.D), dtype),
        [card.empty((width(look(s, i)), s.D), dtype) for i in range(s.N)],
        [card.empty((s.D, s.F + s.HU), dtype) for _ in range(s.N)],
        card.empty((s.E, s.D), dtype),
    )


class Trace(NamedTuple):
    """What the way there leaves for the way back, which turns some of it into its gradient. (slots · B, ·) each."""

    tokens: object  # (1, T · B) int32, time first
    embedded: object  # (T · B, E): the embedding, its root mean square taken away
    inverse_embedded: object  # (T · B, 1): 1 / that root
    state: list  # i: (·, D): the grounded state, then what each layer made of it
    normalized: list  # i: (·, D): the same, its root mean square taken away
    inverse: list  # i: (·, 1): 1 / that root
    ground_gate: object  # (·, D), before bias and sigmoid                            -> its gradient
    looks: list  # i: (·, width): all that was made of state i, before any function   -> its gradient
    mixed: list  # i: (·, F + H·U): what W_2 and W_o take
    recalled: list  # i: (·, H·U): Mᵀ query                                           -> its gradient
    inverse_recalled: list  # i: (·, 1)
    memory: object  # (B, H · K · U): of the last step
    logits: object  # (tokens at a time, V)                                           -> their gradient
    projected: object  # (T · B, E): what the embedding turns into logits


class Back(NamedTuple):
    """What only the way back needs."""

    targets: object  # (1, T · B) int32
    order: object  # (1, T · B) int32: the rows of `tokens`, sorted by token
    starts: object  # (1, V + 1) int32: where in `order` a token's rows begin
    nll: object  # (1, T · B)
    state: list  # i: (slots · B, D): the gradient of state i
    kept: object  # (segments · B, H · K · U): the memory before each segment
    states: object  # ((steps + 1) · B, H · K · U): before and after each step of one segment
    memory: object  # (B, H · K · U): the gradient of the memory
    mixed: object  # (B, F + H·U)
    normalized: object  # (B, D)
    key: object  # (pieces · B, H · K): a block of columns of M has its share of each sum over columns
    query: object  # (pieces · B, H · K)
    beta: object  # (pieces · B, H)
    decay: object  # (pieces · B, H)
    out_norm: list  # i: (B, H·U), summed over steps, for each sequence
    log_rate: object  # (B, H), likewise
    projected: object  # (T · B, E)
    decoded: object  # (tokens at a time, D)
    embedded: object  # (T · B, E)
    sums: object  # (pieces, the widest that is summed): parts of long sums


def steps_of_a_segment(T):
    """The fewest memory states at hand: √T kept, and √T made again."""
    return isqrt(T - 1) + 1


def rows_at_a_time(tuning, s, n):
    """Tokens whose logits are at hand together."""
    return max(1, min(n, tuning.logits // s.V))


def empty_trace(card, s, B, T, dtype):
    n, slots = T * B, (T + 1) * B
    states = range(s.N + 1)

    def empty(rows, columns, kind=dtype):
        return card.empty((rows, max(1, columns)), kind)

    return Trace(
        tokens=empty(1, n, np.int32),
        embedded=empty(n, s.E),
        inverse_embedded=empty(n, 1),
        state=[empty(slots, s.D) for _ in states],
        normalized=[empty(slots, s.D) for _ in states],
        inverse=[empty(slots, 1) for _ in states],
        ground_gate=empty(slots, s.D),
        looks=[empty(slots, width(look(s, i))) for i in range(s.N)],
        mixed=[empty(slots, s.F + s.HU) for _ in range(s.N)],
        recalled=[empty(slots, s.HU) for _ in range(s.N)],
        inverse_recalled=[empty(slots, 1) for _ in range(s.N)],
        memory=empty(B, s.H * s.K * s.U),
        logits=empty(rows_at_a_time(card.tuning, s, n), s.V),
        projected=empty(n, s.E),
    )


def empty_back(card, s, B, T, dtype, n_pieces):
    n, slots, steps = T * B, (T + 1) * B, steps_of_a_segment(T)
    M = s.H * s.K * s.U

    def empty(rows, columns, kind=dtype):
        return card.empty((rows, max(1, columns)), kind)

    return Back(
        targets=empty(1, n, np.int32),
        order=empty(1, n, np.int32),
        starts=empty(1, s.V + 1, np.int32),
        nll=empty(1, n),
        state=[empty(slots, s.D) for _ in range(s.N + 1)],
        kept=empty(-(-T // steps) * B, M),
        states=empty((steps + 1) * B, M),
        memory=empty(B, M),
        mixed=empty(B, s.F + s.HU),
        normalized=empty(B, s.D),
        key=empty(n_pieces * B, s.HK),
        query=empty(n_pieces * B, s.HK),
        beta=empty(n_pieces * B, s.H),
        decay=empty(n_pieces * B, s.H),
        out_norm=[empty(B, s.HU) for _ in range(s.N)],
        log_rate=empty(B, s.H),
        projected=empty(n, s.E),
        decoded=empty(rows_at_a_time(card.tuning, s, n), s.D),
        embedded=empty(n, s.E),
        sums=empty(card.tuning.pieces, max(s.D, s.E, s.HK, s.HU, s.H)),
    )
