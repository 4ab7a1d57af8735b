import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from small_runs import metrics_lines, new_trainer

from gpn_ref.training.checkpoint import read_checkpoint, write_checkpoint
from gpn_ref.training.experiment import restore_experiment
from gpn_ref.training.optimizer import learning_rate_at
from gpn_ref.training.run_directory import METRICS, InUse, RunDirectory
from gpn_ref.training.trainer import Diverged, Trainer

KINDS = {
    "documents": {},
    "any offset, truncated, in parts": {"window_start": "any", "bptt": 5, "accumulation": 2},
    "two layers without memory": {"model": "gpn", "layers": 2},
    "recall": {"corpus": "recall"},
}


def stop_after(steps):
    """A `should_stop` for a trainer that begins here and now."""
    left = iter([False] * steps)
    return lambda: next(left, True)


def resumed(trainer, warn=None):
    """A trainer in a new process, as far as it can tell."""
    run = RunDirectory(trainer.run.path)
    again = Trainer(run, restore_experiment(run))
    again.resume(warn or (lambda line: pytest.fail(line)))
    return again


def assert_same_run(trainer, other):
    assert metrics_lines(trainer.run) == metrics_lines(other.run)
    assert trainer.run.samples() == other.run.samples()
    for one, two in (
        (trainer.learner.params(), other.learner.params()),
        (trainer.learner.state(), other.learner.state()),
    ):
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    trainers = {}
    for kind, changes in KINDS.items():
        trainers[kind] = new_trainer(tmp_path_factory.mktemp("uninterrupted"), **changes)
        trainers[kind].train()
    return trainers


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_goes_on_as_if_never_stopped(uninterrupted, tmp_path, kind):
    trainer = new_trainer(tmp_path, **KINDS[kind])
    for steps in (0, 1, 4, 2):  # stops after 0, 1, 5 and 7 steps
        trainer.train(stop_after(steps))
        trainer = resumed(trainer)
    assert trainer.step == 7
    trainer.train()
    assert trainer.finished
    assert_same_run(trainer, uninterrupted[kind])


@pytest.mark.parametrize("last_checkpoint", [0, 4, 8])
def test_a_killed_run_goes_on_from_its_checkpoint(uninterrupted, tmp_path, last_checkpoint):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(min(last_checkpoint + 3, 11)))
    for path in trainer.run.checkpoint_paths():  # as a kill leaves it: logs that have gone on, a half line
        if path.name != f"step-{last_checkpoint:06d}.safetensors":
            path.unlink()
    trainer.run.append("metrics.jsonl", '{"step": 99, "lo')
    (trainer.run.checkpoints / ".step-000012.safetensors.77.tmp").write_bytes(b"half")
    again = resumed(trainer)
    assert again.step == last_checkpoint
    assert not list(trainer.run.path.rglob("*.tmp"))
    again.train()
    assert_same_run(again, uninterrupted["documents"])


@pytest.mark.parametrize("damage", ["cut", "altered", "empty", "another run's"])
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(uninterrupted, tmp_path, damage):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(9))
    newest, before = trainer.run.checkpoint_paths()
    assert (newest.name, before.name) == ("step-000009.safetensors", "step-000008.safetensors")
    content = bytearray(newest.read_bytes())
    if damage == "cut":
        content = content[:-100]
    elif damage == "altered":
        content[-100] ^= 1
    elif damage == "empty":
        content = b""
    if damage == "another run's":
        other = new_trainer(tmp_path / "other", learning_rate=0.5)
        other.train(stop_after(9))
        shutil.copy(other.run.checkpoint_paths()[0], newest)
        expected = f"{newest} is of another run: its train_config differs"
    else:
        newest.write_bytes(content)
        expected = str(newest)
    warnings = []
    again = resumed(trainer, warnings.append)
    assert len(warnings) == 1
    assert expected in warnings[0]
    assert again.step == 8
    again.train()
    assert_same_run(again, uninterrupted["documents"])
    assert [path.name for path in again.run.checkpoint_paths()] == [
        "step-000012.safetensors",
        "step-000008.safetensors",
    ]


