"""The command, on small runs of every kind."""

import json
import signal
import time
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from commands import assert_one_line, call, run, start
from small_runs import new_trainer

import gpn_ref.inspect.__main__ as inspect
from gpn_ref import ablate, evaluate
from gpn_ref.files import TRAINED
from gpn_ref.inspect.summary import visible, words
from gpn_ref.text.tokenizer import encode
from gpn_ref.trained import Trained
from gpn_ref.training.checkpoint import read_checkpoint, write_checkpoint

FIGURES = {"geometry", "default-token", "horizons"}
OF_HEADS = {"heads", "retrieval", "eigenvalues"}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """A function: choices -> the path of a trained run, made once."""
    made = {}

    def make(**choices):
        key = repr(choices)
        if key not in made:
            trainer = new_trainer(tmp_path_factory.mktemp("run"), **choices)
            trainer.train()
            made[key] = trainer.run.path
        return made[key]

    return make


@pytest.fixture
def quick(monkeypatch):
    """Figures are drawn, but not turned into pixels and paths, which takes most of the time."""
    monkeypatch.setattr(inspect, "image", lambda figure, kind: b"<svg/>")


def inspected(capsys, path, out, *flags):
    """The command's summary and report; every file that it should write is there and no other."""
    result = call(capsys, inspect, path, "--out", out, *flags)
    assert (result.status, result.err) == (0, ""), result
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    names = FIGURES | (OF_HEADS if summary["heads"] else set())
    if summary["model"]["n_layers"] == 2 and summary["heads"]:
        names = names - {"retrieval"} | {"retrieval-layer-1", "retrieval-layer-2"}
    files = {f"{name}.{kind}" for name in names for kind in ("png", "svg")} | {"summary.json", "report.html"}
    assert {path.name for path in out.iterdir()} == files
    page = (out / "report.html").read_text(encoding="utf-8")
    assert_self_contained(page, len(names))
    return summary, page, result.out


class Page(HTMLParser):
    """Collects the links of a page, and looks that its tags close."""

    def __init__(self):
        super().__init__()
        self.links, self.open, self.images = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        self.images += tag == "img"
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def assert_self_contained(text, images):
    page = Page()
    page.feed(text)
    assert page.open == [] and page.images == images
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page.links)
    assert "http" not in text and "url(" not in text and "@import" not in text


def test_a_model_with_a_memory(run_of, tmp_path, capsys):
    summary, page, out = inspected(capsys, run_of(), tmp_path / "out")
    assert summary["model"]["n_heads"] == 2 and summary["model"]["tokens"] > 0
    [layer] = summary["geometry"]
    assert layer["states"] == summary["model"]["tokens"] and layer["dimensions"] == 16
    assert len(summary["horizons"]["heads"]) == 2
    heads = summary["heads"]
    [reads] = heads["layers"]
    assert reads["share_gate"] + reads["share_ffn"] + sum(reads["share_heads"]) == pytest.approx(1, abs=1e-4)
    assert [sum(counts) for counts in heads["eigenvalues_along_key"]] == [layer["states"]] * 2
    words = summary["passage"]["tokens"]
    assert np.shape(summary["passage"]["beta"]) == (len(words), 2)
    assert np.shape(summary["passage"]["map"]) == (1, len(words), len(words))
    for number in (f"{layer['norm_mean']:#.3g}", f"{heads['beta_mean'][1]:#.3g}"):
        assert number in out and number in page


def test_a_model_without_a_memory_says_so(run_of, tmp_path, capsys):
    summary, page, out = inspected(capsys, run_of(model="gpn"), tmp_path / "out")
    assert summary["heads"] is None and summary["passage"] is None and summary["horizons"]["heads"] == []
    assert len(summary["horizons"]["cosine_raw"]) == len(summary["horizons"]["lags"])
    assert "This model has no memory" in page and "This model has no memory" in out


def test_two_layers_are_shown_each(run_of, tmp_path, capsys):
    summary, page, out = inspected(capsys, run_of(layers=2), tmp_path / "out", "--passage", "the cat")
    assert len(summary["geometry"]) == len(summary["heads"]["layers"]) == 2
    assert summary["geometry"][0]["norm_mean"] != summary["geometry"][1]["norm_mean"]
    assert np.shape(summary["passage"]["shares"])[0] == np.shape(summary["passage"]["map"])[0] == 2
    for text in (page, out):
        assert "layer 1, head" in text and "layer 2, head" in text and "In layer 2 reads make" in text


