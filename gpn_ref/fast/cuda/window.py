"""The recurrence: the launches of a window, and of the way back.

The plan is that of the CPU's window.py, with launches in the place of barriers: one after the other in a stream, each
sees all that those before it wrote. What counts here is how few they are.

1. Whatever does not wait for the step before is one launch for the whole window: W_fuse rms(embedding) before the
   loop, the decoder and its loss after it, and the gradient of each matrix, a product over all tokens.
2. All that looks at one state is one product: gate, FFN, query, read gate, value, β, decay, and the NEXT step's key.
   They share one normalized state; each norm's own scale is folded into the matrices behind it (weights.py).
3. Each step, forward, is 3 products and 4 other launches with one layer, and 2 and 3 more with each further one; on the
   way back 3 and 5, and 2 and 4 more.
4. The memory is passed over once a step (memory.py). Its states are kept every √T steps, and made once more from there
   on the way back, in one launch a segment, during which M does not leave the registers.

Names are the reference's. Row t · B + b of an array is sequence b at slot t; token t leads from slot t - 1 to slot t.
"""

from gpn_ref.fast.cuda.layout import empty_back, empty_trace, look, rows_at_a_time, steps_of_a_segment
from gpn_ref.fast.cuda.memory import memory_kernels
from gpn_ref.fast.cuda.products import block
from gpn_ref.fast.cuda.rows import row_kernels


