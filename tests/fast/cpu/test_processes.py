"""What needs a process of its own: numbers of threads, a fork, no compiler, no numba."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BEGIN = """
import hashlib, os, sys, threading
import numpy as np
from gpn_ref import ModelConfig, TrainConfig, init_params, load_model
from gpn_ref.fast.cpu import decode, engine
from gpn_ref.random_state import generator

engine.SMALL, engine.FAR, decode.SMALL = 1, 0, 0  # all threads take part, however small the model
config = ModelConfig(53, 40, 24, 56, n_heads=3, d_key=10, d_value=12, n_layers=2)
rng = generator(0, "processes")
params = init_params(config)
for value in params.values():
    value += rng.normal(0, 0.1, value.shape)
batches = rng.integers(0, 53, (20, 2, 11, 13))

def digest(arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

def trained():
    learner = load_model(config, "numba").learner(params, TrainConfig(batch_size=11))
    for inputs, targets in batches:
        learner.step(inputs, targets, 1e-3)
    return digest(learner.params().values())

def window(bound, i):
    out = bound.loss_and_grads(*batches[i])
    return digest([out.nll, *out.grads.values(), *out.state, *out.d_state, bound.forward(batches[i][0]).logits])
"""


def environment(n_threads=2, **changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "OMP_", "OPENBLAS_"))}
    return kept | {"PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": str(n_threads)} | changes


def run(code, *arguments, **options):
    """What a Python of its own prints: the lines."""
    command = [sys.executable, "-c", BEGIN + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**options), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_training_gives_the_same_bits_every_time(n_threads):
    """Twenty steps, two learners in each of two processes."""
    code = "print(trained(), trained())"
    (one, two), (three, four) = run(code, n_threads=n_threads), run(code, n_threads=n_threads)
    assert one == two == three == four


def test_what_was_compiled_or_loaded_before_changes_no_bit():
    """A kernel by itself and the same kernel inside another must be one program, whichever comes first."""
    first = """
from gpn_ref.fast.cpu import decode, memory, products, sequence
one, x, W, X = np.float32(1), np.ones(9, np.float32), np.ones((20, 9), np.float32), np.ones((3, 9), np.float32)
sequence.scale_back(x, x, one, x, x.copy(), x.copy())
sequence.norm_back(x, x, one, x.copy())
sequence.gated_back(x, x.copy(), x, x.copy())
sequence.swiglu_back(x, x.copy(), x.copy())
sequence.read_gated_back(x.copy(), x.copy(), x.copy(), one, x, x.copy())
memory.read_back(W, np.ones(20, np.float32), x, np.ones(20, np.float32), W.copy())
products.rows(0, 1, True, W, X, np.zeros((3, 20), np.float32))
products.rows_back(0, 1, True, W, np.ones((3, 20), np.float32), X.copy())
"""
    code = "print(window(load_model(config, 'numba').bind(params), 0))"
    assert run(code) == run(first + code)


@pytest.mark.parametrize("n_threads", [2, 5])
def test_a_window_gives_the_same_bits_every_time(n_threads):
    code = "bound = load_model(config, 'numba').bind(params); print(len({window(bound, 0) for _ in range(100)}))"
    assert run(code, n_threads=n_threads) == ["1"]


def test_two_python_threads_may_share_a_bound_model():
    """Each gets what it would have got alone, and BLAS has as many threads afterwards as before."""
    code = """
from threadpoolctl import threadpool_info
blas = [library["num_threads"] for library in threadpool_info()]
bound = load_model(config, "numba").bind(params)
alone, found = [window(bound, i) for i in range(4)], [set() for _ in range(4)]
def work(i):
    for _ in range(30):
        found[i].add(window(bound, i))
threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found == [{bits} for bits in alone], blas == [library["num_threads"] for library in threadpool_info()])
"""
    assert run(code) == ["True", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_goes_on():
    """Its threads are gone, even where another Python thread was using them at the time."""
    code = """
bound = load_model(config, "numba").bind(params)
alone, stop = window(bound, 0), threading.Event()
def work():
    while not stop.is_set():
        window(bound, 1)
busy = threading.Thread(target=work)
busy.start()
for _ in range(5):
    if not (child := os.fork()):
        os._exit(window(bound, 0) != alone)
    print(os.waitpid(child, 0)[1])
stop.set()
busy.join()
print(window(bound, 0) == alone)
"""
    assert run(code) == ["0"] * 5 + ["True"]


def test_an_error_in_a_thread_comes_out_and_leaves_the_crew_whole():
    code = """
from gpn_ref.fast.cpu.threads import N_THREADS, run
def fail(piece, n_pieces, barrier):
    if piece == n_pieces - 1:
        raise KeyError("lost")
try:
    run(N_THREADS, fail)
except KeyError as error:
    print(error)
bound = load_model(config, "numba").bind(params)
print(len({window(bound, 0) for _ in range(3)}))
"""
    assert run(code) == ["'lost'", "1"]


def test_nobody_waits_for_a_thread_that_does_not_come():
    """Ctrl-C may come after the other threads were sent off, and before this one follows."""
    code = """
from gpn_ref.fast.cpu.compiled import compiled
from gpn_ref.fast.cpu.threads import run, wait
@compiled
def meet(barrier, n_pieces):
    wait(barrier, n_pieces)
meet(np.zeros(24, np.int64), 1)
def part(piece, n_pieces, barrier):
    if piece == 0:
        raise KeyboardInterrupt
    meet(barrier, n_pieces)
try:
    run(2, part)
except KeyboardInterrupt:
    print("stopped", window(load_model(config, "numba").bind(params), 0) != "")
"""
    assert run(code) == ["stopped", "True"]


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_compile_cache_is_made_anew(tmp_path, kind, damage):
    code = """
from gpn_ref.fast.cpu.sequence import gated
out = np.zeros(3)
gated(np.zeros(3), np.zeros(3), np.arange(3.0), out)
print(*out)
"""
    expected = ["0.0", "0.5", "1.0"]
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path)) == expected
    files = list(tmp_path.rglob(f"*gated-*.{kind}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:60] if damage is None else damage)
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path)) == expected
    assert min(file.stat().st_size for file in files) > 60
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path)) == expected


def test_without_a_compiler_the_smallest_sizes_pass():
    """NUMBA_DISABLE_JIT=1: the same text as plain Python, which is what a debugger or a coverage tool sees."""
    tests = [f"tests/fast/cpu/test_{name}.py" for name in ("equality", "kernels", "extremes")]
    options = ["-q", "-p", "no:cacheprovider", "-k", "not wide", "--no-header"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests, *options],
        capture_output=True, text=True, cwd=ROOT, env=environment(NUMBA_DISABLE_JIT="1"), timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout.splitlines()[-1]


def test_without_numba_the_reference_is_the_default(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('No module named numba')", encoding="utf-8")
    code = """
import sys
import numpy as np
from gpn_ref import PRESETS, init_params, load_model
config = PRESETS["nano"]
model = load_model(config)
print(model.backend, np.isfinite(model.forward(init_params(config), [[1, 2]]).logits).all())
try:
    load_model(config, "numba")
except ValueError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment() | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    first, message = done.stdout.splitlines()
    assert first == "numpy True"
    assert message.startswith("backend 'numba' needs numba (pip install numba)")
