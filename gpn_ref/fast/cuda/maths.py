"""Functions of one number, and sums over a block, for all kernels. They are made for float32 or float64.

Rules that hold in every kernel:

- No literal in arithmetic: `1 - x` is float64 where x is float32, and a card for games does 64 of those in the time
  of one. Write `ONE - x`; the tests look for `.f64` in the PTX of every float32 kernel.
- No test that could lose a NaN: it must reach the loss.
- No atomic addition: sums are in a fixed order, and the same input gives the same bits.
"""

import math
from functools import cache
from types import SimpleNamespace

from numba import cuda


@cache
def maths(real, threads):
    """sigmoid and softplus; block_sum and block_max for blocks of `threads`, a power of two."""
    ONE, ZERO = real(1), real(0)

    @cuda.jit(device=True)
    def sigmoid(x):
        """1 / (1 + exp(-x)), where no exponential overflows."""
        e = real(math.exp(-abs(x)))
        s = ONE / (ONE + e)
        return e * s if x < ZERO else s

    @cuda.jit(device=True)
    def softplus(x):
        """log(1 + exp(x))."""
        tail = real(math.log1p(real(math.exp(-abs(x)))))
        return tail if x < ZERO else x + tail

    @cuda.jit(device=True)
    def block_sum(x, scratch):
        """Σ x over the block's threads, for each of them. scratch: shared, (threads)."""
        thread = cuda.threadIdx.x
        scratch[thread] = x
        half = threads // 2
        while half > 0:
            cuda.syncthreads()
            if thread < half:
                scratch[thread] += scratch[thread + half]
            half //= 2
        cuda.syncthreads()
        total = scratch[0]
        cuda.syncthreads()  # the next sum may begin
        return total

    @cuda.jit(device=True)
    def block_max(x, scratch):
        """The largest x of the block's threads, for each of them; a NaN among them may be passed over."""
        thread = cuda.threadIdx.x
        scratch[thread] = x
        half = threads // 2
        while half > 0:
            cuda.syncthreads()
            if thread < half and scratch[thread + half] > scratch[thread]:
                scratch[thread] = scratch[thread + half]
            half //= 2
        cuda.syncthreads()
        top = scratch[0]
        cuda.syncthreads()  # the next one may begin
        return top

    return SimpleNamespace(sigmoid=sigmoid, softplus=softplus, block_sum=block_sum, block_max=block_max)
