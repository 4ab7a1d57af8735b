"""The card: arrays on it, launches, graphs of launches, and what can go wrong with them, each in one line.

Everything of the CUDA path goes through a `Card`. Under numba-cuda's simulator (NUMBA_ENABLE_CUDASIM=1, set before
anything imports numba) the same code runs on NumPy arrays, one Python thread for each of the card's: for tests.
"""

import os
import weakref
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda
from numba.cuda.core import config as numba_config

SIMULATED = bool(numba_config.ENABLE_CUDASIM)
numba_config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a batch of 16 is what it is
NEEDS = "backend 'cuda' needs"


class Tuning(NamedTuple):
    """How the work is cut for a card. Results do not depend on it, but for the order of sums."""

    threads: int = 512  # of a block that goes through rows of an array; a power of two
    blocks: int = 1024  # that go through an array as long as all parameters
    # the memory: a thread holds `rows` × `columns` entries of M, `width` threads lie side by side
    rows: int = 4
    columns: int = 4
    width: int = 8
    # our own matrix products: a thread has `micro` × `micro` results, a block `side` × `side` threads
    micro: int = 4
    side: int = 16
    depth: int = 16  # of the slices that a block works on at a time
    logits: int = 1 << 26  # numbers of the decoder that are at hand at a time: 256 MB in float32
    pieces: int = 64  # that long sums are cut into


# Small blocks: a simulated thread costs a millisecond, and small arrays then have all the edges of large ones.
SMALL = Tuning(threads=4, blocks=2, rows=2, columns=2, width=2, micro=2, side=2, depth=3, logits=600, pieces=3)


class Kernel:
    """A function for the card, compiled when it is first launched."""

    def __init__(self, function):
        self.function, self.name, self._compiled = function, function.__name__, None
        self.__doc__ = function.__doc__

    @property
    def compiled(self):
        if self._compiled is None:
            self._compiled = cuda.jit(self.function)
        return self._compiled


def kernel(function):
    """Decorates what a Card launches."""
    return Kernel(function)


class Card:
    """The first card of this machine, or the simulated one."""

    simulated = SIMULATED
    tuning = SMALL if SIMULATED else Tuning()
    poisoned = False  # whether new arrays are full of NaN, so that an entry that is never written shows

    def __init__(self):
        with clear_errors():
            if not SIMULATED:
                require_a_card()
            self.stream = cuda.stream()
        self._in_flight = []  # what is on its way to the card: it must not be freed before it is there

    def empty(self, shape, dtype):
        """An array whose entries are anything."""
        with clear_errors(int(np.prod(shape)) * np.dtype(dtype).itemsize):
            array = cuda.device_array(shape, dtype)
            if self.poisoned:
                self._fill_with_nan(array)
            return array

    def put(self, array, value):
        """Copy `value`, an array on the host, into `array`, which has its shape."""
        with clear_errors():
            value = np.ascontiguousarray(value, array.dtype).reshape(array.shape)
            array.copy_to_device(value, stream=self.stream)
            self._in_flight.append(value)

    def get(self, array):
        """A copy on the host, of everything launched so far."""
        self.wait()
        with clear_errors():
            return array.copy_to_host()

    def launch(self, kernel, grid, threads, *arguments):
        """Run a kernel after all that was launched before it."""
        with clear_errors():
            kernel.compiled[grid, threads, self.stream](*arguments)

    def wait(self):
        """Until all that was launched is done."""
        with clear_errors():
            self.stream.synchronize()
        self._in_flight.clear()

    def _fill_with_nan(self, array):
        """Every byte 255, which in integers is -1."""
        if SIMULATED:
            array._ary.view(np.uint8)[...] = 255
        else:
            from numba.cuda.cudadrv.driver import device_memset

            device_memset(array, 255, array.alloc_size, stream=self.stream)

    def address(self, array):
        """Where it lies, for a library."""
        return array.__cuda_array_interface__["data"][0]

    def capture(self, work):
        """What work() launches, as a graph that can be launched at once; None where there are no graphs."""
        if SIMULATED or os.environ.get("GPN_REF_CUDA_GRAPHS") == "0":
            return None
        return Graph(self, work)


