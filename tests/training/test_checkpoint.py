import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from gpn_ref import PRESETS, TrainConfig, init_params
from gpn_ref.text.tokenizer import format_ranks
from gpn_ref.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

NANO = replace(PRESETS["nano"], vocab_size=258)  # 256 bytes, END, BYTE
TOKENIZER = format_ranks({bytes([value]): value for value in range(256)})


def a_checkpoint(step=3, **changes):
    params = init_params(NANO, seed=step)
    optimizer = {f"first/{name}": -value for name, value in params.items()} | {"updates": np.array(step, np.int64)}
    values = {
        "step": step,
        "tokens": 7 * step,
        "model_config": NANO,
        "train_config": TrainConfig(steps=9, learning_rate=1e-3),
        "backend": "numpy",
        "corpus": {"name": "text", "files": ['a "sha256":"b'], "checksum": "c"},
        "tokenizer": TOKENIZER,
        "params": params,
        "optimizer": optimizer,
        "batches": np.random.default_rng(step).bit_generator.state,
        "sampler": {"state": 2**127 + 1},
        "logs": {"metrics.jsonl": 10},
    }
    return Checkpoint(**(values | changes))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "step-000003.safetensors"
    write_checkpoint(path, a_checkpoint())
    return path


def test_everything_comes_back(path):
    written, read = a_checkpoint(), read_checkpoint(path)
    for field in ("params", "optimizer"):
        before, after = getattr(written, field), getattr(read, field)
        assert before.keys() == after.keys()
        for name in before:
            assert after[name].dtype == before[name].dtype
            np.testing.assert_array_equal(after[name], before[name])
    for field in set(vars(written)) - {"params", "optimizer"}:
        assert getattr(read, field) == getattr(written, field), field
    assert read.encoding().n_vocab == 258


def test_nothing_else_is_left(path):
    assert os.listdir(path.parent) == [path.name]


def test_a_transposed_array_is_written_in_its_order(tmp_path):
    array = np.arange(6.0).reshape(2, 3).T
    write_checkpoint(tmp_path / "c", a_checkpoint(optimizer={"first": array}))
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "c").optimizer["first"], array)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "checkpoint"
    write_checkpoint(path, a_checkpoint())
    return path


@given(data=st.data())
def test_a_cut_file_is_refused(written, data):
    content = written.read_bytes()
    path = written.with_name("cut")
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ValueError, match=r"is cut|is not a checkpoint"):
        read_checkpoint(path)


@given(data=st.data())
def test_a_file_with_one_bit_changed_is_refused(written, data):
    content = bytearray(written.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = written.with_name("altered")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"altered|damaged|not a checkpoint|format"):
        read_checkpoint(path)


@given(data=st.data())
def test_a_file_with_a_word_of_its_header_changed_is_refused(written, data):
    content = written.read_bytes()
    words = sorted(set(re.findall(rb"[a-z_0-9.]+", content[8:4000])))
    path = written.with_name("altered")
    path.write_bytes(content.replace(data.draw(st.sampled_from(words)), b"x", 1))
    with pytest.raises(ValueError, match=r"altered|damaged|not a checkpoint|format"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"step,loss\n1,2.5\n", "not a safetensors file"),
        (b"PK\x03\x04" + bytes(60), "not a safetensors file"),
        (safetensors.numpy.save({"weight": np.zeros(3)}), "but not a checkpoint of this program"),
        (
            safetensors.numpy.save({"weight": np.zeros(3)}, {"format": "pt"}),
            "but not a checkpoint of this program",
        ),
        (
            safetensors.numpy.save({"weight": np.zeros(3)}, {"format": "gpn_ref checkpoint", "version": "7"}),
            "is a checkpoint of format 7; this program reads format 1",
        ),
        (
            safetensors.numpy.save({"weight": np.zeros(3)}, {"format": "gpn_ref checkpoint", "version": "1"}),
            "has no checksum",
        ),
    ],
)
def test_a_foreign_file_is_refused(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        read_checkpoint(path)


def test_a_missing_file_is_an_os_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        read_checkpoint(tmp_path / "none")
    assert caught.value.filename == str(tmp_path / "none")


def test_parameters_must_fit_the_configuration(tmp_path):
    params = init_params(NANO)
    del params["decode.norm.weight"]
    write_checkpoint(tmp_path / "c", a_checkpoint(params=params))
    with pytest.raises(ValueError, match=r"parameter 'decode\.norm\.weight' is missing"):
        read_checkpoint(tmp_path / "c")


def test_the_tokenizer_must_fit_the_model(tmp_path):
    longer = TOKENIZER + "YWI= 256\n"
    write_checkpoint(tmp_path / "c", a_checkpoint(tokenizer=longer))
    with pytest.raises(ValueError, match=r"its tokenizer has 259 tokens, its model 258"):
        read_checkpoint(tmp_path / "c")


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left"):
        write_checkpoint(path, a_checkpoint(step=5))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_metadata_is_json_that_anyone_can_read(path):
    with safetensors.safe_open(path, "numpy") as file:
        texts = file.metadata()
        assert "param/embedding.weight" in file.keys()
    assert json.loads(texts["model_config"])["d_state"] == 16
    assert json.loads(texts["step"]) == 3
    assert texts["tokenizer"].startswith("AA== 0\n")


def test_a_pipe_is_no_checkpoint(tmp_path):
    """To read one would wait for ever."""
    os.mkfifo(tmp_path / "c")
    with pytest.raises(ValueError, match=r"c is not a checkpoint: it is not a regular file$"):
        read_checkpoint(tmp_path / "c")
