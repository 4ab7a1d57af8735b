"""The checks are checked: each fault of planted_faults.py, planted into a copy of the source, must be caught."""

import dataclasses
import importlib
import inspect
import shutil
import sys
from pathlib import Path

import pytest
from planted_faults import BACKWARD, FORWARD
from reference.test_golden import CASES, TOLERANCE, load_case
from strategies import largest_difference

import gpn_ref
import gpn_ref.gradcheck as gradcheck

REFERENCE = Path(gpn_ref.__file__).parent / "reference"


def fault_name(fault):
    return f"{fault[0]}.{fault[1]}: {fault[3]}"[:90]


@pytest.fixture
def planted(tmp_path):
    """A function that imports the package from a copy with one line replaced; the real one returns at the end."""
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "gpn_ref"}
    path = list(sys.path)

    def plant(file, function, line, replacement):
        source = inspect.getsource(getattr(importlib.import_module(f"gpn_ref.reference.{file}"), function))
        lines = source.split("\n")
        places = [i for i, text in enumerate(lines) if text.strip() == line]
        assert places, f"{file}.py, {function}: there is no line {line!r}"
        for i in places:
            indent = lines[i][: len(lines[i]) - len(lines[i].lstrip())]
            lines[i] = indent + replacement
        package = tmp_path / "gpn_ref"
        shutil.copytree(REFERENCE.parent, package, ignore=shutil.ignore_patterns("__pycache__", "data"))
        target = package / "reference" / f"{file}.py"
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


def agrees(module):
    """Whether the gradient check of this copy of the package passes, along two directions of each array."""
    return all(row.passed for config in module.CONFIGS.values() for row in module.check(config, 0, 2).rows)


def test_without_a_fault_the_check_passes():
    assert agrees(gradcheck)


def test_a_line_that_is_no_longer_there_fails(planted):
    with pytest.raises(AssertionError, match="there is no line 'd_x = 0'"):
        planted("ops", "linear_backward", "d_x = 0", "pass")


@pytest.mark.parametrize("fault", BACKWARD, ids=fault_name)
def test_the_gradient_check_catches(fault, planted):
    try:
        assert not agrees(planted(*fault))
    except (ValueError, IndexError) as error:  # shapes that do not fit are a catch too, and the plainest
        assert "shape" in str(error) or "broadcast" in str(error) or "index" in str(error)


@pytest.mark.parametrize("fault", FORWARD, ids=fault_name)
def test_the_golden_numbers_catch(fault, planted):
    cases = [load_case(name) for name in CASES if name != "gpn_m_chained"]
    planted(*fault)
    package = importlib.import_module("gpn_ref")
    worst = 0.0
    for arrays, config, params in cases:
        model = package.load_model(package.ModelConfig(**dataclasses.asdict(config)))
        worst = max(worst, largest_difference(model.forward(params, arrays["inputs"]).logits, arrays["logits"]))
    assert worst > TOLERANCE
