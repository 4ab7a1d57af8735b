"""One kernel by itself, on arrays of NumPy: what it writes, and that it writes nothing else."""

import inspect

import numpy as np
from fast.cuda.simulator import turns

from gpn_ref.random_state import generator

ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}


def normal(name, dtype, *shapes):
    """Random arrays of these shapes."""
    rng = generator(0, name)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def exactly(*arrays):
    """Copies in float64."""
    return [np.array(array, np.float64) for array in arrays]


def same(found, expected, dtype):
    """Within roundings of the largest number; what is not finite, exactly."""
    dtype = np.dtype(dtype)
    assert found.dtype == dtype and found.shape == np.shape(expected)
    scale = np.abs(expected, where=np.isfinite(expected), out=np.zeros(np.shape(expected))).max(initial=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING[dtype] * max(scale, 1e-30))


def run(kernel, grid, n_threads, arguments, expected):
    """Runs a kernel on copies of its arguments, which come by name; `expected` has all that changes, by name too.

    An expected array is whole: it has the entries that must stay as they were. NaN stands for NaN.
    """
    names = list(inspect.signature(kernel.function).parameters)
    assert set(names) == set(arguments), (names, list(arguments))
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    turns.launch(kernel.function, grid, n_threads, *(copies[name] for name in names))
    for name, value in copies.items():
        if name in expected:
            same(value, expected[name], value.dtype)
        else:
            np.testing.assert_array_equal(value, arguments[name], err_msg=name)


def nan(dtype, *shape):
    return np.full(shape, np.nan, dtype)


def changed(array, place, value):
    """A copy in float64 with `value` at `place`."""
    copy = np.asarray(array, np.float64).copy()
    copy[place] = value
    return copy