@cache
def the_card():
    """The card, opened when first asked for."""
    return Card()


class Graph:
    """Launches that the card was told once. Their arguments, numbers and places of arrays, are those of that time."""

    def __init__(self, card, work):
        from cuda.bindings.driver import CUstreamCaptureMode
        from numba.cuda.cudadrv.driver import driver  # the bindings, with errors as exceptions

        self._driver, self._stream = driver, int(card.stream.handle)
        with clear_errors(), cuda.defer_cleanup():  # to free memory while launches are recorded is an error
            driver.cuStreamBeginCapture(self._stream, CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            try:
                work()
            except BaseException:
                with suppress(*ERRORS):
                    driver.cuStreamEndCapture(self._stream)
                raise
            graph = driver.cuStreamEndCapture(self._stream)
            self._executable = driver.cuGraphInstantiate(graph, 0)
            driver.cuGraphDestroy(graph)
        weakref.finalize(self, driver.cuGraphExecDestroy, self._executable).atexit = False

    def launch(self):
        with clear_errors():
            self._driver.cuGraphLaunch(self._executable, self._stream)


def require_a_card():
    """ValueError, in one line, unless the driver and a card answer."""
    from numba.cuda.cudadrv.driver import driver

    if not driver.is_available:
        cause = driver.initialization_error
        raise ValueError(f"{NEEDS} an NVIDIA card and its driver, and there is none that answers: {one_line(cause)}")
    cuda.current_context()


@contextmanager
def clear_errors(n_bytes=0):
    """What the driver and the compiler raise becomes one line of ours: ValueError, or MemoryError."""
    try:
        yield
    except ERRORS as error:
        text = one_line(error)
        if "OUT_OF_MEMORY" in text.upper():
            asked = f" for {n_bytes / 2**30:.2f} GiB more" if n_bytes else ""
            raise MemoryError(f"the card's memory is too small{asked}: {memory_in_words()}") from None
        for sign, meaning in SIGNS.items():
            if sign in text:
                raise ValueError(f"{NEEDS} {meaning}: {text}") from None
        raise ValueError(f"the card could not do it: {text}") from None


def errors_of_the_card():
    if SIMULATED:
        return ()
    from cuda.pathfinder import DynamicLibNotFoundError
    from numba.cuda.cudadrv.driver import LinkerError
    from numba.cuda.cudadrv.error import (
        CudaDriverError,
        CudaSupportError,
        NvrtcError,
        NvrtcSupportError,
        NvvmError,
        NvvmSupportError,
    )

    try:  # launches go through cuda.core, which keeps its exception to itself
        from cuda.core._utils.cuda_utils import CUDAError
    except ImportError:
        CUDAError = CudaDriverError
    return (
        CudaDriverError, CUDAError, LinkerError, CudaSupportError, NvvmError, NvvmSupportError, NvrtcError,
        NvrtcSupportError, DynamicLibNotFoundError,
    )  # fmt: skip


ERRORS = errors_of_the_card()
SIGNS = {  # part of what the driver or the compiler says -> what is missing
    "UNSUPPORTED_PTX_VERSION": "a newer driver, or an older CUDA compiler (nvidia-cuda-nvrtc and nvidia-nvvm)",
    "INSUFFICIENT_DRIVER": "a newer driver",
    "InsufficientDriver": "a newer driver",
    "DRIVER_MISMATCH": "a driver and a library of the driver of the same version; a restart may be due",
    "NO_DEVICE": "an NVIDIA card that this process may see",
    "CUDA driver library cannot be found": "an NVIDIA driver",
    "NVVM": "CUDA's compiler (pip install -r requirements-cuda.txt)",
    "nvvm": "CUDA's compiler (pip install -r requirements-cuda.txt)",
    "nvrtc": "CUDA's compiler (pip install -r requirements-cuda.txt)",
}


def one_line(error):
    return " ".join(str(error).split()) or type(error).__name__


def memory_in_words():
    try:
        free, total = cuda.current_context().get_memory_info()
    except Exception:
        return "how much is free is not known"
    return f"{free / 2**30:.2f} of its {total / 2**30:.1f} GiB are free"
