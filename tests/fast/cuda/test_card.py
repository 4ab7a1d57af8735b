"""Graphs of launches, against a driver that only writes down what it is told."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from fast.cuda.simulated import require_numba_cuda


class Driver:
    """The driver's functions, by name; `fail` is the one that fails."""

    def __init__(self):
        self.calls, self.fail = [], None

    def __getattr__(self, name):
        def call(*arguments):
            from numba.cuda.cudadrv.driver import CudaAPIError

            self.calls.append((name, *arguments))
            if name == self.fail:
                raise CudaAPIError(900, f"Call to {name} results in CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
            return {"cuStreamEndCapture": "graph", "cuGraphInstantiate": "executable"}.get(name)

        return call

    def names(self):
        return [name for name, *_ in self.calls]


@pytest.fixture
def driver(monkeypatch):
    require_numba_cuda()
    from numba.cuda.cudadrv import driver as module

    from gpn_ref.fast.cuda import card

    if card.SIMULATED:
        pytest.skip("needs a process without NUMBA_ENABLE_CUDASIM=1")
    driver = Driver()
    monkeypatch.setattr(module, "driver", driver)
    monkeypatch.setattr(card.cuda, "defer_cleanup", nullcontext)
    return driver


@pytest.fixture
def card(driver):
    """One that was never opened."""
    from gpn_ref.fast.cuda.card import Card

    one = object.__new__(Card)
    one.stream = SimpleNamespace(handle=5)
    return one


def test_work_is_written_down_once_and_launched_as_often_as_one_likes(card, driver):
    graph = card.capture(lambda: driver.calls.append(("work",)))
    begin, work, end, instantiate, destroy = driver.calls
    assert begin[:2] == ("cuStreamBeginCapture", 5) and begin[2].name == "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"
    assert work == ("work",) and end == ("cuStreamEndCapture", 5)
    assert instantiate == ("cuGraphInstantiate", "graph", 0) and destroy == ("cuGraphDestroy", "graph")
    graph.launch()
    graph.launch()
    assert driver.calls[5:] == [("cuGraphLaunch", "executable", 5)] * 2
    del graph
    assert driver.calls[7:] == [("cuGraphExecDestroy", "executable")]


@pytest.mark.parametrize("fail", [None, "cuStreamEndCapture"])
def test_work_that_fails_leaves_the_stream_as_it_was(card, driver, fail):
    """Its own error comes out, also if the driver then has one too."""

    def work():
        raise KeyError("lost")

    driver.fail = fail
    with pytest.raises(KeyError, match="lost"):
        card.capture(work)
    assert driver.names() == ["cuStreamBeginCapture", "cuStreamEndCapture"]


@pytest.mark.parametrize("fail", ["cuStreamBeginCapture", "cuGraphInstantiate"])
def test_a_driver_that_fails_is_one_line(card, driver, fail):
    driver.fail = fail
    with pytest.raises(ValueError, match=rf"the card could not do it: \[900\] Call to {fail} results in"):
        card.capture(lambda: None)


def test_no_graphs_if_the_environment_says_so(card, driver, monkeypatch):
    monkeypatch.setenv("GPN_REF_CUDA_GRAPHS", "0")
    assert card.capture(lambda: pytest.fail("it was not to be done")) is None
    assert driver.calls == []
