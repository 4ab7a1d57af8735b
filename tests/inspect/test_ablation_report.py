"""The words and tables of ablations: by rule, from numbers."""

import pytest

from gpn_ref.inspect import ablation_report as report


def effect(change, low=None, high=None):
    return {"change": change, "low": low, "high": high, "sequences": 9}


def row(loss, accuracy=None, random=(), **more):
    drawn = [{"heads": (0,), "loss": effect(a), "accuracy": effect(b)} for a, b in random]
    return (
        {"group": "slow heads", "what": "slow heads stop writing"}
        | more
        | {
            "loss": loss,
            "accuracy": accuracy,
            "random": drawn,
        }
    )


@pytest.mark.parametrize(
    ("name", "given", "words", "shown"),
    [
        (
            "loss",
            effect(0.6123, 0.58, 0.651),
            "the loss rises by 0.612 [0.580, 0.651] nats a token",
            "+0.612 [+0.580, +0.651]",
        ),
        ("accuracy", effect(-0.62, -0.69, -0.55), "the accuracy falls by 0.62 [0.55, 0.69]", "-0.62 [-0.69, -0.55]"),
        (
            "loss",
            effect(0.0, 0.0, 0.0),
            "no change of the loss that can be told from 0 (+0.000 [+0.000, +0.000])",
            "+0.000 [+0.000, +0.000]",
        ),
        (
            "loss",
            effect(0.00002, 0.00001, 0.00003),
            "the loss rises by 0.000020 [0.000010, 0.000030] nats a token",
            "+0.000020 [+0.000010, +0.000030]",
        ),
        (
            "accuracy",
            effect(-0.1, -0.2, 0.0),
            "no change of the accuracy that can be told from 0 (-0.10 [-0.20, +0.00])",
            "-0.10 [-0.20, +0.00]",
        ),
        (
            "loss",
            effect(1.5),
            "the loss changes by +1.500 nats a token (one sequence tells no interval)",
            "+1.500 [one sequence]",
        ),
    ],
)
def test_a_change_in_words_and_in_numbers(name, given, words, shown):
    assert report.happens(given, name) == words
    assert report.number(given, name) == shown


def test_a_change_is_worse_than_random_sets_or_milder_or_like_them():
    drawn = [effect(0.2), effect(0.4)]
    for change, place in ((0.5, "worse than"), (0.1, "milder than"), (0.3, "like")):
        found = report.beside(effect(change), drawn, "loss")
        assert found == f", {place} 2 random sets of as many heads, +0.300 (+0.200 to +0.400)"
    less = [effect(-0.2)]
    for change, place in ((-0.5, "worse than"), (-0.1, "milder than"), (-0.2, "like")):
        found = report.beside(effect(change), less, "accuracy")
        assert found == f", {place} a random set of as many heads, -0.20"
    assert report.beside(effect(1.0), [], "loss") == ""


def test_a_sentence_a_row():
    given = row(effect(0.5, 0.4, 0.6), effect(-0.3, -0.4, -0.2), [(0.1, -0.5), (0.2, -0.4)])
    assert report.says(given) == (
        "Slow heads stop writing: the loss rises by 0.500 [0.400, 0.600] nats a token, worse than 2 random sets of as "
        "many heads, +0.150 (+0.100 to +0.200); the accuracy falls by 0.30 [0.20, 0.40], milder than 2 random sets of "
        "as many heads, -0.45 (-0.50 to -0.40)."
    )
    bias = row(effect(0, 0, 0), group="decoder bias", what="decoder bias trained in, 9 steps", largest_move=0.0123)
    bias |= {"control": {"mean_state": 2.0}, "bias": {"mean_state": 1.88}}
    assert report.says(bias) == (
        "Decoder bias trained in, 9 steps: no change of the loss that can be told from 0 (+0.000 [+0.000, +0.000]); "
        "the mean state is 6 % shorter; the bias moves no logit by more than 0.012."
    )


