"""A crew of threads that run one compiled function together, and the barrier at which they wait for each other.

`prange` would start and end a parallel region at every product, and each region costs seconds of compilation. Here all
threads run the whole window, each its share (`piece` of `n_pieces`) of every product, as the blocks of a GPU would.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

N_THREADS = config.NUMBA_NUM_THREADS  # the environment variable of this name, or the number of cores
SPINS = 2000  # about ten microseconds; a thread that waits longer lets others have its core

_lock = Lock()
_pool = None


def run(n_pieces, kernel, *arguments):
    """kernel(piece, n_pieces, barrier, *arguments), in n_pieces threads at once; `kernel` must release the GIL."""
    global _pool
    barrier = np.zeros(2 * 16, np.int64)  # two counters, a cache line each
    if n_pieces == 1:
        return kernel(0, 1, barrier, *arguments)
    with _lock:  # a thread at a barrier waits for all of its own; a second crew could wait in its way
        if _pool is None or _pool[0] != os.getpid():  # threads don't outlive a fork
            _pool = os.getpid(), ThreadPoolExecutor(max(1, N_THREADS - 1), "gpn_ref")
        others = [_pool[1].submit(kernel, piece, n_pieces, barrier, *arguments) for piece in range(1, n_pieces)]
        kernel(0, n_pieces, barrier, *arguments)
        for other in others:
            other.result()


# ---------------------------------------------------------------------------------------------------- barrier
@intrinsic
def _atomic_add(typing_context, array, index, value):
    """array[index] += value, seen by all threads at once; returns what was there before."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, kind, array, [arguments[1]])
        return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


_yield_core = types.ExternalFunction("sched_yield", types.intc())


def wait(barrier, n_pieces):
    """Go on when all n_pieces threads are here; what any of them wrote before can then be read by all."""


@overload(wait)
def _wait(barrier, n_pieces):
    def wait(barrier, n_pieces):
        if n_pieces == 1:
            return
        round_ = _atomic_add(barrier, 16, 0)
        if _atomic_add(barrier, 0, 1) == n_pieces - 1:  # the last one opens it
            _atomic_add(barrier, 0, -n_pieces)
            _atomic_add(barrier, 16, 1)
            return
        spins = 0
        while _atomic_add(barrier, 16, 0) == round_:
            spins += 1
            if spins > SPINS:
                _yield_core()

    return wait
