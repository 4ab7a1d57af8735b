"""Sentences by rule, and numbers as text."""

import pytest

from gpn_ref.inspect import findings
from gpn_ref.inspect.findings import at_least, life_text, number, percent, structures, verdict


def summary_of(**changes):
    """A summary in which all three structures appear, but for `changes`."""
    head = {"life": 2.0, "life_measured": True, "half_life": 1.4, "half_life_measured": True, "forgets": True}
    slow = head | {"head": 1, "pool": "slow", "life": 400.0, "life_measured": False}
    values = {
        "dead_dimensions": 0,
        "participation_ratio": 20.0,
        "share_of_norm": 0.8,
        "batch_cosine_mean": 0.99,
        "spearman_with_unigram": 0.4,
        "heads": [head | {"head": 0, "pool": "fast"}, slow],
        "lags": [1, 2],
    } | changes
    layer = {"dimensions": 100, "states": 1000, "norm_mean": 10.0, "norm_sd": 1.0, "components_90": 40}
    layer |= {name: values[name] for name in ("dead_dimensions", "participation_ratio")}
    default = {name: values[name] for name in ("share_of_norm", "batch_cosine_mean", "spearman_with_unigram")}
    words = [{"text": "␣the"}, {"text": "."}]
    default |= {
        "top": words,
        "shared_with_embedding": 1,
        "running_tokens": [1, 2, 5],
        "running_cosine": [0.5, 0.9, 0.99],
    }
    horizons = {name: values[name] for name in ("heads", "lags")}
    horizons |= {"cosine_raw": [0.7, 0.6][: len(values["lags"])], "cosine_centred": [0.3, 0.0][: len(values["lags"])]}
    return {"geometry": [layer], "default_token": default, "horizons": horizons}


@pytest.mark.parametrize(
    "changes, appears",
    [
        ({}, ["yes", "yes", "yes"]),
        ({"dead_dimensions": 1}, ["in part", "yes", "yes"]),
        ({"dead_dimensions": 1, "participation_ratio": 9.0}, ["no", "yes", "yes"]),
        ({"dead_dimensions": 100, "participation_ratio": None}, ["no", "yes", "yes"]),
        ({"share_of_norm": 0.4}, ["yes", "in part", "yes"]),
        ({"share_of_norm": 0.4, "batch_cosine_mean": None, "spearman_with_unigram": -0.1}, ["yes", "no", "yes"]),
        ({"heads": []}, ["yes", "yes", "no"]),
    ],
)
def test_the_three_structures(changes, appears):
    assert [found["appears"] for found in structures(summary_of(**changes))] == appears


def test_pools_need_both_and_a_lag():
    [slow] = [head for head in summary_of()["horizons"]["heads"] if head["pool"] == "slow"]
    found = structures(summary_of(heads=[slow]))[2]
    assert (found["appears"], found["because"]) == ("in part", "0 fast, 1 slow")
    assert structures(summary_of(lags=[], heads=[slow | {"pool": None}]))[2]["appears"] == "not told"
    assert structures(summary_of(heads=[]))[2]["because"] == "no memory"


def test_sentences_carry_the_numbers():
    summary = summary_of()
    [line] = findings.of_geometry(summary)
    assert "10.0 long (sd 1.00); 0 of 100 dimensions are dead. 40 % of the principal" in line
    assert "ratio is 20 % of the dimensions" in line and "too few" not in line
    first, second, third = findings.of_default_token(summary)
    assert "80 % as long" in first and "says: ␣the .. Its" in second and "correlation of 0.400" in second
    assert third.endswith("has reached a cosine of 0.98 with it by token 5 (the paper's: by token 10).")
    lines = findings.of_horizons(summary)
    assert "cosine of 0.700" in lines[0] and "2 tokens apart 0.600 and 0.00" in lines[0]
    assert lines[1] == "1 fast head: 1/e life 2.00 tokens (6 of 1 to 3)."
    assert lines[2] == "1 slow head: 1/e life ~400 tokens (9 of 5 to 322)."


def test_what_can_not_be_told_is_said():
    summary = summary_of(batch_cosine_mean=None, lags=[], heads=[])
    assert "There is one batch only, so batches can't be compared." in findings.of_default_token(summary)
    assert findings.of_horizons(summary) == ["Sequences of one token have no lag: nothing can be told."]
    summary["geometry"][0]["states"] = 100
    assert "100 states are too few to tell 100 dimensions" in findings.of_geometry(summary)[0]


def heads_of(answers, negative):
    layer = {"share_heads": [0.1, 0.3], "share_ffn": 0.5, "share_gate": 0.1, "retrieves_next_token": answers}
    return {"heads": {"layers": [layer], "next_token_by_chance": 0.02, "eigenvalue_negative": negative}}


def test_heads_that_retrieve_what_comes_next_and_such_that_do_not():
    reads, next_token = findings.of_heads(heads_of([0.25, 0.01], [0, 0]))
    assert reads.startswith("Reads make 40 % of the update, the feed-forward network 50 %, the gate 10 %;")
    assert reads.endswith("head 1 makes most, 30 %.")
    assert next_token.startswith("Head 0 retrieves a token equal to the next one in 25.0 % of its reads; any")
    assert findings.of_heads(heads_of([0.03, 0.01], [0, 0]))[1].startswith("No head retrieves the next token")


def test_negative_eigenvalues():
    assert findings.of_eigenvalues(heads_of([0, 0], [0.0, 0.0])) == ["No eigenvalue is negative."]
    [line] = findings.of_eigenvalues(heads_of([0, 0], [0.0, 0.2]))
    assert line.startswith("1 of 2 heads have negative") and "head 1 most often, in 20 % of its writes" in line


def test_numbers_as_text():
    shown = [None, "x", 0, 12345, 0.0, 1.9951, 18.77, 99.97, 991.4, 12345.6, -0.0229524]
    wanted = ["–", "x", "0", "12,345", "0.00", "2.00", "18.8", "100", "991", "12,346", "-0.0230"]
    assert [number(value) for value in shown] == wanted
    assert (percent(0.27), percent(0.1764, 1)) == ("27 %", "17.6 %")


def test_lives_as_text():
    head = {"pool": "slow", "life": 5.0, "life_measured": True, "forgets": True}
    assert life_text(head, "life") == "5.00"
    assert life_text(head | {"life": 991.2, "life_measured": False}, "life") == "~991"
    assert life_text(head | {"life": None, "forgets": False}, "life") == "never"
    assert life_text(head | {"life": None, "pool": None}, "life") == "–"


def test_verdicts_leave_out_what_is_not_told():
    assert verdict([at_least("a", None, 1), at_least("b", 2.0, 1)]) == "yes"
    assert verdict([at_least("a", None, 1)]) == "not told"
