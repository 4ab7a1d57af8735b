"""The report of what the compiler makes of each kernel, and that it would tell if something were wrong.

With numba-cuda, CUDA's compiler and ptxas, but without a card.
"""

import ast
import importlib.util
import json
import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import commands
import numpy as np
import pytest

from gpn_ref.config import PRESETS
from gpn_ref.fast.cuda import ptx, report

CAPABILITIES = ("9.0", "7.5")
FOLDER = Path(report.__file__).parent


@pytest.fixture(scope="module")
def toolkit():
    """Where ptxas is. Skips the test where a part of the toolkit is missing; fails where it must be there, in CI."""
    try:
        found = ptx.find_ptxas()
        ptx.compile_ptx(recorded(lambda x: None), "9.0")
        return found
    except ValueError as error:
        if os.environ.get("GPN_REF_CUDA_TESTS") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def numba_cuda():
    if importlib.util.find_spec("numba_cuda") is None:
        needs = "needs numba-cuda: pip install -r requirements-cuda-test.txt"
        if os.environ.get("GPN_REF_CUDA_TESTS") == "1":
            pytest.fail(needs)
        pytest.skip(needs)


@pytest.fixture(scope="module")
def reports(toolkit, tmp_path_factory):
    """The whole command, a process for each capability: -> Result, what --json kept, the folder of --keep."""
    folder = tmp_path_factory.mktemp("report")
    files = {cc: (folder / f"{cc}.json", folder / cc) for cc in CAPABILITIES}
    processes = {
        cc: commands.start("fast.cuda.report", "--cc", cc, "--json", path, "--keep", kept)
        for cc, (path, kept) in files.items()
    }
    found = {}
    for cc, process in processes.items():
        out, err = process.communicate()
        done = commands.Result(process.returncode, out, err)
        assert done.status in (0, 1), done
        path, kept = files[cc]
        found[cc] = done, json.loads(path.read_text("utf-8")), kept
    return found


def recorded(function, threads=128):
    """The Launch of a kernel of one array."""
    with ptx.clear_errors():
        from gpn_ref.fast.cuda import card, recording
    recorder = recording.Recorder()
    recorder.launch(card.kernel(function), 1, threads, recorder.empty(1000, np.float32))
    return recorder.launches[0]


# ------------------------------------------------------------------------------------------------- all kernels
@pytest.mark.parametrize("cc", CAPABILITIES)
def test_every_kernel_is_as_it_must_be(reports, cc):
    done, kept, _ = reports[cc]
    assert done.status == 0 and done.err == "", done
    rows = kept["kernels"]
    for row in rows:
        assert row["faults"] == [], row
        assert row["stack"] == row["spills"] == row["float64"] == 0, row
        assert row["threads"] <= 1024 and row["shared"] <= 48 * 1024, row
        assert 0 < row["registers"] * row["threads"] <= 65536, row
        assert min(row["blocks"].values()) >= 1 and 0 < row["occupancy"] <= 1, row
    assert len({(row["kernel"], row["sizes"]) for row in rows}) == len(rows)
    assert {row["cc"] for row in rows} == {cc}
    assert done.out.splitlines()[-1].startswith(f"all {len(rows)} as they must be: no stack frame, no spills, ")


@pytest.mark.parametrize("cc", CAPABILITIES)
def test_what_is_printed_is_what_is_kept(reports, cc):
    done, kept, folder = reports[cc]
    lines = done.out.splitlines()
    assert lines[0].startswith(f"compute capability {cc}: a multiprocessor has 65,536 registers, ")
    assert lines[1].split() == [*report.HEAD, "by", "registers", "by", "shared", "by", "threads", "occupancy"]
    for line, row in zip(lines[2:], kept["kernels"], strict=False):
        cells = [row["kernel"], row["sizes"], *(f"{row[name]:,}" for name in report.HEAD[2:])]
        cells += [*map(str, row["blocks"].values()), f"{row['occupancy']:.0%}"]
        assert re.split("  +", line) == cells
    assert lines[2 + len(kept["kernels"])] == ""
    assert kept["float64"] is False and kept["versions"].keys() >= {"numba", "numba-cuda", "cuda-bindings"}
    code = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert len(code) == len(kept["kernels"])
    for name, text in code.items():
        assert f".target {ptx.architecture(cc)}\n" in text and name.endswith(f"-{ptx.architecture(cc)}.ptx"), name
    assert "write_and_read" in code[f"memory.write_and_read-tiny-{ptx.architecture(cc)}.ptx"]


def test_no_kernel_is_left_out(reports):
    """Each function in gpn_ref/fast/cuda that @kernel decorates is launched by what the report records."""
    written = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and "kernel" in map(ast.unparse, node.decorator_list):
                written.add(f"{path.stem}.{node.name}")
    assert len(written) > 30
    for _, kept, _ in reports.values():
        assert {row["kernel"].split()[0] for row in kept["kernels"]} == written