def test_when_all_checkpoints_are_damaged_the_run_refuses(tmp_path):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(5))
    for path in trainer.run.checkpoint_paths():
        path.write_bytes(b"")
    warnings = []
    with pytest.raises(ValueError, match=r"none of the 2 checkpoints in .* can be used"):
        resumed(trainer, warnings.append)
    assert len(warnings) == 2


def test_metrics_say_what_they_should(uninterrupted):
    trainer = uninterrupted["documents"]
    config, validation = trainer.train_config, trainer.experiment.validation
    first, *records = trainer.run.metrics()
    assert first["step"] == first["tokens"] == 0
    assert first["validation_loss"] == pytest.approx(math.log(100), abs=0.01)
    assert [record["step"] for record in records] == list(range(1, 13))
    for record in records:
        evaluated = record["step"] in (5, 10, 12)
        assert set(record) == {name for name in METRICS if evaluated or not name.startswith("validation")}
        assert record["tokens"] == record["step"] * 4 * 12
        assert record["learning_rate"] == learning_rate_at(record["step"] - 1, config)
        assert record["gradient_norm"] > 0
        assert record["tokens_per_second"] > 0
    last = records[-1]
    assert last["loss"] < records[0]["loss"] - 0.1
    bound = trainer.experiment.model.bind(trainer.learner.params())
    assert last["validation_loss"] == validation.loss(bound)
    assert last["validation_perplexity"] == pytest.approx(math.exp(last["validation_loss"]))
    nats_a_byte = last["validation_loss"] * validation.size / validation.bytes
    assert last["validation_bits_per_byte"] == pytest.approx(nats_a_byte / math.log(2))


def test_the_first_step_is_the_learners(tmp_path):
    trainer = new_trainer(tmp_path)
    inputs, targets = restore_experiment(trainer.run).batches.next()
    out = trainer.experiment.model.loss_and_grads(trainer.learner.params(), inputs, targets)
    trainer.train(stop_after(1))
    assert trainer.run.metrics()[1]["loss"] == pytest.approx(out.loss, rel=1e-6)


def test_recall_counts_its_tokens(uninterrupted):
    tokens = [record["tokens"] for record in uninterrupted["recall"].run.metrics()]
    assert set(np.diff(tokens)) <= {4 * 16, 4 * 20, 4 * 24}


def test_samples_are_kept_as_it_learns(uninterrupted):
    titles, texts = zip(*uninterrupted["documents"].run.samples(), strict=True)
    assert titles == ("after 0 steps", "after 5 steps", "after 10 steps", "after 12 steps")
    assert all(texts)


def test_the_last_two_checkpoints_are_kept(uninterrupted):
    run = uninterrupted["documents"].run
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == ["step-000008.safetensors", "step-000012.safetensors"]
    checkpoint = read_checkpoint(run.checkpoints / names[1])
    assert checkpoint.step == 12
    assert checkpoint.encoding().n_vocab == 100
    np.testing.assert_array_equal(
        checkpoint.params["embedding.weight"], uninterrupted["documents"].learner.params()["embedding.weight"]
    )


class Spoiled:
    """A learner whose step `bad` goes wrong."""

    def __init__(self, learner, bad, loss=1.0, norm=1.0, value=None):
        self.learner, self.bad, self.result, self.value, self.steps = learner, bad, (loss, norm), value, 0

    def step(self, *arguments):
        self.steps += 1
        return self.result if self.steps == self.bad else self.learner.step(*arguments)

    def params(self):
        params = self.learner.params()
        if self.value is not None and self.steps >= self.bad:
            params["decode.norm.weight"][3] = self.value
        return params

    def state(self):
        return self.learner.state()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"bad": 6, "loss": math.nan}, "step 6: the loss is nan"),
        ({"bad": 6, "loss": math.inf}, "step 6: the loss is inf"),
        ({"bad": 6, "norm": math.nan}, "step 6: the gradient norm is nan"),
        (
            {"bad": 8, "value": math.inf},
            r"step 8: parameter 'decode\.norm\.weight' has inf at \(3,\)",
        ),  # when it saves
        (
            {"bad": 5, "value": math.nan},
            r"step 5: parameter 'decode\.norm\.weight' has nan at \(3,\)",
        ),  # validates
        ({"bad": 5, "value": 3.4e38}, "step 5: the validation loss is (nan|inf)"),
    ],
)
def test_what_is_not_finite_stops_the_run_and_the_last_good_checkpoint_stays(tmp_path, spoil, message):
    trainer = new_trainer(tmp_path)
    trainer.learner = Spoiled(trainer.learner, **spoil)
    with pytest.raises(Diverged, match=message) as caught:
        trainer.train()
    assert "try a new run with --learning-rate 0.0003 instead of 0.001" in str(caught.value)
    assert "the last good checkpoint is that of step 4" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in trainer.run.checkpoint_paths()] == [
        "step-000004.safetensors",
        "step-000000.safetensors",
    ]
    assert resumed(trainer).step == 4
    (trainer.run.path / "metrics.jsonl").read_text(encoding="utf-8").encode("ascii")
    assert "NaN" not in json.dumps(trainer.run.metrics())


