"""Run a command as its users do: in a process of its own, or, much quicker, in this one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from gpn_ref import cli

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


class Result(NamedTuple):
    status: int
    out: str
    err: str


def start(module, *arguments, **options):
    """`python -m gpn_ref.MODULE ARGUMENTS` as a process that runs on; its output is piped as UTF-8 text."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    command = [sys.executable, "-m", f"gpn_ref.{module}", *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, **(pipes | options))


def run(module, *arguments, **options):
    """The same, until it ends."""
    process = start(module, *arguments, **options)
    out, err = process.communicate()
    return Result(process.returncode, out, err)


def call(capsys, module, *arguments):
    """The same in this process: `module` is the imported one."""
    capsys.readouterr()
    status = None
    try:
        cli.run(lambda: module.main([str(argument) for argument in arguments]), module.PROG)
    except SystemExit as end:
        status = end.code
    return Result(status or 0, *capsys.readouterr())


def assert_one_line(result, message, status=2):
    """The command failed with one line on stderr, progress bars aside, and no traceback."""
    last = result.err.rstrip("\n").split("\n")[-1]
    assert result.status == status, result
    assert last.startswith("python -m gpn_ref."), result
    assert message in last, result
    assert "Traceback" not in result.err