def test_the_second_training_side_by_side():
    given = row(effect(0.001, 0, 0.002))
    given |= {
        name: {"loss": effect(loss), "accuracy": None, "mean_state": length, "share_of_norm": length / 8}
        for name, loss, length in (("control", 1.5, 2.0), ("bias", 1.501, 1.88))
    }
    assert report.bias_table(given) == [
        "after the second training  loss    length of the mean state  share of a state's",
        "without a bias             1.5     2                         0.25",
        "with a bias                1.501   1.88                      0.235",
        "difference                 +0.001  -0.12                     -0.015",
    ]


def curve(*points):
    return [{"from": a, "to": b, **effect(change, change - 0.1, change + 0.1)} for a, b, change in points]


def clearing(accuracy=()):
    nothing = {"all": None, "by_lag": []}
    return {
        "loss": curve((1, 1, 0.9), (8, 9, 0.05)),
        "accuracy": curve(*accuracy),
        "mentioned": {"before": nothing, "since": nothing},
    }


def test_sentences_and_table_of_the_memory_lost():
    assert report.clearing_says(clearing()) == [
        "1 token after the memory is lost the loss rises by 0.900 [0.800, 1.000] nats a token; 8-9 tokens after the "
        "memory is lost no change of the loss that can be told from 0 (+0.050 [-0.050, +0.150])."
    ]
    given = clearing([(2, 2, -0.5)])
    given["mentioned"] = {"before": {"all": effect(-0.8, -0.9, -0.7)}, "since": {"all": effect(0.0, 0.0, 0.0)}}
    assert report.clearing_says(given)[1:] == [
        "2 tokens after the memory is lost the accuracy falls by 0.50 [0.40, 0.60].",
        "Where the answer was last mentioned before the memory was lost, the accuracy falls by 0.80 [0.70, 0.90]; "
        "where it was mentioned since, no change of the accuracy that can be told from 0 (+0.00 [+0.00, +0.00]).",
    ]
    table = report.clearing_table(clearing([(2, 2, -0.5)]))
    assert [line.split() for line in table[1:]] == [
        ["1", "+0.900", "[+0.800,", "+1.000]"],
        ["2", "-0.50", "[-0.60,", "-0.40]"],
        ["8", "+0.050", "[-0.050,", "+0.150]"],
    ]


def test_the_table_has_a_column_only_for_what_there_is():
    summary = {"unchanged": {"loss": effect(1.0), "accuracy": None}}
    summary["changes"] = [row(effect(0.5, 0.4, 0.6), random=[(0.1, 0)]), row(effect(0.25))]
    assert report.changes_table(summary) == [
        "                         loss, nats a token       random sets",
        "slow heads stop writing  +0.500 [+0.400, +0.600]  +0.100",
        "slow heads stop writing  +0.250 [one sequence]",
    ]


def test_what_cannot_be_measured_is_said():
    summary = {
        "model": "runs/x",
        "text": {"tokens": 1200},
        "questions": {"number": 0, "of": "values"},
        "unchanged": {"loss": effect(1.5), "accuracy": None},
        "mean_state": 4.0,
        "share_of_norm": 0.25,
        "layers": 1,
        "heads": None,
    }
    assert report.about(summary) == [
        "model       runs/x",
        "unchanged   loss 1.500 nats a token on 1,200 tokens of text",
        "mean state  that of s^p on the same text: length 4, 0.25 of the mean length of a state",
        "heads       none: without a memory nothing can be silenced or cleared",
    ]
    heads = {"lives": [5.0, None], "fast": [], "slow": [0, 1], "fast_below": 4.0}
    assert report.about(summary | {"heads": heads, "layers": 2})[3:] == [
        "fast heads  none (less than 4)",
        "slow heads  5, ∞ tokens of 1/e life; they are all heads, so no random set can stand beside them (at least 4)",
        "layers      heads that are not read are silent in all 2",
    ]
