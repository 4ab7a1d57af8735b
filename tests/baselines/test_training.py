"""All that trains, resumes, samples and evaluates a GPN does so with a baseline."""

import json

import numpy as np
import pytest
from commands import call
from small_runs import metrics_lines, new_trainer

from gpn_ref import sample, train_tiny
from gpn_ref.trained import Trained
from gpn_ref.training.experiment import restore_experiment
from gpn_ref.training.run_directory import RunDirectory
from gpn_ref.training.trainer import Trainer

MODELS = [{"model": "transformer", "layers": 2}, {"model": "gdn", "layers": 1, "preset": "mini"}]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["model"])
def test_a_run_that_was_stopped_goes_on_to_the_bit(model, tmp_path, backend):
    whole = new_trainer(tmp_path / "whole", backend=backend, **model)
    whole.train()
    part = new_trainer(tmp_path / "part", backend=backend, **model)
    stops = iter([False] * 5 + [True])
    part.train(lambda: next(stops))
    assert part.step == 5
    run = RunDirectory(part.run.path)
    again = Trainer(run, restore_experiment(run))
    again.resume(pytest.fail)
    again.train()
    assert metrics_lines(run) == metrics_lines(whole.run)
    for name, value in whole.learner.params().items():
        np.testing.assert_array_equal(again.learner.params()[name], value)
    losses = [line["loss"] for line in metrics_lines(run) if "loss" in line]
    assert np.mean(losses[-3:]) < losses[0]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["model"])
def test_windows_in_segments_and_batches_in_parts(model, tmp_path):
    """One step in segments of 5 tokens loses nothing but gradients through the state; in two parts, nothing at all."""
    losses = {}
    for name, more in (("plain", {}), ("parts", {"accumulation": 2}), ("segments", {"bptt": 5})):
        trainer = new_trainer(tmp_path / name, steps=2, warmup_steps=0, **model, **more)
        trainer.train()
        losses[name] = [line["loss"] for line in metrics_lines(trainer.run) if "loss" in line]
    assert losses["parts"] == pytest.approx(losses["plain"], rel=1e-4)
    assert losses["segments"][0] == pytest.approx(losses["plain"][0], rel=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["model"])
def test_it_samples(model, tmp_path, capsys):
    trainer = new_trainer(tmp_path, steps=3, **model)
    trainer.train()
    assert Trained(trainer.run.path).config.name == model["model"]
    flags = [trainer.run.path, "--prompt", "the cat", "--tokens", 30]
    one, other = call(capsys, sample, *flags), call(capsys, sample, *flags)
    assert one == other and one.status == 0 and one.out.startswith("the cat") and len(one.out) > 20


def test_the_command_says_what_it_trains(tmp_path, capsys):
    flags = ["--model", "transformer", "--layers", 2, "--steps", 2, "--preset", "nano", "--out", tmp_path / "run"]
    result = call(capsys, train_tiny, *flags)
    assert result.status == 0, result
    assert "model      transformer: d 8, F 60, 4 heads of 2, 2 layers; " in result.out
    assert "compare    gpn+m of this preset has " in result.out
    config = json.loads((tmp_path / "run/config.json").read_text(encoding="utf-8"))
    assert config["model"]["architecture"] == "transformer" and config["choices"]["model"] == "transformer"
