"""The gated delta rule over a whole window, for a memory whose keys, values and queries are all known beforehand.

That is Gated DeltaNet's: each (sequence, head) goes through all its tokens alone, its memory in the cache throughout.
The kernels are those of the GPN's memory, with the decay first. A call is the work of one thread.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from gpn_ref.fast.cpu.compiled import compiled
from gpn_ref.fast.cpu.memory import error_of, read, write, write_and_read, write_and_read_back

APART = 128  # numbers: where two arrays all but touch, compiled loops take another path, and add up in another order


class Cache(NamedTuple):
    kept: np.ndarray  # (segments, B, H, K, U): the memory every so many tokens; between them it is made again
    query: np.ndarray  # (B, T, H, K)
    key: np.ndarray  # (B, T, H, K)
    error: np.ndarray  # (B, T, H, U)
    expected: np.ndarray  # (B, T, H, U): Mᵀ key, before the write and its decay
    beta: np.ndarray  # (B, T, H)
    decay: np.ndarray  # (B, T, H)


def memory_forward(memory, query, key, value, beta, decay):
    """memory (B, H, K, U); query and key (B, T, H, K), value (B, T, H, U), beta and decay (B, T, H)
    -> out (B, T, H, U), the final memory, a Cache."""
    (B, T, H, K), U = key.shape, value.shape[-1]
    every = isqrt(T - 1) + 1  # the fewest memory states at hand: √T kept, and √T made again
    kept = np.empty((-(-T // every), B, H, K, U), value.dtype)
    memory, error = memory.copy(), value.copy()
    expected, out = np.empty_like(error), np.empty_like(error)
    query, key, beta, decay = map(np.ascontiguousarray, (query, key, beta, decay))
    last_key, unused = np.zeros(K, value.dtype), np.zeros((B, H, U), value.dtype)
    forward_tokens(memory, kept, query, key, error, beta, decay, expected, out, last_key, unused, every)
    return out, memory, Cache(kept, query, key, error, expected, beta, decay)


def memory_backward(d_out, d_memory, cache):
    """d_out (B, T, H, U), the final d_memory -> the first d_memory, d_query, d_key, d_value, d_beta, d_decay."""
    kept, query, key, error, expected, beta, decay = cache
    K, U, every = key.shape[-1], error.shape[-1], isqrt(key.shape[1] - 1) + 1
    d_memory, d_value, expected = d_memory.copy(), error.copy(), expected.copy()  # error and expected are used up
    d_query, d_key, d_beta, d_decay = map(np.empty_like, (query, key, beta, decay))
    states = np.empty((every, K, U), error.dtype)
    d_written = np.empty(U + 2 * APART, error.dtype)[APART:-APART]
    arrays = (query, key, d_value, expected, beta, decay, np.ascontiguousarray(d_out))
    backward_tokens(kept, states, *arrays, d_memory, d_query, d_key, d_beta, d_decay, d_written, every)
    return d_memory, d_query, d_key, d_value, d_beta, d_decay


@compiled
def copy(M, out):
    """out = M."""
    for j in range(len(M)):
        row, new = M[j], out[j]
        for u in range(len(row)):
            new[u] = row[u]


@compiled
def forward_tokens(memory, kept, query, key, error, beta, decay, expected, out, last_key, unused, every):
    """`error` comes as the value."""
    B, T, H, _ = key.shape
    for b_h in range(B * H):
        b, h = b_h // H, b_h % H
        M = memory[b, h]
        read(M, key[b, 0, h], expected[b, 0, h])
        for t in range(T):
            if t % every == 0:
                copy(M, kept[t // every, b, h])
            error_of(error[b, t, h], expected[b, t, h], decay[b, t, h], True)
            next_key = key[b, t + 1, h] if t + 1 < T else last_key
            next_expected = expected[b, t + 1, h] if t + 1 < T else unused[b, h]
            write_and_read(
                M, key[b, t, h], error[b, t, h], beta[b, t, h], decay[b, t, h], query[b, t, h], out[b, t, h],
                next_key, next_expected,
            )  # fmt: skip


@compiled
def backward_tokens(
    kept, states, query, key, error, expected, beta, decay, d_out, d_memory, d_query, d_key, d_beta, d_decay,
    d_written, every
):  # fmt: skip
    """`error` becomes the gradient of the value."""
    B, T, H, _ = key.shape
    for b_h in range(B * H):
        b, h = b_h // H, b_h % H
        for segment in range(len(kept) - 1, -1, -1):
            first, stop = segment * every, min(segment * every + every, T)
            copy(kept[segment, b, h], states[0])
            for t in range(first, stop - 1):
                here, after = states[t - first], states[t - first + 1]
                write(here, key[b, t, h], error[b, t, h], beta[b, t, h], decay[b, t, h], after)
            for t in range(stop - 1, first - 1, -1):
                d_beta[b, t, h], d_decay[b, t, h] = write_and_read_back(
                    states[t - first], key[b, t, h], error[b, t, h], beta[b, t, h], decay[b, t, h],
                    query[b, t, h], expected[b, t, h], d_out[b, t, h], True, d_memory[b, h], d_key[b, t, h],
                    d_query[b, t, h], d_written,
                )  # fmt: skip
