"""Training by the command, in numba's own simulator: the reference's losses."""

import json
import shutil

import numpy as np
import pytest
from fast.cuda.simulated import require_numba_cuda, run
from small_runs import metrics_lines

from gpn_ref.training.checkpoint import read_checkpoint
from gpn_ref.training.run_directory import RunDirectory

TEXT = "the cat sat on the mat. a dog ran to the cafe.\n\nwhere is the red hat? here, she said.\n\n" * 5
FLAGS = ["--preset", "nano", "--text", "cats.txt", "--vocab-size", 40, "--window", 4, "--batch-size", 1, "--steps", 2]
FLAGS += ["--learning-rate", 1e-3, "--warmup-steps", 1, "--evaluate-every", 2, "--checkpoint-every", 1]
# A simulated thread takes a millisecond: of the texts that the run writes on the way, these are the first tokens.
TRAIN = """
import sys
from gpn_ref import cli, train_tiny
from gpn_ref.training import trainer
trainer.SAMPLE_TOKENS = 2
cli.run(lambda: train_tiny.main(sys.argv[1:]), train_tiny.PROG)
"""


def train(folder, *flags):
    done = run("-c", TRAIN, *flags, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With two runs of two steps: "numpy" and "cuda"."""
    require_numba_cuda()
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "cats.txt").write_text(TEXT, encoding="utf-8")
    for backend in ("numpy", "cuda"):
        out = train(folder, *FLAGS, "--backend", backend, "--out", backend)
        assert "D 16, E 8, F 24, 2 heads of 8 × 8, 1 layer" in out
    return folder


def test_the_losses_are_the_references(folder):
    expected, found = (metrics_lines(RunDirectory(folder / backend)) for backend in ("numpy", "cuda"))
    assert [line["step"] for line in expected] == [0, 1, 2]
    assert sum("loss" in line for line in expected) == sum("validation_loss" in line for line in expected) == 2
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    results = [json.loads((folder / backend / "results.json").read_text()) for backend in ("numpy", "cuda")]
    assert results[1]["validation_loss"] == pytest.approx(results[0]["validation_loss"], rel=1e-5)


def test_the_checkpoints_are_the_references(folder):
    """The parameters, and the optimizer's moments as far as they are not the signs of rounding errors."""
    expected, found = (
        read_checkpoint(RunDirectory(folder / backend).checkpoint_paths()[0]) for backend in ("numpy", "cuda")
    )
    assert (found.step, found.backend, found.sampler, found.batches) == (2, "cuda", expected.sampler, expected.batches)
    for name, value in expected.params.items():
        np.testing.assert_allclose(found.params[name], value, rtol=0, atol=1e-4, err_msg=name)
    largest = max(np.abs(value).max() for name, value in expected.optimizer.items() if name.startswith("first/"))
    for name, value in expected.optimizer.items():
        np.testing.assert_allclose(found.optimizer[name], value, rtol=0, atol=1e-4 * largest, err_msg=name)


def test_a_run_that_was_stopped_goes_on_as_if_it_never_was(folder):
    """From the checkpoint after the first step, bit for bit."""
    shutil.copytree(folder / "cuda", folder / "stopped")
    stopped, whole = RunDirectory(folder / "stopped"), RunDirectory(folder / "cuda")
    stopped.results_path.unlink()
    stopped.checkpoint_paths()[0].unlink()
    assert "going on after step 1" in train(folder, "--resume", "stopped")
    assert metrics_lines(stopped) == metrics_lines(whole)
    one, other = (read_checkpoint(which.checkpoint_paths()[0]) for which in (stopped, whole))
    for group in ("params", "optimizer"):
        for name, value in getattr(other, group).items():
            np.testing.assert_array_equal(getattr(one, group)[name], value, err_msg=name)


def test_a_text_is_the_references(folder):
    texts = []
    for backend in ("numpy", "cuda"):
        flags = ["--backend", backend, "--tokens", 5, "--prompt", "the"]
        done = run("-m", "gpn_ref.sample", "numpy", *flags, cwd=folder)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert texts[0].startswith("the") and len(texts[0]) > 5
