"""The trained model that ships: data/README.md says how it was made."""

import json

from commands import call

from gpn_ref import load_model, sample
from gpn_ref.cloze import ask, question
from gpn_ref.config import DEFAULTS, TrainConfig, config_to_dict
from gpn_ref.files import DATA, TRAINED
from gpn_ref.sizes import choose_model
from gpn_ref.training.checkpoint import read_checkpoint


def test_it_is_what_the_default_run_makes():
    checkpoint = read_checkpoint(TRAINED)
    assert TRAINED.stat().st_size <= 5_000_000
    assert checkpoint.model_config == choose_model(DEFAULTS["preset"], "gpn+m", None, checkpoint.encoding().n_vocab)
    training = config_to_dict(checkpoint.train_config)
    known = {name: value for name, value in DEFAULTS.items() if name in config_to_dict(TrainConfig())}
    assert {name: training[name] for name in known} == known | {"window_start": "document"}
    assert checkpoint.step == DEFAULTS["steps"]
    assert checkpoint.corpus["name"] == "stories"
    assert checkpoint.tokenizer == (DATA / "stories" / "tokenizer.ranks").read_text(encoding="utf-8")


def test_it_knows_what_only_the_story_tells():
    checkpoint = read_checkpoint(TRAINED)
    lines = (DATA / "stories" / "cloze.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [question(json.loads(line), checkpoint.encoding()) for line in lines[::4]]
    bound = load_model(checkpoint.model_config).bind(checkpoint.params)
    assert ask(bound, questions).accuracy > 0.85


def test_sample_shows_it_where_no_run_is_named(capsys):
    flags = ["--tokens", 30, "--prompt", "Once there was"]
    named = call(capsys, sample, TRAINED, *flags)
    assert call(capsys, sample, *flags) == named
    assert named[0] == 0 and len(named[1].split()) > 15
