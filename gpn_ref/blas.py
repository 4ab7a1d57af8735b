"""How many threads the matrix products of a model are worth."""

from contextlib import nullcontext

from threadpoolctl import threadpool_limits

SMALL = 5_000_000  # parameters


def blas_threads(n_params):
    """A context: one BLAS thread for a model of fewer than SMALL parameters, otherwise as many as BLAS likes.

    A small model's products are over before a second thread has begun, so that on an idle machine two gain nothing; and
    where another program takes one of the cores, they spin waiting for each other, which costs several times the work.
    """
    return threadpool_limits(1, "blas") if n_params < SMALL else nullcontext()
