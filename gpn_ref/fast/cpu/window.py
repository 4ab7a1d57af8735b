"""The recurrence: the steps of a window, and the way back, compiled as a whole.

The plan. A step is two or three products, W x for all sequences of the batch, and little else; a large W comes from
memory once a step, and that, not arithmetic, is what time goes into. So:

1. Whatever does not wait for the step before is done for the whole window at once, outside, by BLAS: W_fuse
   rms(embedding) before the loop, the decoder and its loss after it, and every gradient of a matrix (engine.py).
   The way back only keeps each product's input and the gradient of its output.
2. All that looks at one state does so in one pass: gate, FFN, query, read gate, value, β, decay, and the NEXT step's
   key. They share one normalized state, each with its own norm's weight. Between two passes lies a barrier, at
   which the threads wait for each other.
3. Threads take rows of the matrices, or sequences, or heads: never two the same number, so the sums come out the same
   in every run. On the way back each has a d_x of its own, and these are added up in a fixed order.
4. The memory is passed over once a step (memory.py). Its states are kept only every so many steps, and made once more
   from there on the way back.

Names are the reference's. `t` is a slot of the trace: 0 is the state carried in, and token t leads from t - 1 to t.
"""

from gpn_ref.fast.cpu.compiled import compiled, sigmoid, sigmoid_back
from gpn_ref.fast.cpu.layout import FFN, GATE, READ, WRITE
from gpn_ref.fast.cpu.memory import (
    address,
    address_back,
    decay_back,
    decay_of,
    error_of,
    read,
    read_back,
    write,
    write_and_read,
    write_and_read_back,
)
from gpn_ref.fast.cpu.products import add_rows, rows, rows_back
from gpn_ref.fast.cpu.sequence import (
    add_up,
    gated,
    gated_back,
    inverse_rms,
    norm_back,
    read_gated,
    read_gated_back,
    scale,
    scale_back,
    swiglu,
    swiglu_back,
)
from gpn_ref.fast.cpu.threads import wait


# --------------------------------------------------------------------------------------------------- forward
@compiled
def forward_steps(piece, n_pieces, barrier, far, w, z, memory, first, last, decay_first):
    """Steps first to last of a window: fills their slots of the trace z, and moves `memory` (B, H, K, U) on in place.

    Slot first - 1 holds the states before, z.state[0] what was seen. With H heads, K, U their widths.
    """
    N, _, B, _ = z.gate.shape
    _, H, K, U = memory.shape
    sequences, heads = share(piece, n_pieces, B), share(piece, n_pieces, B * H)

    if first == 1:  # complete slot 0: the first step's key, and what the memory holds under it
        for b in sequences:
            z.inverse_rms[0, 0, b] = inverse_rms(z.state[0, 0, b])
            scale(z.state[0, 0, b], z.inverse_rms[0, 0, b], w.write_norm, z.normed[WRITE, b])
        wait(barrier, n_pieces)
        rows(piece, n_pieces, far, w.key, z.normed[WRITE], z.key[0])
        wait(barrier, n_pieces)
        for b_h in heads:
            b, h = b_h // H, b_h % H
            k, u = slice(h * K, h * K + K), slice(h * U, h * U + U)
            z.inverse_key[0, b, h] = address(z.key[0, b, k], w.key_bias[k])
            read(memory[b, h], z.key[0, b, k], z.expected[0, b, u])

    for t in range(first, last + 1):
        # ground: grounded = gate * predicted + seen
        for b in sequences:
            z.inverse_rms[N, t - 1, b] = inverse_rms(z.state[N, t - 1, b])
            scale(z.state[N, t - 1, b], z.inverse_rms[N, t - 1, b], w.ground_gate_norm, z.normed[GATE, b])
        wait(barrier, n_pieces)
        rows(piece, n_pieces, far, w.ground_gate, z.normed[GATE], z.ground_gate[t])
        wait(barrier, n_pieces)
        for b in sequences:
            gated(z.ground_gate[t, b], w.ground_gate_bias, z.state[N, t - 1, b], z.state[0, t, b])

        for i in range(N):
            # all that looks at this state; with the first layer, what the memory needs, too
            for b in sequences:
                x, inverse = z.state[i, t, b], inverse_rms(z.state[i, t, b])
                z.inverse_rms[i, t, b] = inverse
                for who in range(READ + 1 if H else READ):
                    scale(x, inverse, w.norms[i, who], z.normed[who, b])
                if H and i == 0:
                    scale(x, inverse, w.write_norm, z.normed[WRITE, b])
            wait(barrier, n_pieces)
            rows(piece, n_pieces, far, w.gate[i], z.normed[GATE], z.gate[i, t])
            rows(piece, n_pieces, far, w.ffn_gate[i], z.normed[FFN], z.ffn_gate[i, t])
            rows(piece, n_pieces, far, w.ffn_value[i], z.normed[FFN], z.ffn_value[i, t])
            if H:
                rows(piece, n_pieces, far, w.query[i], z.normed[READ], z.query[i, t])
                rows(piece, n_pieces, far, w.read_gate[i], z.normed[READ], z.read_gate[i, t])
            if H and i == 0:
                rows(piece, n_pieces, far, w.value, z.normed[WRITE], z.error[t])
                rows(piece, n_pieces, far, w.beta, z.normed[WRITE], z.beta[t])
                rows(piece, n_pieces, far, w.decay, z.normed[WRITE], z.decay_pre[t])
                rows(piece, n_pieces, far, w.key, z.normed[WRITE], z.key[t])
            wait(barrier, n_pieces)

            # write and read, head by head
            for b_h in heads:
                b, h = b_h // H, b_h % H
                k, u = slice(h * K, h * K + K), slice(h * U, h * U + U)
                z.inverse_query[i, t, b, h] = address(z.query[i, t, b, k], w.query_bias[i, k])
                if i > 0:
                    read(memory[b, h], z.query[i, t, b, k], z.recalled[i, t, b, u])
                    continue
                z.inverse_key[t, b, h] = address(z.key[t, b, k], w.key_bias[k])
                z.beta[t, b, h] = sigmoid(z.beta[t, b, h])
                z.decay_pre[t, b, h] += w.decay_bias[h]
                z.decay[t, b, h] = decay_of(z.decay_pre[t, b, h], w.log_rate[h])
                error_of(z.error[t, b, u], z.expected[t - 1, b, u], z.decay[t, b, h], decay_first)
                write_and_read(
                    memory[b, h], z.key[t - 1, b, k], z.error[t, b, u], z.beta[t, b, h], z.decay[t, b, h],
                    z.query[i, t, b, k], z.recalled[i, t, b, u], z.key[t, b, k], z.expected[t, b, u],
                )  # fmt: skip
            if H:
                wait(barrier, n_pieces)

            # predict: x = gate * x + W_2 hidden + W_o read
            for b in sequences:
                z.state[i + 1, t, b] = 0
                gated(z.gate[i, t, b], w.gate_bias[i], z.state[i, t, b], z.state[i + 1, t, b])
                swiglu(z.ffn_gate[i, t, b], z.ffn_value[i, t, b], z.hidden[i, t, b])
                if H:
                    recalled, gate = z.recalled[i, t, b], z.read_gate[i, t, b]
                    z.inverse_recalled[i, t, b] = read_gated(gate, recalled, w.out_norm[i], z.read[i, t, b])
            wait(barrier, n_pieces)
            add_rows(piece, n_pieces, far, w.ffn_out[i], z.hidden[i, t], z.state[i + 1, t])
            if H:
                add_rows(piece, n_pieces, far, w.read_out[i], z.read[i, t], z.state[i + 1, t])
            wait(barrier, n_pieces)


