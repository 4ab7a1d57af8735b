"""The three matrix products, by our own kernel and as they are handed to cuBLAS."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fast.cuda.simulator.alone import exactly, normal, same

from gpn_ref.fast.cuda.card import SMALL, Card
from gpn_ref.fast.cuda.products import CuBLAS, Own, block, in_one_line, products

LARGER = SMALL._replace(micro=3, side=2, depth=5)
SIZES = [(1, 1, 1), (3, 4, 2), (4, 5, 3), (5, 4, 4), (9, 8, 7), (2, 13, 6)]  # m, n, depth


def card(tuning=SMALL):
    """A simulated card, with what only a real one tells."""
    one = Card()
    one.tuning = tuning
    one.address = lambda array: array._ary.ctypes.data
    one.stream.handle = 5
    return one


class FakeLibrary(ModuleType):
    """cuBLAS's gemm on the memory of this machine: C = alpha op(A) op(B) + beta C, all of them column by column."""

    Operation = SimpleNamespace(N=0, T=1)
    Math = SimpleNamespace(DEFAULT_MATH="float32", TF32_TENSOR_OP_MATH="tf32")

    def __init__(self):
        super().__init__("nvmath.bindings.cublas")
        self.calls = []

    def create(self):
        return 7

    def set_stream(self, handle, stream):
        self.calls.append(("stream", handle, stream))

    def set_workspace(self, handle, address, size):
        self.calls.append(("workspace", handle, size))

    def set_math_mode(self, handle, mode):
        self.calls.append(("math", handle, mode))

    def sgemm(self, *arguments):
        self.gemm(ctypes.c_float, *arguments)

    def dgemm(self, *arguments):
        self.gemm(ctypes.c_double, *arguments)

    def gemm(self, kind, handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        assert handle == 7

        def matrix(address, rows, columns, leading):
            """(rows, columns), whose columns begin `leading` entries apart."""
            assert leading >= rows
            size = leading * (columns - 1) + rows
            numbers = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), (size,))
            return np.lib.stride_tricks.as_strided(
                numbers, (rows, columns), (numbers.itemsize, leading * numbers.itemsize)
            )

        A = matrix(a, k, m, lda).T if op_a else matrix(a, m, k, lda)
        B = matrix(b, n, k, ldb).T if op_b else matrix(b, k, n, ldb)
        C = matrix(c, m, n, ldc)
        alpha, beta = matrix(alpha, 1, 1, 1)[0, 0], matrix(beta, 1, 1, 1)[0, 0]
        C[...] = alpha * (A @ B) + (beta * C if beta else 0)  # with beta 0 it does not look at C


@pytest.fixture
def library(monkeypatch):
    """nvmath-python, as far as we use it."""
    library = FakeLibrary()
    bindings = ModuleType("nvmath.bindings")
    bindings.cublas = library
    monkeypatch.setitem(sys.modules, "nvmath", ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    return library


@pytest.fixture(params=["own", "own, larger", "cublas"])
def multiply(request, library, dtype):
    one = card(LARGER if request.param == "own, larger" else SMALL)
    if request.param == "cublas":
        return CuBLAS(one, np.dtype(dtype))
    return Own(one, np.dtype(dtype))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["by_rows", "by_columns", "over_rows"])
def test_a_product_of_blocks_of_larger_arrays(multiply, kind, size, dtype):
    """C is written where it is, and what lies beside it stays as it was."""
    m, n, depth = size
    shapes = {
        "by_rows": ((m, depth), (n, depth)),
        "by_columns": ((m, depth), (depth, n)),
        "over_rows": ((depth, m), (depth, n)),
    }
    one = multiply._card
    places = ((2, 1), (1, 3), (3, 2))  # of A, B and C in arrays that have 4 rows and columns more
    arrays = normal("products", dtype, *((rows + 4, columns + 4) for rows, columns in (*shapes[kind], (m, n))))
    blocks = []
    for array, (row, column), (rows, columns) in zip(arrays, places, (*shapes[kind], (m, n)), strict=True):
        there = one.empty(array.shape, dtype)
        one.put(there, array)
        blocks.append(block(there, row, rows, column, columns))
    inside = [np.s_[b.row : b.row + b.n_rows, b.column : b.column + b.n_columns] for b in blocks]
    A, B, C = (array[place] for array, place in zip(exactly(*arrays), inside, strict=True))
    expected = arrays[2].astype(np.float64)
    expected[inside[2]] = {
        "by_rows": lambda: A @ B.T,
        "by_columns": lambda: A @ B,
        "over_rows": lambda: C + A.T @ B,
    }[kind]()
    if kind != "over_rows":  # what was there must not matter
        blocks[2].array._ary[inside[2]] = np.nan
    getattr(multiply, kind)(*blocks)
    same(one.get(blocks[2].array), expected, dtype)
    for b, array in zip(blocks[:2], arrays[:2], strict=True):
        np.testing.assert_array_equal(one.get(b.array), array)


def test_a_block_is_by_default_all_of_its_array():
    array = np.zeros((5, 7))
    assert block(array)[1:] == (0, 5, 0, 7)
    assert block(array, 2)[1:] == (2, 3, 0, 7)
    assert block(array, 2, 1, 4)[1:] == (2, 1, 4, 3)


def test_what_multiplies(library, monkeypatch):
    """The library where it imports, else our kernel; NumPy in the simulator; or what the environment asks for."""
    one = card()
    monkeypatch.delenv("GPN_REF_PRODUCTS", raising=False)
    assert products(one, np.dtype(np.float32)).name == "numpy"
    one.simulated = False
    assert products(one, np.dtype(np.float32)).name == "cublas"
    assert library.calls == [("stream", 7, 5), ("workspace", 7, 32 << 20), ("math", 7, "float32")]
    monkeypatch.setenv("GPN_REF_PRODUCTS", "own")
    assert products(one, np.dtype(np.float32)).name == "own"
    for wanted in ("blas", "numpy"):
        monkeypatch.setenv("GPN_REF_PRODUCTS", wanted)
        with pytest.raises(ValueError, match=f"GPN_REF_PRODUCTS is '{wanted}'; it must be cublas or own"):
            products(one, np.dtype(np.float32))


def test_tf32_is_off_unless_asked_for(library, monkeypatch):
    one = card()
    for wanted, mode in (("0", "float32"), ("1", "tf32")):
        monkeypatch.setenv("GPN_REF_TF32", wanted)
        CuBLAS(one, np.dtype(np.float32))
        assert library.calls[-1] == ("math", 7, mode)


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    one = card()
    one.simulated = False
    monkeypatch.delenv("GPN_REF_PRODUCTS", raising=False)
    assert products(one, np.dtype(np.float32)).name == "own"
    monkeypatch.setenv("GPN_REF_PRODUCTS", "cublas")
    with pytest.raises(ValueError, match="GPN_REF_PRODUCTS=cublas needs nvmath-python"):
        products(one, np.dtype(np.float32))


class cuBLASError(Exception):
    """As nvmath-python's."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (cuBLASError("CUBLAS_STATUS_ALLOC_FAILED\n(3)"), MemoryError),
        (cuBLASError("CUBLAS_STATUS_EXECUTION_FAILED (13)"), ValueError),
        (KeyError("ALLOC_FAILED"), KeyError),  # a mistake of ours stays what it is
    ],
)
def test_what_cublas_reports_is_one_line(error, kind):
    with pytest.raises(kind) as told, in_one_line():
        raise error
    if kind is not KeyError:
        assert str(told.value) == f"cuBLAS could not do it: {' '.join(str(error).split())}"
