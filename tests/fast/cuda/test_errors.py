"""What is missing, and what goes wrong on a card: one line each. And who imports numba-cuda: nobody, unless asked."""

import json
import os
import re

import numpy as np
import pytest
from commands import ENVIRONMENT as COMMANDS
from fast.cuda.simulated import ROOT, require_numba_cuda, run

WITHOUT_SIMULATOR = {name: value for name, value in COMMANDS.items() if name != "NUMBA_ENABLE_CUDASIM"}
COMMAND = ["-m", "gpn_ref.train_tiny", "--preset", "nano", "--steps", 1, "--backend", "cuda"]


def ended_with_one_line(done, *parts):
    """Status 2, and one line that has these parts."""
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("python -m gpn_ref."), line
    for part in parts:
        assert part in line


@pytest.fixture(scope="module")
def no_card():
    """Skips where there is one."""
    require_numba_cuda()
    done = run("-c", "from numba import cuda; print(cuda.is_available())", environment=WITHOUT_SIMULATOR)
    if done.stdout.strip() == "True":
        pytest.skip("this machine has a card")


@pytest.mark.parametrize("command", [COMMAND, ["-m", "gpn_ref.sample", "--backend", "cuda"]])
def test_without_a_card(command, no_card, tmp_path):
    done = run(*command, environment=WITHOUT_SIMULATOR, cwd=tmp_path)
    ended_with_one_line(done, "backend 'cuda' needs an NVIDIA card and its driver, and there is none that answers: ")
    assert os.listdir(tmp_path) == []


def test_without_a_card_python_gets_a_value_error(no_card):
    code = """
from gpn_ref import PRESETS, load_model
for _ in range(2):
    try:
        load_model(PRESETS["nano"], "cuda")
    except ValueError as error:
        print(error)
"""
    done = run("-c", code, environment=WITHOUT_SIMULATOR)
    one, two = done.stdout.splitlines()
    assert one == two and one.startswith("backend 'cuda' needs an NVIDIA card and its driver")