def test_all_presets_are_there(reports):
    """What is made for sizes is there for each; the three products, each once."""
    for _, kept, _ in reports.values():
        presets, sizes = ["tiny", "small", "paper-1layer", "paper-2layer", "paper-gpn"], {}
        for row in kept["kernels"]:
            sizes.setdefault(row["kernel"], []).append(row["sizes"])
        assert sizes["rows.mix_back"] == presets
        assert sizes["memory.write_and_read_back"] == presets[:4]
        assert sizes["memory.read_back"] == ["paper-2layer"]  # of a second layer
        assert sizes["whole.adamw"] == ["any"]
        products = [name for name in sizes if name.startswith("products.")]
        assert products == ["products.multiply", "products.multiply a_down keep", "products.multiply b_across"]
        assert {sizes[name][0] for name in products} == {"any"}


def test_the_decay_first_has_kernels_of_its_own(toolkit, tmp_path):
    from gpn_ref.fast.cuda import recording

    found = recording.of_a_model(replace(PRESETS["paper-1layer"], decay_first=True))
    found = [launch for launch in found if launch.name.startswith("memory.")]
    assert len(found) == 4
    for launch in found:
        row = ptx.measure(launch, "9.0", toolkit, tmp_path / "kernel.ptx")
        assert ptx.faults(row) == [], row


# ------------------------------------------------------------------------------------------ what it would tell
def with_a_literal():
    def sigmoid(x):
        x[0] = 1.0 / (1.0 + math.exp(-x[0]))

    return sigmoid


def with_an_index_at_run_time():
    from numba import cuda, float32

    def indexed(x):
        values = cuda.local.array(64, float32)
        for i in range(64):
            values[i] = x[i]
        for i in range(x.size):
            values[int(x[i])] += x[i]
        x[0] = values[int(x[1])]

    return indexed


def with_300_numbers_at_hand():
    """More than a thread has registers: all are read before the first is written."""
    lines = [f"    v{i} = x[{i}]" for i in range(300)] + [f"    x[{299 - i}] = v{i}" for i in range(300)]
    names = {"__name__": __name__}
    exec("\n".join(["def many(x):", *lines]), names)
    return names["many"]


def with_52_kib_of_shared_memory():
    from numba import cuda, float32

    def wide(x):
        values = cuda.shared.array((13, 1024), float32)
        values[int(x[0]), 0] = x[0]
        cuda.syncthreads()
        x[0] = values[int(x[1]), int(x[2])]

    return wide


def doing_nothing():
    return lambda x: None


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize(
    ("make", "threads", "messages"),
    [
        (with_a_literal, 128, [r"has \d+ float64 instructions"]),
        (with_an_index_at_run_time, 128, ["has a stack frame of 256 bytes"]),
        (with_300_numbers_at_hand, 128, [r"spills \d{2,} bytes", r"has a stack frame of \d{2,} bytes"]),
        (
            with_300_numbers_at_hand,
            512,
            [
                r"spills \d{2,} bytes",
                r"has a stack frame of \d{2,} bytes",
                r"has 25\d registers in each of 512 threads, more than there are",
            ],
        ),
        (
            with_52_kib_of_shared_memory,
            128,
            [r"ptxas refuses it: uses too much shared data \(0xd000 bytes, 0xc000 max\)"],
        ),
        (doing_nothing, 1056, ["has 1056 threads in a block, more than 1024"]),
        (doing_nothing, 1024, []),
    ],
)
def test_what_is_not_as_it_must_be_is_told(toolkit, tmp_path, cc, make, threads, messages):
    row = ptx.measure(recorded(make(), threads=threads), cc, toolkit, tmp_path / "kernel.ptx")
    faults = ptx.faults(row)
    assert len(faults) == len(messages), faults
    for fault, message in zip(faults, messages, strict=True):
        assert re.fullmatch(message, fault), faults
    if make is with_a_literal:
        assert ptx.faults(row, float64=True) == []


def test_the_command_fails_and_names_the_kernel(toolkit, capsys, monkeypatch, tmp_path):
    from gpn_ref.fast.cuda import recording

    bad = {recorded(with_an_index_at_run_time()): ["tiny"], recorded(with_52_kib_of_shared_memory()): ["tiny", "small"]}
    monkeypatch.setattr(recording, "launches", lambda names, dtype: bad)
    path = tmp_path / "report.json"
    done = commands.call(capsys, report, "--preset", "tiny", "small", "--cc", "7.5", "--json", path)
    assert done.status == 1
    told = done.out.splitlines()
    assert told[-2] == "test_report.indexed (tiny, 7.5) has a stack frame of 256 bytes"
    refused = "test_report.wide (any, 7.5) ptxas refuses it: uses too much shared data (0xd000 bytes, 0xc000 max)"
    assert told[-1] == refused
    assert told[3].split() == ["test_report.wide", "any", "128", "-", "-", "-", "-", "0", "-", "-", "-", "-"]
    assert [len(row["faults"]) for row in json.loads(path.read_text("utf-8"))["kernels"]] == [1, 1]


