"""How many threads the matrix products of a model are worth."""

from contextlib import nullcontext

from threadpoolctl import threadpool_limits

SMALL = 5_000_000  # parameters


def blas_threads(n_params):
    """A context: one BLAS thread for a model of fewer than SMALL parameters, otherwise as many as BLAS likes.

    A small model's products are over before a second thread has begun: on two idle cores `python -m gpn_ref.bench
    --sizes tiny` gave 4,089 tokens/s with two threads and 4,037 with one (OPENBLAS_NUM_THREADS=1). And when another
    program takes one of the cores, the threads spin waiting for each other: that cost a factor of seven at small.
    """
    return threadpool_limits(1, "blas") if n_params < SMALL else nullcontext()
