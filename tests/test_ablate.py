"""`python -m gpn_ref.ablate` as its users meet it."""

import json
from collections import Counter

import pytest
from commands import assert_one_line, call, run
from small_runs import new_trainer

from gpn_ref import ablate
from gpn_ref.files import TRAINED
from gpn_ref.inspect import ablations

FEW = ["--tokens", 120, "--draws", 2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory of a model with a memory of two heads."""
    trainer = new_trainer(tmp_path_factory.mktemp("trained"))
    trainer.train()
    return trainer.run


def summary_of(folder):
    """The folder's summary, checked to be JSON without NaN."""
    text = (folder / "summary.json").read_text(encoding="utf-8")
    return json.loads(text, parse_constant=lambda name: pytest.fail(name))


def groups(summary):
    return Counter(row["group"] for row in summary["changes"])


# ------------------------------------------------------------------------------------------------------ what it writes
def test_a_text_without_questions(trained, capsys):
    result = call(capsys, ablate, trained.path, *FEW)
    assert (result.status, result.err) == (0, "")
    folder = trained.path / "ablate"
    names = ["changes.png", "changes.svg", "clearing.png", "clearing.svg", "summary.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert result.out.rstrip().endswith(f"{folder}/: summary.json, {', '.join(names[:-1])}")
    summary = summary_of(folder)
    assert summary["text"] == {"sequences": 7, "tokens": 84}  # every second window: all would be more than 120 tokens
    assert summary["unchanged"]["accuracy"] is None and summary["questions"]["number"] == 0
    assert "accuracy" not in result.out
    heads = summary["heads"]
    assert sorted(heads["fast"] + heads["slow"]) == [0, 1] and len(heads["lives"]) == 2
    for row in summary["changes"]:
        assert row["accuracy"] is None
        assert row["loss"]["low"] <= row["loss"]["change"] <= row["loss"]["high"]
        assert " ".join(row["says"].split()) in " ".join(result.out.split())
    lags = [(group["from"], group["to"]) for group in summary["clearing"]["loss"]]
    assert lags == [*((lag, lag) for lag in range(1, 8)), (8, 9), (10, 11)]
    assert summary["clearing"]["accuracy"] == []


def test_the_same_every_time(trained, capsys, tmp_path):
    for name, flags in {"one": [], "two": [], "other": ["--seed", 1]}.items():
        assert call(capsys, ablate, trained.path, *FEW, "--out", tmp_path / name, *flags).status == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    one, other = (summary_of(tmp_path / name)["clearing"]["loss"] for name in ("one", "other"))
    assert one != other


def test_the_model_that_ships_and_its_passages(capsys, tmp_path):
    out = tmp_path / "out"
    flags = ["--tokens", 640, "--passages", 12, "--draws", 1, "--out", out]
    result = call(capsys, ablate, TRAINED, *flags)
    assert result.status == 0
    summary = summary_of(out)
    assert summary["questions"] == {"number": 12, "of": "passages"}
    assert groups(summary) == {"mean state": 3, "fast heads": 3, "slow heads": 3}
    assert summary["unchanged"]["accuracy"]["change"] > 0.8
    found = {row["what"]: row for row in summary["changes"]}
    assert found["slow heads lose their contents"]["accuracy"]["change"] < -0.5  # what the story told is gone
    assert found["fast heads lose their contents"]["accuracy"]["change"] > -0.3
    for row in summary["changes"]:
        assert [len(drawn["heads"]) for drawn in row["random"]] == [] if row["group"] == "mean state" else [4]
    lags = [group["from"] for group in summary["clearing"]["accuracy"]]
    assert lags == [lag for lag in ablations.CLEARINGS if lag in lags] and lags[:3] == [1, 2, 4]
    assert summary["clearing"]["accuracy"][0]["change"] < -0.5


def test_a_model_without_memory(capsys, tmp_path):
    trainer = new_trainer(tmp_path / "gpn", model="gpn")
    trainer.train()
    result = call(capsys, ablate, trainer.run.path, *FEW, "--decode-bias", 2)
    assert result.status == 0 and "none: without a memory nothing can be silenced or cleared" in result.out
    summary = summary_of(trainer.run.path / "ablate")
    assert summary["heads"] is None and summary["clearing"] is None
    assert groups(summary) == {"mean state": 3, "decoder bias": 1}
    assert not (trainer.run.path / "ablate" / "clearing.png").exists()
    row = summary["changes"][-1]
    for name in ("control", "bias"):
        assert row[name]["loss"]["change"] > 0 and 0 < row[name]["share_of_norm"] < 1
    assert row["loss"]["change"] == pytest.approx(row["bias"]["loss"]["change"] - row["control"]["loss"]["change"])
    assert 0 < row["largest_move"] < 1 and row["learning_rate"] == pytest.approx(1e-4)


def test_two_layers(capsys, tmp_path):
    trainer = new_trainer(tmp_path / "deep", layers=2)
    trainer.train()
    result = call(capsys, ablate, trainer.run.path, *FEW)
    assert result.status == 0 and "heads that are not read are silent in all 2" in result.out
    assert summary_of(trainer.run.path / "ablate")["layers"] == 2


def test_the_recall_task(capsys, tmp_path):
    trainer = new_trainer(tmp_path / "recall", corpus="recall", recall_gaps=[0, 3], recall_pairs=2)
    trainer.train()
    path = trainer.run.path
    assert call(capsys, ablate, path, "--tokens", 60).status == 0
    summary = summary_of(path / "ablate")
    rows = (1 + 60 // 8) + (1 + 60 // 11)
    assert summary["questions"] == {"number": 2 * rows, "of": "values"}
    assert summary["clearing"]["accuracy"] and summary["clearing"]["mentioned"]["since"]["all"] is None
    assert all(row["accuracy"] for row in summary["changes"])
    assert_one_line(call(capsys, ablate, path, "--window", 8), "--window has no effect on the corpus recall; leave it")


def test_other_text_and_one_sequence_of_it(trained, capsys, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("a cat sat. " * 20, encoding="utf-8")
    flags = ["--text", text, "--tokens", 12, "--window", 12, "--out", tmp_path / "out"]
    result = call(capsys, ablate, trained.path, *flags)
    assert result.status == 0 and "one sequence tells no interval" in result.out
    assert summary_of(tmp_path / "out")["changes"][0]["loss"]["low"] is None


# --------------------------------------------------------------------------------------------------- what goes wrong
def test_what_cannot_be(trained, capsys, tmp_path):
    file = tmp_path / "file"
    file.write_text("text", encoding="utf-8")
    assert_one_line(call(capsys, ablate, tmp_path / "none"), "none: No such file or directory")
    assert_one_line(call(capsys, ablate, trained.path, "--out", file), "file is a file; --out must be a folder")
    assert_one_line(
        call(capsys, ablate, trained.path, "--window", 1), "--window 1 is too short to tell how long a head"
    )
    assert_one_line(call(capsys, ablate, trained.path, "--window", 9999), "sequences of 9,999 tokens need 10,000")
    assert_one_line(call(capsys, ablate, trained.path, "--decode-bias", 0), "0 is too small; it must be 1 or more")
    assert_one_line(call(capsys, ablate, "--decode-bias", trained.path), "is not a whole number")
    flags = ["--decode-bias", 1, "--text", file]
    assert_one_line(
        call(capsys, ablate, trained.path, *flags), "--decode-bias trains on the run's own text; leave --te"
    )
    result = run("ablate", "--draws", "none")
    assert_one_line(result, "argument --draws: 'none' is not a whole number")


def test_a_control_c_leaves_nothing_behind(trained, capsys, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    for module, name in ((ablations, "clear_memory"), (ablate, "with_and_without")):
        monkeypatch.setattr(module, name, stop)
        result = call(capsys, ablate, trained.path, *FEW, "--decode-bias", "--out", tmp_path / "out")
        assert (result.status, result.out) == (130, "")
        assert list((tmp_path / "out").iterdir()) == []
        monkeypatch.undo()