def test_the_recall_task_with_sequences_of_several_lengths(quick, run_of, tmp_path, capsys):
    path = run_of(corpus="recall", recall_gaps=[0, 3], recall_pairs=2)
    summary, _, _ = inspected(capsys, path, tmp_path / "out", "--tokens", 500)
    assert summary["model"]["longest"] == 4 * 2 + 3
    assert summary["horizons"]["lags"] == list(range(1, 11))
    assert summary["passage"]["tokens"][0] == "<|end|>" and summary["passage"]["tokens"][1].startswith("␣k")


def test_sequences_of_one_token(quick, run_of, tmp_path, capsys):
    summary, _, out = inspected(capsys, run_of(), tmp_path / "out", "--length", 1)
    assert summary["horizons"]["lags"] == [] and summary["horizons"]["heads"][0]["life"] is None
    assert summary["default_token"]["running_tokens"] == [1]
    assert "Sequences of one token have no lag" in out


def test_a_text_shorter_than_a_sequence_is_one_sequence(quick, run_of, tmp_path, capsys):
    text = tmp_path / "short.txt"
    text.write_text("the cat", encoding="utf-8")
    summary, _, _ = inspected(capsys, run_of(), tmp_path / "out", "--text", text)
    assert summary["model"]["sequences"] == 1
    assert summary["default_token"]["batch_cosine_mean"] is None
    text.write_text("t", encoding="utf-8")
    summary, _, _ = inspected(capsys, run_of(), tmp_path / "out", "--text", text)
    assert summary["model"]["tokens"] == 1 and summary["geometry"][0]["dead_dimensions"] == 16


def test_any_passage_can_be_shown(run_of, tmp_path, capsys):
    """Of a tokenizer that has all these bytes: nothing becomes mathematics, markup, or a line that turns around."""
    passage = 'a <b>& "$x_1^2$"\n\t\u202e 😀 é'
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join([passage] * 60), encoding="utf-8")
    path = run_of(text=[str(text)], vocab_size=38)
    summary, page, _ = inspected(capsys, path, tmp_path / "out", "--passage", passage)
    shown = "".join(summary["passage"]["tokens"])
    assert shown.isprintable()
    assert all(sign in shown for sign in ("⏎", "⇥", "␣", "$", "_"))
    assert "<b>" not in page


def test_bytes_that_are_no_tokens_are_shown_as_digits(run_of):
    encoding = Trained(run_of()).encoding
    tokens = encode(encoding, "a\x07a")
    assert list(words(tokens, encoding)) == ["a", "<|byte|>", "0", "7", "a"]


@pytest.mark.parametrize(
    "data, shown",
    [
        (b" cat", "␣cat"),
        (b"\n\t", "⏎⇥"),
        (b"\xe2\x80", "\\xe2\\x80"),
        ("\u202e".encode(), "\\u202e"),
        ("é".encode(), "é"),
    ],
)
def test_white_space_and_bytes_are_visible(data, shown):
    assert visible(data) == shown


def test_a_long_passage_is_cut_and_told(quick, run_of, tmp_path, capsys):
    result = call(capsys, inspect, run_of(), "--out", tmp_path, "--passage", "the cat sat on the mat " * 40)
    assert result.status == 0 and "its first 47 are shown" in result.err
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert len(summary["passage"]["tokens"]) == 48


