"""Whatever a submission does, it is stopped and reported, and nothing of it stays."""

import importlib.util
import os
import sys
from time import monotonic
from unittest.mock import ANY

import numpy as np
import pytest

from lessons.sandbox import LIMITS, Answer, Garbage, Raised, run

NAME = "ex00_submission.py"
BREAKPOINT = "nobody is here to answer a breakpoint: print what you want to see"
SHORT = LIMITS._replace(seconds=1.0)
CASES = [(np.ones(3),), (np.arange(4.0),)]
# An import that no list of names and no hook on the word `import` prevents.
LOADED = """import numpy as np
def load(name): return np.__builtins__["__import__"](name)
os, sys, signal = load("os"), load("sys"), load("signal")
"""


def tried(body, before="", cases=CASES, limits=LIMITS, allowed=()):
    """Run a submission whose f(x) has this body; by default with time enough for a busy machine."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return run(f"{before}def f(x):\n{lines}\n", NAME, "f", cases, allowed, limits)


def assert_right(ran):
    assert not ran.ended
    for (x,), outcome in zip(CASES, ran.outcomes, strict=True):
        np.testing.assert_array_equal(outcome.value, 2 * x)
        np.testing.assert_array_equal(outcome.after[0], x)


# ------------------------------------------------------------------------------------------------- what goes through
def test_arguments_go_in_and_answers_come_out():
    ran = tried("return 2 * x")
    assert_right(ran)
    assert (ran.output, ran.refused) == ("", "")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -0.0,
        float("inf"),
        1e-300,
        2 - 1j,
        "ein Wört",
        b"\0\xff",
        [1, (2.5, "a")],
        {"a": np.ones(2, np.float32), 3: None, (1, 2): 0.5},
        {1, 2},
        np.float32(0.1),
        np.bool_(True),
        np.array(7),
        np.zeros((0, 3)),
        np.arange(6, dtype=">i2").reshape(2, 3).T,
        np.array([np.nan, np.inf]),
    ],
    ids=repr,
)
def test_every_kind_of_value_comes_back_as_it_went(value):
    [outcome] = tried("return x", cases=[(value,)]).outcomes
    for got in (outcome.value, outcome.after[0]):
        np.testing.assert_equal(got, value)
        assert type(got) is type(value)


def test_a_named_tuple_a_function_and_a_generator_can_be_arguments():
    state = Raised("a", "b", 1, "c")  # any named tuple
    called = []

    def double(x, times=2):
        called.append(x)
        return times * x

    body = "state, double, random = x\nreturn state.line, double(3.0), double(np.ones(2), times=5), random.random(3)"
    cases = [((state, double, np.random.default_rng(4)),)]
    [outcome] = tried(body, "import numpy as np\n", cases).outcomes
    expected = (1, 6.0, np.full(2, 5.0), np.random.default_rng(4).random(3))
    np.testing.assert_equal(outcome.value, expected)
    assert len(called) == 2


def test_an_error_of_a_function_that_was_given_comes_from_the_line_that_calls_it():
    def picky(x):
        raise ValueError("x is 3")

    [outcome] = tried("y = 1\nreturn x(3)", cases=[(picky,)]).outcomes
    assert outcome == Raised("ValueError", "the function that was given raised ValueError: x is 3", 3, "f")


def test_it_knows_no_folder_no_environment_and_no_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "x")
    (tmp_path / "numpy.py").write_text("raise SystemExit")
    body = (
        "return os.listdir('.'), sorted(os.environ), [path for path in sys.path if os.path.exists(path + '/lessons')]"
    )
    [outcome] = tried(body, LOADED, CASES[:1]).outcomes
    files, environment, found = outcome.value
    assert (files, found) == ([], []) and "SECRET" not in environment


# ---------------------------------------------------------------------------------------------- what goes wrong
def test_an_exception_is_told_with_its_line():
    ran = tried("y = 1\nreturn y / 0")
    assert ran.outcomes == [Raised("ZeroDivisionError", "division by zero", 3, "f")] * 2


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("raise SystemExit(3)", Raised("SystemExit", "3", 2, "f")),
        ("raise BaseException('b')", Raised("BaseException", "b", 2, "f")),
        ("raise KeyboardInterrupt", Raised("KeyboardInterrupt", "", 2, "f")),
        ("raise GeneratorExit", Raised("GeneratorExit", "", 2, "f")),
        ("return f(x)", Raised("RecursionError", "maximum recursion depth exceeded", 2, "f")),
        ("return input()", Raised("EOFError", "EOF when reading a line", 2, "f")),
        ("exit(3)", Raised("SystemExit", "3", 2, "f")),
        ("quit()", Raised("SystemExit", "", 2, "f")),
        ("breakpoint()", Raised("RuntimeError", f"{BREAKPOINT}", 2, "f")),
        ("return set(range(1001))", Garbage("a set of 1,001")),
        ("return dict.fromkeys(range(1001))", Garbage("a dict of 1,001")),
        ("return [0] * 100_001", Garbage("100,001 things")),
        ("raise ValueError('\\x1b[2J' + 'a\\n' * 9)", Raised("ValueError", "\ufffd[2J" + "a " * 8 + "a", 2, "f")),
        ("return (i for i in x)", Garbage("a generator")),
        ("return f", Garbage("a function")),
        ("return 10 ** 400", Garbage("a whole number of more than 64 bits")),
        ("import math\nreturn math", Garbage("a module")),
        ("y = []\ny.append(y)\nreturn y", Garbage("something nested too deeply")),
        ("import numpy as np\nreturn np.array([None])", Garbage("an array of type object")),
        (
            "import numpy as np\nreturn np.broadcast_to(0.0, (10**6, 10**6))",
            Garbage("an array of 8,000,000,000,000 bytes"),
        ),
    ],
)
def test_each_call_has_its_outcome(body, outcome):
    assert tried(body).outcomes == [outcome] * 2


def test_an_exception_that_can_not_be_shown():
    before = "class Evil(Exception):\n    def __str__(self):\n        raise SystemExit\n"
    assert tried("raise Evil", before).outcomes == [Raised("Evil", "", 5, "f")] * 2
    before = "class Meta(type):\n    __name__ = property(lambda self: 1 / 0)\n"
    before += "class Evil(Exception, metaclass=Meta):\n    pass\n"
    assert tried("raise Evil", before).outcomes == [Raised("an exception without a name", "", 6, "f")] * 2


def test_what_np_empty_finds_is_never_an_answer():
    body = "a, b, c = np.empty(3), np.empty_like(x), np.empty((2, 2), int)\nreturn a, b, c"
    for outcome in tried(body, "import numpy as np\n").outcomes:
        a, b, c = outcome.value
        assert np.isnan(a).all() and a.shape == (3,) and np.isnan(b).all() and (c == 2**63 - 1).all()


def test_a_module_may_have_any_name():
    assert_right(run("import numpy as np\ndef f(x):\n    return 2 * np.abs(x)\n", "numpy.py", "f", CASES))


def test_a_named_tuple_of_a_submission_makes_no_class_here():
    before = "class T(tuple):\n    _fields = ('a',)\nT.__name__ = 'A' * 10**3\n"
    [outcome] = tried("return [T((1,))] * 1000", before, CASES[:1]).outcomes
    assert outcome.value == [(1,)] * 1000 and type(outcome.value[0]) is tuple


@pytest.mark.parametrize(
    "members",
    [
        "def __eq__(self, other): return True",
        "def __array__(self, *a, **k): raise SystemExit",
        "__class__ = property(lambda self: 1 / 0)",
        "def __getattribute__(self, name): raise KeyboardInterrupt",
    ],
)
def test_an_object_that_claims_to_be_the_answer(members):
    ran = tried("return Evil()", f"class Evil:\n    {members}\n")
    assert [type(outcome) for outcome in ran.outcomes] == [Garbage, Garbage]


def test_an_array_that_lies_is_seen_as_it_is():
    before = "import numpy as np\nclass Evil(np.ndarray):\n    def __eq__(self, other): return True\n"
    before += "    def tobytes(self, *a): return np.ones(3).tobytes()\n"
    [outcome] = tried("return (3 * x).view(Evil)", before, CASES[:1]).outcomes
    assert type(outcome.value) is np.ndarray
    np.testing.assert_array_equal(outcome.value, [3, 3, 3])


def test_a_patched_numpy_is_the_submissions_own():
    before = (
        "import numpy as np\nnp.exp = np.allclose = np.array_equal = np.testing.assert_allclose = lambda *a: True\n"
    )
    assert_right(tried("return 2 * x", before))
    assert np.exp(0.0) == 1.0


def test_the_number_of_a_bad_line_and_a_missing_function():
    assert run("x = 1\ndef f(x:\n", NAME, "f", CASES).ended == Raised("SyntaxError", "'(' was never closed", 2, "")
    assert run("x = 1\n1 / 0\n", NAME, "f", CASES).ended == Raised(
        "ZeroDivisionError", "division by zero", 2, "<module>"
    )
    assert run("def g(x): pass\n", NAME, "f", CASES).ended == "the file has no function f"
    assert run("f = 3\n", NAME, "f", CASES).ended == "the file has no function f"


@pytest.mark.parametrize("source", ["x = " + "(" * 10**4, "x = " + "-" * 10**5 + "1", "x = " + "1+" * 10**5 + "1"])
def test_source_that_breaks_parsers(source):
    ran = run(source, NAME, "f", CASES)
    assert ran.outcomes == [] and ran.ended


# ------------------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize("before", ["", "while True:\n    pass\n"])
def test_a_loop_is_stopped(before):
    began = monotonic()
    ran = tried("while True:\n    pass", before, limits=SHORT)
    assert ran.ended == "stopped: it took more than 1 s" and monotonic() - began < 60


def test_what_came_before_the_loop_is_kept():
    ran = tried(
        "if len(x) == 4:\n    while True:\n        pass\nprint('once')\nreturn 2 * x", limits=LIMITS._replace(seconds=3)
    )
    assert [type(outcome) for outcome in ran.outcomes] == [Answer]
    assert (ran.ended, ran.output) == ("stopped: it took more than 3 s", "once\n")


def test_a_process_that_stops_itself_is_stopped():
    ran = tried("signal.raise_signal(signal.SIGSTOP)", LOADED, limits=SHORT)
    assert ran.ended == "stopped: it took more than 1 s"


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="no other system keeps this limit")
@pytest.mark.parametrize("body", ["kept = []\nwhile True:\n    kept.append(bytes(10**7))", "return bytes(10**13)"])
def test_memory_is_limited(body):
    ran = tried(body)
    assert [outcome.type for outcome in ran.outcomes] == ["MemoryError"] * 2 and ran.missing == ()
    assert_right(tried("bytes(10**9)\nreturn 2 * x"))


def test_output_is_kept_and_cut():
    ran = tried("print('a\\tb\\x1b[2J')\nprint('y' * 6000)\nreturn 2 * x")
    assert_right(ran)
    assert ran.output.startswith("a\tb\ufffd[2J\nyyy")
    assert len(ran.output) < 10_100 and ran.output.endswith("\n… and more: 12,018 bytes")


def test_a_warning_of_numpy_is_output_with_its_line():
    assert f"{NAME}:3: RuntimeWarning: overflow" in tried("return np.exp(1e4 * x)", "import numpy as np\n").output


def test_too_much_output_is_stopped():
    ran = tried("while True:\n    print('x' * 10**5)")
    assert ran.ended == "stopped: it printed more than 1,000,000 bytes" and len(ran.output) < 10_100


# ------------------------------------------------------------------------------------------------ ways to get away
WRITE = "while data:\n    data = data[os.write(PIPE, data):]\n"
MANY = 'data = b\'{{"answer": {{"list": [\' + b\'{}, \' * 400_000 + b\'1]}}, "after": {{"tuple": []}}}}\\n\'\n' + WRITE
COLLIDING = (  # complex numbers of one hash
    """some = ",".join('{"complex": [%d, %d]}' % (-1000003 * n, n) for n in range(1, 50_000))
