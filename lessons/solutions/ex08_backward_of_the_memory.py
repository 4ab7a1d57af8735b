"""Our answers to the exercises of lesson 08."""

import numpy as np


def write_backward(d_written, memory, key, value, beta, decay):
    faded = decay[..., None, None] * memory
    error = value - np.einsum("bhku,bhk->bhu", faded, key)
    # written = faded + beta * key ⊗ error
    d_beta_error = np.einsum("bhku,bhk->bhu", d_written, key)
    d_beta = np.sum(d_beta_error * error, axis=-1)
    d_value = d_error = beta[..., None] * d_beta_error
    # error = value - fadedᵀ key
    d_faded = d_written - np.einsum("bhk,bhu->bhku", key, d_error)
    d_key = np.einsum("bh,bhku,bhu->bhk", beta, d_written, error) - np.einsum("bhku,bhu->bhk", faded, d_error)
    # faded = decay * memory
    return decay[..., None, None] * d_faded, d_key, d_value, d_beta, np.sum(d_faded * memory, axis=(-1, -2))


def decay_backward(d_decay, pre, log_rate):
    rate = np.exp(log_rate)
    log_decay = -rate * np.logaddexp(0, pre)
    d_log_decay = d_decay * np.exp(log_decay)
    d_pre = -d_log_decay * rate * 0.5 * (1 + np.tanh(0.5 * pre))  # softplus' = sigmoid
    return d_pre, np.sum(d_log_decay * log_decay, axis=0)


def first_memory_backward(d_memory, d_recalled, keys, queries, beta, decay):
    for t in reversed(range(keys.shape[1])):
        d_memory = d_memory + np.einsum("bhk,bhu->bhku", queries[:, t], d_recalled[:, t])
        d_error = beta[:, t, :, None] * np.einsum("bhku,bhk->bhu", d_memory, keys[:, t])
        d_memory = decay[:, t, :, None, None] * d_memory - np.einsum("bhk,bhu->bhku", keys[:, t], d_error)
    return d_memory
