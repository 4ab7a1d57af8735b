"""The whole model: one step, the loop over a window, and backpropagation through time.

State goes in and out of everything, and so does its gradient: windows chain exactly when both are passed on, and
truncated backpropagation through time is just not passing the gradient.
"""

from typing import NamedTuple

import numpy as np

from gpn_ref.reference.decode import DecodeCache, decode_backward, decode_forward
from gpn_ref.reference.ground import GroundCache, ground_backward, ground_forward
from gpn_ref.reference.memory import WriteCache, write_backward, write_forward
from gpn_ref.reference.ops import cross_entropy_backward, cross_entropy_forward
from gpn_ref.reference.predict import PredictCache, predict_backward, predict_forward


class State(NamedTuple):
    """All that the model carries from token to token. Its gradient has the same type."""

    predicted: np.ndarray  # (B, D): s^p
    grounded: np.ndarray  # (B, D): s^g
    memory: np.ndarray  # (B, H, K, U): M


def initial_state(config, batch_size, dtype=np.float32):
    """The zero state, in which every text starts."""
    B, D, H, K, U = batch_size, config.d_state, config.n_heads, config.d_key, config.d_value
    return State(np.zeros((B, D), dtype), np.zeros((B, D), dtype), np.zeros((B, H, K, U), dtype))


# ------------------------------------------------------------------------------------------------- one step
class StepCache(NamedTuple):
    ground: GroundCache
    write: WriteCache | None  # None without a memory
    predict: list[PredictCache]  # one a layer


def step_forward(params, config, tokens, state):
    """One token: ground, write, predict.  tokens (B), state s_{t-1} -> state s_t, cache."""
    grounded, ground_cache = ground_forward(params, state.predicted, tokens)  # (B, D)
    memory, write_cache = state.memory, None
    if config.n_heads:
        memory, write_cache = write_forward(params, config, state.grounded, grounded, memory)  # (B, H, K, U)
    predicted, predict_caches = grounded, []
    for i in range(config.n_layers):
        predicted, cache = predict_forward(params, config, i, predicted, memory)  # (B, D)
        predict_caches.append(cache)
    return State(predicted, grounded, memory), StepCache(ground_cache, write_cache, predict_caches)


def step_backward(d_state, cache, config, grads):
    """The gradient of state s_t -> that of state s_{t-1}; adds the gradients of the parameters to `grads`."""
    d_predicted, d_grounded, d_memory = d_state
    for i in reversed(range(config.n_layers)):
        d_predicted, d_read_memory = predict_backward(d_predicted, cache.predict[i], i, grads)
        d_memory = d_memory + d_read_memory
    d_grounded = d_grounded + d_predicted  # the first layer predicts from the grounded state
    d_previous = np.zeros_like(d_grounded)
    if config.n_heads:
        d_previous, d_through_write, d_memory = write_backward(d_memory, cache.write, config, grads)
        d_grounded = d_grounded + d_through_write
    d_predicted = ground_backward(d_grounded, cache.ground, grads)
    return State(d_predicted, d_previous, d_memory)


# ------------------------------------------------------------------------------------------------- a window
class WindowCache(NamedTuple):
    steps: list[StepCache]  # one a token
    decode: DecodeCache


def window_forward(params, config, inputs, state):
    """The loop.  inputs (B, T) -> logits (B, T, V), predicted (B, T, D), the final state, cache."""
    predicted, step_caches = [], []
    for t in range(inputs.shape[1]):
        state, cache = step_forward(params, config, inputs[:, t], state)
        predicted.append(state.predicted)
        step_caches.append(cache)
    predicted = np.stack(predicted, axis=1)  # (B, T, D)
    logits, decode_cache = decode_forward(params, predicted)  # (B, T, V): nothing in it waits for the next step
    return logits, predicted, state, WindowCache(step_caches, decode_cache)


def window_backward(d_logits, d_state, cache, params, config):
    """Backpropagation through time.

    d_logits (B, T, V), d_state of the final state -> grads (name -> array shaped as the parameter), d_state of the
    initial state.
    """
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    d_predicted = decode_backward(d_logits, cache.decode, grads)  # (B, T, D)
    for t in reversed(range(len(cache.steps))):
        d_state = d_state._replace(predicted=d_state.predicted + d_predicted[:, t])
        d_state = step_backward(d_state, cache.steps[t], config, grads)
    return grads, d_state


def loss_and_grads(params, config, inputs, targets, state, d_state, scale=1.0):
    """Gradients of scale · loss + Σ d_state · final state, where loss is the mean of nll over the B·T tokens.

    inputs, targets (B, T) -> nll (B, T) in nats, grads, the final state, d_state of the initial state.
    """
    logits, _, final_state, cache = window_forward(params, config, inputs, state)
    nll, cross_entropy_cache = cross_entropy_forward(logits, targets)  # (B, T)
    d_nll = np.full_like(nll, scale / nll.size)
    d_logits = cross_entropy_backward(d_nll, cross_entropy_cache)
    grads, d_state = window_backward(d_logits, d_state, cache, params, config)
    return nll, grads, final_state, d_state