@compiled
def share(piece, n_pieces, n):
    """A thread's share of n sequences or heads."""
    return range(n * piece // n_pieces, n * (piece + 1) // n_pieces)


# -------------------------------------------------------------------------------------------------- backward
@compiled
def backward_steps(piece, n_pieces, barrier, far, w, z, d, states, first, last, decay_first):
    """The way back, from step last to step first.

    states (steps + 1, B, H, K, U): states[0] is the memory before them, the others are filled.
    d.state[N, last] and d.memory must hold what comes from behind, d.state[N] before that what comes from the decoder.
    """
    N, _, B, _ = z.gate.shape
    _, _, H, K, U = states.shape
    sequences, heads = share(piece, n_pieces, B), share(piece, n_pieces, B * H)

    for b_h in heads:  # the memory after each step, once more
        b, h = b_h // H, b_h % H
        k, u = slice(h * K, h * K + K), slice(h * U, h * U + U)
        for t in range(first, last + 1):
            memory, written = states[t - first, b, h], states[t - first + 1, b, h]
            write(memory, z.key[t - 1, b, k], z.error[t, b, u], z.beta[t, b, h], z.decay[t, b, h], written)

    for t in range(last, first - 1, -1):
        for i in range(N - 1, -1, -1):
            # x = gate * x + W_2 hidden + W_o read
            d.hidden[piece] = 0
            rows_back(piece, n_pieces, far, w.ffn_out[i], d.state[i + 1, t], d.hidden[piece])
            if H:
                d.read[piece] = 0
                rows_back(piece, n_pieces, far, w.read_out[i], d.state[i + 1, t], d.read[piece])
            wait(barrier, n_pieces)
            for b in sequences:
                gated_back(d.state[i + 1, t, b], z.gate[i, t, b], z.state[i, t, b], d.state[i, t, b])
                add_up(d.hidden, b)
                swiglu_back(d.hidden[0, b], z.ffn_gate[i, t, b], z.ffn_value[i, t, b])
                if H:
                    gate, recalled, inverse = z.read_gate[i, t, b], z.recalled[i, t, b], z.inverse_recalled[i, t, b]
                    add_up(d.read, b)
                    read_gated_back(d.read[0, b], gate, recalled, inverse, w.out_norm[i], d.out_norm[b, i])
            wait(barrier, n_pieces)

            # read and write, head by head
            for b_h in heads:
                b, h = b_h // H, b_h % H
                k, u = slice(h * K, h * K + K), slice(h * U, h * U + U)
                query, d_query, d_recalled = z.query[i, t, b, k], d.query[b, k], z.recalled[i, t, b, u]
                if i > 0:
                    read_back(states[t - first + 1, b, h], query, d_recalled, d_query, d.memory[b, h])
                    address_back(d_query, query, z.inverse_query[i, t, b, h])
                    continue
                key, d_key = z.key[t - 1, b, k], d.key[b, k]
                d_beta, d_decay = write_and_read_back(
                    states[t - first, b, h], key, z.error[t, b, u], z.beta[t, b, h], z.decay[t, b, h], query,
                    z.expected[t - 1, b, u], d_recalled, decay_first, d.memory[b, h], d_key, d_query, d.written[b, u],
                )  # fmt: skip
                address_back(d_query, query, z.inverse_query[i, t, b, h])
                address_back(d_key, key, z.inverse_key[t - 1, b, h])
                z.beta[t, b, h] = sigmoid_back(d_beta, z.beta[t, b, h])
                d_pre, d_log_rate = decay_back(d_decay, z.decay_pre[t, b, h], w.log_rate[h])
                z.decay_pre[t, b, h] = d_pre
                d.log_rate[b, h] += d_log_rate
            if H:
                wait(barrier, n_pieces)

            # all that looked at this state; the key of this slot was used, and got its gradient, a step later
            d.normed[:, piece] = 0
            rows_back(piece, n_pieces, far, w.gate[i], z.gate[i, t], d.normed[GATE, piece])
            rows_back(piece, n_pieces, far, w.ffn_gate[i], z.ffn_gate[i, t], d.normed[FFN, piece])
            rows_back(piece, n_pieces, far, w.ffn_value[i], z.ffn_value[i, t], d.normed[FFN, piece])
            if H:
                rows_back(piece, n_pieces, far, w.query[i], z.query[i, t], d.normed[READ, piece])
                rows_back(piece, n_pieces, far, w.read_gate[i], z.read_gate[i, t], d.normed[READ, piece])
            if H and i == 0:
                rows_back(piece, n_pieces, far, w.value, z.error[t], d.normed[WRITE, piece])
                rows_back(piece, n_pieces, far, w.beta, z.beta[t], d.normed[WRITE, piece])
                rows_back(piece, n_pieces, far, w.decay, z.decay_pre[t], d.normed[WRITE, piece])
                rows_back(piece, n_pieces, far, w.key, z.key[t], d.normed[WRITE, piece])
            wait(barrier, n_pieces)
            for b in sequences:
                x, inverse, d_normalized = z.state[i, t, b], z.inverse_rms[i, t, b], d.normalized[b]
                d_normalized[:] = 0
                for who in range(READ + 1 if H else READ):
                    add_up(d.normed[who], b)
                    scale_back(d.normed[who, 0, b], x, inverse, w.norms[i, who], d.norms[b, i, who], d_normalized)
                if H and i == 0:
                    add_up(d.normed[WRITE], b)
                    scale_back(d.normed[WRITE, 0, b], x, inverse, w.write_norm, d.write_norm[b], d_normalized)
                norm_back(d_normalized, x, inverse, d.state[i, t, b])
            if i > 0:
                wait(barrier, n_pieces)

        # grounded = gate * predicted + seen
        for b in sequences:
            gated_back(d.state[0, t, b], z.ground_gate[t, b], z.state[N, t - 1, b], d.state[N, t - 1, b])
        wait(barrier, n_pieces)
        d.normed[GATE, piece] = 0
        rows_back(piece, n_pieces, far, w.ground_gate, z.ground_gate[t], d.normed[GATE, piece])
        wait(barrier, n_pieces)
        for b in sequences:
            x, inverse, d_normalized = z.state[N, t - 1, b], z.inverse_rms[N, t - 1, b], d.normalized[b]
            d_normalized[:] = 0
            add_up(d.normed[GATE], b)
            scale_back(d.normed[GATE, 0, b], x, inverse, w.ground_gate_norm, d.ground_gate_norm[b], d_normalized)
            norm_back(d_normalized, x, inverse, d.state[N, t - 1, b])
        wait(barrier, n_pieces)

    if first == 1:  # slot 0's key
        d.normed[WRITE, piece] = 0
        rows_back(piece, n_pieces, far, w.key, z.key[0], d.normed[WRITE, piece])
        wait(barrier, n_pieces)
        for b in sequences:
            x, inverse, d_normalized = z.state[0, 0, b], z.inverse_rms[0, 0, b], d.normalized[b]
            d_normalized[:] = 0
            add_up(d.normed[WRITE], b)
            scale_back(d.normed[WRITE, 0, b], x, inverse, w.write_norm, d.write_norm[b], d_normalized)
            norm_back(d_normalized, x, inverse, d.state[0, 0, b])
