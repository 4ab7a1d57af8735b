"""A crew of threads that run one compiled function together, and the barrier at which they wait for each other.

`prange` would start and end a parallel region at every product, and each region is slow to compile. Here all
threads run the whole window, each its share (`piece` of `n_pieces`) of every product, as the blocks of a GPU would.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

import numpy as np
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from threadpoolctl import ThreadpoolController

LINE = 8  # int64s in a cache line
N_THREADS = 1 if config.DISABLE_JIT else config.NUMBA_NUM_THREADS  # the environment variable, or the number of cores
SPINS = 2000  # some microseconds; a thread that waits longer lets others have its core

# BLAS would have threads of its own, and these go on spinning after a product, on the cores that ours need. So each of
# our threads calls a BLAS that has one.
_blas = ThreadpoolController()
_blas_lock, _blas_users, _blas_limit = Lock(), 0, None


@contextmanager
def single_threaded_blas():
    """Here, NumPy's products run in the thread that asks for them; the last to leave gives BLAS its threads back."""
    global _blas_users, _blas_limit
    with _blas_lock:
        if _blas_users == 0:
            _blas_limit = _blas.limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()


class Crew:
    """All threads but the one that calls. At a barrier each waits for all the others, so one crew works at a time."""

    def __init__(self):
        self.lock = Lock()
        self.pool = ThreadPoolExecutor(max(1, N_THREADS - 1), "gpn_ref")


_crew = Crew()


def _begin_anew():
    """After a fork: its threads are gone, and whoever held a lock is, too."""
    global _crew, _blas_lock, _blas_users
    _crew, _blas_lock, _blas_users = Crew(), Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def run(n_pieces, kernel, *arguments):
    """kernel(piece, n_pieces, barrier, *arguments), in n_pieces threads at once.

    `kernel` is a compiled function that releases the GIL, or a Python one that calls such and NumPy.
    """
    barrier = np.zeros(3 * LINE, np.int64)
    if n_pieces == 1:
        return kernel(0, 1, barrier, *arguments)
    with _crew.lock:
        others, errors = [], np.geterr()
        try:
            for piece in range(1, n_pieces):
                others.append(_crew.pool.submit(_as_here, errors, kernel, piece, n_pieces, barrier, *arguments))
            kernel(0, n_pieces, barrier, *arguments)
        except BaseException:  # Ctrl-C, say: nobody may wait for a thread that does not come
            barrier[ABORTED] = 1
            raise
        finally:
            for other in others:
                other.result()


def _as_here(errors, kernel, *arguments):
    """What NumPy does about an overflow is a matter of each thread's own: let it be the caller's."""
    with np.errstate(**errors):
        kernel(*arguments)


def part_of(piece, n_pieces, n, start=0):
    """The slice of n things, counted from `start`, that is a thread's share."""
    return slice(start + n * piece // n_pieces, start + n * (piece + 1) // n_pieces)


# ---------------------------------------------------------------------------------------------------- barrier
ARRIVED, ROUND, ABORTED = 0, LINE, 2 * LINE  # places in a barrier, in cache lines of their own


@intrinsic
def _atomic_add(typing_context, array, index, value):
    """array[index] += value, seen by all threads at once; returns what was there before."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def _atomic_load(typing_context, array, index):
    """array[index] as it is now: a loop may not keep it in a register."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_pointer(context, builder, signature, arguments), "acquire", 8)

    return types.int64(array, types.intp), generate


def _pointer(context, builder, signature, arguments):
    kind = signature.args[0]
    array = context.make_array(kind)(context, builder, arguments[0])
    return cgutils.get_item_pointer(context, builder, kind, array, [arguments[1]])


_yield_core = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", types.intc())


def wait(barrier, n_pieces):
    """Go on when all n_pieces threads are here; what any of them wrote before can then be read by all."""


@overload(wait)
def _wait(barrier, n_pieces):
    def wait(barrier, n_pieces):
        if n_pieces == 1:
            return
        this_round = _atomic_load(barrier, ROUND)
        if _atomic_add(barrier, ARRIVED, 1) == n_pieces - 1:  # the last one opens it
            _atomic_add(barrier, ARRIVED, -n_pieces)
            _atomic_add(barrier, ROUND, 1)
            return
        spins = 0
        while _atomic_load(barrier, ROUND) == this_round and not _atomic_load(barrier, ABORTED):
            spins += 1
            if spins > SPINS:
                _yield_core()

    return wait
