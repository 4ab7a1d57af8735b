"""Our answers to the exercises of lesson 09."""

import math

import numpy as np

BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8


def adamw_step(params, grads, first, second, step, rate, decay):
    first = {name: m + (1 - BETA1) * (grads[name] - m) for name, m in first.items()}
    second = {name: v + (1 - BETA2) * (grads[name] ** 2 - v) for name, v in second.items()}
    moved = {}
    for name, p in params.items():
        m_hat = first[name] / (1 - BETA1**step)
        v_hat = second[name] / (1 - BETA2**step)
        shrink = decay * p if p.ndim == 2 else 0.0
        moved[name] = p - rate * (m_hat / (np.sqrt(v_hat) + EPSILON) + shrink)
    return moved, first, second


def clip(grads, most):
    norm = math.sqrt(sum(np.sum(g * g) for g in grads.values()))
    factor = min(1.0, most / norm) if norm > 0 else 1.0
    return {name: factor * g for name, g in grads.items()}, norm


def learning_rate_at(step, peak, warmup, steps, final):
    if step < warmup:
        return peak * (step + 1) / warmup
    x = min(1.0, (step - warmup) / (steps - warmup))
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * x)) / 2)
