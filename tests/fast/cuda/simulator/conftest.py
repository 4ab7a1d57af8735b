"""Tests in here need numba-cuda's simulator, and so a process of their own: ../test_simulator.py starts them."""

import os

import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    from fast.cuda.simulator import turns

    import gpn_ref.fast.cuda.engine  # noqa: F401 (all that has kernels)

    turns.install()
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True, params=["first thread first", "last thread first"])
def order(request, monkeypatch):
    """Every test runs in both orders of threads and blocks."""
    monkeypatch.setattr(turns, "BACKWARDS", request.param == "last thread first")


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return request.param
