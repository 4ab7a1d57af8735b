"""Processes with numba-cuda's simulator, which must be asked for before the first import of numba."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NUMBA_ENABLE_CUDASIM": "1"}


def require_numba_cuda():
    """Skip the test where numba-cuda is not installed; fail where it must be, in CI."""
    if importlib.util.find_spec("numba_cuda") is None:
        needs = "needs numba-cuda: pip install -r requirements-cuda-test.txt"
        if os.environ.get("GPN_REF_CUDA_TESTS") == "1":
            pytest.fail(needs)
        pytest.skip(needs)


def run(*arguments, environment=ENVIRONMENT, **options):
    """Python with these arguments, in a process of its own -> what subprocess.run gives, with text."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=900, **options)
