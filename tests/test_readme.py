"""README.md tells the truth about the files, the line counts, the commands and the flags that it names."""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE))
PATH = r"(?:gpn_ref|data|tests|lessons|\.ci)/[\w./-]*|[\w-]+\.(?:py|md|toml|cff|txt)"


def commands():
    """Every command of the package that README names, as (module, words); `make tiny` runs train_tiny."""
    for line in "\n".join(BLOCKS + INLINE).splitlines():
        if found := re.search(r"python3? -m (gpn_ref[\w.]+|lessons\.check)(.*)", line):
            yield found[1], tuple(shlex.split(found[2], comments=True))
        elif found := re.search(r"make tiny ARGS=('[^']*'|\"[^\"]*\"|\S+)", line):
            yield "gpn_ref.train_tiny", tuple(shlex.split(found[1].strip("'\"")))


COMMANDS = sorted(set(commands()))


@cache
def help_of(module, *subcommand):
    done = subprocess.run(
        [sys.executable, "-m", module, *subcommand, "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def flags(words):
    return {word.split("=")[0] for word in words if word.startswith("--")}


def known_flags(module, words=()):
    """The flags that --help of the command, or of its subcommand, explains on a line of their own."""
    commands = re.findall(r"^ +([a-z]\w*) ", help_of(module), re.MULTILINE)
    subcommand = [word for word in words[:1] if word in commands]
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z][\w-]*)", help_of(module, *subcommand), re.MULTILINE))


def test_every_file_exists():
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    named = {snippet for snippet in INLINE if re.fullmatch(PATH, snippet)} | set(links)
    assert named, "README names no file"
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_line_counts_are_the_real_ones():
    rows = re.findall(rf"^\|[^|]*?({PATH})`?[^|]*\| *([\d,]+) *\|", README, re.MULTILINE)
    assert rows, "README has no table of files and their lines"
    claimed = {name: int(lines.replace(",", "")) for name, lines in rows}
    assert claimed == {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in claimed}


@pytest.mark.parametrize(("module", "words"), COMMANDS, ids=[" ".join((m, *w)) for m, w in COMMANDS])
def test_every_command_knows_its_flags(module, words):
    assert flags(words) - known_flags(module, words) == set()


def test_every_flag_that_stands_alone_is_known_to_a_command():
    alone = flags(snippet.split()[0] for snippet in INLINE)
    assert alone - set().union(*(known_flags(*command) for command in COMMANDS)) == set()


def test_every_make_target_exists():
    targets = set(re.findall(r"\bmake ([a-z]+)", "\n".join(BLOCKS + INLINE)))
    assert targets >= {"tiny", "test"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets - set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)) == set()
