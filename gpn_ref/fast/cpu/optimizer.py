"""AdamW in one pass over memory, which is all that it costs: seven numbers a parameter are read or written."""

import numpy as np

from gpn_ref.fast.cpu.compiled import compiled, summing
from gpn_ref.fast.cpu.threads import N_THREADS, run
from gpn_ref.parameters import is_decayed
from gpn_ref.training import optimizer

BLOCK = 1 << 12  # squares that are summed in the gradient's own type, before the sum goes on in float64


class AdamW(optimizer.AdamW):
    """The plain optimizer, fused and threaded: each thread goes through its share of every array."""

    def _norm(self, grads):
        sums = np.zeros(N_THREADS)

        def part(piece, n_pieces, barrier):
            for grad in grads.values():
                sums[piece] += squares(grad.reshape(-1), piece, n_pieces)

        run(N_THREADS, part)
        norm = float(np.sqrt(sums.sum()))
        return norm if np.isfinite(norm) else super()._norm(grads)  # squares of float32 may overflow

    def _move(self, params, grads, clip, learning_rate):
        config, real = self.config, next(iter(params.values())).dtype.type
        rates = (
            clip, 1 - config.beta1, 1 - config.beta2, 1 / (1 - config.beta1**self.updates),
            1 / (1 - config.beta2**self.updates), config.epsilon, learning_rate,
        )  # fmt: skip
        rates = tuple(map(real, rates))

        def part(piece, n_pieces, barrier):
            for name, param in params.items():
                decay = real(config.weight_decay if is_decayed(name, param.shape) else 0)
                arrays = (param, grads[name], self.first[name], self.second[name])
                adamw(*(array.reshape(-1) for array in arrays), *rates, decay, piece, n_pieces)

        run(N_THREADS, part)


@summing
def squares(grad, piece, n_pieces):
    """Σ grad² of a thread's share, in float64."""
    total, stop = 0.0, len(grad) * (piece + 1) // n_pieces
    for start in range(len(grad) * piece // n_pieces, stop, BLOCK):
        block, part = grad[start : min(start + BLOCK, stop)], grad.dtype.type(0)
        for i in range(len(block)):
            part += block[i] * block[i]
        total += part
    return total


@compiled
def adamw(param, grad, first, second, clip, share1, share2, unbias1, unbias2, epsilon, rate, decay, piece, n_pieces):
    """p ← p - η (m̂ / (√v̂ + ε) + λ p), for a thread's share of one parameter."""
    lo, hi = len(param) * piece // n_pieces, len(param) * (piece + 1) // n_pieces
    p, g, m, v = param[lo:hi], grad[lo:hi], first[lo:hi], second[lo:hi]
    for i in range(len(p)):
        clipped = g[i] * clip
        m[i] += share1 * (clipped - m[i])
        v[i] += share2 * (clipped * clipped - v[i])
        p[i] -= rate * (m[i] * unbias1 / (np.sqrt(v[i] * unbias2) + epsilon) + decay * p[i])
