"""The checks are checked: each fault of CUDA, planted into a copy of a kernel or its launch, must be caught."""

import json
import os
import shutil

import pytest
from fast.cuda.simulated import ENVIRONMENT, ROOT, require_numba_cuda, run
from planted_faults import CUDA

TESTS = ROOT / "tests"


def plant(folder, *file):
    """Plants all faults of a file into a copy of the package, one after the other -> those that nothing told."""
    require_numba_cuda()
    shutil.copytree(ROOT / "gpn_ref", folder / "gpn_ref", ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join(map(str, (folder, TESTS)))
    program = TESTS / "fast" / "cuda" / "simulator" / "faults.py"
    done = run(program, folder, *file, environment=ENVIRONMENT | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_without_a_fault_it_equals_the_reference(tmp_path):
    assert plant(tmp_path) == []


@pytest.mark.parametrize("file", sorted({fault[0] for fault in CUDA}))
def test_the_equality_with_the_reference_catches(file, tmp_path):
    assert plant(tmp_path, file) == []


def test_a_line_that_is_no_longer_there_fails(tmp_path):
    require_numba_cuda()
    code = """
from fast.cuda.simulator.faults import planted
text = "def f():\\n    a = 1\\n    b = 2\\n\\ndef g():\\n    a = 1\\n    a = 1\\n"
assert planted(text, "f", "a = 1\\nb = 2", "pass") == "def f():\\n    pass\\n\\ndef g():\\n    a = 1\\n    a = 1\\n"
for function, line in (("f", "a = 2"), ("f", "b = 2\\na = 1"), ("g", "a = 1"), ("h", "a = 1")):
    try:
        planted(text, function, line, "pass")
    except (AssertionError, ValueError):
        print(function, line)
"""
    done = run("-c", code, environment=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, TESTS)))})
    assert done.stdout == "f a = 2\nf b = 2\na = 1\ng a = 1\nh a = 1\n", done.stderr
