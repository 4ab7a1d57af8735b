"""The tests in simulator/, a process for each of its files."""

import pytest
from fast.cuda.simulated import ROOT, require_numba_cuda, run

FOLDER = ROOT / "tests" / "fast" / "cuda" / "simulator"


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_in_the_simulator(file):
    require_numba_cuda()
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "-rfE", FOLDER / file, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    last = done.stdout.splitlines()[-1]
    assert " passed" in last and "skipped" not in last, last


def test_without_the_simulator_they_are_left_alone():
    """What collects all of tests/ here must not import them."""
    done = run("-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", FOLDER, environment=None, cwd=ROOT)
    assert "no tests collected" in done.stdout, done.stdout + done.stderr
