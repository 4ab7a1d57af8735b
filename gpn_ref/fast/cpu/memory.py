"""The matrix memory of one head of one sequence: write and read in one pass, and back.

Everything here is per (sequence, head), so that the pairs can be shared out among the threads: M (K, U), key and
query (K), error, recalled and expected (U).
"""

import math

import numpy as np

from gpn_ref.fast.cpu.compiled import compiled, sigmoid, softplus, summing
from gpn_ref.reference.ops import L2_EPSILON


@summing
def address(pre, bias):
    """`pre` becomes l2(relu(pre + bias)), a key or query.  Returns 1 / norm."""
    zero = pre.dtype.type(0)
    total = zero
    for j in range(len(pre)):
        x = pre[j] + bias[j]
        pre[j] = zero if x <= zero else x  # so written, NaN stays NaN
        total += pre[j] * pre[j]
    inverse_norm = pre.dtype.type(1 / np.sqrt(total + L2_EPSILON))
    for j in range(len(pre)):
        pre[j] *= inverse_norm
    return inverse_norm


@summing
def address_back(d_address, address, inverse_norm):
    """`address` becomes d_pre. Where relu gave 0, so did l2: no mask need be kept."""
    zero = address.dtype.type(0)
    along = zero
    for j in range(len(address)):
        along += d_address[j] * address[j]
    for j in range(len(address)):
        inside = inverse_norm * (d_address[j] - address[j] * along)
        address[j] = inside if address[j] > zero else zero


@compiled
def decay_of(pre, log_rate):
    """Eq. 9: exp(-exp(log_rate) · softplus(pre)); one a head, so in float64."""
    return math.exp(-np.exp(log_rate) * softplus(pre))


@compiled
def decay_back(d_decay, pre, log_rate):
    """d_decay -> d_pre, d_log_rate."""
    rate = np.exp(log_rate)
    d_log_decay = d_decay * math.exp(-rate * softplus(pre))
    return -d_log_decay * rate * sigmoid(pre), -d_log_decay * rate * softplus(pre)


@compiled
def error_of(value, expected, decay, decay_first):
    """`value` becomes value - expected: the error against the memory before its decay, or after it with decay_first."""
    remains = decay if decay_first else value.dtype.type(1)
    for u in range(len(value)):
        value[u] -= remains * expected[u]


@compiled
def write_and_read(M, key, error, beta, decay, query, recalled, next_key, expected):
    """Eq. 10 and 11 in one pass: M ← decay · M + β · key ⊗ error, recalled = Mᵀ query, expected = Mᵀ next_key.

    The next key is the state's too (only the value waits for the next token), so what the memory expects under it is
    had while each row of M is at hand.
    """
    zero = M.dtype.type(0)
    K, U = M.shape
    for u in range(U):
        recalled[u] = expected[u] = zero
    for j in range(K):
        row, k, q, n = M[j], beta * key[j], query[j], next_key[j]
        for u in range(U):
            m = decay * row[u] + k * error[u]
            row[u] = m
            recalled[u] += q * m
            expected[u] += n * m


@compiled
def write(M, key, error, beta, decay, out):
    """out = decay · M + β · key ⊗ error: the memory once more, on the way back."""
    K, U = M.shape
    for j in range(K):
        row, new, k = M[j], out[j], beta * key[j]
        for u in range(U):
            new[u] = decay * row[u] + k * error[u]


@compiled
def read(M, query, recalled):
    """recalled = Mᵀ query."""
    zero = M.dtype.type(0)
    K, U = M.shape
    for u in range(U):
        recalled[u] = zero
    for j in range(K):
        row, q = M[j], query[j]
        for u in range(U):
            recalled[u] += q * row[u]


@summing
def read_back(M, query, d_recalled, d_query, d_M):
    """d_query = M d_recalled;  d_M += query ⊗ d_recalled."""
    zero = M.dtype.type(0)
    K, U = M.shape
    for j in range(K):
        row, d_row, q, d_q = M[j], d_M[j], query[j], zero
        for u in range(U):
            d_q += row[u] * d_recalled[u]
            d_row[u] += q * d_recalled[u]
        d_query[j] = d_q


@summing
def write_and_read_back(
    M, key, error, beta, decay, query, expected, d_recalled, decay_first, d_M, d_key, d_query, d_written
):  # fmt: skip
    """What undoes `write_and_read`, for M before the write; d_M comes as the gradient of M_t and leaves as that of M.

    d_query is M_t d_recalled; instead of M_t there is M, and M_t d = decay · M d + β · key (error · d).
    d_error takes the place of `error`; -d_recalled's of `expected`. Returns d_beta, d_decay.
    """
    zero = M.dtype.type(0)
    K, U = M.shape
    along_error, d_beta, d_decay = zero, zero, zero
    for u in range(U):
        along_error += error[u] * d_recalled[u]
    for u in range(U):
        d_written[u] = zero  # the gradient of β · error
    # M_t = decay * M + beta * key ⊗ error, recalled = M_tᵀ query
    for j in range(K):
        row, d_row, k, q, d_k, d_q = M[j], d_M[j], key[j], query[j], zero, zero
        for u in range(U):
            d = d_row[u] + q * d_recalled[u]
            d_row[u] = d
            d_written[u] += k * d
            d_decay += d * row[u]
            d_k += d * error[u]
            d_q += row[u] * d_recalled[u]
        d_key[j] = beta * d_k
        d_query[j] = decay * d_q + beta * k * along_error
    # error = value - expected, or value - decay * expected
    share = decay if decay_first else M.dtype.type(1)
    for u in range(U):
        d_beta += d_written[u] * error[u]
        error[u] = beta * d_written[u]
        if decay_first:
            d_decay -= error[u] * expected[u]
        expected[u] = -share * error[u]
    # expected = Mᵀ key
    d_expected = expected
    for j in range(K):
        row, d_row, k, d_k = M[j], d_M[j], key[j], zero
        for u in range(U):
            d_k += row[u] * d_expected[u]
            d_row[u] = decay * d_row[u] + k * d_expected[u]
        d_key[j] += d_k
    return d_beta, d_decay
