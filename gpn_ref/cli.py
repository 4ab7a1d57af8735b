"""What every command shares: one clear line for bad input, argument types, and suggestions for unknown names."""

import argparse
import difflib
import os
import re
import shlex
import signal
import sys
from contextlib import suppress
from math import isfinite


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line on stderr with exit status 2; its help keeps line breaks."""

    def __init__(self, **kwargs):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs)

    def parse_known_args(self, args=None, namespace=None):
        for argument in sys.argv[1:] if args is None else args:  # argparse would drop such a value
            if re.fullmatch("--[a-z-]+=--", str(argument)):
                self.error(f"argument {argument[:-3]}: '--' is no value")
        return super().parse_known_args(args, namespace)

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see --help\n")

    def _check_value(self, action, value):  # where argparse looks at the name of a subcommand
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, unknown(action.dest, value, list(action.choices)))


class Lossy:
    """A stream for progress and messages: where it can't be written to, it goes nowhere, and the work goes on."""

    def __init__(self, stream):
        self._stream = stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text):
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self):
        self._try(self._stream.flush)

    def _try(self, work):
        try:
            work()
        except OSError:
            with suppress(OSError):  # what is still buffered must not fail when Python ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def run(main, prog):
    """Call `main()`; turn bad input into one line on stderr and exit status 2, Ctrl-C into status 130.

    The line ends with the notes that the error carries.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:  # a closed stream's number must not become a file's
        pass
    os.close(number)
    before = sys.stderr
    sys.stderr = Lossy(before or open(os.devnull, "w"))
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal of few letters gets question marks
    try:
        sys.exit(main())
    except KeyboardInterrupt as stop:
        print(f"{prog}: stopped", file=sys.stderr)
        sys.exit(128 + (stop.args or (signal.SIGINT,))[0])
    except BrokenPipeError:  # the reader of our output, `head` say, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (OSError, MemoryError, ValueError) as error:
        print(f"{prog}: {reason(error)}", file=sys.stderr)
        sys.exit(2)
    finally:
        sys.stderr = before


def reason(error):
    """What an OSError, a MemoryError or a ValueError says, in one line, with the notes that it carries."""
    if isinstance(error, OSError):
        message = error.strerror or str(error)
        message = f"{error.filename}: {message}" if error.filename else message
    elif isinstance(error, MemoryError):
        message = "out of memory" + f": {error}" * bool(str(error))
    else:
        message = str(error)
    return " ".join("; ".join([message, *getattr(error, "__notes__", ())]).split())


def integer(at_least, at_most=10**9):
    """An argument type: a whole number, from `at_least` to `at_most`."""

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r:.60} is not a whole number") from None
        if value < at_least:
            raise argparse.ArgumentTypeError(f"{text:.60} is too small; it must be {at_least} or more")
        if value > at_most:
            raise argparse.ArgumentTypeError(f"{text:.60} is too large; it must be {at_most} or less")
        return value

    return parse


SEED = integer(0, 2**63 - 1)


def path(text):
    """An argument type: the name of a file or directory."""
    if not text:
        raise argparse.ArgumentTypeError("'' names no file or directory")
    return text


def shell(path):
    """The path as a shell takes it, for advice that can be pasted."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def text(argument):
    """An argument type: text, which a shell may give as bytes that are none."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is 0x{error.object[error.start]:02x}"
    except UnicodeEncodeError as error:
        problem = f"character {error.start + 1} is half a character"
    raise argparse.ArgumentTypeError(f"this is not UTF-8 text: {problem}")


def number(at_least=None, above=None, at_most=None):
    """An argument type: a finite number within the bounds."""

    def parse(text):
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not isfinite(value):
            raise argparse.ArgumentTypeError(f"{text} is not finite")
        if (at_least is not None and value < at_least) or (above is not None and value <= above):
            limit = f"above {above}" if above is not None else f"{at_least} or more"
            raise argparse.ArgumentTypeError(f"{text} is too small; it must be {limit}")
        if at_most is not None and value > at_most:
            raise argparse.ArgumentTypeError(f"{text} is too large; it must be {at_most} or less")
        return value

    return parse


def one_of(kind, names):
    """An argument type: one of `names`; an unknown one is told the nearest that there is."""

    def parse(text):
        if text not in names:
            raise argparse.ArgumentTypeError(unknown(kind, text, names))
        return text

    return parse


def unknown(kind, name, names):
    """The message for a name that is not among `names`."""
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(names)}"
    return f"unknown {kind} {name!r}; {hint}"
