"""Opening a trained model: a run directory or a checkpoint, its text, its counts, and where its files go."""

import json
import shutil

import numpy as np
import pytest
from small_runs import TEXT, new_trainer, text_file

from gpn_ref.files import DATA, TRAINED
from gpn_ref.text.recall import RecallConfig, recall_ranks, symbol_counts
from gpn_ref.text.tokenizer import encoding_from_ranks
from gpn_ref.trained import Trained
from gpn_ref.training.tasks import RecallTask


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    sizes = {"recall_pairs": 2, "recall_n_keys": 5, "recall_n_values": 6, "recall_n_fillers": 7, "recall_gaps": [0, 3]}
    for name, changes in (("text", {}), ("recall", {"corpus": "recall"} | sizes)):
        trainer = new_trainer(folder / name, steps=4, **changes)
        trainer.train()
        found[name] = trainer
    return found


@pytest.fixture
def copied(runs, tmp_path):
    """A function: a copy of a run that a test may damage."""

    def copy(name):
        shutil.copytree(runs[name].run.path, tmp_path / name)
        return tmp_path / name

    return copy


def test_a_run_and_its_checkpoint_are_the_same_model(runs):
    run = Trained(runs["text"].run.path)
    lone = Trained(runs["text"].run.checkpoint_path(4), "numpy")
    for trained in (run, lone):
        assert trained.config == runs["text"].experiment.model_config
        params = trained.checkpoint.params
        assert all(np.array_equal(params[name], value) for name, value in runs["text"].learner.params().items())
        assert trained.task().checksum() == runs["text"].experiment.task.checksum()
    assert lone.model.backend == "numpy"
    assert run.describe() == f"{run.path} after 4 steps on cats"


def test_where_the_files_go(runs, tmp_path):
    path = runs["text"].run.path
    assert Trained(path).out("inspect") == path / "inspect"
    assert Trained(path / "checkpoints/step-000004.safetensors").out("inspect") == path / "inspect-step-000004"
    assert str(Trained(TRAINED).out("inspect")) == "runs/tiny-inspect"


def test_text_files_are_looked_at_whole(runs, tmp_path):
    trained = Trained(runs["text"].run.path)
    task = trained.task([text_file(tmp_path)])
    end = trained.encoding.n_vocab - 2
    text = b"".join(trained.encoding.decode_tokens_bytes([t for t in task.validation_tokens if t != end]))
    assert text.decode() == TEXT and len(task.tokens) == 0


def test_the_recall_task_is_the_runs_own_and_a_lone_checkpoint_knows_its_symbols(runs, copied, capsys):
    own = runs["recall"].experiment.task.config
    assert Trained(runs["recall"].run.path).task().config == own
    assert Trained(runs["recall"].run.checkpoint_path(4)).task().config == own
    assert capsys.readouterr().err == ""
    path = copied("recall")
    lone = shutil.copy(path / "checkpoints/step-000004.safetensors", path.parent)
    config = Trained(lone).task().config
    assert (config.n_keys, config.n_values, config.n_fillers) == (own.n_keys, own.n_values, own.n_fillers)
    assert config.pairs == 4 and config.gaps == (0, 0, 0, 4)  # the defaults: it does not say which it was trained on
    assert "the corpus recall is not what" in capsys.readouterr().err


def test_symbols_are_counted():
    config = RecallConfig(pairs=2, n_keys=120, n_values=7, n_fillers=1)
    assert symbol_counts(encoding_from_ranks(recall_ranks(config))) == {"n_keys": 120, "n_values": 7, "n_fillers": 1}


def test_counts_are_the_runs_own_or_counted_again(runs, copied):
    trained = Trained(TRAINED)
    counts = trained.token_counts()
    assert counts.shape == (295,) and counts.sum() == 319_822
    path = copied("text")
    V = Trained(path).config.vocab_size
    np.save(path / "token_counts.npy", np.arange(V))
    np.testing.assert_array_equal(Trained(path).token_counts(), np.arange(V))
    (path / "token_counts.npy").unlink()
    again = Trained(path).token_counts()
    np.testing.assert_array_equal(again, np.bincount(runs["text"].experiment.task.tokens, minlength=V))
    for damaged in (b"", b"\x93NUMPY", b"no array"):
        (path / "token_counts.npy").write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"token_counts.npy is damaged: it must hold {V} counts"):
            Trained(path).token_counts()


def test_other_text_is_told_and_missing_text_named(copied, capsys):
    path = copied("text")
    config = json.loads((path / "config.json").read_text())
    text = path.parent / "elsewhere.txt"
    checkpoint = path / "checkpoints/step-000004.safetensors"
    assert config["corpus"]["files"] and checkpoint.exists()
    task = Trained(path, prog="prog").task()
    assert capsys.readouterr().err == "" and len(task.tokens)
    [original] = config["corpus"]["files"]
    kept = open(original, encoding="utf-8").read()
    try:
        open(original, "w", encoding="utf-8").write(kept + "\n\nOne more paragraph.\n")
        Trained(path, prog="prog").task()
        assert capsys.readouterr().err.startswith("prog: the corpus cats is not what ")
        shutil.move(original, text)
        with pytest.raises(OSError) as caught:
            Trained(path).task()
        assert caught.value.filename == original
    finally:
        open(original, "w", encoding="utf-8").write(kept)


def test_what_is_no_run_is_named(copied, tmp_path):
    with pytest.raises(ValueError, match="is not a run directory: it has no config.json"):
        Trained(tmp_path)
    with pytest.raises(OSError):
        Trained(tmp_path / "nothing")
    path = copied("recall")
    for checkpoint in (path / "checkpoints").iterdir():
        checkpoint.rename(checkpoint.with_suffix(".away"))
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        Trained(path)
    [away, *_] = (path / "checkpoints").iterdir()
    away.rename(away.with_suffix(".safetensors"))
    (path / "config.json").write_text('{"choices": 3}')
    with pytest.raises(ValueError, match="config.json is damaged: it does not tell the sizes of the task"):
        Trained(path).task()


def test_the_shipped_model_has_its_recall_task_refused():
    trained = Trained(DATA / "tiny.safetensors")
    assert trained.task().name == "stories" and not isinstance(trained.task(), RecallTask)
