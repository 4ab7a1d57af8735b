"""What every command shares: one clear line for bad input, argument types, and suggestions for unknown names."""

import argparse
import difflib
import os
import sys
from math import isfinite


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line on stderr with exit status 2; its help keeps line breaks."""

    def __init__(self, **kwargs):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs)

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def run(main, prog):
    """Call `main()`; turn bad input into one line on stderr and exit status 2, Ctrl-C into status 130."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal of few letters gets question marks
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print(f"{prog}: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, `head` say, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        sys.exit(_one_line(prog, what))
    except MemoryError as error:
        sys.exit(_one_line(prog, f"out of memory: {error}"))
    except ValueError as error:
        sys.exit(_one_line(prog, error))


def _one_line(prog, message):
    print(f"{prog}: {' '.join(str(message).split())}", file=sys.stderr)
    return 2


def integer(at_least):
    """An argument type: a whole number, `at_least` or more."""

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < at_least:
            raise argparse.ArgumentTypeError(f"{value} is too small; it must be {at_least} or more")
        return value

    return parse


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
