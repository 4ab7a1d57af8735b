"""The decoder and its loss, for many tokens at once: products by BLAS, what lies between them compiled."""

import math

import numpy as np

from gpn_ref.fast.cpu.compiled import compiled, exp
from gpn_ref.fast.cpu.sequence import inverse_rms, norm_back, scale
from gpn_ref.fast.cpu.threads import run

TOKENS = 1024  # whose logits are made, used and forgotten together: 131 MB at V 32,000


def logits_of(w, predicted, n_pieces):
    """predicted (n, D) -> logits (n, V), and what the way back needs."""
    inverse, normed = np.empty(len(predicted), predicted.dtype), np.empty_like(predicted)
    run(n_pieces, rms_norm_rows, predicted, w.decode_norm, inverse, normed)
    projected = normed @ w.decode_proj.T  # (n, E)
    if len(w.decode_bias):
        projected += w.decode_bias
    return projected @ w.embedding.T, inverse, normed, projected


def loss_and_grads(w, grads, predicted, targets, scale, n_pieces):
    """Cross entropy of all tokens; adds the gradients of scale · Σ nll to `grads`.

    predicted (n, D), targets (n) -> nll (n), d_predicted (n, D).
    """
    nll, d_predicted = np.empty(len(targets), predicted.dtype), np.zeros_like(predicted)
    d_norms = np.zeros((n_pieces, predicted.shape[1]), predicted.dtype)
    for start in range(0, len(targets), TOKENS):
        here = slice(start, start + TOKENS)
        logits, inverse, normed, projected = logits_of(w, predicted[here], n_pieces)
        run(n_pieces, cross_entropy_rows, logits, targets[here], predicted.dtype.type(scale), nll[here])
        d_logits = logits  # they have become their gradient
        d_projected = d_logits @ w.embedding  # (n, E)
        add_product(d_logits, projected, grads.embedding, start == 0)
        add_product(d_projected, normed, grads.decode_proj, start == 0)
        grads.decode_bias[:] += d_projected.sum(axis=0)[: len(w.decode_bias)]
        d_normed = d_projected @ w.decode_proj  # (n, D)
        run(n_pieces, rms_norm_rows_back, d_normed, predicted[here], w.decode_norm, inverse, d_norms, d_predicted[here])
    grads.decode_norm[:] = d_norms.sum(axis=0)
    return nll, d_predicted


def add_product(d_out, x, grad, first):
    """For out = x Wᵀ: grad += d_outᵀ x; the first time, what it is added to is zero."""
    if first:
        np.matmul(d_out.T, x, out=grad)
    else:
        grad += d_out.T @ x


@compiled
def rms_norm_rows(piece, n_pieces, barrier, x, weight, inverse, out):
    """out = rms(x; weight), row by row; inverse: 1 / rms."""
    for r in range(len(x) * piece // n_pieces, len(x) * (piece + 1) // n_pieces):
        inverse[r] = inverse_rms(x[r])
        scale(x[r], inverse[r], weight, out[r])


@compiled
def rms_norm_rows_back(piece, n_pieces, barrier, d_out, x, weight, inverse, d_weight, d_x):
    """Adds to d_x, and to the thread's own row of d_weight (n_pieces, n); uses d_out up."""
    for r in range(len(x) * piece // n_pieces, len(x) * (piece + 1) // n_pieces):
        for d in range(x.shape[1]):
            d_weight[piece, d] += d_out[r, d] * x[r, d] * inverse[r]
            d_out[r, d] *= weight[d]
        norm_back(d_out[r], x[r], inverse[r], d_x[r])


@compiled
def cross_entropy_rows(piece, n_pieces, barrier, logits, targets, scale, nll):
    """nll = log Σ exp(logits) - logits[target]; the logits become the gradient of scale · Σ nll."""
    n, V = logits.shape
    for r in range(n * piece // n_pieces, n * (piece + 1) // n_pieces):
        row, target = logits[r], targets[r]
        largest, total = row[0], nll.dtype.type(0)
        for v in range(V):
            largest = row[v] if row[v] > largest else largest
        at_target = row[target] - largest
        for v in range(V):
            row[v] = exp(row[v] - largest)
            total += row[v]
        nll[r] = math.log(total) - at_target
        share = scale / total
        for v in range(V):
            row[v] *= share
        row[target] -= scale
