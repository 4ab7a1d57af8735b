"""The paper's sizes are counted; the step is taken by a small stand-in."""

import math

import pytest
from commands import assert_one_line, call

from gpn_ref import reproduce
from gpn_ref.config import PRESETS
from gpn_ref.parameters import count_params
from gpn_ref.reproduction import paper_sizes


def test_counts():
    for name, (config, wanted) in paper_sizes.CONFIGS.items():
        assert count_params(config) == wanted, name
    assert [wanted for _, wanted in paper_sizes.CONFIGS.values()] == [
        128_994_048,
        129_012_088,
        129_151_902,
        129_837_206,
        129_846_176,
    ]


def test_each_takes_a_step_in_a_process_of_its_own(capsys):
    nano = PRESETS["nano"]
    assert paper_sizes.main({"nano": (nano, count_params(nano))}) == 0
    name, count, wanted, loss, peak = capsys.readouterr().out.splitlines()[-1].split()
    assert (name, count, wanted) == ("nano", f"{count_params(nano):,}", f"{count_params(nano):,}")
    assert float(loss) == pytest.approx(math.log(257), abs=0.1)
    assert 0.02 < float(peak) < 2


def test_another_count_or_too_much_memory_is_refused(monkeypatch):
    nano = PRESETS["nano"]
    with pytest.raises(ValueError, match=r"nano has 5,508 parameters; it must have 7"):
        paper_sizes.main({"nano": (nano, 7)})
    monkeypatch.setattr(paper_sizes, "step_apart", lambda config: (5.5, 21 * 2**30))
    with pytest.raises(ValueError, match=r"nano took 21\.0 GiB; it must stay within 20"):
        paper_sizes.main({"nano": (nano, count_params(nano))})


@pytest.mark.parametrize("flag", [("--quick",), ("--list",), ("--out", "x")])
def test_it_stands_alone(capsys, flag):
    assert_one_line(call(capsys, reproduce, "--paper-sizes", *flag), "--paper-sizes stands alone; leave the other")