def test_a_huge_learning_rate_stops_the_run(tmp_path):
    trainer = new_trainer(tmp_path, learning_rate=1e30, checkpoint_every=1)
    with pytest.raises(Diverged, match=r"^step \d+: "):
        trainer.train()
    assert resumed(trainer).step >= 0


def test_a_disk_that_fills_up_leaves_a_run_that_goes_on(uninterrupted, tmp_path, monkeypatch):
    trainer = new_trainer(tmp_path)
    append = RunDirectory.append

    def full(run, log, text):
        if '"step": 7' in text:
            append(run, log, text[:20])
            raise OSError(28, "No space left on device", str(run.path / log))
        append(run, log, text)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "append", full)
        with pytest.raises(OSError, match="No space left"):
            trainer.train()
    again = resumed(trainer)
    assert again.step == 4
    again.train()
    assert_same_run(again, uninterrupted["documents"])


def test_a_text_that_has_changed_is_refused(tmp_path):
    trainer = new_trainer(tmp_path)
    path = tmp_path / "cats.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("red", "blue"), encoding="utf-8")
    with pytest.raises(ValueError, match="run can't go on: its text or its tokenizer is no longer what it was"):
        restore_experiment(trainer.run)


def test_a_log_that_was_cut_is_refused(tmp_path):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(5))
    (trainer.run.path / "samples.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"samples\.txt has 0 bytes; the checkpoint needs its first \d+"):
        resumed(trainer)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 99999, r"config\.json is damaged: it is not JSON"),
        ("{", r"config\.json is damaged: it is not JSON"),
        ("[]", r"config\.json is damaged: it must be an object with choices, model, training, corpus; got \[\]"),
        ('{"choices": {}, "model": {}, "training": {}}', r"config\.json is damaged: it has no field 'corpus'"),
        (
            '{"choices": {}, "model": {}, "training": {}, "corpus": {}}',
            r"config\.json is damaged: choices has no field 'corpus'",
        ),
    ],
)
def test_a_damaged_configuration_is_refused(tmp_path, content, message):
    trainer = new_trainer(tmp_path)
    (trainer.run.path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        restore_experiment(RunDirectory(trainer.run.path))


def test_a_run_directory_is_made_whole_or_not_at_all(tmp_path):
    with pytest.raises(TypeError):
        RunDirectory.create(tmp_path / "run", {"a": object()}, "", [1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("corpus", {"files": 5}, "text is ['"),
        ("corpus", {"name": 5}, "corpus must hold strings as name and checksum"),
        ("corpus", {"checksum": None}, "corpus must hold strings as name and checksum"),
        ("model", {"d_state": "wide"}, "d_state is 'wide'; it must be a whole number, 1 or more"),
        ("model", {"d_state": 10**30}, "d_state is 1000000000000000000000000000000; it must be 1000000000 or less"),
        ("model", {"vocab_size": 50}, "vocab_size of the model is 50, but tokenizer.ranks makes 100 tokens"),
        ("model", {"d_stat": 1}, "model has an unknown field 'd_stat'"),
        ("model", {"architecture": "rnn"}, "architecture is 'rnn'; it must be one of gpn, transformer, gdn"),
        ("model", {"architecture": "gdn"}, "model has no field 'd_model'"),
        ("model", {"n_layers": None}, "n_layers is None; it must be a whole number, 1 or more"),
        ("training", {"beta1": 1.5}, "beta1 is 1.5; it must be"),
        ("training", {"learning_rate": 10**400}, "learning_rate is 1000"),
        ("training", {"steps": 13}, "steps is 12 among the choices, but 13 elsewhere"),
        ("choices", {"steps": "x"}, "steps is 'x'; it must be a whole number, 1 or more"),
        ("choices", {"evaluate_every": [5]}, "evaluate_every is [5]; it must be a whole number, 1 or more"),
        ("choices", {"checkpoint_every": True}, "checkpoint_every is True; it must be a whole number"),
        (
            "choices",
            {"batch_size": 10**30},
            "batch_size is 1000000000000000000000000000000; it must be 1000000 or less",
        ),
        ("choices", {"recall_gaps": 5}, "recall_gaps is 5; it must be a list of whole numbers"),
        ("choices", {"recall_gaps": ["a"]}, "recall_gaps is 'a'; it must be a whole number"),
        ("choices", {"preset": ["nano"]}, "unknown preset among the choices ['nano']"),
        ("choices", {"backend": "numpi"}, "unknown backend among the choices 'numpi'; did you mean 'numpy'?"),
        ("choices", {"corpus": "storys"}, "unknown corpus among the choices 'storys'; did you mean 'stories'?"),
        ("choices", {"corpus": "stories"}, "corpus is 'stories' among the choices, but text is ['"),
        ("choices", {"model": "gpn"}, "model is 'gpn' among the choices, but 'gpn+m' elsewhere"),
    ],
)
def test_a_configuration_changed_by_hand_is_named_by_its_field(tmp_path, part, changes, message):
    run = new_trainer(tmp_path).run
    run.config[part].update(changes)
    with pytest.raises(ValueError) as error:
        restore_experiment(run)
    assert str(error.value).startswith(f"{run.path}/config.json is damaged: ")
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("part", ["choices", "model", "training", "corpus"])
def test_every_field_of_the_configuration_must_be_there(tmp_path, part):
    run = new_trainer(tmp_path).run
    for name, value in list(run.config[part].items()):
        if name == "architecture":  # files from before there were others do not name it
            continue
        del run.config[part][name]
        with pytest.raises(ValueError, match=f"config.json is damaged: {part} has no field '{name}'"):
            restore_experiment(run)
        run.config[part][name] = value
    assert restore_experiment(run).config() == run.config


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda metrics, samples: metrics.unlink(), "metrics.jsonl"),
        (lambda metrics, samples: samples.unlink(), "samples.txt"),
        (lambda metrics, samples: swap(metrics, b'"loss"', b'"lost"'), "line 2 is not the record of step 1"),
        (lambda metrics, samples: swap(metrics, b'"step": 3', b'"step": 4'), "line 4 is not the record of step 3"),
        (lambda metrics, samples: swap(metrics, b'"step": 3', b'"step": "'), "line 4 is not the record of step 3"),
        (lambda metrics, samples: swap(metrics, b'"step": 5', b"[" * 9), "line 6 is not the record of step 5"),
        (lambda metrics, samples: swap(metrics, b'{"step": 0', b"\n" + b'"step": 0'), "line 1 is not the record of"),
        (lambda metrics, samples: swap(samples, b"--- after 0", b"--- aftre 0"), "samples.txt is damaged"),
        (lambda metrics, samples: swap(samples, b" ---\n", b" --\xff\n"), "samples.txt is damaged"),
    ],
)
def test_damaged_logs_are_found_before_anything_is_changed(tmp_path, damage, message):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(5))
    trainer.run.append("metrics.jsonl", '{"step": 99, "lo')
    damage(trainer.run.path / "metrics.jsonl", trainer.run.path / "samples.txt")
    before = contents(trainer.run)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        resumed(trainer)
    assert contents(trainer.run) == before


