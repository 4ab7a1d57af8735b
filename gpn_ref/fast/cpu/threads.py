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
from threadpoolctl import ThreadpoolController

N_THREADS = config.NUMBA_NUM_THREADS  # the environment variable of this name, or the number of cores
SPINS = 2000  # about ten microseconds; a thread that waits longer lets others have its core

# BLAS would have threads of its own, and these spin for a tenth of a second after each product, in the way of ours:
# a window took 1.6 times as long. So each of our threads calls a BLAS that has one.
_blas = ThreadpoolController()


def single_threaded_blas(function):
    """Within `function`, NumPy's products run in the thread that asks for them."""
    return _blas.wrap(limits=1, user_api="blas")(function)


_lock = Lock()
_pool = None


def run(n_pieces, kernel, *arguments):
    """kernel(piece, n_pieces, barrier, *arguments), in n_pieces threads at once.

    `kernel` is a compiled function that releases the GIL, or a Python one that calls such and NumPy.
    """
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


def part_of(piece, n_pieces, n, start=0):
    """The slice of n things, counted from `start`, that is a thread's share."""
    return slice(start + n * piece // n_pieces, start + n * (piece + 1) // n_pieces)


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


@intrinsic
def _atomic_load(typing_context, array, index):
    """array[index], as it is now: a loop may not keep it in a register."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, kind, array, [arguments[1]])
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(array, types.intp), generate


_yield_core = types.ExternalFunction("sched_yield", types.intc())


def wait(barrier, n_pieces):
    """Go on when all n_pieces threads are here; what any of them wrote before can then be read by all."""


@overload(wait)
def _wait(barrier, n_pieces):
    def wait(barrier, n_pieces):
        if n_pieces == 1:
            return
        round_ = _atomic_load(barrier, 16)
        if _atomic_add(barrier, 0, 1) == n_pieces - 1:  # the last one opens it
            _atomic_add(barrier, 0, -n_pieces)
            _atomic_add(barrier, 16, 1)
            return
        spins = 0
        while _atomic_load(barrier, 16) == round_:
            spins += 1
            if spins > SPINS:
                _yield_core()

    return wait
