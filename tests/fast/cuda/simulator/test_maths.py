"""What all kernels share: functions of one number, and sums of a block. And that no kernel is without a test."""

import re
from pathlib import Path

import numpy as np
import pytest
from fast.cuda.simulator import turns
from fast.cuda.simulator.alone import exactly, nan, normal, run
from numba import cuda

from gpn_ref.fast.cuda.card import SMALL, Kernel, kernel
from gpn_ref.fast.cuda.layout import Sizes
from gpn_ref.fast.cuda.maths import maths
from gpn_ref.fast.cuda.memory import memory_kernels
from gpn_ref.fast.cuda.rows import row_kernels
from gpn_ref.fast.cuda.whole import whole_kernels

LARGE = [-1e30, -1e4, -100, -40, 40, 100, 1e4, 1e30]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_sigmoid_and_softplus(dtype):
    real = np.dtype(dtype).type
    functions = maths(real, 4)
    x = np.concatenate([np.linspace(-80, 80, 161), LARGE, [np.inf, -np.inf]]).astype(dtype)
    [exact] = exactly(x)
    rounding = 1e-14 if real is np.float64 else 4e-7
    sigmoid, softplus = (np.array([function(one) for one in x]) for function in (functions.sigmoid, functions.softplus))
    assert sigmoid.dtype == softplus.dtype == dtype
    np.testing.assert_allclose(sigmoid, 1 / (1 + np.exp(-exact)), rtol=rounding, atol=1e-38)
    np.testing.assert_allclose(softplus, np.logaddexp(0, exact), rtol=rounding, atol=1e-38)
    assert np.isnan(functions.sigmoid(real(np.nan))) and np.isnan(functions.softplus(real(np.nan)))


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("what", ["sum", "max"])
def test_what_a_block_does_together_is_each_threads_and_may_be_done_again(what, threads, dtype):
    real = np.dtype(dtype).type
    of_block = getattr(maths(real, threads), f"block_{what}")

    @kernel
    def twice(x, out):
        scratch = cuda.shared.array(threads, real)
        b, thread = cuda.blockIdx.x, cuda.threadIdx.x
        first = of_block(x[b, thread], scratch)
        out[b, thread] = first + real(100) * of_block(x[b, thread] * x[b, thread], scratch)

    [x] = normal("sums", dtype, (3, threads))
    [exact], expected = exactly(x), getattr(np, what)
    expected = expected(exact, axis=1, keepdims=True) + 100 * expected(exact**2, axis=1, keepdims=True)
    arguments = {"x": x, "out": nan(dtype, 3, threads)}
    run(twice, 3, threads, arguments, {"out": np.repeat(expected, threads, axis=1)})


def test_a_barrier_that_is_missing_shows_in_one_of_the_orders():
    """The checks are checked: what turns.py is for."""

    @kernel
    def shift(out):
        shared = cuda.shared.array(3, np.float64)
        shared[cuda.threadIdx.x] = cuda.threadIdx.x
        out[cuda.threadIdx.x] = shared[(cuda.threadIdx.x + 1) % 3]

    @kernel
    def keep_from_some(out):
        if cuda.threadIdx.x > 0:
            cuda.syncthreads()

    out = nan(np.float64, 3)
    turns.launch(shift.function, 1, 3, out)
    assert np.isnan(out).sum() == (1 if turns.BACKWARDS else 2)
    with pytest.raises(RuntimeError, match="1 threads have ended, and the others wait for them at a barrier"):
        turns.launch(keep_from_some.function, 1, 3, out)


def test_every_kernel_has_a_test_of_its_own():
    sizes = Sizes(11, 5, 6, 7, 2, 4, 3, 1, False)
    factories = {
        "rows": row_kernels(sizes, np.float64, 4),
        "whole": whole_kernels(np.float64, 4),
        "memory": memory_kernels(sizes, np.float64, SMALL),
    }
    for file, kernels in factories.items():
        text = Path(__file__).with_name(f"test_{file}.py").read_text(encoding="utf-8")
        names = [name for name, value in vars(kernels).items() if isinstance(value, Kernel)]
        assert names
        for name in names:
            assert re.search(rf"\.{name}\b|run\(\s*\"{name}\"", text), name
