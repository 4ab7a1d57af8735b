"""One hypothesis profile for all tests (no deadline, and in CI the same examples on every run), and the backends."""

import os

os.environ.setdefault("NUMBA_NUM_THREADS", "2")  # before numba is imported: so few, and so many, on every machine

import pytest
from hypothesis import settings
from strategies import BACKENDS

settings.register_profile("gpn_ref", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("gpn_ref")


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    """For tests of the interface: each runs once through every backend."""
    return request.param
