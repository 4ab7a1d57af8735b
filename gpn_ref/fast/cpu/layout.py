"""The arrays that the compiled loops work on, by name: the parameters, and all that a window leaves behind."""

from typing import NamedTuple

import numpy as np


def zeros(shape, dtype):
    """Zeros whose first entry begins a cache line: a load across two lines costs two, and NumPy aligns to 16 bytes."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(n_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n_bytes].view(dtype).reshape(shape)


class Weights(NamedTuple):
    """The parameters, or their gradients: the layers' behind each other on a first axis, all else as it is.

    Nothing is folded, transposed or joined: the parameters are views of these arrays, and an optimizer that changes
    them in place has nothing to prepare for the next step.
    """

    embedding: np.ndarray  # (V, E)
    ground_norm: np.ndarray  # (E)
    ground_proj: np.ndarray  # (D, E)
    ground_gate_norm: np.ndarray  # (D)
    ground_gate: np.ndarray  # (D, D)
    ground_gate_bias: np.ndarray  # (D)
    write_norm: np.ndarray  # (D)
    key: np.ndarray  # (H·K, D)
    key_bias: np.ndarray  # (H·K)
    value: np.ndarray  # (H·U, D)
    beta: np.ndarray  # (H, D)
    decay: np.ndarray  # (H, D)
    decay_bias: np.ndarray  # (H)
    log_rate: np.ndarray  # (H)
    norms: np.ndarray  # (N, 3, D): of gate, FFN and read, which all look at the same state
    gate: np.ndarray  # (N, D, D)
    gate_bias: np.ndarray  # (N, D)
    ffn_gate: np.ndarray  # (N, F, D)
    ffn_value: np.ndarray  # (N, F, D)
    ffn_out: np.ndarray  # (N, D, F)
    query: np.ndarray  # (N, H·K, D)
    query_bias: np.ndarray  # (N, H·K)
    read_gate: np.ndarray  # (N, H·U, D)
    out_norm: np.ndarray  # (N, H·U)
    read_out: np.ndarray  # (N, D, H·U)
    decode_norm: np.ndarray  # (D)
    decode_proj: np.ndarray  # (E, D)
    decode_bias: np.ndarray  # (E), or (0) without


GATE, FFN, READ, WRITE = range(4)  # who looks at a state, each through its own norm


def zero_weights(config, dtype):
    V, D, E, F, N = config.vocab_size, config.d_state, config.d_emb, config.d_ffn, config.n_layers
    H, HK, HU = config.n_heads, config.n_heads * config.d_key, config.n_heads * config.d_value
    shapes = Weights(
        embedding=(V, E),
        ground_norm=(E,),
        ground_proj=(D, E),
        ground_gate_norm=(D,),
        ground_gate=(D, D),
        ground_gate_bias=(D,),
        write_norm=(D,),
        key=(HK, D),
        key_bias=(HK,),
        value=(HU, D),
        beta=(H, D),
        decay=(H, D),
        decay_bias=(H,),
        log_rate=(H,),
        norms=(N, 3, D),
        gate=(N, D, D),
        gate_bias=(N, D),
        ffn_gate=(N, F, D),
        ffn_value=(N, F, D),
        ffn_out=(N, D, F),
        query=(N, HK, D),
        query_bias=(N, HK),
        read_gate=(N, HU, D),
        out_norm=(N, HU),
        read_out=(N, D, HU),
        decode_norm=(D,),
        decode_proj=(E, D),
        decode_bias=(E if config.decode_bias else 0,),
    )
    return Weights(*(zeros(shape, dtype) for shape in shapes))


def named(weights, config):
    """The parameters by their names, as views of `weights`."""
    w = weights
    views = {
        "embedding.weight": w.embedding,
        "ground.norm.weight": w.ground_norm,
        "ground.proj.weight": w.ground_proj,
        "ground.gate.norm.weight": w.ground_gate_norm,
        "ground.gate.weight": w.ground_gate,
        "ground.gate.bias": w.ground_gate_bias,
    }
    if config.n_heads:
        views |= {
            "write.norm.weight": w.write_norm,
            "write.key.weight": w.key,
            "write.key.bias": w.key_bias,
            "write.value.weight": w.value,
            "write.beta.weight": w.beta,
            "write.decay.weight": w.decay,
            "write.decay.bias": w.decay_bias,
            "write.log_rate": w.log_rate,
        }
    for i in range(config.n_layers):
        views |= {
            f"layers.{i}.gate.norm.weight": w.norms[i, GATE],
            f"layers.{i}.gate.weight": w.gate[i],
            f"layers.{i}.gate.bias": w.gate_bias[i],
            f"layers.{i}.ffn.norm.weight": w.norms[i, FFN],
            f"layers.{i}.ffn.gate.weight": w.ffn_gate[i],
            f"layers.{i}.ffn.value.weight": w.ffn_value[i],
            f"layers.{i}.ffn.out.weight": w.ffn_out[i],
        }
        if config.n_heads:
            views |= {
                f"layers.{i}.read.norm.weight": w.norms[i, READ],
                f"layers.{i}.read.query.weight": w.query[i],
                f"layers.{i}.read.query.bias": w.query_bias[i],
                f"layers.{i}.read.gate.weight": w.read_gate[i],
                f"layers.{i}.read.out_norm.weight": w.out_norm[i],
                f"layers.{i}.read.out.weight": w.read_out[i],
            }
    views |= {"decode.norm.weight": w.decode_norm, "decode.proj.weight": w.decode_proj}
    if config.decode_bias:
        views["decode.bias"] = w.decode_bias
    return views


class Trace(NamedTuple):
    """What a window leaves behind, time first. Slot 0 is the state carried in, slot t what token t did.

    On the way back most arrays turn into their gradients, slot by slot, and nothing is kept twice.
    """

    state: np.ndarray  # (N + 1, T + 1, B, D): grounded (at first: what is seen), then after each layer
    inverse_rms: np.ndarray  # (N + 1, T + 1, B), of these
    ground_gate: np.ndarray  # (T + 1, B, D)                                    -> gradient before the sigmoid
    gate: np.ndarray  # (N, T + 1, B, D)                                        -> gradient before the sigmoid
    ffn_gate: np.ndarray  # (N, T + 1, B, F)                                    -> its gradient
    ffn_value: np.ndarray  # (N, T + 1, B, F)                                   -> its gradient
    hidden: np.ndarray  # (N, T + 1, B, F): silu(ffn_gate) ⊙ ffn_value
    query: np.ndarray  # (N, T + 1, B, H·K)                                     -> gradient before the relu
    inverse_query: np.ndarray  # (N, T + 1, B, H): 1 / norm
    recalled: np.ndarray  # (N, T + 1, B, H·U): Mᵀ query                        -> its gradient
    inverse_recalled: np.ndarray  # (N, T + 1, B): 1 / rms
    read_gate: np.ndarray  # (N, T + 1, B, H·U)                                 -> its gradient
    read: np.ndarray  # (N, T + 1, B, H·U): silu(read_gate) ⊙ rms(recalled)
    key: np.ndarray  # (T + 1, B, H·K): made at t, used at t + 1                -> gradient before the relu
    inverse_key: np.ndarray  # (T + 1, B, H): 1 / norm
    expected: np.ndarray  # (T + 1, B, H·U): what the memory holds after t under this key
    error: np.ndarray  # (T + 1, B, H·U): value - expected                      -> gradient of the value
    beta: np.ndarray  # (T + 1, B, H)                                           -> gradient before the sigmoid
    decay_pre: np.ndarray  # (T + 1, B, H)                                      -> its gradient
    decay: np.ndarray  # (T + 1, B, H)
    normed: np.ndarray  # (4, B, D): the state, as gate, FFN, read and write look at it, of the last step only


def zero_trace(config, n_slots, batch_size, dtype):
    """A trace before its window: the compiled products add to zeros."""
    D, F, N, B, H = config.d_state, config.d_ffn, config.n_layers, batch_size, config.n_heads
    HK, HU = H * config.d_key, H * config.d_value
    shapes = Trace(
        state=(N + 1, n_slots, B, D),
        inverse_rms=(N + 1, n_slots, B),
        ground_gate=(n_slots, B, D),
        gate=(N, n_slots, B, D),
        ffn_gate=(N, n_slots, B, F),
        ffn_value=(N, n_slots, B, F),
        hidden=(N, n_slots, B, F),
        query=(N, n_slots, B, HK),
        inverse_query=(N, n_slots, B, H),
        recalled=(N, n_slots, B, HU),
        inverse_recalled=(N, n_slots, B),
        read_gate=(N, n_slots, B, HU),
        read=(N, n_slots, B, HU),
        key=(n_slots, B, HK),
        inverse_key=(n_slots, B, H),
        expected=(n_slots, B, HU),
        error=(n_slots, B, HU),
        beta=(n_slots, B, H),
        decay_pre=(n_slots, B, H),
        decay=(n_slots, B, H),
        normed=(4, B, D),
    )
    return Trace(*(zeros(shape, dtype) for shape in shapes))


class Back(NamedTuple):
    """What the way back carries, and what it adds up for each sequence apart, so that no two threads add to one."""

    state: np.ndarray  # (N + 1, T + 1, B, D): gradients of the trace's states
    memory: np.ndarray  # (B, H, K, U)
    norms: np.ndarray  # (B, N, 3, D)
    out_norm: np.ndarray  # (B, N, H·U)
    ground_gate_norm: np.ndarray  # (B, D)
    write_norm: np.ndarray  # (B, D)
    log_rate: np.ndarray  # (B, H)
    # scratch, of one step; a piece is a thread's share, and all pieces add up to the gradient
    hidden: np.ndarray  # (pieces, B, F)
    read: np.ndarray  # (pieces, B, H·U)
    normed: np.ndarray  # (4, pieces, B, D)
    normalized: np.ndarray  # (B, D)
    key: np.ndarray  # (B, H·K)
    query: np.ndarray  # (B, H·K)
    written: np.ndarray  # (B, H·U): of β · error


def zero_back(config, n_slots, batch_size, n_pieces, dtype):
    D, F, N, B, H = config.d_state, config.d_ffn, config.n_layers, batch_size, config.n_heads
    K, U = config.d_key, config.d_value
    shapes = Back(
        state=(N + 1, n_slots, B, D),
        memory=(B, H, K, U),
        norms=(B, N, 3, D),
        out_norm=(B, N, H * U),
        ground_gate_norm=(B, D),
        write_norm=(B, D),
        log_rate=(B, H),
        hidden=(n_pieces, B, F),
        read=(n_pieces, B, H * U),
        normed=(4, n_pieces, B, D),
        normalized=(B, D),
        key=(B, H * K),
        query=(B, H * K),
        written=(B, H * U),
    )
    return Back(*(zeros(shape, dtype) for shape in shapes))
