"""How long it takes, in words and by what is done."""

import pytest

from gpn_ref.reproduction.plan import Cell
from gpn_ref.reproduction.progress import Progress, duration


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")]
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_the_time_left_is_that_of_the_steps_to_go(capsys):
    first, second = (Cell(row, "stories", 0, 1e-3, 10) for row in ("gpn", "gdn-1"))
    with Progress({first.name: 20.0, second.name: 40.0}, done=3) as progress:
        assert progress.left() == 60
        with progress.steps(first, 5) as steps:  # it goes on after half of its steps
            assert progress.left() == 50
            steps.update()
            assert progress.left() == 48
            steps.write("a validation")
        progress.end(first, "gpn has diverged")
        assert progress.left() == 40
    assert capsys.readouterr().out == "[4/5] gpn has diverged\n"
