"""The decoder and its loss, for many tokens at once: each thread takes some of the tokens all the way."""

import math
from typing import NamedTuple

import numpy as np

from gpn_ref.fast.cpu.compiled import compiled, exp, summing
from gpn_ref.fast.cpu.layout import zeros
from gpn_ref.fast.cpu.products import rows
from gpn_ref.fast.cpu.sequence import inverse_rms, norm_back, scale, scale_back
from gpn_ref.fast.cpu.threads import N_THREADS, part_of, run, wait

FEW = 16  # tokens of a step; more are worth a product by BLAS
SMALL = 1 << 18  # weights of a decoder that are not worth a second thread
TOKENS = 1024  # whose logits are made, used and forgotten together: 131 MB at V 32,000


def logits_of(w, predicted):
    """predicted (n, D) -> logits (n, V)."""
    logits = np.empty((len(predicted), len(w.embedding)), predicted.dtype)
    normed = np.empty_like(predicted)
    projected = np.empty((len(predicted), w.embedding.shape[1]), predicted.dtype)

    def part(piece, n_pieces, barrier):
        mine = part_of(piece, n_pieces, len(predicted))
        project(w, predicted[mine], normed[mine], projected[mine], logits[mine])

    if len(predicted) > FEW:
        run(N_THREADS, part)
    else:
        arrays = (w.decode_norm, w.decode_proj, w.decode_bias, w.embedding, predicted, normed, projected, logits)
        run(N_THREADS if w.embedding.size > SMALL else 1, project_few, *arrays)
    return logits


@compiled
def project_few(piece, n_pieces, barrier, norm, proj, bias, embedding, predicted, normed, projected, logits):
    """`project` for the few tokens of a step: like the recurrence, a race through the matrices."""
    for r in range(len(predicted) if piece == 0 else 0):
        scale(predicted[r], inverse_rms(predicted[r]), norm, normed[r])
    wait(barrier, n_pieces)
    rows(piece, n_pieces, True, proj, normed, projected)
    wait(barrier, n_pieces)
    for r in range(len(predicted) if piece == 0 else 0):
        for e in range(len(bias)):
            projected[r, e] += bias[e]
    wait(barrier, n_pieces)
    rows(piece, n_pieces, True, embedding, projected, logits)


def project(w, predicted, normed, projected, logits):
    """predicted (n, D) -> 1 / rms (n); fills normed (n, D), projected (n, E), logits (n, V)."""
    inverse = np.empty(len(predicted), predicted.dtype)
    rms_norm_rows(predicted, w.decode_norm, inverse, normed)
    np.matmul(normed, w.decode_proj.T, out=projected)
    if len(w.decode_bias):
        projected += w.decode_bias
    np.matmul(projected, w.embedding.T, out=logits)
    return inverse


class Arrays(NamedTuple):
    """What the way there leaves for the way back: n tokens, logits of up to TOKENS of them."""

    normed: np.ndarray  # (n, D)
    projected: np.ndarray  # (n, E)
    logits: np.ndarray  # (TOKENS, V)                           -> their gradient
    d_projected: np.ndarray  # (n, E)


def zero_arrays(config, n, dtype):
    V, D, E = config.vocab_size, config.d_state, config.d_emb
    shapes = Arrays((n, D), (n, E), (min(n, TOKENS), V), (n, E))
    return Arrays(*(zeros(shape, dtype) for shape in shapes))


def loss_and_grads(w, grads, arrays, predicted, d_predicted, targets, scale):
    """Cross entropy of all tokens, and the gradients of scale · Σ nll: fills those of `grads`, adds to d_predicted.

    predicted and d_predicted (n, D), targets (n) -> nll (n).
    """
    normed, projected, logits, d_projected = arrays
    n, kind = len(targets), predicted.dtype
    nll = np.empty(n, kind)
    d_norms = np.zeros((N_THREADS, predicted.shape[1]), kind)

    def to_the_loss_and_back(piece, n_pieces, barrier):
        mine = part_of(piece, n_pieces, len(here), start)
        d_mine = logits[part_of(piece, n_pieces, len(here))]
        inverse = project(w, predicted[mine], normed[mine], projected[mine], d_mine)
        cross_entropy_rows(d_mine, targets[mine], kind.type(scale), nll[mine])
        np.matmul(d_mine, w.embedding, out=d_projected[mine])
        d_normed = d_projected[mine] @ w.decode_proj  # (n, D)
        scratch = np.zeros(predicted.shape[1], kind)
        rms_norm_rows_back(
            d_normed, predicted[mine], w.decode_norm, inverse, d_norms[piece], d_predicted[mine], scratch
        )

    def embedding_grad(piece, n_pieces, barrier):
        mine = part_of(piece, n_pieces, len(w.embedding))
        d_mine = logits[: len(here), mine].T
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
    return nll


@compiled
def rms_norm_rows(x, weight, inverse, out):
    """out = rms(x; weight), row by row; inverse: 1 / rms."""
    for r in range(len(x)):
        inverse[r] = inverse_rms(x[r])
        scale(x[r], inverse[r], weight, out[r])


@compiled
def rms_norm_rows_back(d_out, x, weight, inverse, d_weight, d_x, d_normalized):
    """Adds to d_weight and d_x; d_normalized (columns of x) is scratch, zero before and after."""
    for r in range(len(x)):
        scale_back(d_out[r], x[r], inverse[r], weight, d_weight, d_normalized)
        norm_back(d_normalized, x[r], inverse[r], d_x[r])
        d_normalized[:] = 0


@summing
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