data = ('{"answer": {"set": [' + some + ']}, "after": {"tuple": []}}\\n').encode()
"""
    + WRITE
)


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        ("os._exit(0)", "it ended its process, with status 0"),
        ("os._exit(7)", "it ended its process, with status 7"),
        ("signal.raise_signal(signal.SIGKILL)", "its process was killed by SIGKILL"),
        ("os.abort()", "its process was killed by SIGABRT"),
        ("os.closerange(0, 100)\nreturn x", "it ended its process, with status 1"),
        ("os.closerange(0, 100)\nwhile True:\n    pass", "it closed the pipe to the grader"),
        ("os.write(PIPE, b'nonsense\\n')\nreturn x", "it wrote into the pipe to the grader"),
        ("os.write(PIPE, b'3\\n')\nreturn x", "it wrote into the pipe to the grader"),
        ('os.write(PIPE, b\'{"answer": [[]], "after": 3}\\n\')\nreturn x', "it wrote into the pipe to the grader"),
        ('os.write(PIPE, b\'{"answer": {"array": ["|O", [1], "AA=="]}}\\n\')', "it wrote into the pipe to the grader"),
        ("os.write(PIPE, b'{\"raised\": 3}\\n')\nreturn x", "it wrote into the pipe to the grader"),
        ('os.write(PIPE, b\'{"answer": 3, "after": 3}\\n\')\nreturn x', "it wrote into the pipe to the grader"),
        ("os.write(PIPE, b'[' * 10**5 + b'\\n')\nreturn x", "it wrote into the pipe to the grader"),
        ("os.write(PIPE, b'9' * 10**5 + b'\\n')\nreturn x", "it wrote into the pipe to the grader"),
        (MANY.format("1e5"), "it answered with too many things"),
        (MANY.format('{{"named": ["a", ["b"], [1]]}}'), "it answered with too many things"),
        (COLLIDING, "it wrote into the pipe to the grader"),
    ],
)
def test_it_is_told_how_a_process_got_away(body, ended):
    # The pipe is the first descriptor that it was not given: the worker's duplicate of its stdout.
    ran = tried(body, LOADED + "PIPE = 3\n")
    assert (ran.outcomes, ran.ended) == ([], ended)


@pytest.mark.parametrize(
    "line",
    [
        b"x" * 10**6,
        b'{"call": 0, "arguments": {"tuple": []}, "keywords": {"dict": []}}\n',
        b'{"calls": []}\n',
    ],
    ids=["no line", "calls of a function that there is not", "names"],
)
def test_a_flood_into_the_pipe_ends(line):
    ran = tried(f"line = {line!r}\nwhile True:\n    os.write(3, line)", LOADED, limits=SHORT)
    assert ran.outcomes == [] and ran.ended


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("os.kill(os.getpid(), 9)", "call os.kill"),
        ("os.kill(os.getppid(), 9)", "call os.kill"),
        ("os.fork()", "call os.fork"),
        ("os.system('sleep 60')", "call os.system"),
        ("load('subprocess').Popen(['sleep', '60'])", "call subprocess.Popen"),
        ("load('_posixsubprocess').fork_exec()", "call _posixsubprocess.fork_exec"),
        ("sys.modules.pop('_posixsubprocess', 0)\nload('_posixsubprocess').fork_exec()", "import _posixsubprocess"),
        ("os.mkfifo('x')", "call os.mkfifo"),
        ("os.mknod('x')", "call os.mknod"),
        ("load('threading').Thread(target=print).start()", "call threading._start_new_thread"),
        ("os.setpriority(os.PRIO_PROCESS, os.getppid(), 9)", "call os.setpriority"),
        ("signal.signal(signal.SIGALRM, signal.SIG_IGN)", "call signal.signal"),
        ("signal.setitimer(signal.ITIMER_REAL, 0)", "call signal.setitimer"),
        ("load('_imp').create_builtin(None)", "call _imp.create_builtin"),
        ("sys.modules['__main__'].HARMLESS = Anything()\nos.system('sleep 60')", "call os.system"),
        (f"load('posixpath').realpath = lambda *a, **k: os.__file__\nopen({__file__!r})", f"open {__file__!r}"),
        (f"open(os.path.dirname(os.__file__) + '/../' + {__file__!r})", ANY),
        ("load('socket').socket()", "call socket.__new__"),
        ("load('ctypes').CDLL(None)", "call ctypes.dlopen"),
        ("os.remove('x')", "call os.remove"),
        ("open('x', 'w')", "open 'x'"),
        (f"open({__file__!r}).read()", f"open {__file__!r}"),
        ("np.load('/etc/passwd')", "open '/etc/passwd'"),
        ("os.open('/etc/passwd', os.O_RDONLY)", "open '/etc/passwd'"),
        ("open(os.__file__, 'a')", f"open {os.__file__!r}"),
    ],
)
def test_what_an_exercise_may_not_do(body, what):
    anything = "class Anything:\n    def __contains__(self, other):\n        return True\n"
    ran = tried(body, LOADED + anything)
    message = what if what is ANY else f"an exercise may not {what}"
    assert [(o.type, o.message) for o in ran.outcomes] == [("PermissionError", message)] * 2


@pytest.mark.parametrize("module", ["readline", "_tkinter", "_sqlite3", "termios", "_curses"])
def test_extensions_that_are_not_numpys_are_not_loaded(module):
    if importlib.util.find_spec(module) is None or module in sys.builtin_module_names:
        return  # this Python has none, or has it built in
    for outcome in tried(f"load({module!r})", LOADED).outcomes:
        assert (outcome.type, outcome.message) == ("PermissionError", f"an exercise may not import {module}")


def test_all_of_numpy_can_be_imported():
    assert_right(tried("return 2 * abs(x)", "from numpy import *\n"))


def test_the_name_of_an_exception_may_be_long():
    [outcome] = tried("raise type('E' * 10**7, (Exception,), {})('x' * 10**7)", cases=CASES[:1]).outcomes
    assert outcome.type == "E" * 100 and len(outcome.message) == 300


def test_calls_are_found_in_functions_inside_and_in_helpers():
    source = "def a(x): return x\ndef b(x): return [a(n) for n in x]\ndef c(x): return (lambda: b(x))()\n"
    ran = run(f"{source}def f(x):\n    c(x)\n    return 2 * x\n", NAME, "f", CASES)
    assert_right(ran)
    assert ran.calls == ("a", "b", "c")


def test_what_a_given_function_is_called_with_has_a_size():
    [outcome] = tried("return x(np.zeros(10**6))", "import numpy as np\n", [(lambda y: 0.0,)]).outcomes
    assert outcome.message.endswith("ValueError: these are larger arguments than any exercise needs")


def test_a_path_that_changes_its_mind():
    before = f"""{LOADED}