def test_without_numba_cuda(tmp_path):
    """A module of that name which cannot be imported stands before the installed one."""
    (tmp_path / "numba_cuda.py").write_text("raise ImportError(\"No module named 'numba_cuda'\")", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = run(*COMMAND, environment=WITHOUT_SIMULATOR | {"PYTHONPATH": path}, cwd=tmp_path)
    message = "backend 'cuda' needs numba-cuda (pip install -r requirements-cuda.txt), which does not import: No module"
    ended_with_one_line(done, message)


def test_a_model_that_no_kernel_computes(tmp_path):
    done = run(*COMMAND, "--model", "transformer", "--preset", "tiny", environment=WITHOUT_SIMULATOR, cwd=tmp_path)
    ended_with_one_line(done, "backend 'cuda' has no transformer; it must be one of numpy, numba")


@pytest.fixture
def card(monkeypatch):
    """The module, as it is with a card; nothing in it opens one."""
    require_numba_cuda()
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        pytest.skip("needs a process without NUMBA_ENABLE_CUDASIM=1")
    from gpn_ref.fast.cuda import card

    monkeypatch.setattr(card, "memory_in_words", lambda: "1.00 of its 15.0 GiB are free")
    return card


def driver_error(text):
    from numba.cuda.cudadrv.driver import CudaAPIError

    return CudaAPIError(2, f"Call to cuFunction results in {text}")


def library_error(text):
    from cuda.core._utils.cuda_utils import CUDAError

    return CUDAError(f"{text}: what it means\nin words")


COMPILER = "CUDA's compiler (pip install -r requirements-cuda.txt)"
MISSING = {
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "a newer driver, or an older CUDA compiler",
    "CUDA_ERROR_INSUFFICIENT_DRIVER": "a newer driver",
    "cudaErrorInsufficientDriver": "a newer driver",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "a driver and a library of the driver of the same version",
    "CUDA_ERROR_NO_DEVICE": "an NVIDIA card that this process may see",
}


@pytest.mark.parametrize("make", [driver_error, library_error])
@pytest.mark.parametrize("text", MISSING)
def test_what_the_driver_says_is_missing(card, make, text):
    with pytest.raises(ValueError) as caught, card.clear_errors():
        raise make(text)
    message = str(caught.value)
    assert message.startswith(f"backend 'cuda' needs {MISSING[text]}") and text in message and "\n" not in message


def compiler_errors():
    from cuda.pathfinder import DynamicLibNotFoundError
    from numba.cuda.cudadrv.error import NvrtcSupportError, NvvmSupportError

    return [
        NvvmSupportError("libNVVM is not available"),
        NvrtcSupportError("nvrtc is not available"),
        DynamicLibNotFoundError('Failure finding "libnvvm.so"'),
        DynamicLibNotFoundError('Failure finding "libnvrtc.so"'),
    ]


@pytest.mark.parametrize("which", range(4))
def test_without_a_compiler(card, which):
    with pytest.raises(ValueError) as caught, card.clear_errors():
        raise compiler_errors()[which]
    assert str(caught.value).startswith(f"backend 'cuda' needs {COMPILER}: ")


@pytest.mark.parametrize("make", [driver_error, library_error])
def test_a_card_that_is_full(card, make):
    with pytest.raises(MemoryError) as caught, card.clear_errors(3 << 30):
        raise make("CUDA_ERROR_OUT_OF_MEMORY")
    message = "the card's memory is too small for 3.00 GiB more: 1.00 of its 15.0 GiB are free"
    assert str(caught.value) == message
    with pytest.raises(MemoryError) as caught, card.clear_errors():
        raise make("CUDA_ERROR_OUT_OF_MEMORY")
    assert str(caught.value) == "the card's memory is too small: 1.00 of its 15.0 GiB are free"


def test_a_card_that_is_full_is_told_with_what_was_asked_for(card, monkeypatch):
    """Where the arrays are made; and the command's line."""

    def full(shape, dtype):
        raise driver_error("CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(card.cuda, "device_array", full)
    one = object.__new__(card.Card)  # without opening it
    with pytest.raises(MemoryError, match="too small for 2.00 GiB more: 1.00 of its 15.0 GiB are free"):
        one.empty((1 << 19, 1 << 10), np.float32)


def test_how_much_memory_is_free_may_not_be_known(monkeypatch):
    require_numba_cuda()
    from gpn_ref.fast.cuda import card

    def lost():
        raise driver_error("CUDA_ERROR_CONTEXT_IS_DESTROYED")

    monkeypatch.setattr(card.cuda, "current_context", lost)
    assert card.memory_in_words() == "how much is free is not known"


def test_an_error_that_nobody_foresaw_is_a_line_too(card):
    with pytest.raises(ValueError, match=re.escape("the card could not do it: [2] Call to cuFunction results in X")):
        with card.clear_errors():
            raise driver_error("X")


def test_our_own_mistakes_keep_their_traceback(card):
    with pytest.raises(KeyError), card.clear_errors():
        raise KeyError("lost")


# ------------------------------------------------------------------------------------------ who imports numba-cuda
def commands():
    """Names of the modules that are one, but for this folder's."""
    for path in sorted((ROOT / "gpn_ref").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        if "\n    cli.run(" in path.read_text(encoding="utf-8") and not name.startswith("gpn_ref.fast.cuda."):
            yield name


LOADED = """
import json, runpy, sys
from contextlib import redirect_stdout
from io import StringIO
if sys.argv[1:]:
    sys.argv = [sys.argv[1], "--help"]
    try:
        with redirect_stdout(StringIO()):
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, end
else:
    import gpn_ref
    model = gpn_ref.load_model(gpn_ref.PRESETS["nano"])
    model.forward(gpn_ref.init_params(model.config), [[1, 2]])
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] in ("numba_cuda", "cuda", "nvmath")
    or name.startswith(("numba.cuda.cudadrv", "gpn_ref.fast.cuda")))))
"""


@pytest.mark.parametrize("command", [None, *commands()])
def test_nobody_imports_numba_cuda_unless_asked(command):
    """Nor opens the driver: neither the package and its other backends, nor any command's --help."""
    done = run("-c", LOADED, *([command] if command else []), environment=WITHOUT_SIMULATOR)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_these_are_the_commands():
    assert {"gpn_ref.train_tiny", "gpn_ref.inspect", "gpn_ref.text.tokenizer"} < set(commands())
