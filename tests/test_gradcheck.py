"""The command: a table, the verdict, and its exit status."""

from math import prod

import numpy as np
import pytest

from gpn_ref import gradcheck
from gpn_ref.parameters import parameter_shapes
from gpn_ref.reference import gpn


@pytest.mark.parametrize("name", gradcheck.CONFIGS)
def test_every_entry_of_every_parameter_and_of_the_state(name):
    config = gradcheck.CONFIGS[name]
    rows = {row.name: row for row in gradcheck.check(config).rows}
    shapes = parameter_shapes(config)
    if name.startswith("GPN"):
        shapes |= {"state.predicted": (2, 6)}
    if name.startswith("GPN+M"):
        shapes |= {"state.grounded": (2, 6), "state.memory": (2, 2, 4, 5)}
    if name.startswith("GDN"):
        shapes |= {"state.memory": (2, 2, 2, 4, 5), "state.recent": (2, 2, 3, 26)}
    assert {name: row.checked for name, row in rows.items()} == {name: prod(shape) for name, shape in shapes.items()}
    for row in rows.values():
        assert row.error <= 1e-6 and row.largest > 0 and row.passed, row


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
    out, err = capsys.readouterr()
    assert "48 of 48 gradients agree" in out and err == ""  # no terminal, no bars
    monkeypatch.setattr(gpn, "loss_and_grads", halve_one(gpn.loss_and_grads))
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
        (["--directions", "10001"], "argument --directions: 10001 is too large; it must be 10000 or less"),
        (["--directions", "x"], "argument --directions: 'x' is not a whole number"),
        (["--sed", "1"], "unrecognized arguments: --sed"),
    ],
)
def test_bad_arguments(capsys, arguments, message):
    with pytest.raises(SystemExit) as exit:
        gradcheck.main(arguments)
    error = capsys.readouterr().err
    assert (
        exit.value.code == 2
        and error.startswith("python -m gpn_ref.gradcheck: ")
        and message in error
        and error.count("\n") == 1
    )