# ------------------------------------------------------------------------------------------- numbers by themselves
def test_the_numbers_that_ptxas_prints():
    text = """ptxas info    : 8 bytes gmem
ptxas info    : Compiling entry function 'kernel' for 'sm_90'
ptxas info    : Function properties for kernel
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 95 registers, used 1 barriers, 16 bytes cumulative stack size, 5256 bytes smem, 400 bytes cmem[0]
ptxas info    : Function properties for called
    32 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
"""
    assert ptx.usage(text) == {"registers": 95, "shared": 5256, "stack": 32, "spills": 35}
    text = text.replace(", 5256 bytes smem", "")
    assert ptx.usage(text)["shared"] == 0
    with pytest.raises(ValueError, match="ptxas does not tell registers and stack frame: 'ptxas info"):
        ptx.usage("ptxas info    : 8 bytes gmem")


def test_float64_instructions_are_counted():
    text = """
\t.reg .f64 \t%fd<5>;
\t.param .f64 p;
\t// .f64
\tcvt.f64.f32 \t%fd1, %f1;
\tmul.f64 \t%fd2, %fd1, 0d3FE0000000000000;
@%p1 add.f64 \t%fd3, %fd2, %fd1;
\tcvt.rn.f32.f64 \t%f2, %fd3;
\tmul.f32 \t%f3, %f2, %f1;
"""
    assert ptx.float64_instructions(text) == 4


@pytest.mark.parametrize(
    ("cc", "threads", "registers", "shared", "blocks"),
    [
        # 95 registers are 96, a warp has 3,072: 5 in each quarter, 20 in all, and 8 are a block. 5,256 + 1,024 bytes of
        # shared memory are 6,400; 233,472 / 6,400 = 36, but 32 blocks are the most
        ("9.0", 256, 95, 5256, {"registers": 2, "shared": 32, "threads": 8}),
        # 5,376 bytes
        ("7.5", 256, 95, 5256, {"registers": 2, "shared": 12, "threads": 4}),
        # 136 registers: a warp has 4,352, 3 in each quarter, 12 in all; two blocks of 6 warps, none of 16
        ("9.0", 192, 136, 0, {"registers": 2, "shared": 32, "threads": 10}),
        ("9.0", 512, 136, 0, {"registers": 0, "shared": 32, "threads": 4}),
        # exactly all registers
        ("7.5", 512, 128, 0, {"registers": 1, "shared": 16, "threads": 2}),
        # exactly all shared memory: 48 KiB and its reserve four times, 32 KiB twice
        ("9.0", 32, 16, 49152, {"registers": 32, "shared": 4, "threads": 32}),
        ("7.5", 32, 16, 32768, {"registers": 16, "shared": 2, "threads": 16}),
        # one thread takes a whole warp
        ("9.0", 1, 32, 0, {"registers": 32, "shared": 32, "threads": 32}),
        ("9.0", 1056, 32, 0, {"registers": 1, "shared": 32, "threads": 1}),
    ],
)
def test_blocks_that_fit(cc, threads, registers, shared, blocks):
    assert ptx.blocks_that_fit(threads, registers, shared, ptx.LIMITS[cc]) == blocks


def test_arguments_have_the_types_that_numba_gives_them(numba_cuda):
    from numba import typeof

    from gpn_ref.fast.cuda import recording

    for dtype in (np.float32, np.float64, np.int32):
        for shape in ((7,), (7, 3), (1, 3)):
            assert recording.type_of(recording.Recorder().empty(shape, dtype)) == typeof(np.zeros(shape, dtype))
    for value in (3, np.float32(2), np.float64(2)):
        assert recording.type_of(value) == typeof(value)


def test_a_launch_is_recorded_once_for_each_type_and_number_of_threads(numba_cuda):
    from gpn_ref.fast.cuda import card, recording

    kernel, recorder = card.kernel(doing_nothing()), recording.Recorder()
    one, two = recorder.empty(5, np.float32), recorder.empty((5, 1), np.float32)
    for threads, array in ((32, one), (32, one), (64, one), (64, two), (64, recorder.empty(9, np.float32))):
        recorder.launch(kernel, 1, threads, array)
    assert [(launch.threads, launch.types[0].ndim) for launch in recorder.launches] == [(32, 1), (64, 1), (64, 2)]


# ------------------------------------------------------------------------------------------------ what is missing
@pytest.fixture
def no_ptxas(monkeypatch, tmp_path):
    """No ptxas anywhere; `tmp_path` is CUDA_HOME, `tmp_path / "path"` is on PATH."""

    def files(name):
        raise ptx.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(ptx.metadata, "files", files)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))


