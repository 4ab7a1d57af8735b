import gc
import itertools
import os
import shutil
import signal
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
from commands import ENVIRONMENT, assert_one_line, call, run, start
from small_runs import new_trainer

from gpn_ref import load_model, random_state, sample
from gpn_ref.generate import generate
from gpn_ref.text.tokenizer import decode_stream, encode
from gpn_ref.training.checkpoint import read_checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory of a model that has learnt a little."""
    trainer = new_trainer(tmp_path_factory.mktemp("trained"), steps=60, learning_rate=0.03, checkpoint_every=30)
    trainer.train()
    return trainer.run


@pytest.fixture(scope="module")
def checkpoint(trained):
    return read_checkpoint(trained.checkpoint_paths()[0])


def bind(checkpoint):
    return load_model(checkpoint.model_config).bind(checkpoint.params)


# ------------------------------------------------------------------------------------------------- what it writes
def test_temperature_0_takes_the_likeliest_token_of_all_that_came_before(trained, checkpoint, capsys):
    encoding, bound = checkpoint.encoding(), bind(checkpoint)
    tokens = [98, *encode(encoding, "the cat")]
    for _ in range(40):
        tokens.append(int(bound.forward(np.array([tokens])).logits[0, -1].argmax()))
    assert 98 not in tokens[1:]
    result = call(capsys, sample, trained.path, "--prompt", "the cat", "--tokens", 40, "--temperature", 0)
    assert result == (0, b"".join(data for _, data in decode_stream(tokens[1:], encoding)).decode() + "\n", "")


def test_it_draws_what_generate_draws(trained, checkpoint, capsys):
    encoding = checkpoint.encoding()
    options = {"temperature": 0.7, "top_k": 20, "top_p": 0.8}
    tokens = generate(bind(checkpoint), random_state.generator(4, "samples"), 98, encode(encoding, "“a"), **options)
    text = b"".join(
        b"\n\n" if token == 98 else data for token, data in decode_stream(itertools.islice(tokens, 90), encoding)
    )
    flags = ["--temperature", 0.7, "--top-k", 20, "--top-p", 0.8, "--seed", 4, "--tokens", 90, "--prompt", "“a"]
    result = call(capsys, sample, trained.path, *flags)
    assert result == (0, "“a" + text.decode(errors="replace") + "\n", "")


def test_the_seed_decides(trained, capsys):
    texts = [call(capsys, sample, trained.path, "--seed", seed, "--temperature", 4).out for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_checkpoint_file_is_as_good_as_its_run(trained, capsys):
    newest, before = trained.checkpoint_paths()
    from_run, from_newest, from_before = (
        call(capsys, sample, path, "--temperature", 2).out for path in (trained.path, newest, before)
    )
    assert from_run == from_newest != from_before


@pytest.mark.parametrize(
    "prompt", ["", " ", "\n", "日本 😀 e\u0301\u202e", "<|end|>", "\U0010ffff\ufffe", "a\x00b", "-"]
)
def test_the_prompt_may_be_any_text(trained, capsys, prompt):
    result = call(capsys, sample, trained.path, f"--prompt={prompt}", "--tokens", 3)
    assert result.status == 0
    assert result.out.startswith(prompt)


def test_a_prompt_as_a_shell_gives_it(trained):
    result = run("sample", trained.path, "--prompt", "ça 😀", "--tokens", 5, "--temperature", 0)
    assert result.status == 0
    assert result.out.startswith("ça 😀")
    assert result.err == ""


def test_half_a_character_in_the_prompt_is_refused(trained, capsys):
    message = "argument --prompt: this is not UTF-8 text: "
    assert_one_line(
        call(capsys, sample, trained.path, "--prompt", "ab\ud800"), message + "character 3 is half a character"
    )
    result = run("sample", os.fsencode(trained.path).decode(), "--prompt", os.fsdecode(b"ab\xff"))
    assert_one_line(result, message + "byte 2 is 0xff")


def test_a_terminal_of_few_letters_gets_question_marks(trained, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "PYTHONIOENCODING", "ascii")
    result = run("sample", trained.path, "--prompt", "ça", "--tokens", 5)
    assert (result.status, result.out[:2], result.err) == (0, "?a", "")


def test_text_comes_before_the_last_token_is_drawn(trained):
    process = start("sample", trained.path, "--tokens", 10**9, "--prompt", "the")
    assert len(process.stdout.read(300)) == 300
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == "python -m gpn_ref.sample: stopped\n"


def test_a_reader_that_leaves_is_no_error(trained):
    process = start("sample", trained.path, "--tokens", 10**9)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


def test_memory_is_constant(checkpoint):
    tokens = generate(bind(checkpoint), np.random.default_rng(0), 98)
    tracemalloc.start()
    sizes = []
    for _ in range(3):
        for _ in range(200):
            next(tokens)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert abs(sizes[2] - sizes[1]) < 20_000  # the states of 200 tokens would be 128,000


def test_help_has_an_example(capsys):
    result = call(capsys, sample, "--help")
    assert result.status == 0
    assert 'python -m gpn_ref.sample runs/stories --prompt "Once there was" --tokens 200' in result.out


# ------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", 0], "argument --tokens: 0 is too small; it must be 1 or more"),
        (["--tokens", "x"], "argument --tokens: 'x' is not a whole number"),
        (["--temperature", -1], "argument --temperature: -1 is too small; it must be 0 or more"),
        (["--temperature", "nan"], "argument --temperature: nan is not finite"),
        (["--top-k", -1], "argument --top-k: -1 is too small"),
        (["--top-p", 0], "argument --top-p: 0 is too small; it must be above 0"),
        (["--top-p", 1.5], "argument --top-p: 1.5 is too large; it must be 1 or less"),
        (["--seed", -1], "argument --seed: -1 is too small"),
        (["--backend", "nunpy"], "unknown backend 'nunpy'; did you mean 'numpy'?"),
    ],
)
def test_bad_flags(trained, capsys, flags, message):
    assert_one_line(call(capsys, sample, trained.path, *flags), message)


def test_bad_files(trained, capsys, tmp_path):
    good = trained.checkpoint_paths()[0].read_bytes()
    altered = bytearray(good)
    altered[-1] ^= 1
    foreign = safetensors.numpy.save({"embedding.weight": np.zeros((3, 2), np.float32)})
    files = {
        "cut": (good[:5000], "cut is cut or"),
        "tail": (good[:-1], "tail is cut or altered"),
        "altered": (bytes(altered), "altered is cut or altered: its content does not match its checksum"),
        "empty": (b"", "empty is not a checkpoint: it is empty"),
        "picture": (trained.path.joinpath("samples.txt").read_bytes(), "picture is not a checkpoint: it is not a safe"),
        "foreign": (foreign, "foreign is a safetensors file, but not a checkpoint of this program"),
    }
    for name, (content, message) in files.items():
        (tmp_path / name).write_bytes(content)
        assert_one_line(call(capsys, sample, tmp_path / name), message)
    assert_one_line(call(capsys, sample, tmp_path / "none"), "none: No such file or directory")
    assert_one_line(call(capsys, sample, tmp_path), "is not a run directory: it has no config.json")


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(trained, capsys, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained.path, copy)
    newest, before = (copy / "checkpoints" / path.name for path in trained.checkpoint_paths())
    newest.write_bytes(newest.read_bytes()[:-9])
    result = call(capsys, sample, copy)
    assert result.status == 0
    assert result.out == call(capsys, sample, before).out
    assert result.err.startswith(f"python -m gpn_ref.sample: {newest} is cut or altered")
    before.unlink()
    assert_one_line(call(capsys, sample, copy), "none of the 1 checkpoints in")
    newest.unlink()
    assert_one_line(call(capsys, sample, copy), f"{copy} has no checkpoint yet")


def test_a_full_disk_is_one_line(trained):
    with open("/dev/full", "w", encoding="utf-8") as full:
        assert_one_line(run("sample", trained.path, stdout=full), "No space left on device")
