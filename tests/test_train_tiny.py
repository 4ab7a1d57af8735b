import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import assert_one_line, call, run, start
from small_runs import TEXT, metrics_lines, text_file

from gpn_ref import PRESETS, train_tiny
from gpn_ref.config import DEFAULTS
from gpn_ref.files import named
from gpn_ref.parameters import count_params
from gpn_ref.sizes import choose_model
from gpn_ref.text.tokenizer import encode
from gpn_ref.training.checkpoint import read_checkpoint
from gpn_ref.training.experiment import LIMITS
from gpn_ref.training.run_directory import RunDirectory

NANO = ["--preset", "nano", "--steps", 8, "--batch-size", 4, "--window", 12, "--warmup-steps", 2, "--evaluate-every", 4]
NANO += ["--checkpoint-every", 4, "--learning-rate", 1e-3]


@pytest.fixture
def flags(tmp_path, monkeypatch):
    """The flags of a small run, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return [*NANO, "--vocab-size", 100, "--text", text_file(tmp_path)]


def assert_same(one, two):
    one, two = RunDirectory(one), RunDirectory(two)
    assert metrics_lines(one) == metrics_lines(two)
    assert one.samples() == two.samples()
    first, second = (read_checkpoint(run.checkpoint_paths()[0]) for run in (one, two))
    for group in ("params", "optimizer"):
        for name, value in getattr(first, group).items():
            np.testing.assert_array_equal(getattr(second, group)[name], value, err_msg=name)
    assert (first.step, first.batches, first.sampler) == (second.step, second.batches, second.sampler)


# ------------------------------------------------------------------------------------------------- what it does
def test_it_says_what_it_does_and_what_came_of_it(flags, capsys, tmp_path):
    result = call(capsys, train_tiny, *flags)
    assert result.status == 0
    out = result.out
    assert re.search(r"corpus +cats: [\d,]+ bytes, [\d,]+ tokens in \d+ documents; \d+ tokens apart", out)
    assert "tokenizer  100 tokens; " in out
    n_params = count_params(choose_model("nano", "gpn+m", None, 100))
    assert f"gpn+m: D 16, E 8, F 24, 2 heads of 8 × 8, 1 layer; {n_params:,} parameters" in out
    assert "8 steps of 4 sequences of 12 tokens, peak learning rate 0.001, seed 0" in out
    assert re.search(r"step +4 +validation loss \d\.\d+ nats per token, perplexity", out)
    assert out.index("after 0 steps") < out.index("after 8 steps")
    assert "any token alike, ln 100                4.605          100" in out
    loss = json.loads((tmp_path / "runs/cats-gpn+m/results.json").read_text(encoding="utf-8"))["validation_loss"]
    assert re.search(rf"gpn\+m +{loss:.3f} ", out)
    assert "python -m gpn_ref.sample runs/cats-gpn+m" in out
    assert result.err == ""  # no terminal, no bars


def test_a_terminal_gets_a_bar(flags, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    err = call(capsys, train_tiny, *flags).err
    assert re.search(
        r"training 100%.* 8/8 steps, 00:00 left, loss \d\.\d{3} nats, perplexity [\d.]+, [\d,]+ tokens/s", err
    )


def test_the_run_directory_holds_everything(flags, capsys, tmp_path):
    call(capsys, train_tiny, *flags, "--seed", 3)
    path = tmp_path / "runs" / "cats-gpn+m"
    names = [".lock", "checkpoints", "config.json", "loss.png", "metrics.jsonl", "results.json", "samples.txt"]
    assert sorted(os.listdir(path)) == [*names, "token_counts.npy", "tokenizer.ranks"]
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["d_state"] == 16
    assert config["training"]["seed"] == 3
    assert config["training"]["window_start"] == "any"
    assert config["corpus"]["files"] == [str(tmp_path / "cats.txt")]
    counts = np.load(path / "token_counts.npy")
    encoding = read_checkpoint(path / "checkpoints" / "step-000008.safetensors").encoding()
    assert counts.shape == (100,)
    assert counts[encode(encoding, " cat")[0]] > 0
    lengths = [len(encoding.decode_single_token_bytes(i)) for i in range(98)]
    assert 0.85 < counts[:98] @ lengths / len(TEXT.encode()) < 0.95
    assert (path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_baselines_are_those_of_the_validation_text(flags, capsys, tmp_path):
    call(capsys, train_tiny, *flags)
    results = json.loads((tmp_path / "runs/cats-gpn+m/results.json").read_text(encoding="utf-8"))
    uniform, trigram = results["baseline_losses"].values()
    assert uniform == pytest.approx(np.log(100))
    assert 0.3 < trigram < 1.5  # four sentences, in few orders


def test_a_second_run_gets_a_name_of_its_own(flags, capsys, tmp_path):
    for name in ("cats-gpn+m", "cats-gpn+m-2"):
        assert call(capsys, train_tiny, *flags).status == 0
        assert (tmp_path / "runs" / name / "results.json").exists()
    assert_same(tmp_path / "runs" / "cats-gpn+m", tmp_path / "runs" / "cats-gpn+m-2")


def test_every_flag_reaches_the_configuration(flags, capsys, tmp_path):
    more = {
        "model": "gpn",
        "layers": 2,
        "steps": 3,
        "batch-size": 6,
        "window": 10,
        "window-start": "any",
        "bptt": 4,
        "accumulation": 3,
        "learning-rate": 0.02,
        "warmup-steps": 1,
        "seed": 5,
        "evaluate-every": 2,
        "checkpoint-every": 2,
        "vocab-size": 120,
        "backend": "numpy",
        "out": tmp_path / "there",
    }
    given = [part for name, value in more.items() for part in (f"--{name}", value)]
    assert call(capsys, train_tiny, *flags, *given).status == 0
    config = json.loads((tmp_path / "there" / "config.json").read_text(encoding="utf-8"))
    for name, value in more.items():
        name = name.replace("-", "_")
        if name in config["training"]:
            assert config["training"][name] == value
        elif name != "out":
            assert config["choices"][name] == value
    assert (config["model"]["n_layers"], config["model"]["n_heads"], config["model"]["vocab_size"]) == (2, 0, 120)


@pytest.mark.parametrize("layers", [None, 1, 2, 3])
@pytest.mark.parametrize("preset", ["nano", "tiny", "small", "paper-1layer", "paper-2layer"])
def test_the_model_without_memory_is_as_large(preset, layers):
    with_memory, without = (choose_model(preset, model, layers, 552) for model in ("gpn+m", "gpn"))
    assert without.n_heads == without.d_key == without.d_value == 0
    assert (without.d_state, without.n_layers) == (with_memory.d_state, with_memory.n_layers)
    wanted, unit = count_params(with_memory), 3 * with_memory.d_state * with_memory.n_layers
    assert abs(count_params(without) - wanted) <= unit / 2
    assert abs(count_params(without) / wanted - 1) < (0.02 if preset == "nano" else 0.001)


def test_both_counts_are_told(flags, capsys):
    out = call(capsys, train_tiny, *flags, "--model", "gpn").out
    with_memory, without = (count_params(choose_model("nano", model, None, 100)) for model in ("gpn+m", "gpn"))
    assert f"no memory, 1 layer; {without:,} parameters" in out
    assert f"gpn+m of this preset has {with_memory:,} parameters" in out


def test_stories_by_default_with_their_last_words(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(capsys, train_tiny, *NANO, "--steps", 1)
    assert result.status == 0
    results = json.loads((tmp_path / "runs/stories-gpn+m/results.json").read_text(encoding="utf-8"))
    assert results["chance"] == pytest.approx(0.25, abs=0.01)
    len_questions = sum(row["questions"] for row in results["by_distance"].values())
    assert len_questions >= 500
    right = f"{results['accuracy']:.2f} of {len_questions} questions right; chance 0.25"
    assert f"words that only the text before tells: {right}\n" in result.out
    assert "train without it: python -m gpn_ref.train_tiny --corpus stories --model gpn" in result.out
    config = json.loads((tmp_path / "runs/stories-gpn+m/config.json").read_text(encoding="utf-8"))
    assert config["training"]["window_start"] == "document"


def test_recall_of_other_sizes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = ["--recall-pairs", 2, "--recall-n-keys", 5, "--recall-n-values", 3, "--recall-gaps", 1, 2]
    result = call(capsys, train_tiny, "--corpus", "recall", *sizes, "--preset", "nano", "--steps", 2)
    assert result.status == 0
    assert "recall: 2 pairs of 5 keys and 3 values, a gap of 1, 2 tokens" in result.out
    assert f"tokenizer  {5 + 3 + DEFAULTS['recall_n_fillers'] + 2} tokens" in result.out
    results = json.loads((tmp_path / "runs/recall-gpn+m/results.json").read_text(encoding="utf-8"))
    assert results["chance"] == 1 / 3
    again = call(capsys, train_tiny, "--resume", tmp_path / "runs/recall-gpn+m", "--recall-pairs", 3)
    assert_one_line(again, "began with 2; leave --recall-pairs out")


def test_recall_with_gaps_never_trained(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(capsys, train_tiny, "--corpus", "recall", "--preset", "nano", "--steps", 2)
    assert result.status == 0
    results = json.loads((tmp_path / "runs/recall-gpn+m/results.json").read_text(encoding="utf-8"))
    assert results["chance"] == 1 / DEFAULTS["recall_n_values"]
    assert list(results["by_distance"]) == [
        *(f"gap of {gap} tokens" for gap in sorted(set(DEFAULTS["recall_gaps"]))),
        *(f"gap of {gap} tokens, never trained" for gap in (16, 32)),
    ]


def test_help_has_an_example(capsys):
    result = call(capsys, train_tiny, "--help")
    assert result.status == 0
    assert "python -m gpn_ref.train_tiny --corpus python-docs --steps 200" in result.out
    help = " ".join(result.out.split())
    assert f"its peak; AdamW, then a cosine down to a tenth of it (default {DEFAULTS['learning_rate']})" in help


# ------------------------------------------------------------------------------------------------- to stop and go on
def test_going_on_with_a_finished_run_says_so(flags, capsys):
    call(capsys, train_tiny, *flags, "--out", "run")
    before = sorted((p.name, p.stat().st_mtime_ns) for p in RunDirectory("run").path.rglob("*"))
    result = call(capsys, train_tiny, "--resume", "run")
    assert result.status == 0
    assert result.out == "run is finished: all 8 steps are done; see run/results.json\n"
    assert sorted((p.name, p.stat().st_mtime_ns) for p in RunDirectory("run").path.rglob("*")) == before


def test_a_run_that_ended_before_its_report_makes_it_up(flags, capsys):
    call(capsys, train_tiny, *flags, "--out", "run")
    results = RunDirectory("run").results_path
    before = results.read_bytes()
    results.unlink()
    assert call(capsys, train_tiny, "--resume", "run").status == 0
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--steps", 9], "--steps is 9, but the run in run began with 8; leave --steps out"),
        (["--seed", 1, "--steps", 8], "--seed is 1, but the run in run began with 0"),
        (["--model", "gpn"], "--model is gpn, but the run in run began with gpn+m"),
        (["--out", "there"], "--out there and --resume run contradict each other"),
    ],
)
def test_going_on_with_other_choices_is_refused(flags, capsys, more, message):
    call(capsys, train_tiny, *flags, "--out", "run")
    assert_one_line(call(capsys, train_tiny, "--resume", "run", *more), message)
    assert call(capsys, train_tiny, "--resume", "run", *flags).status == 0  # the same choices are no contradiction


def test_a_damaged_checkpoint_is_named_on_stderr(flags, capsys):
    call(capsys, train_tiny, *flags, "--out", "run")
    run_directory = RunDirectory("run")
    run_directory.results_path.unlink()
    newest = run_directory.checkpoint_paths()[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    result = call(capsys, train_tiny, "--resume", "run")
    assert result.status == 0
    assert f"python -m gpn_ref.train_tiny: {newest} is cut or altered" in result.err
    assert "run        run, going on after step 4\n" in result.out
    call(capsys, train_tiny, *flags, "--out", "whole")
    assert_same("run", "whole")


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """The flags of a run that takes a second or so, and such a run that was left alone."""
    folder = tmp_path_factory.mktemp("long")
    flags = [*NANO, "--vocab-size", 100, "--text", text_file(folder), "--steps", 90, "--evaluate-every", 40]
    flags += ["--checkpoint-every", 3]
    result = run("train_tiny", *flags, "--out", folder / "alone")
    assert result.status == 0, result
    return flags, folder / "alone"


def wait_for_lines(path, count, process):
    """Until metrics.jsonl has that many lines, or the process has ended."""
    while process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.001)


def test_killed_at_any_moment_it_goes_on_as_if_never_stopped(long_run, tmp_path):
    flags, alone = long_run
    rng = np.random.default_rng(0)
    out = tmp_path / "run"
    kills = lines = 0
    for _ in range(6):
        resume = (out / "config.json").exists()
        process = start("train_tiny", *(["--resume", out] if resume else [*flags, "--out", out]))
        if resume:
            lines += int(rng.integers(1, 16))
            wait_for_lines(out / "metrics.jsonl", lines, process)
            time.sleep(rng.uniform(0, 0.01))
        else:
            time.sleep(rng.uniform(0.2, 0.8))  # while it starts
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        process.communicate()
    assert kills == 6
    result = run("train_tiny", "--resume", out)
    assert result.status == 0, result
    assert_same(out, alone)
    assert (out / "results.json").read_bytes() == (alone / "results.json").read_bytes()
    assert not list(out.rglob("*.tmp"))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(long_run, tmp_path, number, status):
    flags, alone = long_run
    out = tmp_path / "run"
    process = start("train_tiny", *flags, "--out", out)
    wait_for_lines(out / "metrics.jsonl", 20, process)
    process.send_signal(number)
    printed, err = process.communicate()
    assert process.returncode == status
    steps = int(re.search(r"stopped and saved after step (\d+); go on with: (.*)", printed)[1])
    assert f"go on with: python -m gpn_ref.train_tiny --resume {out}\n" in printed
    assert "Traceback" not in err
    assert (
        read_checkpoint(RunDirectory(out).checkpoint_paths()[0]).step
        == steps
        == len(metrics_lines(RunDirectory(out))) - 1
    )
    assert (out / "loss.png").exists()
    assert run("train_tiny", "--resume", out).status == 0
    assert_same(out, alone)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_stops_at_once_without_damage(long_run, tmp_path, number, status):
    flags, alone = long_run
    out = tmp_path / "run"
    stall = (
        "import gpn_ref.training.learner as l, time, sys; from gpn_ref import cli, train_tiny; step = l.Learner.step\n"
    )
    stall += "def slow(self, *a):\n    if self._training.optimizer.updates == 9: time.sleep(60)\n"
    stall += "    return step(self, *a)\n"
    stall += "l.Learner.step = slow; cli.run(train_tiny.main, train_tiny.PROG)"
    process = subprocess.Popen(
        [sys.executable, "-c", stall, *map(str, flags), "--out", out], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    wait_for_lines(out / "metrics.jsonl", 10, process)
    process.send_signal(number)
    err = b""
    while b"once more to stop at once" not in err:
        some = process.stderr.read1()
        assert some, err  # it ended
        err += some
    process.send_signal(number)
    err += process.communicate()[1]
    assert process.returncode == status
    assert b"Traceback" not in err
    assert err.endswith(b"python -m gpn_ref.train_tiny: stopped\n")
    assert run("train_tiny", "--resume", out).status == 0
    assert_same(out, alone)


def test_a_loss_that_is_not_finite_is_one_line_and_status_1(flags, capsys):
    result = call(capsys, train_tiny, *flags, "--learning-rate", 1e30, "--out", "run")
    assert_one_line(result, "try a new run with --learning-rate 3e+29 instead of 1e+30 or another --seed", status=1)
    assert re.search(r"train_tiny: step [1-9]: ", result.err)
    assert RunDirectory("run").checkpoint_paths()


# ------------------------------------------------------------------------------------------------- bad input
def test_bad_text(flags, capsys, tmp_path):
    files = {
        "empty.txt": (b"", "empty.txt is empty"),
        "latin.txt": ("café".encode("latin-1"), "latin.txt is not UTF-8 text: byte 3 is 0xe9"),
        "binary.txt": (b"ELF\0\1\2" * 900, "binary.txt is a binary file"),
        "blank.txt": (b" \n\n\t\n", "blank.txt holds nothing but white space"),
        "short.txt": (b"Hello.\n\nBye.", "token"),
    }
    for name, (content, message) in files.items():
        (tmp_path / name).write_bytes(content)
        assert_one_line(call(capsys, train_tiny, *NANO, "--vocab-size", 60, "--text", name), message)
    assert_one_line(call(capsys, train_tiny, *NANO, "--text", "none.txt"), "none.txt: No such file or directory")
    assert_one_line(call(capsys, train_tiny, *NANO, "--text", tmp_path), f"{tmp_path}: Is a directory")
    assert_one_line(call(capsys, train_tiny, *flags, "--window", 9999), "a window of 9999 needs 10000")
    assert_one_line(call(capsys, train_tiny, *flags, "--vocab-size", 9999), "the text allows at most")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--steps", 0], "argument --steps: 0 is too small; it must be 1 or more"),
        (["--steps", "many"], "argument --steps: 'many' is not a whole number"),
        (["--batch-size", -1], "argument --batch-size: -1 is too small"),
        (["--window", 0], "argument --window: 0 is too small"),
        (["--layers", 0], "argument --layers: 0 is too small"),
        (["--seed", -1], "argument --seed: -1 is too small; it must be 0 or more"),
        (["--bptt", -1], "argument --bptt: -1 is too small"),
        (["--vocab-size", 17], "argument --vocab-size: 17 is too small; it must be 18 or more"),
        (["--learning-rate", 0], "argument --learning-rate: 0 is too small; it must be above 0"),
        (["--learning-rate", "nan"], "argument --learning-rate: nan is not finite"),
        (["--learning-rate", "inf"], "argument --learning-rate: inf is not finite"),
        (["--accumulation", 3], "batch_size is 4; it must be a multiple of accumulation, 3"),
        (["--model", "gnp"], "unknown model 'gnp'; did you mean 'gpn'?"),
        (["--preset", "tinny"], "unknown preset 'tinny'; did you mean 'tiny'?"),
        (["--backend", "numpi"], "unknown backend 'numpi'; did you mean 'numpy'?"),
        (["--window-start", "middle"], "unknown window start 'middle'; it must be one of document, any"),
        (["--preset", "paper-gpn", "--model", "gpn+m"], "the preset paper-gpn has no memory"),
        (["--stepz", 3], "unrecognized arguments: --stepz 3"),
        (["--corpus", "stories"], "--corpus stories and --text contradict each other"),
        (["--out", "cats.txt"], "cats.txt is a file; --out must name a new or empty directory"),
        (["--out", "."], ". is not empty; --out must name a new or empty directory"),
        (["--out", "cats.txt/run"], "cats.txt"),
        (["--out", "/proc/run"], "/proc/"),
        (["--resume", "none"], "none does not exist; it must be a run directory"),
        (["--resume", "."], ". is not a run directory: it has no config.json"),
        (["--resume", "cats.txt"], "cats.txt is not a run directory"),
    ],
)
def test_bad_flags(flags, capsys, tmp_path, more, message):
    assert_one_line(call(capsys, train_tiny, *flags, *more), message)
    assert os.listdir(tmp_path) == ["cats.txt"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--corpus", "storys"], "unknown corpus 'storys'; did you mean 'stories'?"),
        (["--corpus", "stories", "--vocab-size", 300], "--vocab-size has no effect on the corpus stories"),
        (["--corpus", "recall", "--window", 30], "--window has no effect on the corpus recall"),
        (["--corpus", "recall", "--recall-pairs", 40], "recall pairs is 40; it must be at most n_keys, "),
        (["--recall-pairs", 2], "--recall-pairs needs --corpus recall"),
    ],
)
def test_bad_corpora(capsys, tmp_path, monkeypatch, more, message):
    monkeypatch.chdir(tmp_path)
    assert_one_line(call(capsys, train_tiny, *more), message)
    assert os.listdir(tmp_path) == []


def test_an_existing_run_is_not_overwritten(flags, capsys):
    call(capsys, train_tiny, *flags, "--out", "run")
    before = RunDirectory("run").checkpoint_paths()[0].read_bytes()
    assert_one_line(
        call(capsys, train_tiny, *flags, "--out", "run"), "run already holds a run; go on with --resume run"
    )
    assert RunDirectory("run").checkpoint_paths()[0].read_bytes() == before


@pytest.mark.parametrize(
    ("limit", "full"),
    [(50_000, "checkpoints/step-000000.safetensors"), (100, "tokenizer.ranks")],
)
def test_a_full_disk_is_one_line_and_leaves_no_run(flags, tmp_path, limit, full):
    """A limit on the size of files, in bytes, stands for the disk: the first file that does not fit is named."""
    import resource

    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # noqa: E731
    result = run("train_tiny", *flags, "--out", tmp_path / "run", preexec_fn=limited)
    assert_one_line(result, "File too large")
    assert result.err.startswith(f"python -m gpn_ref.train_tiny: {tmp_path}/run/{full}: File")
    assert os.listdir(tmp_path) == ["cats.txt"]


def test_a_disk_that_fills_up_later_says_how_to_go_on(flags, capsys, monkeypatch):
    append = RunDirectory.append

    def full(run, log, text):
        if '"step": 7' in text:
            with named(run.path / log):
                raise OSError(28, "No space left on device")
        append(run, log, text)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "append", full)
        result = call(capsys, train_tiny, *flags, "--out", "a run")
    assert_one_line(
        result, "a run/metrics.jsonl: No space left on device; go on with: python -m gpn_ref.train_tiny --resume"
    )
    assert result.err.endswith(" --resume 'a run'\n")
    assert call(capsys, train_tiny, "--resume", "a run").status == 0
    call(capsys, train_tiny, *flags, "--out", "whole")
    assert_same("a run", "whole")


def test_a_missing_log_is_named(flags, capsys):
    call(capsys, train_tiny, *flags, "--out", "run")
    os.unlink("run/metrics.jsonl")
    result = call(capsys, train_tiny, "--resume", "run")
    assert result.err == "python -m gpn_ref.train_tiny: run/metrics.jsonl: No such file or directory\n"
    assert not os.path.exists("run/metrics.jsonl")


# ------------------------------------------------------------------------------------------------- rough places
def test_only_one_process_trains_a_run(long_run, tmp_path):
    flags, alone = long_run
    out = tmp_path / "run"
    process = start("train_tiny", *flags, "--out", out)
    wait_for_lines(out / "metrics.jsonl", 5, process)
    assert_one_line(run("train_tiny", "--resume", out), f"{out} is being trained by another process")
    assert process.poll() is None
    assert_one_line(run("train_tiny", *flags, "--out", out), f"{out} already holds a run")
    process.communicate()
    assert process.returncode == 0
    assert_same(out, alone)


def test_starts_at_once_get_names_of_their_own(flags, tmp_path):
    processes = [start("train_tiny", *flags) for _ in range(3)]
    for process in processes:
        _, err = process.communicate()
        assert (process.returncode, err) == (0, "")
    names = ["cats-gpn+m", "cats-gpn+m-2", "cats-gpn+m-3"]
    assert sorted(os.listdir("runs")) == names
    for name in names[1:]:
        assert_same(f"runs/{names[0]}", f"runs/{name}")


@pytest.mark.parametrize("damage", [{"stderr": "full"}, {"preexec_fn": lambda: os.close(2)}])
def test_a_closed_or_full_stderr_does_not_stop_training(flags, damage):
    if "stderr" in damage:
        damage = {"stderr": open("/dev/full", "w")}
    result = run("train_tiny", *flags, "--out", "run", **damage)
    assert result.status == 0 and "python -m gpn_ref.sample run\n" in result.out
    call_again = run("train_tiny", *flags, "--out", "again")
    assert call_again.status == 0
    assert_same("run", "again")


def test_a_name_with_dollars_and_bytes_that_are_no_text(flags, tmp_path):
    out = os.fsdecode(b"a$_$ \\frac{ \xff")
    result = run("train_tiny", *flags, "--out", out)
    assert (result.status, result.err) == (0, "")
    assert (tmp_path / out / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_fails_is_a_warning(flags, capsys, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no\nfont")

    monkeypatch.setattr(train_tiny, "draw_losses", fail)
    result = call(capsys, train_tiny, *flags, "--out", "run")
    assert (result.status, result.err) == (0, "python -m gpn_ref.train_tiny: cannot draw loss.png: no font\n")
    assert RunDirectory("run").results()["steps"] == 8


@pytest.mark.parametrize("where", ["new_experiment", "announce", "Trainer"])
def test_out_of_memory_says_what_to_make_smaller_and_leaves_nothing(flags, capsys, monkeypatch, tmp_path, where):
    def fail(*arguments):
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(train_tiny, where, fail)
    result = call(capsys, train_tiny, *flags)
    line = "out of memory: Unable to allocate 7 TiB; a smaller --batch-size, --window or --preset needs less\n"
    assert (result.status, result.err) == (2, "python -m gpn_ref.train_tiny: " + line)
    assert os.listdir(tmp_path) == ["cats.txt"]


@pytest.mark.parametrize("flag", [name.replace("_", "-") for name in LIMITS if name != "recall_n_fillers"])
def test_every_whole_number_has_a_limit(flags, capsys, tmp_path, flag):
    for value in (LIMITS[flag.replace("-", "_")][1] + 1, "9" * 5000):
        result = call(capsys, train_tiny, *flags, f"--{flag}", value)
        assert_one_line(result, f"argument --{flag}: ")
        assert len(result.err) < 200
    assert os.listdir(tmp_path) == ["cats.txt"]


@pytest.mark.parametrize("flag", ["--text", "--out", "--resume"])
def test_an_empty_name_is_refused(capsys, tmp_path, monkeypatch, flag):
    monkeypatch.chdir(tmp_path)
    assert_one_line(call(capsys, train_tiny, *NANO, flag, ""), f"argument {flag}: '' names no file or directory")
    assert os.listdir(tmp_path) == []


def test_a_pipe_is_refused_as_text(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    message = "pipe is not a regular file; save it first"
    assert_one_line(call(capsys, train_tiny, *NANO, "--text", "pipe"), message)
    result = run("train_tiny", *NANO, "--text", "/dev/stdin", stdin=subprocess.PIPE)
    assert_one_line(result, "/dev/stdin is not a regular file; save it first")


def test_an_empty_directory_by_any_name_becomes_the_run(flags, capsys, tmp_path, monkeypatch):
    for name in ("here", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("target")
    assert call(capsys, train_tiny, *flags, "--out", "link").status == 0
    monkeypatch.chdir("here")
    assert call(capsys, train_tiny, *flags, "--out", ".").status == 0
    assert (tmp_path / "link").is_symlink()
    assert_same(tmp_path / "target", tmp_path / "here")


def test_a_corpus_contradicts_a_run_on_text(flags, capsys):
    call(capsys, train_tiny, *flags, "--out", "run")
    result = call(capsys, train_tiny, "--resume", "run", "--corpus", "stories")
    assert_one_line(result, "--corpus is stories, but the run in run began without it; leave --corpus out")


@pytest.mark.parametrize("junk", [b"", b"{}", b"[1]", b"\xff", b"[" * 99999])
def test_junk_results_are_made_up_anew(flags, capsys, junk):
    call(capsys, train_tiny, *flags, "--out", "run")
    results = RunDirectory("run").results_path
    before = results.read_bytes()
    results.write_bytes(junk)
    assert call(capsys, train_tiny, "--resume", "run").status == 0
    assert results.read_bytes() == before


def test_presets_fit_every_vocabulary():
    for preset in PRESETS:
        assert choose_model(preset, None, None, 1024).vocab_size == 1024
