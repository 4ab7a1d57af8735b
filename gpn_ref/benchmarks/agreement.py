"""Whether what is to be timed computes the same function: against the reference in float64, tensor by tensor.

The point is a short window with parameters jittered away from their initial values, where the gates' matrices are zero
and many gradients with them.
"""

from typing import NamedTuple

import numpy as np

from gpn_ref.config import TrainConfig
from gpn_ref.model import load_model
from gpn_ref.parameters import init_params
from gpn_ref.random_state import generator
from gpn_ref.training.optimizer import global_norm

TOLERANCE = 2e-4  # of a tensor's largest entry; of a thousandth of the largest gradient of all, if that is more
BATCH_SIZE, WINDOW = 2, 4
LEARNING_RATE = 0.1  # large, so that a wrong step shows


class Worst(NamedTuple):
    tensor: str
    error: float  # relative; within TOLERANCE is equal


def agreement(config, backends, peer):
    """{name: Worst} of each backend, and of the peer (a Peer class, or None)."""
    params = jittered(config)
    inputs, targets = generator(0, "agreement").integers(0, config.vocab_size, (2, BATCH_SIZE, WINDOW))
    exact = {name: value.astype(np.float64) for name, value in params.items()}
    bound = load_model(config, "numpy").bind(exact)
    grads = bound.loss_and_grads(inputs, targets).grads
    train_config = TrainConfig(clip_norm=global_norm(grads) / 2)
    reference = model_tensors(bound, inputs, targets, grads, train_config)
    found = {}
    for backend in backends:
        tensors = model_tensors(load_model(config, backend).bind(params), inputs, targets, grads, train_config)
        found[backend] = worst(reference, tensors)
    if peer:
        found["jax"] = worst(reference, peer_tensors(peer(config, train_config, params), inputs, targets, grads))
    return found


def jittered(config):
    """Parameters (float32), matrices moved by less the wider they are: the loop must not become chaotic."""
    rng, params = generator(0, "agreement jitter"), init_params(config)
    for value in params.values():
        sd = 0.3 if value.ndim == 1 else value.shape[1] ** -0.5
        value += np.float32(sd) * rng.standard_normal(value.shape, np.float32)
    return params


def model_tensors(bound, inputs, targets, grads, train_config):
    """Name -> array of all that a backend computes. `grads` are what its optimizer is given."""
    logits, _, state = bound.forward(inputs)
    tokens_logits, _ = bound.step(inputs[:, 0])
    out = bound.loss_and_grads(inputs, targets)
    training = bound.in_training(train_config)  # from here on the parameters change
    params, optimizer = training.arrays, training.optimizer
    norms, params = take_steps(lambda grads: optimizer.update(params, grads, LEARNING_RATE), lambda: params, grads)
    tensors = named(logits, out.nll, out.grads, norms, params) | {"logits of one token": tokens_logits}
    tensors |= {f"{name} state": value for name, value in state._asdict().items()}
    return tensors | {f"gradient of the {name} state": value for name, value in out.d_state._asdict().items()}


def peer_tensors(peer, inputs, targets, grads):
    """The same for the peer, which begins at the zero state and gives no gradient of it."""
    logits = peer.forward(inputs)
    nll, own_grads = peer.loss_and_grads(inputs, targets)
    norms, params = take_steps(lambda grads: peer.update(grads, LEARNING_RATE), lambda: peer.params, grads)
    return named(logits, nll, own_grads, norms, params)


def take_steps(update, params, grads):
    """Two optimizer steps, one that clips and one that doesn't: AdamW alone can't tell gradients from twice as large.

    All get the same gradients, since a step follows the sign of an entry, which rounding may turn -> norms, parameters.
    """
    dtype = next(iter(params().values())).dtype
    norms = [update({name: (share * grad).astype(dtype) for name, grad in grads.items()}) for share in (1.0, 0.1)]
    return np.array(norms), params()


def named(logits, nll, grads, norms, params):
    tensors = {"logits": logits, "nll": nll, "gradient norm": norms}
    tensors |= {f"gradient of {name}": grad for name, grad in grads.items()}
    return tensors | {f"{name} after two steps": np.asarray(value) for name, value in params.items()}


def worst(reference, tensors):
    """The tensor that differs most from the reference's of that name, relative to its largest entry."""
    gradients = [value for name, value in reference.items() if is_gradient(name)]
    largest = max((float(np.abs(value).max(initial=0)) for value in gradients), default=0.0)
    found = Worst("none", 0.0)
    for name, value in tensors.items():
        wanted, value = reference[name], np.asarray(value)
        if value.shape != wanted.shape:
            return Worst(f"the shape of {name}", float("inf"))
        if not value.size:
            continue
        scale = max(float(np.abs(wanted).max()), largest / 1000 if is_gradient(name) else 0.0)
        difference = float(np.abs(value - wanted).max())
        error = difference / scale if scale > 0 else float(difference > 0)
        if not error <= found.error:  # NaN is worst
            found = Worst(name, error if np.isfinite(error) else float("inf"))
    return found


def is_gradient(name):
    return name.startswith("gradient of ")
