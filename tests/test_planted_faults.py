"""The checks are checked: each fault of planted_faults.py, planted into a copy of the source, must be caught."""

import dataclasses
import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from planted_faults import BACKWARD, BASELINES, FAST, FORWARD, MEASURES
from reference.test_golden import CASES, TOLERANCE, load_case
from strategies import assert_equal, largest_difference, point, results, results_of

import gpn_ref
import gpn_ref.gradcheck as gradcheck
from gpn_ref.config import ModelConfig
from gpn_ref.files import DATA

PACKAGE, TESTS = Path(gpn_ref.__file__).parent, Path(__file__).parent


def fault_name(fault):
    return f"{fault[0]}.{fault[1]}: {fault[3]}"[:90]


@pytest.fixture
def planted(tmp_path):
    """A function that imports the package from a copy with one line replaced; the real one returns at the end."""
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "gpn_ref"}
    path = list(sys.path)

    def plant(file, function, line, replacement, folder="reference"):
        module = importlib.import_module(".".join(["gpn_ref", *folder.split("/"), file]))
        source = inspect.getsource(getattr(module, function))
        lines = source.split("\n")
        places = [i for i, text in enumerate(lines) if text.strip() == line]
        assert places, f"{file}.py, {function}: there is no line {line!r}"
        for i in places:
            indent = lines[i][: len(lines[i]) - len(lines[i].lstrip())]
            lines[i] = indent + replacement
        package = tmp_path / "gpn_ref"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "data"))
        target = package / folder / f"{file}.py"
        text = target.read_text(encoding="utf-8")
        assert text.count(source) == 1
        target.write_text(text.replace(source, "\n".join(lines)), encoding="utf-8")
        forget()
        sys.path.insert(0, str(tmp_path))
        importlib.invalidate_caches()
        module = importlib.import_module("gpn_ref.gradcheck")
        assert Path(module.__file__).is_relative_to(tmp_path)
        return module

    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] == "gpn_ref"]:
            del sys.modules[name]

    yield plant
    forget()
    sys.modules.update(kept)
    sys.path[:] = path


def agrees(module, kind="GPN"):
    """Whether the gradient check of this copy of the package passes, along two directions of each array."""
    configs = [config for name, config in module.CONFIGS.items() if name.startswith(kind)]
    return all(row.passed for config in configs for row in module.check(config, 0, 2).rows)


@pytest.mark.parametrize("kind", ["GPN", "GDN", "Transformer"])
def test_without_a_fault_the_check_passes(kind):
    assert agrees(gradcheck, kind)


def test_a_line_that_is_no_longer_there_fails(planted):
    with pytest.raises(AssertionError, match="there is no line 'd_x = 0'"):
        planted("ops", "linear_backward", "d_x = 0", "pass")


@pytest.mark.parametrize("fault", BACKWARD, ids=fault_name)
def test_the_gradient_check_catches(fault, planted):
    try:
        assert not agrees(planted(*fault))
    except (ValueError, IndexError) as error:  # shapes that do not fit are a catch too, and the plainest
        assert "shape" in str(error) or "broadcast" in str(error) or "index" in str(error)


@pytest.mark.parametrize("fault", BASELINES, ids=fault_name)
def test_the_gradient_check_of_the_baselines_catches(fault, planted):
    kind = {"transformer": "Transformer", "gated_deltanet": "GDN"}[fault[0]]
    assert not agrees(planted(*fault, "baselines"), kind)


@pytest.mark.parametrize("fault", FORWARD, ids=fault_name)
def test_the_golden_numbers_catch(fault, planted):
    cases = [load_case(name) for name in CASES if name != "gpn_m_chained"]
    planted(*fault)
    package = importlib.import_module("gpn_ref")
    worst = 0.0
    for arrays, config, params in cases:
        model = package.load_model(package.ModelConfig(**dataclasses.asdict(config)), "numpy")
        worst = max(worst, largest_difference(model.forward(params, arrays["inputs"]).logits, arrays["logits"]))
    assert worst > TOLERANCE


SMALL = [
    ModelConfig(5, 5, 4, 6, n_heads=2, d_key=4, d_value=3, n_layers=2, decode_bias=True),
    ModelConfig(5, 4, 5, 4, n_heads=2, d_key=5, d_value=3, decay_first=True),
]
POINTS = [(config, point(config, 0), results("numpy", config, point(config, 0))) for config in SMALL]


def train(package, config, at, backend):
    """The parameters after three steps, the first of which are clipped."""
    model = package.load_model(package.ModelConfig(**dataclasses.asdict(config)), backend)
    learner = model.learner(at.params, package.TrainConfig(clip_norm=1.5))
    for _ in range(3):
        learner.step(at.inputs, at.targets, 0.1)
    return learner.params()


TRAINED = train(gpn_ref, SMALL[0], POINTS[0][1], "numpy")


def equals_the_reference(package):
    """Whether the compiled path of this copy of the package computes and trains what the reference does."""
    importlib.import_module("gpn_ref.fast.cpu.decode").TOKENS = 4
    for config, at, exact in POINTS:
        bound = package.load_model(package.ModelConfig(**dataclasses.asdict(config)), "numba").bind(at.params)
        at = at._replace(state=package.State(*at.state), d_state=package.State(*at.d_state))
        bound.loss_and_grads(*at[1:])  # the next window is given the arrays of this one
        try:
            assert_equal(results_of(bound, at), exact, np.float64)
        except AssertionError:
            return False
    trained = train(package, SMALL[0], POINTS[0][1], "numba")
    return max(largest_difference(trained[name], TRAINED[name]) for name in TRAINED) < 1e-9


@pytest.fixture
def uncompiled(monkeypatch):
    """What is imported now stays Python, which does the same and needs no seconds to compile."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)


def test_without_a_fault_the_compiled_path_equals_the_reference(planted, uncompiled):
    planted("memory", "read", "recalled[u] = zero", "recalled[u] = zero", "fast/cpu")
    assert equals_the_reference(importlib.import_module("gpn_ref"))


@pytest.mark.parametrize("fault", FAST, ids=fault_name)
def test_the_equality_with_the_reference_catches(fault, planted, uncompiled):
    planted(*fault, "fast/cpu")
    with np.errstate(all="ignore"):
        assert not equals_the_reference(importlib.import_module("gpn_ref"))


@pytest.mark.parametrize("fault", MEASURES, ids=lambda fault: f"{fault[0]}: {fault[2]}"[:90])
def test_the_tests_of_a_measure_catch(fault, tmp_path):
    file, line, replacement, test = fault
    shutil.copytree(PACKAGE, tmp_path / "gpn_ref", ignore=shutil.ignore_patterns("__pycache__", "data"))
    (tmp_path / "data").symlink_to(DATA)
    target = tmp_path / "gpn_ref" / file
    lines = target.read_text(encoding="utf-8").split("\n")
    places = [i for i, text in enumerate(lines) if text.strip() == line]
    assert len(places) == 1, f"{file}: the line {line!r} is there {len(places)} times"
    lines[places[0]] = lines[places[0]].replace(line, replacement)
    target.write_text("\n".join(lines), encoding="utf-8")
    disable = "0" if file == "baselines/engine.py" else "1"  # uncompiled, there is one thread, and nothing to add up
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1", "NUMBA_DISABLE_JIT": disable}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(TESTS / test)]
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-2000:]  # 0: nothing failed; others: pytest could not run
    assert " failed" in done.stdout
