"""The script for a real card, without one: in the simulator, at tiny sizes, and its parts with made-up answers."""

import json
import os
import subprocess
import sys
import time

import commands
import numpy as np
import pytest
from fast.cuda.simulated import ENVIRONMENT, ROOT, require_numba_cuda, run

from gpn_ref.config import ModelConfig
from gpn_ref.fast.cuda import device_check, device_rivals, device_sanitizer, device_table

CONFIG = ModelConfig(vocab_size=11, d_state=5, d_emb=6, d_ffn=7, n_heads=2, d_key=3, d_value=4)


@pytest.fixture
def numba_cuda():
    require_numba_cuda()


# -------------------------------------------------------------------------------------------------- the whole script
def test_in_the_simulator(numba_cuda, tmp_path):
    done = run("-m", "gpn_ref.fast.cuda.device_check", "--seed", 1, "--json", tmp_path / "check.json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "check.json").read_text("utf-8"))
    assert found["finished"] and found["table"] == done.stdout.splitlines()
    assert found["device"] == "simulated: no time means anything"
    told = [(row["case"], row["precision"], row["passed"], row["moved"]) for row in found["parity"]]
    assert told == [
        ("1 layer, bias", "float64", True, []),
        ("1 layer, bias, learner", "float64", True, []),
        ("no memory", "float32", True, []),
        ("GDN", "float32", True, []),
        ("ladder, naive", "float32", True, []),
        ("ladder, shared", "float32", True, []),
        ("ladder, registers", "float32", True, []),
    ]
    kernels = [
        "write_and_read",
        "write_and_read_back",
        "replay",
        "ladder, naive",
        "ladder, shared",
        "ladder, registers",
    ]
    assert [row["kernel"] for row in found["memory"]] == kernels
    (step,) = found["training"]
    assert [*step["parts"]] == [*device_table.STEP_PARTS]
    assert 1.0 < step["loss"] < 4.0 and step["rate"] == pytest.approx(2 / step["seconds"])
    assert [row["rival"] for row in found["rivals"]] == ["jax", "torch"]
    assert all("rate" in row or "does not import" in row["told"] for row in found["rivals"])
    assert [row["told"] for row in found["race"]] == ["simulated", "simulated"]


def planted(fault, tmp_path):
    """A device check with a planted fault -> its status, its row of the model, what it printed."""
    path = tmp_path / "check.json"
    done = run(ROOT / "tests" / "fast" / "cuda" / "device_faults.py", fault, path)
    found = json.loads(path.read_text("utf-8"))
    return done.returncode, found["parity"][0], done.stdout


def test_without_a_fault(numba_cuda, tmp_path):
    status, row, printed = planted("none", tmp_path)
    assert status == 0 and row["passed"] and row["error"] < 2e-6 and "FAILED" not in printed


def test_an_entry_that_is_never_written_is_found(numba_cuda, tmp_path):
    status, row, printed = planted("unwritten", tmp_path)
    assert status == 1 and not row["passed"] and row["error"] is None  # infinite, which JSON does not have
    assert "FAILED: no memory, [2, 1], float32, numpy" in printed


def test_a_race_is_found(numba_cuda, tmp_path):
    status, row, printed = planted("race", tmp_path)
    assert status == 1 and not row["passed"]
    assert row["error"] < 2e-6 and row["moved"][0] == "hidden"
    assert "other bits the second time: hidden, " in printed


def test_what_is_raised_is_told_and_the_rest_goes_on(numba_cuda, tmp_path):
    status, row, printed = planted("broken", tmp_path)
    assert status == 1 and row == {"case": "no memory", "told": "RuntimeError: planted", "passed": False}
    assert "| FAILED: no memory | RuntimeError: planted |" in printed and "float32 | 3 checks" in printed


def test_what_was_found_outlives_a_kill(numba_cuda, tmp_path):
    path = tmp_path / "check.json"
    command = [sys.executable, "-m", "gpn_ref.fast.cuda.device_check", "--only", "parity", "--seed", "1", "--json"]
    process = subprocess.Popen([*command, path], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while not (path.exists() and "parity" in json.loads(path.read_text("utf-8"))):
            assert process.poll() is None and time.monotonic() < deadline, process.poll()
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    found = json.loads(path.read_text("utf-8"))
    assert not found["finished"] and found["parity"][0]["passed"] and "table" not in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "parties"], "unknown part 'parties'; did you mean 'parity'?"),
        (["--sizes", "huge"], "unknown size 'huge'"),
        (["--seed", "-1"], "too small"),
    ],
)
def test_bad_arguments(capsys, arguments, message):
    commands.assert_one_line(commands.call(capsys, device_check, *arguments), message)


def test_a_file_that_cannot_be_written(numba_cuda, tmp_path):
    done = run("-m", "gpn_ref.fast.cuda.device_check", "--json", tmp_path / "none" / "check.json")
    commands.assert_one_line(commands.Result(done.returncode, done.stdout, done.stderr), "No such file or directory")


