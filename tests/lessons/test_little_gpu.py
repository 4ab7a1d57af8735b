"""Lesson 12's card: what it computes and counts, and all that it calls an error."""

import inspect

import numpy as np
import pytest

from lessons.little_gpu import (
    ORDERS,
    Deadlock,
    GlobalRace,
    SharedRace,
    TooManyLoads,
    TooManySharedLoads,
    kernel,
    launch,
)

orders = pytest.mark.parametrize("order", ORDERS)


def double(me, x, out):
    i = me.block * me.threads + me.thread
    if i < len(x):
        out[i] = 2 * x[i]


@orders
def test_every_thread_of_every_block_runs_and_is_counted(order):
    x, out = np.arange(10.0), np.full(10, np.nan)
    assert launch(double, 3, 4, x, out, order=order) == ({"x": 10, "out": 0}, {"x": 0, "out": 10})
    np.testing.assert_array_equal(out, 2 * x)


def test_the_orders_are_three_and_the_same_each_time():
    taken = {order: [] for order in ORDERS}
    for order, places in taken.items():
        launch(lambda me, x, places=places: places.append((me.block, me.thread)), 2, 3, np.ones(1), order=order)
    in_order = [(block, thread) for block in range(2) for thread in range(3)]
    assert taken["forwards"] == in_order and taken["backwards"] == in_order[::-1]
    assert taken["shuffled"] not in (in_order, in_order[::-1]) and sorted(taken["shuffled"]) == in_order


def neighbour(me, x, out, barrier=True):
    """Each thread takes what the next one has brought."""
    here = me.shared("here", me.threads)
    here[me.thread] = x[me.thread]
    if barrier:
        yield
    out[me.thread] = here[(me.thread + 1) % me.threads]


@orders
def test_after_a_barrier_a_thread_may_have_what_another_stored(order):
    x, out = np.arange(4.0), np.zeros(4)
    launch(neighbour, 1, 4, x, out, order=order)
    np.testing.assert_array_equal(out, [1, 2, 3, 0])


def without_barrier(me, x, out):
    yield from neighbour(me, x, out, barrier=False)


def all_store(me, x, out):
    out[0] = x[0]


def one_stores_what_the_other_loads(me, x, out):
    out[me.thread] = x[1 - me.thread]
    x[me.thread] = 0.0


def block_after_block(me, x, out):
    if me.block == 0:
        x[0] = 1.0
    yield
    if me.block == 1:
        out[0] = x[0]


def half_wait(me, x, out):
    if me.thread == 0:
        yield


def some_end_early(me, x, out):
    if me.thread == 0:
        return
    yield


def shared_of_two_shapes(me, x, out):
    me.shared("a", 2 + me.thread)


def outside(*index):
    def kernel(me, x, out):
        x[index[0] if len(index) == 1 else index]

    return kernel


@orders
@pytest.mark.parametrize(
    ("wrong", "blocks", "threads", "error", "words"),
    [
        (without_barrier, 1, 2, SharedRace, r"threads \d and \d both come to here\[\d\], one of them to store; and"),
        (all_store, 1, 2, GlobalRace, r"threads \d and \d both come to out\[0\], .* there is no barrier between them"),
        (all_store, 2, 1, GlobalRace, r"blocks \d and \d both come to out\[0\], .* blocks never wait for each other"),
        (one_stores_what_the_other_loads, 1, 2, GlobalRace, r"both come to x\[\d\]"),
        (block_after_block, 2, 1, GlobalRace, r"blocks \d and \d both come to x\[0\]"),
        (half_wait, 1, 3, Deadlock, "1 of 3 threads wait at a barrier, and the others have ended"),
        (some_end_early, 1, 3, Deadlock, "2 of 3 threads wait at a barrier, and the others have ended"),
        (shared_of_two_shapes, 1, 2, ValueError, r"shared a has the shape \(\d,\), and \(\d,\) is asked for"),
        (outside(4), 1, 1, IndexError, r"x\[4\] is outside: the shape is \(4,\)"),
        (outside(-1), 1, 1, IndexError, r"x\[-1\] is outside"),
        (outside(0, 0), 1, 1, IndexError, r"x\[0, 0\] is outside"),
        (outside(slice(2)), 1, 1, TypeError, "slice"),
        (outside(1.0), 1, 1, TypeError, "float"),
    ],
)
def test_what_a_card_would_not_tell_is_an_error_in_any_order(wrong, blocks, threads, error, words, order):
    with pytest.raises(error, match=words):
        launch(wrong, blocks, threads, np.ones(4), np.zeros(4), order=order)


