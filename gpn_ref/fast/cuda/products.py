"""Matrix products: by cuBLAS where nvmath-python is installed (requirements-cuda.txt), by our own kernel where not.

    by_rows       C  = A Bᵀ     (m, n) = (m, depth) (n, depth)     a state and a stack of matrices
    by_columns    C  = A B      (m, n) = (m, depth) (depth, n)     the gradient of the outputs and that stack
    over_rows     C += Aᵀ B     (m, n) = (depth, m) (depth, n)     the gradient of the matrices, a sum over a window

A, B and C are blocks of arrays that have more rows and columns. TF32, which keeps 10 bits of a factor, is used only
if the environment says GPN_REF_TF32=1.
"""

import os
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda

from gpn_ref.fast.cuda.card import kernel

ENGINES = ("cublas", "own", "numpy")  # numpy: only in the simulator, where our kernel takes minutes
WORKSPACE = 32 << 20  # bytes that cuBLAS may use; NVIDIA's advice for this generation of cards


class Block(NamedTuple):
    """n_rows × n_columns of an array with two axes, from (row, column) on."""

    array: object
    row: int
    n_rows: int
    column: int
    n_columns: int


def block(array, row=0, n_rows=None, column=0, n_columns=None):
    n_rows = array.shape[0] - row if n_rows is None else n_rows
    n_columns = array.shape[1] - column if n_columns is None else n_columns
    return Block(array, row, n_rows, column, n_columns)


def products(card, dtype):
    """What multiplies on this card: the fastest of ENGINES that is there, or the one that GPN_REF_PRODUCTS names."""
    wanted = os.environ.get("GPN_REF_PRODUCTS") or ("numpy" if card.simulated else None)
    if wanted not in (None, *ENGINES) or (wanted == "numpy" and not card.simulated):
        raise ValueError(f"GPN_REF_PRODUCTS is {wanted!r}; it must be cublas or own")
    if wanted == "numpy":
        return Simulated()
    if wanted == "own":
        return Own(card, dtype)
    try:
        return CuBLAS(card, dtype)
    except (ImportError, RuntimeError) as error:  # no nvmath-python, or no cuBLAS for it
        if wanted:
            needs = "GPN_REF_PRODUCTS=cublas needs nvmath-python and cuBLAS (pip install -r requirements-cuda.txt)"
            raise ValueError(f"{needs}: {' '.join(str(error).split())}") from None
        return Own(card, dtype)


class CuBLAS:
    """The library. It thinks in columns where we think in rows: it is asked for Cᵀ, from Bᵀ and Aᵀ."""

    name = "cublas"

    def __init__(self, card, dtype):
        from nvmath.bindings import cublas

        self._card, self._lib = card, cublas
        with in_one_line():
            self._open(dtype)

    def _open(self, dtype):
        card, cublas = self._card, self._lib
        self._multiply = cublas.sgemm if dtype == np.float32 else cublas.dgemm
        self._scalars = np.array([0, 1], dtype)  # what C is multiplied with before, and the product
        self._handle = cublas_handle(card)[0]
        tf32 = os.environ.get("GPN_REF_TF32") == "1"
        cublas.set_math_mode(self._handle, cublas.Math.TF32_TENSOR_OP_MATH if tf32 else cublas.Math.DEFAULT_MATH)

    def by_rows(self, a, b, c):
        self._call(b, self._lib.Operation.T, a, self._lib.Operation.N, c, a.n_columns, 0)

    def by_columns(self, a, b, c):
        self._call(b, self._lib.Operation.N, a, self._lib.Operation.N, c, a.n_columns, 0)

    def over_rows(self, a, b, c):
        self._call(b, self._lib.Operation.N, a, self._lib.Operation.T, c, a.n_rows, 1)

    def _call(self, b, b_operation, a, a_operation, c, depth, keep):
        zero = self._scalars.ctypes.data
        one = zero + self._scalars.itemsize
        with in_one_line():
            self._multiply(
                self._handle, b_operation, a_operation, c.n_columns, c.n_rows, depth,
                one, *self._place(b), *self._place(a), one if keep else zero, *self._place(c),
            )  # fmt: skip

    def _place(self, block):
        """Address of the first entry, and entries from a row to the next."""
        columns = block.array.shape[1]
        first = (block.row * columns + block.column) * block.array.dtype.itemsize
        return self._card.address(block.array) + first, columns


@contextmanager
def in_one_line():
    """What cuBLAS reports becomes a line of ours: MemoryError where it found no memory, otherwise ValueError."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "cuBLASError":
            raise
        kind = MemoryError if "ALLOC_FAILED" in str(error) else ValueError
        raise kind(f"cuBLAS could not do it: {' '.join(str(error).split())}") from None


@cache
def cublas_handle(card):
    """cuBLAS on the card's stream, and the memory that it works in: one for all engines, never closed."""
    from nvmath.bindings import cublas

    handle, workspace = cublas.create(), card.empty(WORKSPACE, np.uint8)  # its own, as a graph must not allocate
    cublas.set_stream(handle, int(card.stream.handle))
    cublas.set_workspace(handle, card.address(workspace), WORKSPACE)
    return handle, workspace