def test_without_numba_cuda(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    commands.assert_one_line(commands.call(capsys, device_check), "requirements-cuda.txt")


# ------------------------------------------------------------------------------------------------------------ counts
def test_bytes_of_the_memory_kernels(numba_cuda):
    from gpn_ref.fast.cuda.device_speed import memory_bytes

    # B 2, H 3, K 5, U 7: M has 210 numbers, all keys 30, all values 42
    sizes = {"B": 2, "H": 3, "K": 5, "U": 7, "n_pieces": 2, "n_steps": 3}
    assert memory_bytes("write_and_read", **sizes) == 4 * (2 * 210 + 2 * 30 + 2 * 42) == 2256
    assert memory_bytes("write_and_read_back", **sizes) == 4 * (3 * 210 + 2 * 30 + 3 * 42 + 2 * 2 * 30) == 3744
    assert memory_bytes("replay", **sizes) == 4 * (5 * 210 + 3 * (30 + 42)) == 5064


def test_floors(numba_cuda):
    from gpn_ref.fast.cuda.device_training import floors

    # (D, D) 25, (n, D) 51 · 5, (D, F + HU) 5 · 15: 355 numbers a step; (D, E), (E, D) and (V, E) 126 more a window
    found = floors(CONFIG, batch_size=3, window=4, bandwidth=1000.0, rate=100.0)
    assert found["weights"] == pytest.approx(2 * 4 * 4 * 355 / 1000)
    assert found["products"] == pytest.approx(12 * 6 * (355 + 126) / 100)


# ------------------------------------------------------------------------------------------------------------ rivals
def compete(name, path, **options):
    (row,) = device_rivals.compete(name, CONFIG, 2, 3, path, 1.0, False, **options)
    return row


@pytest.fixture
def params_file(tmp_path):
    from safetensors.numpy import save_file

    save_file({"embedding.weight": np.zeros((11, 6), np.float32)}, tmp_path / "params.safetensors")
    return tmp_path / "params.safetensors"


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_rival_that_is_missing(params_file, name, tmp_path, monkeypatch):
    (tmp_path / f"{name}.py").write_text("raise ImportError('planted')", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    title = {"jax": "JAX", "torch": "PyTorch"}[name]
    assert compete(name, params_file) == {"told": f"{title} does not import: planted"}


def test_a_rival_that_takes_too_long(params_file):
    assert compete("jax", params_file, limit=0.01) == {"told": "not done in 0 s"}


def test_a_rival_that_fails(tmp_path):
    assert compete("jax", tmp_path / "none")["told"].startswith("FileNotFoundError: ")


def test_a_rival_that_dies(params_file, tmp_path, monkeypatch):
    (tmp_path / "jax.py").write_text("import os, sys; sys.stderr.write('killed'); os._exit(9)", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert compete("jax", params_file) == {"told": "ended by itself, status 9: killed"}


def test_a_rival_must_compute_the_same():
    answer = {"loss": 2.001, "seconds": 0.5, "bytes": 7}
    assert device_rivals.judged(answer, 100, 2.0) == answer | {"rate": 200.0}
    wrong = device_rivals.judged(answer, 100, 2.01)
    assert wrong == {"told": "another function: its loss is 2.001000, ours 2.010000"}
    assert "told" in device_rivals.judged(answer | {"loss": float("nan")}, 100, 2.0)


# --------------------------------------------------------------------------------------------------------- sanitizer
@pytest.mark.parametrize(
    ("text", "row"),
    [
        (
            f"{device_sanitizer.DONE}\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
            {"told": "0 hazards displayed (0 errors, 0 warnings)", "passed": True},
        ),
        (
            f"{device_sanitizer.DONE}\n========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)",
            {"told": "2 hazards displayed (2 errors, 0 warnings)", "passed": False},
        ),
        (f"{device_sanitizer.DONE}\n========= ERROR SUMMARY: 0 errors", {"told": "0 errors", "passed": True}),
        (
            f"{device_sanitizer.DONE}\n========= ERROR SUMMARY: 10 errors",
            {"told": "10 errors", "passed": False},
        ),
        (
            "========= Error: Device not supported. Please refer to the documentation\n",
            {"told": "not available here: it does not support this device"},
        ),
        ("Killed\n", {"told": "the program did not end well: Killed", "passed": False}),
    ],
)
def test_what_the_sanitizer_says(tmp_path, monkeypatch, text, row):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit 1\n", "utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert list(device_sanitizer.run("racecheck")) == [row]


def test_no_sanitizer(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert list(device_sanitizer.run("memcheck")) == [{"told": "compute-sanitizer is not on PATH"}]


WATCHED = """
from gpn_ref.config import ModelConfig
from gpn_ref.fast.cuda import device_sanitizer
from gpn_ref.fast.cuda.card import Card

launch, names = Card.launch, set()
Card.launch = lambda card, kernel, *arguments: (names.add(kernel.name), launch(card, kernel, *arguments))
sizes = {"n_heads": 1, "d_key": 4, "d_value": 4, "n_layers": 2}
device_sanitizer.small_run(ModelConfig(5, d_state=4, d_emb=4, d_ffn=4, **sizes))
print(*sorted(names))
"""


def test_the_sanitizer_sees_every_memory_kernel_and_our_products(numba_cuda):
    done = run("-c", WATCHED, environment=ENVIRONMENT | device_sanitizer.SETTINGS)
    finished, names = done.stdout.splitlines()
    assert finished == device_sanitizer.DONE
    memory = {"write_and_read", "read", "replay", "write_and_read_back", "read_back", "query_back", "addresses_back"}
    assert memory | {"multiply", "cross_entropy", "adamw"} <= set(names.split()), done.stderr
