"""The decoder and its loss, for many tokens at once: each thread takes some of the tokens all the way."""

import math

import numpy as np

from gpn_ref.fast.cpu.compiled import compiled, exp
from gpn_ref.fast.cpu.sequence import inverse_rms, norm_back, scale
from gpn_ref.fast.cpu.threads import N_THREADS, part_of, run

TOKENS = 1024  # whose logits are made, used and forgotten together: 131 MB at V 32,000


def logits_of(w, predicted):
    """predicted (n, D) -> logits (n, V)."""
    logits = np.empty((len(predicted), len(w.embedding)), predicted.dtype)

    def part(piece, n_pieces, barrier):
        mine = part_of(piece, n_pieces, len(predicted))
        project(w, predicted[mine], logits[mine])

    run(N_THREADS, part)
    return logits


def project(w, predicted, logits):
    """Fills logits (n, V) of predicted (n, D); returns 1 / rms (n), normed (n, D), projected (n, E)."""
    inverse, normed = np.empty(len(predicted), predicted.dtype), np.empty_like(predicted)
    rms_norm_rows(predicted, w.decode_norm, inverse, normed)
    projected = normed @ w.decode_proj.T  # (n, E)
    if len(w.decode_bias):
        projected += w.decode_bias
    np.matmul(projected, w.embedding.T, out=logits)
    return inverse, normed, projected


def loss_and_grads(w, grads, predicted, targets, scale):
    """Cross entropy of all tokens, and the gradients of scale · Σ nll; those of weights go to `grads`.

    predicted (n, D), targets (n) -> nll (n), d_predicted (n, D).
    """
    n, kind = len(targets), predicted.dtype
    nll, d_predicted, normed = np.empty(n, kind), np.zeros_like(predicted), np.empty_like(predicted)
    d_projected = np.empty((n, w.decode_proj.shape[0]), kind)
    projected = np.empty_like(d_projected)
    d_norms = np.zeros((N_THREADS, predicted.shape[1]), kind)
    d_logits = np.empty((min(n, TOKENS), len(w.embedding)), kind)

    def to_the_loss_and_back(piece, n_pieces, barrier):
        mine = part_of(piece, n_pieces, len(here), start)
        d_mine = d_logits[: len(here)][part_of(piece, n_pieces, len(here))]
        inverse, normed[mine], projected[mine] = project(w, predicted[mine], d_mine)
        cross_entropy_rows(d_mine, targets[mine], kind.type(scale), nll[mine])
        np.matmul(d_mine, w.embedding, out=d_projected[mine])
        d_normed = d_projected[mine] @ w.decode_proj  # (n, D)
        rms_norm_rows_back(d_normed, predicted[mine], w.decode_norm, inverse, d_norms[piece], d_predicted[mine])

    def embedding_grad(piece, n_pieces, barrier):
        mine = part_of(piece, n_pieces, len(w.embedding))
        d_mine = d_logits[: len(here), mine].T
        if start == 0:
            np.matmul(d_mine, projected[here.start : here.stop], out=grads.embedding[mine])
        else:
            grads.embedding[mine] += d_mine @ projected[here.start : here.stop]

    for start in range(0, n, TOKENS):
        here = range(start, min(start + TOKENS, n))
        run(N_THREADS, to_the_loss_and_back)
        run(N_THREADS, embedding_grad)
    np.matmul(d_projected.T, normed, out=grads.decode_proj)
    grads.decode_bias[:] = d_projected.sum(axis=0)[: len(w.decode_bias)]
    grads.decode_norm[:] = d_norms.sum(axis=0)
    return nll, d_predicted


@compiled
def rms_norm_rows(x, weight, inverse, out):
    """out = rms(x; weight), row by row; inverse: 1 / rms."""
    for r in range(len(x)):
        inverse[r] = inverse_rms(x[r])
        scale(x[r], inverse[r], weight, out[r])


@compiled
def rms_norm_rows_back(d_out, x, weight, inverse, d_weight, d_x):
    """Adds to d_weight and d_x; uses d_out up."""
    for r in range(len(x)):
        for d in range(x.shape[1]):
            d_weight[d] += d_out[r, d] * x[r, d] * inverse[r]
            d_out[r, d] *= weight[d]
        norm_back(d_out[r], x[r], inverse[r], d_x[r])


@compiled
def cross_entropy_rows(logits, targets, scale, nll):
    """nll = log Σ exp(logits) - logits[target]; the logits become the gradient of scale · Σ nll."""
    n, V = logits.shape
    for r in range(n):
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