def swap(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def contents(run):
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("remove", [lambda folder: folder.rmdir(), lambda folder: None])
def test_steps_without_a_checkpoint_are_not_thrown_away(tmp_path, remove):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(5))
    for path in trainer.run.checkpoint_paths():
        path.unlink()
    remove(trainer.run.checkpoints)
    before = contents(trainer.run)
    with pytest.raises(ValueError, match=r"checkpoints has no checkpoint, but .*metrics\.jsonl has steps: put it back"):
        resumed(trainer)
    assert contents(trainer.run) == before


@pytest.mark.parametrize("log", ["", '{"step": 0, "tok'])
def test_a_run_killed_before_its_first_checkpoint_starts_afresh(uninterrupted, tmp_path, log):
    trainer = new_trainer(tmp_path)
    trainer.run.append("metrics.jsonl", log)
    trainer.run.checkpoints.rmdir()
    again = resumed(trainer)
    again.train()
    assert_same_run(again, uninterrupted["documents"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": "x"}, "step is 'x'; it must be a whole number, 0 or more"),
        ({"tokens": -1}, "tokens is -1; it must be a whole number, 0 or more"),
        ({"logs": None}, "its logs is None"),
        ({"logs": {"metrics.jsonl": "x"}}, "the length of metrics.jsonl is 'x'"),
        ({"sampler": {}}, "{} is not the state of a random generator"),
        ({"batches": {"position": 3}}, "is not a position in the training data"),
        ({"optimizer": {}}, "optimizer state "),
        ({"step": 7}, "is not what its name says: it was saved after step 7"),
    ],
)
def test_a_crafted_checkpoint_is_named_and_the_one_before_used(tmp_path, changes, message):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(5))
    newest, before = trainer.run.checkpoint_paths()
    write_checkpoint(newest, replace(read_checkpoint(newest), **changes))
    warnings = []
    assert resumed(trainer, warnings.append).step == 4
    assert len(warnings) == 1 and warnings[0].startswith(str(newest)) and message in warnings[0]
    assert warnings[0].endswith("; looking at the one before")
    before.unlink()
    with pytest.raises(ValueError, match="none of the 1 checkpoints"):
        resumed(trainer, warnings.append)
    assert message in warnings[1] and "the one before" not in warnings[1]


