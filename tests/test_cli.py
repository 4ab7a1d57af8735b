"""One clear line and the right exit status, whatever goes wrong in a command."""

import argparse

import pytest

from gpn_ref import cli


def raising(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("d_state is 0;\n it must be 1"), 2, "p: d_state is 0; it must be 1\n"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 2, "p: a.txt: No such file or directory\n"),
        (OSError("disk gone"), 2, "p: disk gone\n"),
        (MemoryError("Unable to allocate 1 TiB"), 2, "p: out of memory: Unable to allocate 1 TiB\n"),
        (KeyboardInterrupt(), 130, "p: stopped\n"),
    ],
)
def test_errors_become_a_line(capsys, error, status, line):
    with pytest.raises(SystemExit) as exit:
        cli.run(raising(error), "p")
    assert exit.value.code == status
    assert capsys.readouterr().err == line


def test_a_programming_error_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        cli.run(lambda: 1 / 0, "p")


@pytest.mark.parametrize("status", [0, 1, None])
def test_the_status_of_main_is_the_commands(status):
    with pytest.raises(SystemExit) as exit:
        cli.run(lambda: status, "p")
    assert exit.value.code == status


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (cli.integer(1), "7", 7),
        (cli.number(above=0), "1e-3", 1e-3),
        (cli.number(at_least=0, at_most=1), "0", 0.0),
        (cli.one_of("corpus", ["stories", "recall"]), "recall", "recall"),
    ],
)
def test_good_arguments(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (cli.integer(1), "0", "0 is too small; it must be 1 or more"),
        (cli.integer(1), "1.5", "'1.5' is not a whole number"),
        (cli.number(above=0), "0", "0 is too small; it must be above 0"),
        (cli.number(at_least=0), "-1", "-1 is too small; it must be 0 or more"),
        (cli.number(at_most=1), "2", "2 is too large; it must be 1 or less"),
        (cli.number(), "nan", "nan is not finite"),
        (cli.number(), "x", "'x' is not a number"),
        (cli.one_of("corpus", ["stories", "recall"]), "storys", "unknown corpus 'storys'; did you mean 'stories'?"),
        (cli.one_of("corpus", ["stories", "recall"]), "x", "unknown corpus 'x'; it must be one of stories, recall"),
    ],
)
def test_bad_arguments_are_told(parse, text, message):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        parse(text)
    assert str(error.value) == message
