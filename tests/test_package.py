"""The package as others meet it: what the wheel holds, what an import costs, and who imports whom."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from math import isfinite
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "gpn_ref").rglob("*.py"))


def run(*arguments, **options):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of what a clone holds, built from a copy, since a build leaves files beside its sources."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "requirements.txt", "requirements-test.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("gpn_ref", "data"):
        shutil.copytree(ROOT / name, source / name)
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", built, source)
    [path] = built.iterdir()
    return path


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(wheel):
    data = [path for path in (ROOT / "data").rglob("*") if path.is_file()]
    expected = {path.relative_to(ROOT).as_posix() for path in MODULES}
    expected |= {f"gpn_ref/{path.relative_to(ROOT).as_posix()}" for path in data}
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == expected


def test_the_metadata_lists_exactly_the_requirement_files(metadata):
    listed = sorted(line.replace(" ", "") for line in metadata.get_all("Requires-Dist"))
    expected = (ROOT / "requirements.txt").read_text(encoding="utf-8").split()
    tests = (ROOT / "requirements-test.txt").read_text(encoding="utf-8").split()
    assert listed == sorted(expected + [f'{requirement};extra=="test"' for requirement in tests])


def test_pyproject_and_the_citation_agree(metadata):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(version|license): (.+)$", citation, re.MULTILINE))
    assert found == {"version": project["version"], "license": project["license"]}
    assert (metadata["Version"], metadata["License-Expression"]) == (found["version"], found["license"])


def test_the_wheel_trains_ten_steps_elsewhere(wheel, tmp_path):
    installed, out = tmp_path / "installed", tmp_path / "out"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", installed, wheel)
    elsewhere = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(installed)}}
    found = run("-c", "import gpn_ref.files; print(gpn_ref.files.DATA)", **elsewhere)
    assert Path(found.strip()) == installed / "gpn_ref" / "data"
    run("-c", "import gpn_ref.fast.cpu.engine", **elsewhere)  # compiling it anew would take a quarter of a minute
    flags = ["--backend", "numpy", "--steps", "10", "--preset", "nano", "--out", out]
    run("-m", "gpn_ref.train_tiny", *flags, **elsewhere)
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert metrics[-1]["step"] == 10
    assert all(isfinite(line["loss"]) for line in metrics if "loss" in line)


def test_an_import_is_light_and_opens_no_connection():
    code = """
import sys
sys.addaudithook(lambda event, _: event.startswith("socket.") and sys.exit(event))
import gpn_ref
print(sorted({"matplotlib", "tiktoken", "requests", "safetensors", "tqdm", "numba"} & sys.modules.keys()))
"""
    assert run("-c", code).strip() == "[]"


# Who may import whom. A room is a module or folder of gpn_ref; one without a row may import all but backends. Where a
# row names one module of a room, no other module of it may be imported.
MAY_IMPORT = {
    "config": set(),
    "cli": set(),
    "files": set(),
    "random_state": set(),
    "parameters": {"config", "random_state"},
    "reference": {"config", "parameters", "reference"},
    "fast": {"config", "parameters", "reference", "fast", "training.optimizer", "cli", "files"},
    "baselines": {"config", "parameters", "reference", "fast", "training.optimizer", "baselines"},
}
BACKENDS = {"reference", "fast", "baselines"}
MAY_IMPORT_BACKENDS = {"model", "architectures", "device check"} | BACKENDS


def room(name):
    """The room of a dotted module name: gpn_ref.text.batches -> text. The check of a card is a room within one."""
    if name.startswith("gpn_ref.fast.cuda.device_"):
        return "device check"
    return (name.split(".") + ["__init__"])[1]


def imports():
    """Every import, also those inside functions: (the importing module of gpn_ref, the imported module)."""
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in MODULES}
    names = {path: name.removesuffix(".__init__") for path, name in names.items()}
    for path, importing in names.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((importing, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{importing} has a relative import"
                found = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from ((importing, name if name in names.values() else node.module) for name in found)


def own_imports():
    return [(a, b) for a, b in imports() if b.split(".")[0] == "gpn_ref"]


def test_the_requirements_are_what_the_package_imports():
    imported = {name.split(".")[0] for _, name in imports()} - sys.stdlib_module_names - {"gpn_ref"}
    imported -= {"llvmlite", "jax", "torch"}  # numba's own, of just the version that it wants; of benchmarks only
    distributions = {"numba_cuda": "numba-cuda", "cuda": "cuda-bindings", "nvmath": "nvmath-python"}
    card = {name for name in distributions if name in imported}
    assert imported - card == required("requirements.txt")
    assert {distributions[name] for name in card} <= required("requirements-cuda.txt")


def required(file):
    """The names of the distributions that a file of requirements lists."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    lines = [line.split("#")[0].strip() for line in lines]
    return {re.split("[][<>=!~ ]", line)[0] for line in lines if line}


def test_every_room_imports_only_what_it_may():
    for importing, imported in own_imports():
        allowed = MAY_IMPORT.get(room(importing), {room(imported)})
        welcome = {room(imported), imported.removeprefix("gpn_ref.")} & allowed
        assert welcome, f"{importing} must not import {imported}"
        backend = room(imported) in BACKENDS and room(importing) not in MAY_IMPORT_BACKENDS
        assert not backend, f"{importing} must speak to a Model, not to {imported}"


def test_no_imports_go_in_a_circle():
    needs = {}
    for importing, imported in own_imports():
        needs.setdefault(importing, set()).add(imported)
    while leaves := {name for name in needs if not needs[name] & needs.keys()}:
        needs = {name: needs[name] for name in needs.keys() - leaves}
    assert needs == {}