def test_directories_in_the_place_of_files_are_named_and_not_in_the_way(uninterrupted, tmp_path):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(5))
    newest, leftover = trainer.run.checkpoint_path(8), trainer.run.path / ".config.json.1.tmp"
    newest.mkdir()
    leftover.mkdir()
    warnings = []
    again = resumed(trainer, warnings.append)
    assert warnings == [
        f"{newest} is not a checkpoint: it is not a regular file; looking at the one before",
        f"{leftover} is a directory, and none of this run's; it is left alone",
    ]
    again.train()
    assert_same_run(again, uninterrupted["documents"])


def test_a_third_checkpoint_is_dropped(tmp_path):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(5))
    shutil.copy(trainer.run.checkpoint_path(4), trainer.run.checkpoint_path(3))
    resumed(trainer)
    assert [path.name for path in trainer.run.checkpoint_paths()] == [
        "step-000005.safetensors",
        "step-000004.safetensors",
    ]


def test_a_directory_that_is_in_use_is_left_alone(tmp_path):
    first = new_trainer(tmp_path / "one").run
    before = contents(first)
    with pytest.raises(InUse, match="already holds a run"):
        RunDirectory.create(first.path, {}, "", [1])
    with pytest.raises(InUse, match="run is being trained by another process"), RunDirectory(first.path):
        pass
    assert contents(first) == before
    with first:
        pass
    with RunDirectory(first.path):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tokenizer.ranks").write_text("mine")
    with pytest.raises(InUse, match="mine is not empty"):
        RunDirectory.create(tmp_path / "mine", {}, "", [1])
    assert (tmp_path / "mine" / "tokenizer.ranks").read_text() == "mine"


def test_what_a_killed_start_has_left_is_free_and_cleaned_up(tmp_path):
    left = tmp_path / "run"
    (left / "checkpoints").mkdir(parents=True)
    for name in (".lock", "tokenizer.ranks", ".config.json.77.tmp", "metrics.jsonl"):
        (left / name).touch()
    run = RunDirectory.create(left, {"a": 1}, "text", [1])
    assert sorted(os.listdir(left)) == [
        ".lock",
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "samples.txt",
        "token_counts.npy",
        "tokenizer.ranks",
    ]
    assert run.config == {"a": 1} and (left / "tokenizer.ranks").read_text() == "text"
    run.discard()
    assert os.listdir(tmp_path) == ["run"] and os.listdir(left) == []  # which was there before
