"""The peer: the same equations as a JAX user would write them down, one jitted scan, differentiated by JAX.

Only `--peer jax` imports this module. What waits for no step stands outside the scan: the embedded tokens' product
before it, the decoder behind it. Names of parameters are ours, so that results can be compared by name.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gpn_ref.parameters import is_decayed


# ------------------------------------------------------------------------------------------------ the equations
def rms(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def l2(x):
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-12)


def gate(params, name, x):
    normed = rms(x, params[f"{name}.norm.weight"])
    return jax.nn.sigmoid(normed @ params[f"{name}.weight"].T + params[f"{name}.bias"])


def address(params, name, normed, n_heads):
    """A key or a query: (B, D) -> (B, H, K)."""
    pre = normed @ params[f"{name}.weight"].T + params[f"{name}.bias"]
    return l2(jax.nn.relu(pre.reshape(len(pre), n_heads, -1)))


def write(params, config, previous, grounded, memory):
    scale, H = params["write.norm.weight"], config.n_heads
    key = address(params, "write.key", rms(previous, scale), H)
    normed = rms(grounded, scale)
    value = (normed @ params["write.value.weight"].T).reshape(len(normed), H, -1)
    beta = jax.nn.sigmoid(normed @ params["write.beta.weight"].T)  # (B, H)
    step_size = jax.nn.softplus(normed @ params["write.decay.weight"].T + params["write.decay.bias"])
    decay = jnp.exp(-jnp.exp(params["write.log_rate"]) * step_size)  # (B, H)
    recalled = jnp.einsum("bhku,bhk->bhu", memory, key)
    error = value - (decay[..., None] * recalled if config.decay_first else recalled)
    return decay[..., None, None] * memory + jnp.einsum("bh,bhk,bhu->bhku", beta, key, error)


def read(params, config, name, x, memory):
    normed = rms(x, params[f"{name}.norm.weight"])
    query = address(params, f"{name}.query", normed, config.n_heads)
    recalled = jnp.einsum("bhku,bhk->bhu", memory, query).reshape(len(x), -1)
    recalled = rms(recalled, params[f"{name}.out_norm.weight"])
    return (jax.nn.silu(normed @ params[f"{name}.gate.weight"].T) * recalled) @ params[f"{name}.out.weight"].T


def predict(params, config, name, x, memory):
    normed = rms(x, params[f"{name}.ffn.norm.weight"])
    hidden = jax.nn.silu(normed @ params[f"{name}.ffn.gate.weight"].T) * (normed @ params[f"{name}.ffn.value.weight"].T)
    out = gate(params, f"{name}.gate", x) * x + hidden @ params[f"{name}.ffn.out.weight"].T
    return out + read(params, config, f"{name}.read", x, memory) if config.n_heads else out


def forward(params, config, inputs):
    """inputs (B, T) -> logits (B, T, V), from the zero state."""
    B, D, H = len(inputs), config.d_state, config.n_heads
    embedded = params["embedding.weight"][inputs.T]  # (T, B, E)
    seen = rms(embedded, params["ground.norm.weight"]) @ params["ground.proj.weight"].T  # (T, B, D)

    def step(state, seen):
        predicted, previous, memory = state
        grounded = gate(params, "ground.gate", predicted) * predicted + seen
        if H:
            memory = write(params, config, previous, grounded, memory)
        predicted = grounded
        for i in range(config.n_layers):
            predicted = predict(params, config, f"layers.{i}", predicted, memory)
        return (predicted, grounded, memory), predicted

    zero = jnp.zeros((B, D)), jnp.zeros((B, D)), jnp.zeros((B, H, config.d_key, config.d_value))
    _, predicted = jax.lax.scan(step, zero, seen)  # (T, B, D)
    projected = rms(predicted, params["decode.norm.weight"]) @ params["decode.proj.weight"].T
    if config.decode_bias:
        projected = projected + params["decode.bias"]
    return (projected @ params["embedding.weight"].T).swapaxes(0, 1)


def loss(params, config, inputs, targets):
    """-> the mean of nll, nll (B, T)."""
    logits = forward(params, config, inputs)
    at_target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = jax.nn.logsumexp(logits, axis=-1) - at_target
    return nll.mean(), nll


# ------------------------------------------------------------------------------------------------ the optimizer
class Moments(NamedTuple):
    first: dict
    second: dict
    updates: Any


def update(params, moments, grads, learning_rate, config):
    """Clipping by the global norm, then AdamW -> params, moments, norm before clipping."""
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(grad)) for grad in grads.values()))
    clip = jnp.minimum(1.0, config.clip_norm / norm)
    updates = moments.updates + 1
    new, first, second = {}, {}, {}
    for name, param in params.items():
        grad = grads[name] * clip
        first[name] = config.beta1 * moments.first[name] + (1 - config.beta1) * grad
        second[name] = config.beta2 * moments.second[name] + (1 - config.beta2) * grad * grad
        unbiased = first[name] / (1 - config.beta1**updates), second[name] / (1 - config.beta2**updates)
        change = unbiased[0] / (jnp.sqrt(unbiased[1]) + config.epsilon)
        if is_decayed(name, param.shape):
            change = change + config.weight_decay * param
        new[name] = param - learning_rate * change
    return new, Moments(first, second, updates), norm


def train_step(params, moments, inputs, targets, learning_rate, config, train_config):
    """-> params, moments, loss, norm."""
    (mean, _), grads = jax.value_and_grad(loss, has_aux=True)(params, config, inputs, targets)
    params, moments, norm = update(params, moments, grads, learning_rate, train_config)
    return params, moments, mean, norm


class Peer:
    """Parameters on JAX's side, and the jitted functions. A method returns when its result is there."""

    def __init__(self, config, train_config, params):
        self.params = {name: jnp.array(value) for name, value in params.items()}  # copies
        zero = {name: jnp.zeros_like(value) for name, value in self.params.items()}
        self._moments = Moments(zero, {name: jnp.zeros_like(value) for name, value in zero.items()}, jnp.float32(0))
        self._forward = jax.jit(partial(forward, config=config))
        self._grads = jax.jit(jax.value_and_grad(partial(loss, config=config), has_aux=True))
        self._update = jax.jit(partial(update, config=train_config), donate_argnums=(0, 1))
        step = partial(train_step, config=config, train_config=train_config)
        self._step = jax.jit(step, donate_argnums=(0, 1))  # new parameters take the place of the old

    def forward(self, inputs):
        """-> logits (B, T, V)."""
        return jax.block_until_ready(self._forward(self.params, inputs=inputs))

    def loss_and_grads(self, inputs, targets):
        """-> nll (B, T), grads."""
        (_, nll), grads = jax.block_until_ready(self._grads(self.params, inputs=inputs, targets=targets))
        return nll, grads

    def update(self, grads, learning_rate):
        """An optimizer step with these gradients -> their norm."""
        self.params, self._moments, norm = self._update(self.params, self._moments, grads, learning_rate)
        return float(norm)

    def step(self, inputs, targets, learning_rate):
        """A whole training step -> loss, norm of the gradient before clipping."""
        self.params, self._moments, *told = self._step(self.params, self._moments, inputs, targets, learning_rate)
        jax.block_until_ready(self.params)
        return tuple(map(float, told))
