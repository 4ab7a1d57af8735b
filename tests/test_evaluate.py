"""The command `evaluate`: what it measures, prints and writes, and what it says to bad input."""

import hashlib
import json
import math
import os
import re
import resource
import shutil

import numpy as np
import pytest
from commands import assert_one_line, call, run, start
from small_runs import new_trainer

from gpn_ref import evaluate
from gpn_ref.evaluate import context_sentences, difference, some_spans, told
from gpn_ref.files import TRAINED
from gpn_ref.measures import Validation, spans
from gpn_ref.text import corpora
from gpn_ref.trained import Trained

FIGURES = ["loss_by_position.png", "loss_by_position.svg"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a small text."""
    trainer = new_trainer(tmp_path_factory.mktemp("trained"), steps=40, learning_rate=0.03)
    trainer.train()
    return trainer.run.path


@pytest.fixture(scope="module")
def recalling(tmp_path_factory):
    """A run on the recall task, of small sizes."""
    sizes = {"recall_pairs": 2, "recall_n_keys": 6, "recall_n_values": 12, "recall_n_fillers": 4, "recall_gaps": [0, 2]}
    trainer = new_trainer(tmp_path_factory.mktemp("recalling"), corpus="recall", vocab_size=1024, **sizes)
    trainer.train()
    return trainer.run.path


def evaluated(capsys, *arguments, out=None):
    """What the command printed, and its summary.json."""
    result = call(capsys, evaluate, *arguments, *(["--out", out] if out else []))
    assert (result.status, result.err) == (0, ""), result
    folder = re.search("^files +(.*)/: ", result.out, re.MULTILINE)[1]
    return result.out, read(f"{folder}/summary.json")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


# --- what it measures


def test_the_loss_is_that_of_validation(trained, capsys):
    printed, summary = evaluated(capsys, trained)
    model = Trained(trained)
    task = model.task()
    validation = Validation(task.windows(12, 2**20), task.target_bytes(12, 2**20))
    text = summary["text"]
    assert text["loss"]["value"] == pytest.approx(validation.loss(model.bound), rel=1e-9)
    assert text["perplexity"]["value"] == pytest.approx(math.exp(text["loss"]["value"]))
    assert text["bits_per_byte"]["value"] == pytest.approx(validation.bits_per_byte(text["loss"]["value"]))
    assert (text["tokens"], text["bytes"]) == (validation.size, validation.bytes)
    for name in ("loss", "perplexity", "bits_per_byte"):
        low, high = text[name]["interval"]
        assert low < text[name]["value"] < high
        assert f"{told(text[name])}" in printed
    assert text["by_position"]["last"] == list(range(1, 13))
    assert np.mean(text["by_position"]["loss"]) == pytest.approx(text["loss"]["value"])
    assert text["by_position"]["loss_first_half_hidden"][:6] == [None] * 6
    assert "cloze" not in summary and "recall" not in summary
    assert summary["command"]["run"] == str(trained) and summary["model"]["d_state"] == 16
    assert sorted(path.name for path in (trained / "evaluate").iterdir()) == [*FIGURES, "summary.json"]


def test_window_tokens_and_other_text(trained, capsys, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("the dog sat on the café. " * 200, encoding="utf-8")
    _, summary = evaluated(capsys, trained, "--text", text, "--window", 70, "--tokens", 300, out=tmp_path / "a" / "b")
    found = summary["text"]
    assert (found["name"], found["sequences"], found["tokens"]) == (str(text), 4, 280)
    assert found["by_position"]["last"] == spans(70)[1:]
    assert sum(found["bytes"] == n for n in range(280, 10**4)) == 1
    printed, summary = evaluated(capsys, trained, "--tokens", 1, out=tmp_path / "one")
    assert summary["text"]["sequences"] == 1 and summary["text"]["loss"]["interval"] == [None, None]
    assert "in 1 sequence of" in printed and "[one sequence]" in printed and "nan" not in printed


@pytest.mark.parametrize("window", [1, 3, 4])
def test_short_windows(trained, capsys, tmp_path, window):
    printed, summary = evaluated(capsys, trained, "--window", window, out=tmp_path)
    assert len(summary["text"]["by_position"]["loss"]) == window
    assert ("A window of fewer than 4 tokens is too short" in printed) == (window < 4)


def test_the_same_seed_gives_the_same_bytes(trained, capsys, tmp_path):
    def files(out, *flags):
        evaluated(capsys, trained, *flags, out=out)
        summary = read(out / "summary.json")
        assert summary["text"].pop("tokens_per_second") > 0
        del summary["command"]
        return [summary, *((out / name).read_bytes() for name in FIGURES)]

    assert files(tmp_path / "a") == files(tmp_path / "b")
    other = files(tmp_path / "c", "--seed", 1)
    assert other[0] != files(tmp_path / "a")[0]


def test_the_shipped_model_knows_what_its_stories_tell(capsys, tmp_path):
    printed, summary = evaluated(capsys, TRAINED, "--tokens", 6400, out=tmp_path)
    cloze = summary["cloze"]
    assert (cloze["name"], cloze["chance"], cloze["faults"]) == ("the cloze set of stories", 0.25, {})
    assert cloze["by_distance"]["all"]["passages"] == 560
    assert cloze["by_distance"]["all"]["accuracy"]["value"] == pytest.approx(0.966, abs=0.005)
    assert list(cloze["by_distance"]) == ["all", "up to 20 tokens", "21-60 tokens", "61-150 tokens"]
    assert "560 passages; chance 0.25" in printed
    assert summary["text"]["context"]["more_without_first_half"]["interval"][0] > 0
    assert "the model uses that half." in printed


def test_questions_from_a_file_and_its_faults(trained, capsys, tmp_path):
    lines = ['{"text": "a dog ran to the dog"}', "", "{}", '{"text": "where is the red hat"}', "{}", '{"text": "hat"}']
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    printed, summary = evaluated(capsys, trained, "--cloze", path, out=tmp_path / "out")
    cloze = summary["cloze"]
    assert (cloze["name"], cloze["chance"]) == (str(path), None)
    assert {name: group["passages"] for name, group in cloze["by_distance"].items()} == {
        **{"all": 2, "up to 20 tokens": 1},
        "never mentioned before": 1,
    }
    assert cloze["faults"] == {
        "empty": [2],
        'malformed (no string "text")': [3, 5],
        "one-word (nothing before it tells it)": [6],
    }
    assert 'left out: 2 lines malformed (no string "text"): lines 3, 5' in printed
    assert f"{path}: 2 passages\n" in printed


def test_lambada_comes_from_the_cache(trained, capsys, tmp_path, monkeypatch):
    path, line = tmp_path / "lambada_test.jsonl", b'{"text": "the cat sat on the cat"}\n'
    path.write_bytes(line)
    monkeypatch.setenv("GPN_REF_CACHE", str(tmp_path))
    monkeypatch.setitem(corpora.LAMBADA, "sha256", hashlib.sha256(line).hexdigest())
    printed, summary = evaluated(capsys, trained, "--cloze", "lambada", out=tmp_path / "out")
    assert (summary["cloze"]["name"], summary["cloze"]["by_distance"]["all"]["passages"]) == ("LAMBADA", 1)


# --- recall


def test_recall_as_trained_and_beyond(recalling, capsys, tmp_path):
    printed, summary = evaluated(capsys, recalling, out=tmp_path / "own")
    own = {
        pairs: {cell["gap"]: cell["trained"] for cell in row} for pairs, row in summary["recall"]["accuracy"].items()
    }
    assert own == {"2": {0: True, 2: True, 16: False, 32: False}}
    assert summary["text"]["by_position"]["sequences"] == [512] * 8 + [256] * 2
    printed, summary = evaluated(capsys, recalling, "--recall", out=tmp_path / "all")
    grid = summary["recall"]
    cells = [(int(pairs), cell) for pairs, row in grid["accuracy"].items() for cell in row]
    pairs, gaps = (1, 2, 4, 6), (0, 2, 4, 8, 16, 32, 64)
    assert [(count, cell["gap"]) for count, cell in cells] == [(count, gap) for count in pairs for gap in gaps]
    assert [(count, cell["gap"]) for count, cell in cells if cell["trained"]] == [(2, 0), (2, 2)]
    assert len(re.findall(r"\d\*", printed)) == 2
    assert (grid["chance"], grid["trained"]) == (pytest.approx(1 / 12), {"pairs": 2, "gaps": [0, 2]})
    for _, cell in cells:
        low, high = cell["accuracy"]["interval"]
        assert 0 <= low <= cell["accuracy"]["value"] <= high < 0.4
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [
        *FIGURES,
        *("recall.png", "recall.svg", "summary.json"),
    ]


# --- sentences


def estimate(value, low, high):
    return {"value": value, "interval": [low, high]}


def test_differences_in_words():
    assert told(estimate(1.22499, 1.2, 1.3)) == "1.225 [1.200, 1.300]"
    assert told(estimate(2.0, math.nan, math.nan)) == "2.000 [one sequence]"
    assert told(estimate(583_312.0, 583_000.2, 583_500.0)) == "583,312 [583,000, 583,500]"
    assert told(estimate(-0.0001, -0.001, 0.0002), "z.3f") == "0.000 [-0.001, 0.000]"
    assert difference(estimate(0.27, 0.18, 0.37)) == "0.270 [0.180, 0.370] nats more"
    assert difference(estimate(-0.27, -0.37, -0.18)) == "0.270 [0.180, 0.370] nats less"
    assert difference(estimate(-0.1, -0.3, 0.1)) == "0.100 [-0.100, 0.300] nats less (may be chance)"


@pytest.mark.parametrize(
    ("hidden", "verdict"),
    [
        (estimate(0.2, 0.1, 0.3), "cost 0.200 [0.100, 0.300] nats more: the model uses that half."),
        (estimate(0.1, -0.1, 0.3), "nats more (may be chance): no use of that half can be told."),
        (estimate(-0.2, -0.3, -0.1), "[0.100, 0.300] nats less: the model does better without that half."),
        (estimate(3e-7, 1e-7, 5e-7), "cost 0.000 [0.000, 0.000] nats more: no use of that half can be told."),
        (
            estimate(0.2, math.nan, math.nan),
            "cost 0.200 [one sequence] nats more: one sequence tells nothing.",
        ),
    ],
)
def test_what_is_said_of_the_context(hidden, verdict):
    quarter = estimate(0.5, 0.4, 0.6)
    names = ("more_than_first_quarter", "more_than_second_quarter", "more_without_first_half")
    quarters, half = context_sentences(dict(zip(names, (quarter, quarter, hidden), strict=True)))
    assert "0.500 [0.400, 0.600] nats more than its first" in quarters
    assert half.endswith(verdict)


@pytest.mark.parametrize(
    ("T", "firsts"),
    [(1, [1]), (5, [1, 2, 4, 5]), (64, [1, 2, 4, 8, 16, 32, 64]), (129, [1, 2, 4, 8, 16, 32, 64, 123])],
)
def test_which_positions_are_printed(T, firsts):
    first = np.array(spans(T)[:-1]) + 1
    assert [first[index] for index in some_spans(first)] == firsts


# --- bad input


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--window", 0], "argument --window: 0 is too small"),
        (
            ["--window", 10_000],
            "cats has 87 tokens to measure on, but sequences of 10,000 tokens need 10,001: ",
        ),
        (["--tokens", 0], "argument --tokens: 0 is too small"),
        (["--tokens", "many"], "argument --tokens: 'many' is not a whole number"),
        (["--seed", -1], "argument --seed: -1 is too small"),
        (["--backend", "nunpy"], "unknown backend 'nunpy'; did you mean 'numpy'?"),
        (["--recall"], "--recall needs a model trained on the recall task, but {run} was trained on cats"),
        (["--cloze", "{folder}"], "{folder}: Is a directory"),
        (["--cloze", "none.jsonl"], "none.jsonl: No such file or directory"),
        (["--cloze", "{folder}/empty"], "{folder}/empty has no question: it is empty; it must hold lines like"),
        (["--text", "{folder}/empty"], "{folder}/empty is empty; it must hold UTF-8 text"),
        (["--text", "{folder}/binary"], "{folder}/binary is a binary file: byte 1 is 0"),
        (["--text", "{folder}"], "{folder}: Is a directory"),
        (["--out", "{folder}/binary"], "{folder}/binary is a file; --out must be a folder, there or not"),
        (["--out", "{folder}/binary/x"], "{folder}/binary/x: Not a directory"),
        (["--out", "{folder}/taken"], "{folder}/taken/summary.json: it is no regular file"),
    ],
)
def test_bad_flags(trained, capsys, tmp_path, flags, message):
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "taken" / "summary.json").mkdir(parents=True)
    names = {"folder": tmp_path, "run": trained}
    flags = [str(flag).format(**names) for flag in flags]
    assert_one_line(call(capsys, evaluate, trained, *flags), message.format(**names))


def test_a_window_means_nothing_to_the_recall_task(recalling, capsys):
    result = call(capsys, evaluate, recalling, "--window", 20)
    assert_one_line(result, "--window has no effect on the recall task; leave it out")


def test_bad_runs(trained, capsys, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    for path in (copy / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    out = tmp_path / "out"
    assert_one_line(call(capsys, evaluate, copy, "--out", out), "none of the 2 checkpoints in")
    shutil.rmtree(copy / "checkpoints")
    assert_one_line(call(capsys, evaluate, copy, "--out", out), f"{copy} has no checkpoint yet")
    assert_one_line(call(capsys, evaluate, tmp_path / "none"), "none: No such file or directory")
    assert_one_line(call(capsys, evaluate, tmp_path), "is not a run directory: it has no config.json")
    assert not out.exists()


def test_the_bytes_are_those_of_the_file_whatever_the_window(trained, capsys, tmp_path):
    """A byte without a token is written with three: a window that begins inside of one must not count its digits."""
    text = "日本語🙂 the cat sat. " * 40
    (tmp_path / "emoji.txt").write_text(text, encoding="utf-8")
    counts = {}
    for window in (1, 2, 3, 7, 20):
        _, summary = evaluated(capsys, trained, "--text", tmp_path / "emoji.txt", "--window", window)
        counts[window] = summary["text"]["bytes"], summary["text"]["tokens"]
    n_bytes = len(text.encode())
    assert counts[1][0] == counts[2][0] == n_bytes
    assert all(n_bytes - 3 * window <= found <= n_bytes for window, (found, _) in counts.items())


def test_names_that_are_no_text(trained, capsys, tmp_path):
    """A file's name may hold any bytes; they are written out where text must be."""
    name = os.fsdecode(b"bad\xff.txt")
    (tmp_path / name).write_text("the cat sat on the mat. " * 9, encoding="utf-8")
    out = tmp_path / os.fsdecode(b"out\xff")
    result = call(capsys, evaluate, trained, "--text", tmp_path / name, "--out", out)
    assert result.status == 0, result
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["text"]["name"].endswith("bad\\udcff.txt") and "bad\\udcff.txt" in result.out


def test_a_reader_that_leaves_loses_nothing(trained, tmp_path):
    process = start("evaluate", trained, "--out", tmp_path / "out", "--backend", "numpy")
    process.stdout.close()
    process.wait()
    process.stderr.close()
    assert process.returncode == 141
    assert (tmp_path / "out/summary.json").is_file()


def test_checkpoints_of_another_run_are_named(trained, capsys, tmp_path):
    shutil.copytree(trained, tmp_path / "copy")
    other = new_trainer(tmp_path / "other", steps=4, model="gpn")
    other.train()
    shutil.rmtree(tmp_path / "copy/checkpoints")
    shutil.copytree(other.run.path / "checkpoints", tmp_path / "copy/checkpoints")
    result = call(capsys, evaluate, tmp_path / "copy")
    assert "is of another run: its model is not that of" in result.err
    assert_one_line(result, "none of the 2 checkpoints in")


def test_a_text_that_is_gone(capsys, tmp_path):
    trainer = new_trainer(tmp_path)
    trainer.train()
    (tmp_path / "cats.txt").unlink()
    assert_one_line(call(capsys, evaluate, trainer.run.path), "cats.txt: No such file or directory")


def test_a_full_disk_leaves_no_half_files(trained, tmp_path):
    full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # noqa: E731  (bytes of a file)
    result = run("evaluate", trained, "--out", tmp_path / "out", "--backend", "numpy", preexec_fn=full)
    assert_one_line(result, "out/loss_by_position.png: File too large")
    assert "nats per token" in result.out  # what was measured is not lost
    assert list((tmp_path / "out").iterdir()) == []


def test_help_names_every_default(capsys):
    result = call(capsys, evaluate, "--help")
    assert result.status == 0
    assert "python -m gpn_ref.evaluate runs/recall --recall" in result.out
    defaults = re.findall(r"\(default:? ([^)]*)\)", " ".join(result.out.split()))
    assert {"1,048,576", "0", "as in training", "the validation text of RUN"} <= set(defaults)
