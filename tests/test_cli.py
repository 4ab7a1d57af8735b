"""One clear line and the right exit status, whatever goes wrong in a command."""

import argparse

import pytest

from gpn_ref import cli


def raising(error):
    def main():
        raise error

    return main


def noted(error, note):
    error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("d_state is 0;\n it must be 1"), 2, "p: d_state is 0; it must be 1\n"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 2, "p: a.txt: No such file or directory\n"),
        (OSError("disk gone"), 2, "p: disk gone\n"),
        (MemoryError("Unable to allocate 1 TiB"), 2, "p: out of memory: Unable to allocate 1 TiB\n"),
        (MemoryError(), 2, "p: out of memory\n"),
        (noted(ValueError("x is 0"), "it must be 1"), 2, "p: x is 0; it must be 1\n"),
        (KeyboardInterrupt(15), 143, "p: stopped\n"),
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
        (cli.integer(1, 7), "7", 7),
        (cli.SEED, str(2**63 - 1), 2**63 - 1),
        (cli.path, ".", "."),
        (cli.text, "", ""),
        (cli.text, "ça 😀", "ça 😀"),
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
        (cli.integer(1, 7), "8", "8 is too large; it must be 7 or less"),
        (cli.integer(1), "1000000001", "1000000001 is too large; it must be 1000000000 or less"),
        (cli.path, "", "'' names no file or directory"),
        (cli.text, "ab\udcff", "this is not UTF-8 text: byte 2 is 0xff"),
        (cli.text, "ab\ud800", "this is not UTF-8 text: character 3 is half a character"),
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


def test_a_subcommand_that_is_none_is_told_the_nearest(capsys):
    parser = cli.Parser(prog="p")
    parser.add_subparsers(dest="command", metavar="COMMAND").add_parser("train")
    with pytest.raises(SystemExit):
        parser.parse_args(["trian"])
    assert (
        capsys.readouterr().err == "p: argument COMMAND: unknown command 'trian'; did you mean 'train'?; see --help\n"
    )


def test_a_stream_that_fails_is_forgotten():
    with open("/dev/full", "w") as full:
        stream = cli.Lossy(full)
        assert stream.write("x" * 10**5) == 10**5
        stream.flush()
        stream.write("more")
        assert stream.name == "/dev/full" and not stream.isatty()


def test_without_stderr_errors_still_end_the_command(monkeypatch):
    monkeypatch.setattr(cli.sys, "stderr", None)
    with pytest.raises(SystemExit) as exit:
        cli.run(raising(ValueError("x")), "p")
    assert exit.value.code == 2 and cli.sys.stderr is None


@pytest.mark.parametrize("flag", ["--out", "--steps"])
def test_two_dashes_are_no_value(capsys, flag):
    parser = cli.Parser(prog="p")
    parser.add_argument("--out", type=cli.path)
    parser.add_argument("--steps", type=cli.integer(1))
    with pytest.raises(SystemExit) as exit:
        parser.parse_args([f"{flag}=--"])
    assert exit.value.code == 2
    assert capsys.readouterr().err == f"p: argument {flag}: '--' is no value; see --help\n"


@pytest.mark.parametrize(("path", "shown"), [("a", "a"), ("a b", "'a b'"), ("-a", "./-a"), ("$x", "'$x'")])
def test_advice_can_be_pasted(path, shown):
    assert cli.shell(path) == shown