class Own:
    """Our own kernel."""

    name = "own"

    def __init__(self, card, dtype):
        self._card, self._real = card, np.dtype(dtype).type
        self._side = card.tuning.side
        self._edge = card.tuning.side * card.tuning.micro

    def by_rows(self, a, b, c):
        self._launch(a, False, b, True, c, a.n_columns, False)

    def by_columns(self, a, b, c):
        self._launch(a, False, b, False, c, a.n_columns, False)

    def over_rows(self, a, b, c):
        self._launch(a, True, b, False, c, a.n_rows, True)

    def _launch(self, a, a_down, b, b_across, c, depth, keep):
        multiply = product_kernel(a_down, b_across, keep, self._real, self._card.tuning)
        grid = -(-c.n_columns // self._edge), -(-c.n_rows // self._edge)
        self._card.launch(
            multiply, grid, self._side**2, a.array, a.row, a.column, b.array, b.row, b.column,
            c.array, c.row, c.column, c.n_rows, c.n_columns, depth,
        )  # fmt: skip


@cache
def product_kernel(a_down, b_across, keep, real, tuning):
    """C = A B, or C += A B with `keep`. a_down: A lies as (depth, m); b_across: B lies as (n, depth).

    A block makes an EDGE × EDGE square of C. It goes through the depth in slices, which it first brings to shared
    memory: each entry comes from the card's memory once and is used EDGE times. A thread makes MICRO × MICRO entries in
    registers: 2 · MICRO loads from shared memory for MICRO² multiply-adds.
    """
    MICRO, SIDE, DEPTH, ZERO = tuning.micro, tuning.side, tuning.depth, real(0)
    EDGE, THREADS = SIDE * MICRO, SIDE * SIDE
    APART = EDGE + 1  # so that a column of a slice lies in different banks

    @kernel
    def multiply(a, a_row, a_column, b, b_row, b_column, c, c_row, c_column, m, n, depth):
        a_slice = cuda.shared.array((DEPTH, APART), real)
        b_slice = cuda.shared.array((DEPTH, APART), real)
        results = cuda.local.array((MICRO, MICRO), real)
        a_here = cuda.local.array(MICRO, real)
        thread = cuda.threadIdx.x
        x, y = thread % SIDE, thread // SIDE
        left, top = cuda.blockIdx.x * EDGE, cuda.blockIdx.y * EDGE
        for i in range(MICRO):
            for j in range(MICRO):
                results[i, j] = ZERO
        for start in range(0, depth, DEPTH):
            # neighbours among the threads take neighbours in memory, whichever way the matrix lies
            for at in range(thread, DEPTH * EDGE, THREADS):
                k, i = (at // EDGE, at % EDGE) if a_down else (at % DEPTH, at // DEPTH)
                value = ZERO
                if start + k < depth and top + i < m:
                    if a_down:
                        value = a[a_row + start + k, a_column + top + i]
                    else:
                        value = a[a_row + top + i, a_column + start + k]
                a_slice[k, i] = value
                k, j = (at % DEPTH, at // DEPTH) if b_across else (at // EDGE, at % EDGE)
                value = ZERO
                if start + k < depth and left + j < n:
                    if b_across:
                        value = b[b_row + left + j, b_column + start + k]
                    else:
                        value = b[b_row + start + k, b_column + left + j]
                b_slice[k, j] = value
            cuda.syncthreads()
            for k in range(DEPTH):
                for i in range(MICRO):
                    a_here[i] = a_slice[k, y + SIDE * i]
                for j in range(MICRO):
                    b_here = b_slice[k, x + SIDE * j]
                    for i in range(MICRO):
                        results[i, j] += a_here[i] * b_here
            cuda.syncthreads()
        for i in range(MICRO):
            for j in range(MICRO):
                row, column = top + y + SIDE * i, left + x + SIDE * j
                if row < m and column < n:
                    if keep:
                        c[c_row + row, c_column + column] += results[i, j]
                    else:
                        c[c_row + row, c_column + column] = results[i, j]

    return multiply


class Simulated:
    """NumPy, on the simulator's arrays."""

    name = "numpy"

    def by_rows(self, a, b, c):
        view(c)[...] = view(a) @ view(b).T

    def by_columns(self, a, b, c):
        view(c)[...] = view(a) @ view(b)

    def over_rows(self, a, b, c):
        view(c)[...] += view(a).T @ view(b)


def view(block):
    rows = slice(block.row, block.row + block.n_rows)
    return block.array._ary[rows, block.column : block.column + block.n_columns]
