"""How everything here is compiled, and the few scalar functions that NumPy has and compiled loops lack.

Three rules hold in every kernel of this folder:

- Arithmetic as it is written, but in kernels that sum: there the order is free, which lets the compiler add sixteen
  products at a time. Nobody may assume that a NaN cannot come, as `fastmath=True` does: it must reach the loss.
- No literal in arithmetic. `1 - x` is float64 where x is float32, and half as fast: write `x.dtype.type(1) - x`.
- No index that could be negative, which Python counts from the end: a loop over `range(start, stop)` pays for that in
  every access, while one over `range(stop - start)` into the slice `x[start:stop]` doesn't.
"""

import math
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

LINE = 16  # float32s in a cache line
FASTMATH = {"reassoc", "nsz", "contract", "arcp"}
OPTIONS = {"error_model": "numpy", "nogil": True, "_nrt": False, "no_cfunc_wrapper": True}

_folder = Path(__file__).parent
_sources = [*sorted(_folder.glob("*.py")), _folder.parents[1] / "reference" / "ops.py"]
SOURCES = sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()


def compiled(function):
    """A kernel: compiled when first called, kept on disk; while it runs, other Python threads can run too.

    Arithmetic is done as it is written. A kernel has one program by itself and another one in each kernel that calls
    it, and which of them runs depends on what was loaded first: so all must give the same bits.
    """
    return _compile(function)


def summing(function):
    """A kernel with sums that may be added up in any order, and so, many numbers at a time.

    What it calls and what calls it could order them differently, so it has no program by itself: it becomes part of
    whatever calls it.
    """
    return _compile(function, fastmath=FASTMATH, forceinline=True)


def multiplying(function):
    """A kernel of nothing but large sums of products, which is compiled once, and comes out alike everywhere."""
    return _compile(function, fastmath=FASTMATH)


def _compile(function, **options):
    """Numba's function.

    What is on disk counts as long as no file here has changed. Numba itself looks only at the file of the function,
    and not at those of the functions that were compiled into it.
    """
    if config.DISABLE_JIT:
        return function
    try:
        kernel = njit(function, cache=True, **OPTIONS, **options)
    except RuntimeError:  # no folder to keep it in can be written to
        return njit(function, **OPTIONS, **options)
    kernel._cache._cache_file._source_stamp = SOURCES
    _forgive_damage(kernel._cache)
    return kernel


def _forgive_damage(cache):
    """A file on disk that is cut or altered is as good as none: compile again, and write it anew."""
    load, save = cache.load_overload, cache.save_overload

    def load_or_nothing(*arguments):
        try:
            return load(*arguments)
        except Exception:  # whatever unpickling and LLVM make of it
            with suppress(OSError):
                cache.flush()

    def save_or_not(*arguments):
        with suppress(Exception):
            save(*arguments)

    cache.load_overload, cache.save_overload = load_or_nothing, save_or_not


# ---------------------------------------------------------------------------------------------------- functions
def exp(x):
    """exp(x) of a scalar."""
    with np.errstate(over="ignore"):
        return np.exp(x)


LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # their sum is ln 2, n · LN2_HIGH is exact
TAYLOR = tuple(np.float32(1 / math.factorial(i)) for i in range(8))
LOWEST, HIGHEST = np.float32(-87), np.float32(88)  # beyond, float32 is no longer normal
HALF, BIAS, MANTISSA = np.float32(0.5), np.int32(127), np.int32(23)


def exp_float32(x):
    """exp(x) = 2ⁿ · exp(r) with n the whole part of x / ln 2 and r in ± ln 2 / 2: a polynomial, and n as exponent bits.

    Faster than the library's, because it has no branch and no call: the compiler makes sixteen at a time. The relative
    error is below 3e-7; results stop at exp(88), so that none is infinite, and at exp(-87).
    """
    c0, c1, c2, c3, c4, c5, c6, c7 = TAYLOR
    x = LOWEST if x < LOWEST else (HIGHEST if x > HIGHEST else x)  # NaN stays
    n = np.floor(x * LOG2_E + HALF)
    r = x - n * LN2_HIGH - n * LN2_LOW
    polynomial = c0 + r * (c1 + r * (c2 + r * (c3 + r * (c4 + r * (c5 + r * (c6 + r * c7))))))
    return polynomial * np.int32((np.int32(n) + BIAS) << MANTISSA).view(np.float32)


@overload(exp)
def _exp(x):
    return exp_float32 if x == types.float32 else lambda x: math.exp(x)


def one_like(x):
    """1 in the type of the scalar x."""
    return type(x)(1)


@overload(one_like)
def _one_like(x):
    one = np.float32(1) if x == types.float32 else 1.0
    return lambda x: one


@register_jitable
def sigmoid(x):
    one = one_like(x)
    return one / (one + exp(-x))


@register_jitable
def sigmoid_back(d_gate, gate):
    return d_gate * gate * (one_like(gate) - gate)


@register_jitable
def softplus(x):
    """log(1 + exp(x)); a few a token, so in float64."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


# ----------------------------------------------------------------------------------------------------- prefetch
@intrinsic
def _prefetch(typing_context, array, row, column):
    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        pointer = cgutils.get_item_pointer(
            context, builder, kind, context.make_array(kind)(context, builder, arguments[0]), arguments[1:]
        )
        int32, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [byte, int32, int32, int32])
        llvm_prefetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        to_read, into_l2, of_data = int32(0), int32(2), int32(1)
        builder.call(llvm_prefetch, [builder.bitcast(pointer, byte), to_read, into_l2, of_data])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), generate


def prefetch(W, row, start, stop):
    """Ask for columns start to stop of a row of a matrix, to be in the cache of the core when they are needed.

    The hardware does this by itself for one long run of addresses; but it begins anew at every row, and stops at
    every page.
    """


@overload(prefetch)
def _prefetch_row(W, row, start, stop):
    def prefetch_row(W, row, start, stop):
        for column in range(start, stop, LINE):
            _prefetch(W, row, column)

    return prefetch_row