class Path:
    asked = 0
    def __fspath__(self):
        self.asked += 1
        return {__file__!r} if self.asked == 1 else os.__file__
"""
    for body in ("load('io').FileIO(Path())", "os.open(Path(), os.O_RDONLY)"):
        outcomes = tried(body, before).outcomes
        assert [o.type for o in outcomes] == ["PermissionError"] * 2, outcomes


def test_threads_do_not_hold_it_up():
    body = "try:\n    load('_thread').start_new_thread(load('time').sleep, (60,))\nexcept PermissionError:\n    pass\n"
    began = monotonic()
    assert_right(tried(f"{body}return 2 * x", LOADED))
    assert monotonic() - began < 30


def test_a_process_that_nobody_waits_for_ends_by_itself():
    """As after a SIGKILL of the grader: only the process itself is left to end it."""
    body = "print(signal.getitimer(signal.ITIMER_REAL)[0])\nreturn 2 * x"
    assert 0 < float(tried(body, LOADED, limits=SHORT).output.split()[0]) <= 6


def test_no_process_stays():
    ran = tried("print(os.getpid())\nwhile True:\n    pass", LOADED, limits=SHORT)
    with pytest.raises(ProcessLookupError):
        os.kill(int(ran.output), 0)


# ------------------------------------------------------------------------------------------------------- imports
@pytest.mark.parametrize(
    ("before", "what"),
    [
        ("import os", "imports os (line 1)"),
        ("import math, sys", "imports sys (line 1)"),
        ("import numpy\nfrom importlib import import_module", "imports importlib (line 2)"),
        ("from lessons.solutions import ex03_softmax_and_cross_entropy", "imports lessons.solutions (line 1)"),
        ("from . import ex03_softmax_and_cross_entropy", "imports . (line 1)"),
        ("import gpn_ref.reference.ops", "imports gpn_ref.reference.ops (line 1)"),
        ("from gpn_ref.reference.ops import cross_entropy_forward", "imports gpn_ref.reference.ops (line 1)"),
        ("x = __import__('os')", "imports by __import__ (line 1)"),
        ("try:\n    exec('import os')\nexcept BaseException:\n    pass", "imports os"),
        ("def g():\n    import subprocess", "imports subprocess (line 2)"),
        ("__builtins__['__import__']('gpn_ref.gradcheck', None, None, ['x'])", "imports gpn_ref.gradcheck"),
    ],
)
def test_other_imports_are_told(before, what):
    ran = tried("return 2 * x", f"{before}\n")
    assert (ran.refused, ran.ended, ran.outcomes) == (what, what, [])


def test_what_numpy_has_is_allowed():
    before = (
        "from __future__ import annotations\nimport math, numpy.linalg\nfrom numpy import fft\nimport numpy as np\n"
    )
    body = "np.random.default_rng(0).random(3)\nnp.testing.assert_allclose(x, x)\nnp.polynomial, np.ma, fft.fft(x)\n"
    assert_right(tried(body + "np.linalg.norm(x)\nreturn 2 * x", before))


OPS = "gpn_ref.reference.ops"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("from gpn_ref.reference.ops import cross_entropy_forward", ""),
        ("from gpn_ref.reference.ops import cross_entropy_backward", f"imports {OPS}.cross_entropy_backward (line 1)"),
        ("from gpn_ref.reference.ops import *", f"imports {OPS}.* (line 1)"),
        ("from gpn_ref.reference import ops", "imports gpn_ref.reference.ops (line 1)"),
        ("import gpn_ref", "imports gpn_ref (line 1)"),
        ("import lessons.solutions", "imports lessons.solutions (line 1)"),
    ],
)
def test_a_name_that_is_allowed_allows_no_other(line, refused):
    ran = tried("return 2 * x", f"{line}\n", allowed=[f"{OPS}.cross_entropy_forward"])
    assert ran.refused == refused
    if not refused:
        assert_right(ran)


@pytest.mark.parametrize("allowed", [(), (f"{OPS}.cross_entropy_forward",)])
def test_solutions_can_not_be_imported_at_all(allowed):
    ran = tried("load('lessons.solutions')", LOADED, allowed=allowed)
    assert [outcome.type for outcome in ran.outcomes] == ["ModuleNotFoundError"] * 2
    ran = tried(
        f"sys.path.insert(0, {os.getcwd()!r})\nload('lessons.solutions.ex03_softmax_and_cross_entropy')", LOADED
    )
    assert {outcome.type for outcome in ran.outcomes} <= {"PermissionError", "ModuleNotFoundError"}


def test_a_module_of_the_lessons_can_be_allowed_without_the_others():
    before = LOADED + "from lessons.points import EXERCISES\n"
    ran = tried("load('lessons.solutions')", before, allowed=["lessons.points.EXERCISES"])
    assert {outcome.type for outcome in ran.outcomes} == {"ModuleNotFoundError"}
    assert_right(tried("return 2 * x", before, allowed=["lessons.points"]))
    assert tried("return 2 * x", "from lessons.points import Exercise\n", allowed=["lessons.points.EXERCISES"]).refused


def test_numba_can_be_allowed():
    pytest.importorskip("numba")
    before = "from numba import njit\n@njit\ndef twice(x):\n    return 2 * x\n"
    assert_right(tried("return twice(x)", before, allowed=["numba.njit"], limits=LIMITS._replace(seconds=60)))


def test_the_package_is_only_there_where_it_is_allowed():
    ran = tried("load('gpn_ref')", LOADED)
    assert {outcome.type for outcome in ran.outcomes} <= {"PermissionError", "ModuleNotFoundError"}
