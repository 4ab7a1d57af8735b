"""Run a function of a submission in a process of its own, with limits, and get its answers: `run`.

Whatever the submission does, `run` returns within its time, says what became of it, and leaves no process behind.
What the process prints and sends is data here, read with care; it is never unpickled, imported or executed.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np

from lessons import worker

STARTING = 120  # seconds that a process may take until it is ready: for Python and NumPy, on a busy machine
ROOT = Path(__file__).resolve().parent.parent
KEPT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")  # of the environment
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")


class Limits(NamedTuple):
    """What a part of a submission may use."""

    seconds: float = 10.0
    memory: int = 2 * 2**30  # bytes, beyond what Python and NumPy take
    shown: int = 10_000  # bytes of its output that are kept
    printed: int = 1_000_000  # bytes of output at which it is stopped


LIMITS = Limits()


class Answer(NamedTuple):
    """What a call returned, and its arguments after it."""

    value: object
    after: tuple


class Raised(NamedTuple):
    """The exception that a call raised. line: in the submission's file; 0 if it is not from there."""

    type: str
    message: str
    line: int
    function: str


class Garbage(NamedTuple):
    """A call returned what is no array, number, text, or tuple, list or dict of them."""

    what: str


class Run(NamedTuple):
    """What became of a submission: the outcomes of the first cases, of all if `ended` is empty."""

    outcomes: list
    ended: object = ""  # why there are no more: a text, or what it Raised outside of the function
    refused: str = ""  # the import that is not allowed
    output: str = ""
    missing: tuple = ()  # the limits that this system does not have
    calls: tuple = ()  # the names that the function uses, other functions of its file among them


class Stop(Exception):
    """The conversation is over; the message says why."""


def run(source, filename, function, cases, allowed=(), limits=LIMITS, made_by=""):
    """Call the function of the submission on each case, a tuple of arguments -> Run.

    source, filename: the text of the submission and its name. allowed: what it may import beside numpy and math,
    modules or names in modules ("gpn_ref.reference.ops.rms_norm_forward"). made_by: the decorator among these that the
    function must have.
    """
    functions = []
    job = {
        "source": source,
        "filename": filename,
        "function": function,
        "cases": [worker.pack(tuple(case), functions) for case in cases],
        "functions": len(functions),
        "allowed": list(allowed),
        "made_by": made_by,
        "files": repository_files(allowed),
        "folders": readable(allowed),
        "seconds": limits.seconds,
        "memory": limits.memory,
    }
    outcomes, ended, refused, calls = [], "", "", ()
    with tempfile.TemporaryDirectory(prefix="lessons-") as folder, Process(folder, limits) as process:
        missing = process.start(job)
        deadline = monotonic() + limits.seconds
        try:
            while len(outcomes) < len(cases):
                message = process.receive(deadline)
                if "call" in message:
                    process.send(replied(message, functions))
                elif "refused" in message:
                    refused = tame(message["refused"]) or "imports what it may not"
                    raise Stop(refused)
                elif "broken" in message:
                    ended = raised(message["broken"])
                    raise Stop
                elif "calls" in message:
                    calls = tuple(map(str, message["calls"])) if isinstance(message["calls"], list) else ()
                elif "missing" in message:
                    raise Stop(f"the file has no function {function}")
                else:
                    outcomes.append(outcome(message, functions))
        except Stop as stop:
            ended = ended or str(stop) or "it stopped"
    return Run(outcomes, ended, refused, process.output(), tuple(missing), calls)


def repository_files(allowed):
    """The package gpn_ref and the modules of lessons that a submission may import: name -> file."""
    files = {}
    for name in allowed:
        room, *inside = name.split(".")
        if room == "gpn_ref":
            files[room] = str(ROOT / room / "__init__.py")
        elif room == "lessons":
            files[f"{room}.{inside[0]}"] = str(ROOT / room / f"{inside[0]}.py")
    return files


def readable(allowed):
    """The folders whose files a submission may read beside Python's own: those of what it may import."""
    numpy = Path(np.__file__).resolve().parent
    others = [ROOT / "gpn_ref", numpy.parent] if allowed else []  # where gpn_ref and numba find what they need
    return [str(folder) for folder in (numpy, *others)]


# ------------------------------------------------------------------------------------------ what it says, with care
def tame(text, most=300, also=""):
    """Text from a submission that does no harm to a terminal: in one line, but for the letters `also`, and cut."""
    text = str(text)[: 10 * most + 1]  # a cut before the work, and one after
    text = text if also else " ".join(text.split())
    text = "".join(letter if letter.isprintable() or letter in also else "\ufffd" for letter in text)
    return text if len(text) <= most else text[: most - 1] + "…"


UNREADABLE = "it wrote into the pipe to the grader"