class Window:
    """The arrays of windows of B sequences and T tokens, and the launches that fill them."""

    def __init__(self, weights, multiply, batch_size, window, dtype, training):
        self.weights, self.multiply = weights, multiply
        self.card, self.s, self.B, self.T = weights.card, weights.s, batch_size, window
        self.real, self.tuning = dtype.type, self.card.tuning
        self.rows = row_kernels(self.s, self.real, self.tuning.threads)
        self.whole = weights.kernels
        self.memory = memory_kernels(self.s, self.real, self.tuning) if self.s.H else None
        self.looks = [look(self.s, i) for i in range(self.s.N)]
        self.trace = empty_trace(self.card, self.s, self.B, self.T, dtype)
        self._clear(self.trace.looks[0])  # slot 0 has keys only; what else it has stays 0
        if training:
            n_pieces = self.memory.tile.pieces if self.memory else 1
            self.back = empty_back(self.card, self.s, self.B, self.T, dtype, n_pieces)

    # ---------------------------------------------------------------------------------------------- launches
    def each_row(self, kernel, n_rows, *arguments):
        """A block for each row."""
        self.card.launch(kernel, n_rows, self.tuning.threads, *arguments)

    def _each_head(self, kernel, *arguments):
        """A block for each piece of each head of each sequence."""
        tile = self.memory.tile
        self.card.launch(kernel, (self.B * self.s.H, tile.pieces), tile.threads, *arguments)

    def _clear(self, array):
        tuning = self.tuning
        self.card.launch(self.whole.fill, tuning.blocks, tuning.threads, array.reshape(array.size), self.real(0))

    def _column_sums(self, x, first, n_rows, column, n_columns, out):
        """out (1, n_columns) += Σ of the rows, in two launches, so that many blocks can work on long sums."""
        threads, sums = self.tuning.threads, self.back.sums
        blocks = -(-n_columns // threads)
        self._clear(sums)
        self.card.launch(
            self.whole.column_sums, (blocks, sums.shape[0]), threads, x, first, n_rows, column, n_columns, sums, 0
        )
        self.card.launch(
            self.whole.column_sums, (blocks, 1), threads, sums, 0, sums.shape[0], 0, n_columns, out, 0
        )  # fmt: skip

    def _normalize(self, first, i):
        z = self.trace
        self.each_row(self.rows.normalize, self.B, first, z.state[i], z.normalized[i], z.inverse[i])

    # ------------------------------------------------------------------------------------------------- there
    def start_from_zero(self):
        """The state in which every text starts."""
        z, s = self.trace, self.s
        for i in (0, s.N):
            self.each_row(self.whole.fill_columns, self.B, z.state[i], 0, 0, s.D, self.real(0))
        self._clear(z.memory)

    def go_on_from(self, other):
        """The state in which another window of as many sequences ended, or this one."""
        z, last = other.trace, other.T * other.B
        for i in (0, self.s.N):
            self.each_row(self.whole.copy, self.B, z.state[i], last, self.trace.state[i], 0)
        if self.s.H and other is not self:
            self.each_row(self.whole.copy, self.B, z.memory, 0, self.trace.memory, 0)

    def begin(self):
        """What does not wait for a step. Slot 0 of the states, the memory and the tokens must be there."""
        z, w, s, B = self.trace, self.weights, self.s, self.B
        n = self.T * B
        self.each_row(self.whole.embed, n, z.tokens, w["embedding.weight"], z.embedded, z.inverse_embedded)
        self.multiply.by_rows(block(z.embedded), block(w.stacks.ground), block(z.state[0], B))
        self._normalize(0, s.N)
        if s.H:
            self._normalize(0, 0)
            key = self.looks[0]["key"]
            self.multiply.by_rows(
                block(z.normalized[0], 0, B),
                block(w.stacks.looks[0], key.start, key.size),
                block(z.looks[0], 0, B, key.start, key.size),
            )

    def forward(self, kept=False):
        """All steps; with `kept`, the memory before each segment is kept for the way back."""
        every = steps_of_a_segment(self.T)
        for t in range(1, self.T + 1):
            if kept and self.s.H and (t - 1) % every == 0:
                segment = (t - 1) // every
                self.each_row(self.whole.copy, self.B, self.trace.memory, 0, self.back.kept, segment * self.B)
            self._step(t)

    def _step(self, t):
        z, w, s, B = self.trace, self.weights, self.s, self.B
        first = t * B

        # ground: grounded = gate * predicted + seen
        self.multiply.by_rows(
            block(z.normalized[s.N], first - B, B), block(w.stacks.ground_gate), block(z.ground_gate, first, B)
        )
        self.each_row(
            self.rows.ground, B, first, B, z.ground_gate, w["ground.gate.bias"], z.state[s.N], z.state[0],
            z.normalized[0], z.inverse[0],
        )  # fmt: skip

        for i in range(s.N):
            # all that looks at this state
            self.multiply.by_rows(
                block(z.normalized[i], first, B), block(w.stacks.looks[i]), block(z.looks[i], first, B)
            )
            if s.H and i == 0:
                self._each_head(
                    self.memory.write_and_read, first, B, z.looks[0], *self._memory_params(0), z.memory, z.recalled[0]
                )
            elif s.H:
                query_bias = w[f"layers.{i}.read.query.bias"]
                self._each_head(self.memory.read, first, z.looks[i], query_bias, z.memory, z.recalled[i])

            # predict: x = gate * x + W_2 hidden + W_o read
            self.each_row(
                self.rows.mix, B, first, z.looks[i], z.recalled[i], self._out_norm(i), z.mixed[i],
                z.inverse_recalled[i],
            )  # fmt: skip
            self.multiply.by_rows(block(z.mixed[i], first, B), block(w.stacks.outs[i]), block(z.state[i + 1], first, B))
            self.each_row(
                self.rows.predict, B, first, z.looks[i], w[f"layers.{i}.gate.bias"], z.state[i], z.state[i + 1],
                z.normalized[i + 1], z.inverse[i + 1],
            )  # fmt: skip

    def _memory_params(self, i):
        w = self.weights
        names = ("write.key.bias", f"layers.{i}.read.query.bias", "write.decay.bias", "write.log_rate")
        return tuple(w[name] for name in names)

    def _out_norm(self, i):
        """Without a memory, any array of that type: the kernel does not look at it."""
        return self.weights[f"layers.{i}.read.out_norm.weight"] if self.s.H else self.weights["decode.norm.weight"]

    # ----------------------------------------------------------------------------------------------- decoder
    def decode(self, first, n):
        """Logits of tokens first to first + n of the window, time first, in the first rows of `logits`."""
        z, w = self.trace, self.weights
        here = block(z.projected, first, n)
        self.multiply.by_rows(block(z.normalized[self.s.N], self.B + first, n), block(w.stacks.decode), here)
        if "decode.bias" in w.flat.shapes:
            self.each_row(self.whole.add_bias, n, z.projected, first, w["decode.bias"])
        self.multiply.by_rows(here, block(w["embedding.weight"]), block(z.logits, 0, n))

    def decoded_parts(self):
        """(first, n) of as many tokens as may have their logits at hand."""
        n = self.T * self.B
        most = rows_at_a_time(self.tuning, self.s, n)
        return [(first, min(most, n - first)) for first in range(0, n, most)]

    def loss_and_back(self, grads, scale):
        """Cross entropy, and its gradient: to all that the decoder has, and to what the states were decoded from."""
        z, d, w, s, B = self.trace, self.back, self.weights, self.s, self.B
        share = self.real(scale / (self.T * B))
        for first, n in self.decoded_parts():
            self.decode(first, n)
            logits, projected = block(z.logits, 0, n), block(d.projected, first, n)
            self.each_row(self.whole.cross_entropy, n, z.logits, d.targets, first, share, d.nll)
            self.multiply.over_rows(logits, block(z.projected, first, n), block(grads["embedding.weight"]))
            self.multiply.by_columns(logits, block(w["embedding.weight"]), projected)
            self.multiply.by_columns(projected, block(w.stacks.decode), block(d.decoded, 0, n))
            states = z.normalized[s.N], z.inverse[s.N], d.state[s.N]
            self.each_row(self.rows.normalize_back, n, B + first, 0, d.decoded, *states)
        self.multiply.over_rows(block(d.projected), block(z.normalized[s.N], B), block(grads.stacks.decode))
        if "decode.bias" in w.flat.shapes:
            self._column_sums(d.projected, 0, self.T * B, 0, s.E, grads["decode.bias"])

    # -------------------------------------------------------------------------------------------------- back
    def clear_back(self):
        """To zero: what the way back adds to."""
        d = self.back
        for array in (*d.state, *d.out_norm, d.log_rate, d.memory):
            self._clear(array)

    def backward(self):
        """All steps, the last first. The gradients of the final state must be there: states' in slot T, memory's."""
        s, B, T, d, z = self.s, self.B, self.T, self.back, self.trace
        every = steps_of_a_segment(T)
        if s.H:  # the last state's key is never used
            key = self.looks[0]["key"]
            self.each_row(self.whole.fill_columns, B, z.looks[0], T * B, key.start, key.size, self.real(0))
        for segment in range((T - 1) // every, -1, -1):
            before = segment * every
            n_steps = min(every, T - before)
            if s.H:
                key_bias, _, decay_bias, log_rate = self._memory_params(0)
                self._each_head(
                    self.memory.replay, (before + 1) * B, n_steps, B, z.looks[0], key_bias, decay_bias, log_rate,
                    d.kept, segment * B, d.states,
                )  # fmt: skip
            for step in range(n_steps - 1, -1, -1):
                self._step_back(before + 1 + step, step)
        if s.H:  # slot 0's key
            key = self.looks[0]["key"]
            self.multiply.by_columns(
                block(z.looks[0], 0, B, key.start, key.size),
                block(self.weights.stacks.looks[0], key.start, key.size),
                block(d.normalized),
            )
            self.each_row(self.rows.normalize_back, B, 0, 0, d.normalized, z.normalized[0], z.inverse[0], d.state[0])

    def _step_back(self, t, step):
        z, d, w, s, B = self.trace, self.back, self.weights, self.s, self.B
        first = t * B
        for i in range(s.N - 1, -1, -1):
            # x = gate * x + W_2 hidden + W_o read
            self.multiply.by_columns(block(d.state[i + 1], first, B), block(w.stacks.outs[i]), block(d.mixed))
            self.each_row(
                self.rows.mix_back, B, first, d.mixed, z.looks[i], w[f"layers.{i}.gate.bias"], z.recalled[i],
                z.inverse_recalled[i], self._out_norm(i), z.state[i], d.state[i + 1], d.state[i], d.out_norm[i],
            )  # fmt: skip
            if s.H:
                self._memory_back(first, step, i)

            # all that looked at this state; the key of this slot was used, and got its gradient, a step later
            self.multiply.by_columns(block(z.looks[i], first, B), block(w.stacks.looks[i]), block(d.normalized))
            if i > 0:
                self.each_row(
                    self.rows.normalize_back, B, first, 0, d.normalized, z.normalized[i], z.inverse[i], d.state[i]
                )

        # grounded = gate * predicted + seen
        self.each_row(
            self.rows.ground_back, B, first, B, d.normalized, z.normalized[0], z.inverse[0], z.ground_gate,
            w["ground.gate.bias"], z.state[s.N], d.state[0], d.state[s.N],
        )  # fmt: skip
        self.multiply.by_columns(block(z.ground_gate, first, B), block(w.stacks.ground_gate), block(d.normalized))
        self.each_row(
            self.rows.normalize_back, B, first - B, 0, d.normalized, z.normalized[s.N], z.inverse[s.N], d.state[s.N]
        )

    def _memory_back(self, first, step, i):
        z, d, B, n_pieces = self.trace, self.back, self.B, self.memory.tile.pieces
        threads, heads = self.tuning.threads, B * self.s.H
        if i > 0:
            query_bias = self.weights[f"layers.{i}.read.query.bias"]
            arrays = z.looks[i], query_bias, d.states, z.recalled[i], d.memory, d.query
            self._each_head(self.memory.read_back, first, step, B, *arrays)
            self.card.launch(
                self.memory.query_back, heads, threads, first, B, n_pieces, z.looks[i], query_bias, d.query
            )
            return
        params, shares = self._memory_params(0), (d.key, d.query, d.beta, d.decay)
        self._each_head(
            self.memory.write_and_read_back, first, step, B, z.looks[0], *params, d.states, z.recalled[0], d.memory,
            *shares,
        )  # fmt: skip
        self.card.launch(
            self.memory.addresses_back, heads, threads, first, B, n_pieces, z.looks[0], *params, *shares, d.log_rate
        )

    # ------------------------------------------------------------------------------- gradients of the parameters
    def weight_grads(self, grads):
        """All that is a sum over the window, added to what is there; grads.unfold() completes it."""
        z, d, s, B, n = self.trace, self.back, self.s, self.B, self.T * self.B
        over_rows = self.multiply.over_rows
        over_rows(block(z.ground_gate, B), block(z.normalized[s.N], 0, n), block(grads.stacks.ground_gate))
        self._column_sums(z.ground_gate, B, n, 0, s.D, grads["ground.gate.bias"])
        for i in range(s.N):
            start = 0 if s.H and i == 0 else B  # slot 0 has a key
            over_rows(block(z.looks[i], start), block(z.normalized[i], start), block(grads.stacks.looks[i]))
            over_rows(
                block(d.state[i + 1], B), block(z.mixed[i], B, n, 0, s.F), block(grads[f"layers.{i}.ffn.out.weight"])
            )
            biases = {f"layers.{i}.gate.bias": "gate"}
            if s.H:
                over_rows(
                    block(d.state[i + 1], B),
                    block(z.mixed[i], B, n, s.F, s.HU),
                    block(grads[f"layers.{i}.read.out.weight"]),
                )
                biases[f"layers.{i}.read.query.bias"] = "query"
                self._column_sums(d.out_norm[i], 0, B, 0, s.HU, grads[f"layers.{i}.read.out_norm.weight"])
            if s.H and i == 0:
                biases |= {"write.key.bias": "key", "write.decay.bias": "decay"}
            for name, what in biases.items():
                part = self.looks[i][what]
                rows = n + B if what == "key" else n
                self._column_sums(
                    z.looks[i], B + n - rows, rows, part.start, part.size, grads[name]
                )  # fmt: skip
        if s.H:
            self._column_sums(d.log_rate, 0, B, 0, s.H, grads["write.log_rate"])

        # seen = W_fuse rms(embedding[token])
        over_rows(block(d.state[0], B), block(z.embedded), block(grads.stacks.ground))
        self.multiply.by_columns(block(d.state[0], B), block(self.weights.stacks.ground), block(d.embedded))
        self.each_row(self.whole.embed_back, n, d.embedded, z.embedded, z.inverse_embedded)
        self.each_row(self.whole.add_embedded, s.V, d.order, d.starts, d.embedded, grads["embedding.weight"])
