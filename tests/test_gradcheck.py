"""The command: a table, the verdict, and its exit status."""

import numpy as np
import pytest

from gpn_ref import gradcheck
from gpn_ref.reference import gpn


def test_every_parameter_and_the_state_are_checked_entry_by_entry():
    config = gradcheck.CONFIGS["GPN+M"]
    rows = {row.name: row for row in gradcheck.check(config, directions=1).rows}
    assert rows.keys() == {*gpn_names(config), "state.predicted", "state.grounded", "state.memory"}
    small = gradcheck.check(gradcheck.CONFIGS["GPN"]).rows
    assert {row.name: row.checked for row in small}["ground.gate.weight"] == 36
    assert all(row.passed and row.largest > 0 for row in small)


def gpn_names(config):
    from gpn_ref.parameters import parameter_shapes

    return parameter_shapes(config).keys()


def test_without_memory_nothing_reads_the_grounded_state():
    config = gradcheck.CONFIGS["GPN"]
    point = gradcheck.draw_point(config, np.random.default_rng(0))
    *_, d_state = gpn.loss_and_grads(point.params, config, *point[1:])
    assert not d_state.grounded.any() and d_state.predicted.any()
    assert "state.grounded" not in {row.name for row in gradcheck.check(config, directions=1).rows}


def test_the_command_reports_and_exits(capsys, monkeypatch):
    monkeypatch.setattr(gradcheck, "LARGER", gradcheck.CONFIGS["GPN+M"])
    monkeypatch.setattr(gradcheck, "CONFIGS", {"GPN": gradcheck.CONFIGS["GPN"]})
    assert gradcheck.main(["--directions", "1"]) == 0
    assert "48 of 48 gradients agree" in capsys.readouterr().out
    monkeypatch.setattr(gradcheck.gpn, "loss_and_grads", halve_one(gpn.loss_and_grads))
    assert gradcheck.main(["--directions", "1"]) == 1
    out = capsys.readouterr().out
    assert "46 of 48 gradients agree" in out and out.count("WRONG") == 2


def halve_one(original):
    def wrong(*args):
        nll, grads, state, d_state = original(*args)
        return nll, grads | {"decode.norm.weight": grads["decode.norm.weight"] / 2}, state, d_state

    return wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "argument --seed: -1 is too small; it must be 0 or more"),
        (["--directions", "x"], "argument --directions: 'x' is not a whole number"),
        (["--sed", "1"], "unrecognized arguments: --sed"),
    ],
)
def test_bad_arguments(capsys, arguments, message):
    with pytest.raises(SystemExit) as exit:
        gradcheck.main(arguments)
    error = capsys.readouterr().err
    assert exit.value.code == 2 and message in error and error.count("\n") == 1
