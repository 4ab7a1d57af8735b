"""The benchmark command measures what it says and reports it; no test looks at the time."""

import json

import commands
import pytest

from gpn_ref import bench
from gpn_ref.benchmarks import worker


@pytest.fixture
def small(monkeypatch):
    """The command at sizes that take no time, numpy only by default."""
    monkeypatch.setattr(bench, "SIZES", {"nano": bench.Size("nano", 2, 3), "mini": bench.Size("mini", 1, 4)})
    monkeypatch.setattr(bench, "PRODUCT", 8)
    monkeypatch.setattr(bench, "READ_BYTES", 4096)
    monkeypatch.setattr(worker, "PAUSE", 0)


def test_a_run_prints_its_table_and_keeps_everything(small, capsys, tmp_path):
    path = tmp_path / "bench.json"
    done = commands.call(capsys, bench, "--backend", "numpy", "--sizes", "nano", "--repeat", 1, "--json", path)
    assert done.status == 0, done.err
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert done.out.splitlines() == list(bench.lines(kept))
    assert kept["facts"]["command"][0] == bench.PROG and kept["facts"]["versions"].keys() >= {"python", "numpy"}
    assert kept["answers"]["nano"].keys() == {"machine", "products", "numpy"}
    works = kept["answers"]["nano"]["numpy"]["seconds"]
    assert works.keys() == {"forward", "loss", "optimizer", "step", "generate"}
    assert all(seconds > 0 for seconds in works.values())
    assert kept["sizes"]["nano"]["numpy"]["forward"] == 2 * 3 / works["forward"]
    assert done.out.splitlines()[-1] == kept["verdict"]
    assert kept["verdict"].startswith("verdict: loss with all gradients, numpy against the products alone: nano ")


def test_a_backend_that_disagrees_is_named_and_nothing_is_timed(small, capsys, monkeypatch, tmp_path):
    path = tmp_path / "bench.json"
    monkeypatch.setattr(bench, "TOLERANCE", 1e-12)  # which float32 can't keep
    monkeypatch.setattr(bench, "measure_size", lambda *arguments: pytest.fail("it was timed"))
    done = commands.call(capsys, bench, "--backend", "numpy", "--sizes", "nano", "--json", path)
    commands.assert_one_line(done, "nano: numpy disagrees with the reference: ", status=1)
    assert list(tmp_path.iterdir()) == []


def test_a_peer_that_is_not_installed_is_told_in_one_line(small, capsys, monkeypatch, tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('no jax here')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = commands.call(capsys, bench, "--backend", "numpy", "--peer", "jax")
    commands.assert_one_line(done, "--peer jax needs JAX (pip install jax), which does not import: no jax here")


@pytest.mark.parametrize("option", ["--long", "--memory"])
def test_long_windows_are_refused_where_they_would_fill_the_memory(small, capsys, option):
    done = commands.call(capsys, bench, "--backend", "numpy", option)
    commands.assert_one_line(done, "--long and --memory need a compiled backend")


def test_an_unknown_size_is_told_the_nearest(capsys):
    done = commands.call(capsys, bench, "--sizes", "tny")
    commands.assert_one_line(done, "unknown size 'tny'; did you mean 'tiny'?")


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(small, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "measure", lambda *arguments: pytest.fail("it ran"))
    done = commands.call(capsys, bench, "--json", tmp_path / "nowhere" / "bench.json")
    commands.assert_one_line(done, "No such file or directory")


def test_the_reference_has_fewer_rounds_than_the_others():
    turns = bench.rounds(["numpy", "numba"], True, repeat=5)
    assert turns[:5] == ["machine", "products", "numpy", "numba", "jax"]
    assert {name: turns.count(name) for name in turns} == {
        "machine": 6,
        "products": 6,
        "numpy": 3,
        "numba": 6,
        "jax": 6,
    }


def test_what_is_asked_for_besides_is_measured(small, monkeypatch):
    """Compile time, long windows and memory, here of the reference, which compiles nothing."""
    nano = bench.Size("nano", 2, 3)
    asked = []

    class Recorded(worker.Worker):
        def __init__(self, task, environment=None, **arguments):
            asked.append((task, arguments["backend"], sorted(environment or {})))
            super().__init__(task, environment, **arguments | {"backend": "numpy"})

    monkeypatch.setattr(bench, "Worker", Recorded)
    for name, value in {"FIRST": nano, "LONG": {"short": nano, "long": nano}, "LARGE": nano}.items():
        monkeypatch.setattr(bench, name, value)
    ticks = []
    first = bench.first_steps(lambda: ticks.append("first"))
    cost = bench.linear_cost("numba", 1, lambda: ticks.append("long"))
    large = bench.large_step("numba", lambda: ticks.append("memory"))
    assert first.keys() == {"cold", "cached"} and min(first.values()) > 0
    assert cost["ratio"] == cost["short"] / cost["long"]
    assert large["peak_bytes"] > 1 << 20
    assert ticks == ["first"] * 3 + ["long"] * 4 + ["memory"]
    assert asked == [
        *[("train", "numba", ["NUMBA_CACHE_DIR"])] * 3,
        *[("model", "numba", [])] * 2,
        ("train", "numba", []),
    ]


def test_a_stopped_run_leaves_nothing_behind(small, capsys, monkeypatch, tmp_path):
    started = []

    class Recorded(worker.Worker):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "Worker", Recorded)
    monkeypatch.setattr(bench, "take_turns", interrupt)
    done = commands.call(capsys, bench, "--backend", "numpy", "--sizes", "nano", "--json", tmp_path / "bench.json")
    commands.assert_one_line(done, "stopped", status=130)
    assert len(started) == 4 and all(worker.ended() for worker in started)
    assert list(tmp_path.iterdir()) == []