def test_loads_of_one_number_by_many_are_no_race_and_nor_is_what_one_thread_does_alone():
    def adds_the_first(me, x, out):
        out[me.thread] = x[0]
        out[me.thread] = out[me.thread] + x[0]

    out = np.zeros(3)
    assert launch(adds_the_first, 1, 3, np.ones(1), out) == ({"x": 6, "out": 3}, {"x": 0, "out": 6})
    np.testing.assert_array_equal(out, [2, 2, 2])


def test_shared_memory_is_nan_at_first_and_of_one_block():
    def looks_first(me, out):
        out[me.block] = me.shared("a", 1)[0]
        me.shared("a", 1)[0] = 1.0

    out = np.zeros(2)
    launch(looks_first, 2, 1, out)
    assert np.isnan(out).all()


def test_loads_can_be_limited():
    launch(double, 1, 4, np.ones(4), np.zeros(4), most={"x": 4})
    with pytest.raises(TooManyLoads, match="more than 3 loads from x"):
        launch(double, 1, 4, np.ones(4), np.zeros(4), most={"x": 3})


def two_from_each(me, x, out):
    """Two loads by each thread from x, and two from shared memory, of two names."""
    here, there = me.shared("here", me.threads), me.shared("there", me.threads)
    here[me.thread], there[me.thread] = x[0], x[1]
    yield
    out[me.block * me.threads + me.thread] = here[0] + there[0]


@orders
def test_loads_by_one_thread_can_be_limited_from_an_array_and_from_all_shared_memory(order):
    x, out = np.ones(4), np.zeros(4)
    loads, _ = launch(two_from_each, 2, 2, x, out, order=order, each={"x": 2, "shared": 2})
    assert loads == {"x": 8, "out": 0}  # those of all, and of no shared memory
    np.testing.assert_array_equal(out, 2)
    alone = r"by thread \d of block \d alone"
    with pytest.raises(TooManyLoads, match=f"more than 1 loads from x {alone}"):
        launch(two_from_each, 2, 2, x, out, order=order, each={"x": 1, "shared": 2})
    with pytest.raises(TooManySharedLoads, match=f"more than 1 loads from shared memory {alone}"):
        launch(two_from_each, 2, 2, x, out, order=order, each={"x": 2, "shared": 1})


def test_a_kernel_as_a_grader_calls_it_changes_nothing_that_it_was_given():
    called, x, out = kernel(double), np.arange(3.0), np.full(3, np.nan)
    after = called(2, 2, "backwards", {"x": 3}, {"x": 1}, x, out)
    np.testing.assert_array_equal(after, [[0, 1, 2], [0, 2, 4]])
    np.testing.assert_array_equal(x, [0, 1, 2])
    assert np.isnan(out).all()
    assert list(inspect.signature(called).parameters) == ["blocks", "threads", "order", "most", "each", "x", "out"]
    assert called.__name__ == "double"
    launch(called, 2, 2, x, out)  # the other way round: a kernel in `launch`
    np.testing.assert_array_equal(out, [0, 2, 4])


def test_a_kernel_that_takes_other_arrays_is_told_so():
    with pytest.raises(TypeError, match="the kernel takes 2 arrays after me: x, out; it gets 1"):
        launch(double, 1, 1, np.ones(1))
