import json
import math
import shutil

import numpy as np
import pytest
from small_runs import metrics_lines, new_trainer

from gpn_ref.training.checkpoint import read_checkpoint
from gpn_ref.training.experiment import restore_experiment
from gpn_ref.training.optimizer import learning_rate_at
from gpn_ref.training.run_directory import METRICS, RunDirectory
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


@pytest.mark.parametrize("last_checkpoint", [None, 0, 4, 8])
def test_a_killed_run_goes_on_from_its_checkpoint(uninterrupted, tmp_path, last_checkpoint):
    trainer = new_trainer(tmp_path)
    trainer.train(stop_after(min((last_checkpoint or 0) + 3, 11)))
    for path in trainer.run.checkpoint_paths():  # as a kill leaves it: logs that have gone on, a half line
        if last_checkpoint is None or path.name != f"step-{last_checkpoint:06d}.safetensors":
            path.unlink()
    trainer.run.append("metrics.jsonl", '{"step": 99, "lo')
    (trainer.run.checkpoints / ".step-000012.safetensors.77.tmp").write_bytes(b"half")
    again = resumed(trainer)
    assert again.step == (last_checkpoint or 0)
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
    assert first["validation_loss"] == pytest.approx(math.log(270), abs=0.01)
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
    assert checkpoint.encoding().n_vocab == 270
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
        ("{", r"config\.json is damaged: it is not JSON"),
        ("[]", r"config\.json is damaged: it has no object 'choices'"),
        ('{"choices": {}, "model": {}, "training": {}}', r"config\.json is damaged: it has no object 'corpus'"),
        (
            '{"choices": {}, "model": {}, "training": {}, "corpus": {}}',
            r"config\.json is damaged: ModelConfig.* missing .*'vocab_size'",
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