def executable(path, text="#!/bin/sh\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_ptxas_is_looked_for_in_its_wheel_then_in_cuda_home_then_on_path(no_ptxas, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="the report needs ptxas"):
        ptx.find_ptxas()
    on_path = executable(tmp_path / "path" / "ptxas")
    assert ptx.find_ptxas() == on_path
    at_home = executable(tmp_path / "bin" / "ptxas")
    assert ptx.find_ptxas() == at_home
    in_wheel = Path(executable(tmp_path / "wheel" / "bin" / "ptxas"))

    class File(type(ptx.metadata.PackagePath("bin/ptxas"))):
        def locate(self):
            return tmp_path / "wheel" / self

    monkeypatch.setattr(ptx.metadata, "files", lambda name: [File("bin/nvcc"), File("bin/ptxas")])
    assert ptx.find_ptxas() == str(in_wheel)


def test_no_ptxas(no_ptxas, capsys):
    done = commands.call(capsys, report, "--preset", "tiny")
    message = (
        "the report needs ptxas, in this environment (pip install -r requirements-cuda-test.txt), in CUDA_HOME/bin"
    )
    commands.assert_one_line(done, message)


def test_no_numba_cuda(capsys, monkeypatch):
    monkeypatch.setattr(report, "find_ptxas", lambda: "ptxas")
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    done = commands.call(capsys, report, "--preset", "tiny")
    message = "the report needs numba-cuda and CUDA's compiler (pip install -r requirements-cuda-test.txt): "
    commands.assert_one_line(done, message)
    assert done.out == "" and "numba_cuda" in done.err


def test_no_compiler(numba_cuda, capsys, monkeypatch):
    from cuda.pathfinder import DynamicLibNotFoundError
    from numba import cuda
    from numba.cuda.cudadrv.error import NvvmSupportError

    monkeypatch.setattr(report, "find_ptxas", lambda: "ptxas")
    for error in (NvvmSupportError("libNVVM is not available"), DynamicLibNotFoundError("no libnvrtc.so\n  listdir")):

        def compile_ptx(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr(cuda, "compile_ptx", compile_ptx)
        done = commands.call(capsys, report, "--preset", "tiny")
        message = f"CUDA's compiler (pip install -r requirements-cuda-test.txt): {str(error).splitlines()[0]}"
        commands.assert_one_line(done, message)
        assert "listdir" not in done.err


@pytest.mark.skipif(os.name != "posix", reason="needs a shell, for a made-up ptxas")
@pytest.mark.parametrize(
    "says",
    [
        "ptxas kernel.ptx, line 9; fatal   : Unsupported .version 9.0; current version is '8.4'",
        "ptxas fatal   : Value 'sm_75' is not defined for option 'gpu-name'",
    ],
)
def test_a_ptxas_of_another_age(tmp_path, says):
    path = tmp_path / "kernel.ptx"
    path.write_text("", encoding="utf-8")
    fake = executable(tmp_path / "ptxas", f'#!/bin/sh\necho "{says}" >&2\nexit 255\n')
    with pytest.raises(ValueError, match="needs a ptxas of the compiler's age .*ptxas says: [UV]"):
        ptx.assemble(fake, path, "7.5")


def test_the_simulator_has_no_report(numba_cuda, capsys, monkeypatch):
    from gpn_ref.fast.cuda import card

    monkeypatch.setattr(card, "SIMULATED", True)
    monkeypatch.setattr(report, "find_ptxas", lambda: "ptxas")
    done = commands.call(capsys, report, "--preset", "tiny")
    commands.assert_one_line(done, "the report needs the compiler and not the simulator: unset NUMBA_ENABLE_CUDASIM")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cc", "9.1"], "unknown compute capability '9.1'; did you mean '9.0'?"),
        (["--preset", "tny"], "unknown preset 'tny'; did you mean 'tiny'?"),
        (["--json", "no/such/folder/report.json"], "No such file or directory"),
        (["--keep", __file__], "File exists"),
    ],
)
def test_bad_flags(capsys, arguments, message):
    commands.assert_one_line(commands.call(capsys, report, *arguments), message)


@pytest.mark.parametrize("file", ["requirements-cuda.txt", "requirements-cuda-test.txt"])
def test_one_release_of_the_toolkit(file):
    """What a user's kernels are compiled with is what the tests compile them with."""
    text = (commands.ROOT / file).read_text("utf-8")
    assert re.findall(r"^numba-cuda\[cu13\](\S+)", text, re.MULTILINE) == [">=0.30.4"]
    assert re.findall(r"^cuda-toolkit\[\w+\](\S+)", text, re.MULTILINE) == ["==13.0.*"]