def replied(message, functions):
    """Call one of our functions for the submission."""
    try:
        if len(str(message["arguments"])) > 1_000_000:
            raise ValueError("these are larger arguments than any exercise needs")
        arguments = worker.unpack(message["arguments"], trusted=False)
        keywords = worker.unpack(message["keywords"], trusted=False)
        with np.errstate(all="ignore"):
            return {"result": worker.pack(functions[message["call"]](*arguments, **keywords))}
    except Exception as error:
        return {"error": f"the function that was given raised {type(error).__name__}: {error!s:.200}"}


def raised(told):
    try:
        name, message, line, function = told
        return Raised(tame(name) or "an exception without a name", tame(message), int(line), tame(function))
    except Exception:
        raise Stop(UNREADABLE) from None


def outcome(message, functions):
    try:
        if "raised" in message:
            return raised(message["raised"])
        if "garbage" in message:
            return Garbage(tame(message["garbage"]))
        value = worker.unpack(message["answer"], trusted=False)
        after = worker.unpack(message["after"], functions, trusted=False)
        if not isinstance(after, tuple):
            raise TypeError
        return Answer(value, after)
    except Exception:
        raise Stop(UNREADABLE) from None


# ------------------------------------------------------------------------------------------------------ the process
class Process:
    """A process of `lessons/worker.py`; the end of the `with` block is its end, and that of all that it started."""

    def __init__(self, folder, limits):
        self.limits = limits
        self.flooded, self.printed, self.kept = False, 0, b""
        self.lines, self.replies = queue.Queue(maxsize=8), queue.Queue()
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, *"-I -S -B -u -X utf8".split(), worker.__file__, str(Path(np.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment | {"HOME": folder} | dict.fromkeys(THREADS, "1"),
            start_new_session=True,  # so that it can be killed with its children, and Ctrl-C is ours alone
        )
        # Threads, for each pipe may block for ever: a process that left the session would hold them open.
        work = (self._read_lines, self._read_output, self._write)
        self.threads = [threading.Thread(target=function, daemon=True) for function in work]
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill()
        self.process.wait()
        self.replies.put(None)
        until = monotonic() + 1
        while self.threads[0].is_alive() and monotonic() < until:  # it may wait for room
            with suppress(queue.Empty):
                self.lines.get(timeout=0.01)
        pipes = self.process.stdout, self.process.stderr, self.process.stdin
        for thread, pipe in zip(self.threads, pipes, strict=True):
            thread.join(max(0, until - monotonic()))
            if not thread.is_alive():
                with suppress(OSError):
                    pipe.close()

    def kill(self):
        with suppress(OSError, AttributeError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def start(self, job):
        """Give it its work -> the names of the limits that the system lacks, when it is ready to begin."""
        self.send(job)
        try:
            return self.receive(monotonic() + STARTING)["ready"]
        except Stop as stop:
            reason = self.output().strip().split("\n")[-1] or str(stop)
            raise ValueError(f"the process for the submission did not start: {reason}") from None

    def send(self, message):
        self.replies.put(json.dumps(message).encode() + b"\n")

    def receive(self, deadline):
        """The next message, an object; Stop if there is none, or time is up."""
        try:
            line = self.lines.get(timeout=max(0, deadline - monotonic()))
            late = monotonic() > deadline  # a flood of lines never leaves the queue empty
        except queue.Empty:
            late = True
        if late:
            raise Stop(f"stopped: it took more than {self.limits.seconds:g} s")
        if line is None:
            raise Stop(self.how_it_ended())
        if line.count(b",") + line.count(b"{") > 3 * worker.MANY:  # before it takes time and memory to read them
            raise Stop("it answered with too many things")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise Stop(UNREADABLE)
        return message

    def how_it_ended(self):
        try:
            status = self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "it closed the pipe to the grader"
        if self.flooded:
            return f"stopped: it printed more than {self.limits.printed:,} bytes"
        if status >= 0:
            return f"it ended its process, with status {status}"
        try:
            return f"its process was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"its process was killed by signal {-status}"

    def output(self):
        """What the submission printed, as text that does no harm to a terminal; the beginning, if it is much."""
        text = self.kept.decode("utf-8", "replace")
        more = f"\n… and more: {self.printed:,} bytes" if self.printed > len(self.kept) else ""
        return tame(text, len(text), "\n\t") + more

    def _read_lines(self):
        with suppress(OSError, ValueError):
            while line := self.process.stdout.readline(4 * worker.LONGEST + 1):
                self.lines.put(line)
        self.lines.put(None)

    def _read_output(self):
        with suppress(OSError, ValueError):
            while data := self.process.stderr.read1(2**16):
                self.printed += len(data)
                self.kept += data[: self.limits.shown - len(self.kept)]
                if self.printed > self.limits.printed and not self.flooded:
                    self.flooded = True
                    self.kill()

    def _write(self):
        with suppress(OSError, ValueError):
            while (data := self.replies.get()) is not None:
                self.process.stdin.write(data)
                self.process.stdin.flush()
