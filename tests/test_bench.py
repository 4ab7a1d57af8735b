"""The benchmark command runs what it says and reports it; no test looks at the time."""

import re

import pytest

from gpn_ref import bench


def test_the_table(capsys, monkeypatch):
    monkeypatch.setattr(bench, "SIZES", {"nano": ("nano", 2, 3)})
    assert bench.main(["--sizes", "nano", "--repeat", "1"]) == 0
    title, heads, row = capsys.readouterr().out.splitlines()
    assert "backend numpy" in title and heads.split()[:4] == ["size", "parameters", "B", "T"]
    assert re.fullmatch(r"nano +5,508 +2 +3( +[\d,]+){3}", row)


def test_an_unknown_size_is_told_the_nearest(capsys):
    with pytest.raises(SystemExit) as exit:
        bench.main(["--sizes", "tny"])
    assert exit.value.code == 2
    assert "unknown size 'tny'; did you mean 'tiny'?" in capsys.readouterr().err
