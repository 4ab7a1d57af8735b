"""Workers do what they are asked, say what went wrong, and end with their parent."""

from dataclasses import asdict

import pytest

from gpn_ref.bench import BACKENDS
from gpn_ref.benchmarks import worker
from gpn_ref.benchmarks.worker import Worker, take_turns
from gpn_ref.config import PRESETS

NANO = {"config": asdict(PRESETS["nano"]), "batch_size": 2, "window": 3}


class Scripted:
    def __init__(self, name, log, seconds):
        self.name, self.log, self.seconds = name, log, iter(seconds)

    def ask(self):
        self.log.append(self.name)
        return {"seconds": {"work": next(self.seconds)}, "peak_bytes": len(self.log)}


def test_turns_are_taken_in_order_and_the_best_counts_but_for_the_first(monkeypatch):
    monkeypatch.setattr(worker, "PAUSE", 0)
    log, ticks = [], []
    workers = {"a": Scripted("a", log, [1.0, 5.0, 4.0, 6.0]), "b": Scripted("b", log, [9.0, 8.0])}
    found = take_turns(workers, ["a", "b", "a", "b", "a", "a"], lambda: ticks.append(1))
    assert log == ["a", "b", "a", "b", "a", "a"] and len(ticks) == 6
    assert found == {
        "a": {"seconds": {"work": 4.0}, "peak_bytes": 6},
        "b": {"seconds": {"work": 8.0}, "peak_bytes": 4},
    }


def test_a_worker_answers_each_time_and_ends_with_its_block():
    with Worker("model", backend="numpy", only=["loss"], **NANO) as asked:
        for _ in range(2):
            answer = asked.ask()
            assert answer["seconds"].keys() == {"loss"} and answer["seconds"]["loss"] > 0
            assert answer["peak_bytes"] > 1 << 20
    assert asked.ended()


def test_a_worker_ends_when_its_parent_has():
    with Worker("products", **NANO) as asked:
        asked.ask()
        asked.process.stdin.close()
        assert asked.process.wait(timeout=60) == 0


def test_bad_input_and_a_process_that_ends_are_told():
    with (
        Worker("products", **NANO | {"config": asdict(PRESETS["nano"]) | {"d_state": 0}}) as asked,
        pytest.raises(ValueError, match="d_state is 0"),
    ):
        asked.ask()
    with Worker("products", **NANO) as asked:
        asked.process.kill()
        with pytest.raises(ValueError, match="ended by itself"):
            asked.ask()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_does_all_works(backend):
    answer = worker.model(backend, PRESETS["nano"], batch_size=2, window=3)
    assert list(answer()["seconds"]) == ["forward", "loss", "optimizer", "step", "generate"]
    assert list(worker.model(backend, PRESETS["nano"], 2, 3, only=["loss"])()["seconds"]) == ["loss"]


def test_a_timing_is_of_one_call():
    calls = []
    answer = worker.timing({"a": (lambda: calls.append("a"), 3), "b": (lambda: calls.append("b"), 1)})
    assert answer()["seconds"].keys() == {"a", "b"}
    assert calls == ["a", "a", "a", "b"]