def test_the_same_bytes_when_run_twice(run_of, tmp_path, capsys):
    inspected(capsys, run_of(), tmp_path / "one", "--passage", "the cat")
    inspected(capsys, run_of(), tmp_path / "two", "--passage", "the cat")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_numbers_do_not_depend_on_how_the_text_is_cut_into_batches(quick, run_of, tmp_path, capsys, monkeypatch):
    one, _, _ = inspected(capsys, run_of(), tmp_path / "one", "--length", 12)
    monkeypatch.setattr("gpn_ref.measures.BATCH_TOKENS", 24)
    two, _, _ = inspected(capsys, run_of(), tmp_path / "two", "--length", 12)
    for part in ("geometry", "horizons", "heads"):
        for name, value in (one[part][0] if part == "geometry" else one[part]).items():
            other = (two[part][0] if part == "geometry" else two[part])[name]
            if isinstance(value, float) or name in ("cosine_raw", "retention", "sd_sorted", "beta_mean"):
                np.testing.assert_allclose(other, value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_files_go_into_the_run_or_beside_it(quick, run_of, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    path = run_of(model="gpn")
    assert call(capsys, inspect, path).status == 0
    assert (path / "inspect" / "report.html").is_file()
    assert call(capsys, inspect, TRAINED, "--tokens", 300).status == 0
    assert (tmp_path / "runs" / "tiny-inspect" / "report.html").is_file()


def test_bad_input_is_one_line(run_of, tmp_path, capsys):
    path = run_of()
    text = tmp_path / "text.txt"
    text.write_text("the cat", encoding="utf-8")
    for flags, message in [
        (["--passage", ""], "the passage is empty; it must be text"),
        (["--tokens", 0], "argument --tokens: 0 is too small; it must be 1 or more"),
        (["--length", "x"], "argument --length: 'x' is not a whole number"),
        (["--text", tmp_path / "none.txt"], "none.txt: No such file or directory"),
        (["--text", text, "--length", 300], "has 3 tokens to measure on, but sequences of 300 tokens need 301"),
        (["--out", text], "text.txt is a file; --out must be a folder, there or not"),
        (["--backend", "cudda"], "unknown backend 'cudda'"),
    ]:
        assert_one_line(call(capsys, inspect, path, *flags), message)
    assert_one_line(call(capsys, inspect, tmp_path / "nothing"), "nothing: No such file or directory")


def test_a_text_that_is_gone_can_be_replaced(quick, run_of, tmp_path, capsys):
    checkpoint = sorted((run_of() / "checkpoints").iterdir())[-1]
    original = run_of().parent / "cats.txt"
    moved = original.rename(tmp_path / "moved.txt")
    try:
        assert_one_line(call(capsys, inspect, checkpoint, "--out", tmp_path / "out"), "cats.txt: No such file")
        result = call(capsys, inspect, checkpoint, "--out", tmp_path / "out", "--text", moved)
    finally:
        moved.rename(original)
    assert result.status == 0 and "its tokens are counted in the text given instead" in result.err


def test_help_names_every_flag(capsys):
    result = call(capsys, inspect, "--help")
    assert result.status == 0
    for flag in ("RUN", "--out", "--backend", "--tokens", "--length", "--text", "--passage", "examples:"):
        assert flag in result.out


def test_it_runs_as_a_process(tmp_path):
    result = run("inspect", "--tokens", 600, "--passage", "Tim", "--out", tmp_path)
    assert result.status == 0 and "report     " in result.out


def test_a_killed_run_leaves_no_half_file(tmp_path):
    process = start("inspect", "--tokens", 600, "--passage", "Tim", "--out", tmp_path / "out")
    while process.poll() is None and not list(tmp_path.glob("out/*.png")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode in (0, 130) and "Traceback" not in err
    for path in (tmp_path / "out").iterdir():
        assert not path.name.startswith(".")
        data = path.read_bytes()
        assert data.startswith((b"\x89PNG", b"<?xml", b"<!DOCTYPE", b"{"))
        assert data.endswith((b"IEND\xaeB`\x82", b"</svg>\n", b"</html>\n", b"}\n"))


@pytest.fixture
def changed_copy(tmp_path):
    """A function that writes a copy of the model that ships with its parameters changed."""

    def write(change):
        checkpoint = read_checkpoint(TRAINED)
        params = {name: change(name, value).astype(np.float32) for name, value in checkpoint.params.items()}
        write_checkpoint(tmp_path / "changed.safetensors", replace(checkpoint, params=params))
        return tmp_path / "changed.safetensors"

    return write


def test_a_model_whose_states_are_all_zero(changed_copy, tmp_path, capsys):
    path = changed_copy(lambda name, value: 0 * value)
    for command in (evaluate, inspect, ablate):
        flags = ["--tokens", 500, "--out", tmp_path / command.PROG.split(".")[-1]]
        result = call(capsys, command, path, *flags)
        assert (result.status, result.err) == (0, ""), result
        json.loads((flags[-1] / "summary.json").read_text(encoding="utf-8"))


def test_a_model_whose_numbers_overflow_is_one_line(changed_copy, tmp_path, capsys):
    path = changed_copy(lambda name, value: value * np.float32(1e18))
    for command in (evaluate, inspect, ablate):
        result = call(capsys, command, path, "--tokens", 500, "--out", tmp_path / "out")
        assert_one_line(result, "the model's numbers overflow on this text")
        assert result.err.count("\n") == 1 and list((tmp_path / "out").iterdir()) == []
