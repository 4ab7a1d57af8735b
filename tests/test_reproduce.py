"""The command `reproduce`: a whole table in small, stopped, killed and gone on with."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace

import nano_plan
import numpy as np
import pytest
from commands import ENVIRONMENT, ROOT, assert_one_line, call
from nano_plan import NANO

from gpn_ref import reproduce
from gpn_ref.training.run_directory import hold
from gpn_ref.training.trainer import Trainer

N_CELLS = 6 + 12


@pytest.fixture(scope="module")
def tasks():
    return nano_plan.load_tasks(NANO)


@pytest.fixture(autouse=True)
def nano(monkeypatch, tasks):
    """The command makes the small table."""
    monkeypatch.setattr(reproduce, "FULL", NANO)
    monkeypatch.setattr(reproduce, "load_tasks", lambda plan: tasks)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, tasks):
    """The folder of a table that nobody disturbed, and what was printed."""
    folder, printed = tmp_path_factory.mktemp("alone") / "table", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(reproduce, "FULL", NANO)
        patch.setattr(reproduce, "load_tasks", lambda plan: tasks)
        assert reproduce.main(["--out", str(folder)]) == 0
    return folder, printed.getvalue()


def copy(alone, tmp_path):
    shutil.copytree(alone[0], tmp_path / "table")
    return tmp_path / "table"


def runs(folder):
    """The records of all runs, without their speeds."""
    table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    return [run | {"tokens_per_second": None} for run in table["runs"]]


def test_it_trains_every_cell_and_tells_each(alone):
    folder, printed = alone
    assert re.match(rf"{N_CELLS} of {N_CELLS} runs to do, about \d+", printed)
    assert [int(n) for n in re.findall(rf"^\[(\d+)/{N_CELLS}\] ", printed, re.MULTILINE)] == list(range(1, N_CELLS + 1))
    assert {path.name for path in folder.iterdir()} == {
        *("table.md", "table.csv", "table.json", "loss.png", "loss.svg", "plan.json", "speeds.json", "cells", ".lock")
    }
    assert (folder / "table.md").read_text(encoding="utf-8") in printed
    assert {run["status"] for run in runs(folder)} == {"finished"}
    assert re.search(r"Transformer\+\+ \d+ layers? stands for 12 layers: ", printed)  # nano has too few parameters


def test_the_chosen_rates_are_those_of_the_lowest_loss_and_trained_with(alone):
    table = json.loads((alone[0] / "table.json").read_text(encoding="utf-8"))
    for row, content in table["rows"].items():
        losses = {
            run["validation_loss"]: run["learning_rate"] for run in table["runs"] if run["sweep"] and run["row"] == row
        }
        assert content["learning_rate"] == losses[min(losses)]
        trained = {run["learning_rate"] for run in table["runs"] if run["row"] == row and not run["sweep"]}
        assert trained == {content["learning_rate"]}


def test_speeds_are_timed_together_at_the_end_and_again_if_lost(alone, capsys, monkeypatch, tmp_path):
    folder = copy(alone, tmp_path)
    speeds = json.loads((folder / "speeds.json").read_text(encoding="utf-8"))
    table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    assert speeds == {row: content["tokens_per_second"] for row, content in table["rows"].items()}
    assert all(speed > 0 for speed in speeds.values())
    for damaged in ("", "[]", '{"gpn": 3}'):
        (folder / "speeds.json").write_text(damaged, encoding="utf-8")
        monkeypatch.setattr(reproduce, "tokens_per_second", lambda experiment: 1234.5)
        assert call(capsys, reproduce, "--out", folder).status == 0
        assert set(json.loads((folder / "speeds.json").read_text(encoding="utf-8")).values()) == {1234.5}


def test_csv_json_and_the_page_agree(alone):
    folder, _ = alone
    table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    lines = list(csv.DictReader(io.StringIO((folder / "table.csv").read_text(encoding="utf-8"))))
    page = (folder / "table.md").read_text(encoding="utf-8")
    assert len(lines) == len(table["runs"]) == N_CELLS
    for line, run in zip(lines, table["runs"], strict=True):
        assert {name: value for name, value in line.items() if value} == {
            name: str(run[name]) for name in line if name in run
        }
    for row, content in table["rows"].items():
        seeds = [
            float(line["perplexity"])
            for line in lines
            if (line["row"], line["corpus"], line["sweep"]) == (row, "stories", "False")
        ]
        found = content["measured"]["stories"]["perplexity"]
        assert found["seeds"] == seeds
        assert found["mean"] == pytest.approx(np.mean(seeds)) and found["sd"] == pytest.approx(np.std(seeds, ddof=1))
        told = [line for line in page.splitlines() if line.startswith(f"| {content['name']} ")]
        assert f" {found['mean']:#.4g} ± {found['sd']:#.2g}".rstrip(".") in told[0]
        assert ", ".join(f"{value:#.4g}" for value in seeds) in " ".join(told)


def test_a_finished_table_is_told_again_and_nothing_trained(alone, capsys, monkeypatch, tmp_path):
    folder = copy(alone, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(Trainer, "train", lambda *_: pytest.fail("it trains again"))
    result = call(capsys, reproduce, "--out", folder)
    assert result.status == 0 and (folder / "table.md").read_text(encoding="utf-8") in result.out
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_only_what_is_missing_is_trained(alone, capsys, tmp_path):
    folder = copy(alone, tmp_path)
    shutil.rmtree(folder / "cells" / "stories-gpn-1")
    (folder / "cells" / "recall-gpn+m-1-0" / "cell.json").unlink()
    result = call(capsys, reproduce, "--out", folder)
    assert f"2 of {N_CELLS} runs to do" in result.out
    assert re.findall(r"^\[\d+/\d+\] (\S+):", result.out, re.MULTILINE) == ["recall-gpn+m-1-0", "stories-gpn-1"]
    assert runs(folder) == runs(alone[0])


def start(folder):
    command = [sys.executable, ROOT / "tests" / "nano_plan.py", "--out", folder]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    return subprocess.Popen(command, env=ENVIRONMENT, **pipes)


def wait_for_steps(folder, count, process):
    """Until there are as many records in all cells together, or the process has ended."""
    while process.poll() is None:
        if sum(path.read_bytes().count(b"\n") for path in folder.glob("cells/*/metrics.jsonl")) >= count:
            return
        time.sleep(0.002)


def test_killed_at_any_moment_it_goes_on_to_the_same_numbers(alone, tmp_path):
    folder, rng, steps = tmp_path / "table", np.random.default_rng(0), 0
    for _ in range(4):
        process = start(folder)
        steps += int(rng.integers(1, 40))
        wait_for_steps(folder, steps, process)
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
    process = start(folder)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert f" of {N_CELLS} runs to do" in out
    assert runs(folder) == runs(alone[0])
    assert not list(folder.rglob("*.tmp"))
    for name in ("loss.png", "loss.svg"):
        assert (folder / name).read_bytes() == (alone[0] / name).read_bytes()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    folder = tmp_path / "table"
    process = start(folder)
    wait_for_steps(folder, 20, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    last = out.splitlines()[-1]
    assert re.fullmatch(
        rf"stopped after \d+ of {N_CELLS} runs; go on with: \S+ -m gpn_ref.reproduce --out {folder}", last
    )
    assert "Traceback" not in err
    assert "Not done yet: " in (folder / "table.md").read_text(encoding="utf-8")


def test_a_diverged_cell_is_shown_and_stops_nothing(capsys, monkeypatch, tmp_path):
    plan = replace(NANO, rows=("gpn+m-1", "gpn"), corpora=("stories",), seeds=(0,), rates=(1e-3, 1e30))
    monkeypatch.setattr(reproduce, "FULL", plan)
    result = call(capsys, reproduce, "--out", tmp_path / "table")
    assert result.status == 0
    assert re.search(r"^\[2/6\] sweep-gpn\+m-1-1e\+30: diverged, step \d+: ", result.out, re.MULTILINE)
    assert re.search(r"^\| GPN 1 layer +\| +\d\.\d+ \| diverged \| 0\.001 \(edge\) \|$", result.out, re.MULTILINE)
    assert (tmp_path / "table" / "table.md").exists()


def test_list_trains_nothing_and_says_what_is_to_do(alone, capsys, tmp_path):
    folder = tmp_path / "new"
    result = call(capsys, reproduce, "--list", "--out", folder)
    assert result.status == 0 and not folder.exists()
    assert re.search(r"\| GPN\+M 1 layer +\| +5,812 \(\+0\.00 %\) \| +3,724 ", result.out)
    assert re.search(r"\| GPN 1 layer +\| +0 of 2 \| +0 of 2 \| +0 of 2 \|", result.out)
    assert f"0 of {N_CELLS} runs are done in {folder}; the rest should take " in result.out
    folder = copy(alone, tmp_path)
    shutil.rmtree(folder / "cells" / "stories-gpn-1")
    result = call(capsys, reproduce, "--list", "--out", folder)
    assert re.search(r"\| GPN 1 layer +\| +2 of 2 \| +1 of 2 \| +2 of 2 \|", result.out)
    assert not (folder / "cells" / "stories-gpn-1").exists()
    assert "nothing is left to do" in call(capsys, reproduce, "--list", "--out", alone[0]).out


def test_another_plan_in_the_same_folder_is_refused(alone, capsys, monkeypatch, tmp_path):
    folder = copy(alone, tmp_path)
    for plan, message in (
        (replace(NANO, seeds=(0, 1, 2)), "its seeds is [0, 1], not [0, 1, 2]; choose another --out"),
        (replace(NANO, rows=NANO.rows[:2]), 'its rows is ["transformer-deep", "gpn+m-1", "gpn"], not ["transformer-'),
        (replace(NANO, choices=NANO.choices | {"steps": 9}), "its steps is 8, not 9; choose another --out"),
    ):
        monkeypatch.setattr(reproduce, "FULL", plan)
        for flags in ([], ["--list"]):
            assert_one_line(
                call(capsys, reproduce, *flags, "--out", folder), f"{folder} holds a table of another plan: "
            )
        assert_one_line(call(capsys, reproduce, "--out", folder), message)
    (folder / "plan.json").write_text("{")
    assert_one_line(call(capsys, reproduce, "--out", folder), "plan.json is damaged: it is not the plan of a table")


def test_a_folder_of_something_else_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert_one_line(call(capsys, reproduce, "--out", tmp_path), f"{tmp_path} is not empty and holds no table")
    assert_one_line(call(capsys, reproduce, "--out", tmp_path / "file"), "is a file; --out must name a folder")
    assert os.listdir(tmp_path) == ["file"]
    (tmp_path / ".lock").touch()  # as in any run directory
    assert_one_line(call(capsys, reproduce, "--out", tmp_path), f"{tmp_path} is not empty and holds no table")


def test_what_a_killed_process_has_left_is_dropped(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(reproduce, "FULL", replace(NANO, rows=("gpn",), corpora=("recall",), seeds=(0,), rates=(1e-3,)))
    for name in (".lock", ".plan.json.7.tmp"):
        (tmp_path / name).touch()
    assert call(capsys, reproduce, "--out", tmp_path).status == 0
    assert not list(tmp_path.glob("*.tmp"))


def test_two_at_once_are_refused(alone, capsys, tmp_path):
    folder = copy(alone, tmp_path)
    with hold(folder):
        assert_one_line(call(capsys, reproduce, "--out", folder), "is being trained by another process")
    assert call(capsys, reproduce, "--out", folder).status == 0


def test_help_names_every_flag_with_its_default(capsys):
    result = call(capsys, reproduce, "--help")
    for text in ("--quick", "--list", "--paper-sizes", "(default runs/reproduce; --quick: runs/reproduce-quick)"):
        assert text in " ".join(result.out.split())
