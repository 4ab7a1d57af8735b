"""What a grader is made of, how answers are compared, and how a submission is graded.

`lessons/graders/gNN.py` lists its parts; `grade` runs each in the sandbox and judges what comes back. The right answer
is that of our solution, and only this process knows it.
"""

import importlib
import inspect
import warnings
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from gpn_ref.random_state import generator
from lessons import worker
from lessons.points import EXERCISES
from lessons.points import Exercise as PointsOf
from lessons.sandbox import LIMITS, Answer, Garbage, Raised, run, tame

FOLDER = Path(__file__).resolve().parent


class Foreseen(NamedTuple):
    """A wrong answer that we foresee: what to look at, and the function that gives it."""

    hint: str
    wrong: object


class Part(NamedTuple):
    """A function that an exercise asks for. cases(rng) yields tuples of its arguments, foreseen lists Foreseen."""

    function: str
    cases: object
    foreseen: list
    tolerance: float = 1e-9  # of the largest entry of an answer, see `difference`
    names: tuple = ()  # of what it returns, where that is a tuple: so a student reads d_key[0, 1], not out[1][0, 1]
    made_by: str = ""  # the decorator that it must have, lessons.little_gpu.kernel


class Exercise(NamedTuple):
    number: str
    name: str  # ex03_softmax_and_cross_entropy
    parts: list
    solution: object  # the module
    points: dict  # part -> points
    imports: tuple  # beside numpy and math

    @property
    def file(self):
        return FOLDER / "exercises" / f"{self.name}.py"

    @property
    def title(self):
        return f"{self.number} · {self.name[5:].replace('_', ' ')}"


class Result(NamedTuple):
    """What a part of a submission got, and why."""

    part: str
    passed: bool
    points: float
    maximum: float
    message: str = ""  # what is wrong
    case: str = ""  # the arguments that showed it
    hint: str = ""
    output: str = ""  # what it printed


class Graded(NamedTuple):
    results: list
    seconds: float
    missing: tuple  # limits that this system lacks

    @property
    def points(self):
        return total(result.points for result in self.results)

    @property
    def maximum(self):
        return total(result.maximum for result in self.results)


def total(points):
    """The sum of points, which may be fractions, as one writes it: 1.3, and 2 rather than 2.0."""
    found = round(sum(points), 6)
    return int(found) if found == int(found) else found


# ------------------------------------------------------------------------------------------------------ to compare
class Difference(NamedTuple):
    """Where two values first differ, in words."""

    place: str  # out[0, 2]
    expected: str
    got: str
    count: str = ""  # "; 3 of 6 entries differ", and where most, if the first entry hardly does


def difference(expected, got, tolerance, name="out", names=()):
    """The first Difference of two values; None if there is none.

    Numbers and arrays of one shape are the same if no entry differs by more than the tolerance times the largest
    expected entry, or a thousandth, if that is more. NaN equals NaN. Types of numbers don't matter, but a complex one
    is not real; nor do tuples and lists differ; an array is no list. `names` are those of a tuple's items.
    """
    if is_number(expected) or isinstance(expected, np.ndarray):
        if is_number(expected) != is_number(got) or not is_number(got) and not isinstance(got, np.ndarray):
            return Difference(name, described(expected), described(got))
        return _numbers(np.asarray(expected), np.asarray(got), tolerance, name)
    if isinstance(expected, dict):
        return _dicts(expected, got, tolerance, name)
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(expected) != len(got):
            return Difference(name, described(expected), described(got))
        fields = [f"{name}.{field}" for field in getattr(expected, "_fields", ())]
        if len(names) != len(expected):
            names = fields or [f"{name}[{number}]" for number in range(len(expected))]
        found = map(difference, expected, got, [tolerance] * len(names), names)
        return next((one for one in found if one), None)
    if callable(expected) or isinstance(expected, np.random.Generator):  # arguments that can't be told apart
        return None
    if type(expected) is type(got) and expected == got:
        return None
    same_kind = type(expected) is type(got)
    return Difference(name, *((shown(expected), shown(got)) if same_kind else (described(expected), described(got))))


def is_number(value):
    if isinstance(value, np.ndarray):
        return value.ndim == 0
    return isinstance(value, bool | int | float | complex | np.generic)


@np.errstate(all="ignore")  # for answers near overflow
def _numbers(expected, got, tolerance, name):
    if expected.shape != got.shape:
        return Difference(name, f"the shape {expected.shape}", f"the shape {got.shape}")
    if np.iscomplexobj(got) and not np.iscomplexobj(expected):
        return Difference(name, "real numbers", "complex numbers")
    if expected.dtype.kind in "biu" and got.dtype.kind in "biu":
        differs = np.asarray(expected != got)
    else:
        kind = complex if np.iscomplexobj(expected) else float
        differs = ~close(expected.astype(kind), got.astype(kind), tolerance)
    if not differs.any():
        return None
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    count = f"; {differs.sum():,} of {differs.size:,} entries differ" if differs.size > 1 else ""
    if got.dtype in (np.float16, np.float32) and expected.dtype == np.float64:
        count += f"; yours is {got.dtype}, asked for is float64"
    gaps = np.where(differs, gap(expected, got), 0)
    most = tuple(int(i) for i in np.unravel_index(gaps.argmax(), gaps.shape))
    if gaps[most] > 100 * gaps[at]:  # the first alone would look like rounding
        pair = two_numbers(expected[most], got[most])
        count += f", most of all {at_entry(name, most)}: expected {pair[0]}, got {pair[1]}"
    return Difference(at_entry(name, at), *two_numbers(expected[at], got[at]), count)


def at_entry(name, at):
    return f"{name}[{', '.join(map(str, at))}]" if at else name


def gap(expected, got):
    """By entry, how far two arrays of numbers are apart; infinite where one of them is NaN."""
    with np.errstate(all="ignore"):
        apart = np.abs(expected.astype(complex) - got)
    return np.where(np.isnan(apart), np.inf, apart)


def close(expected, got, tolerance):
    """By entry, whether two float or complex arrays are the same."""
    with np.errstate(all="ignore"):
        finite = np.abs(expected[np.isfinite(expected)])
        scale = max(finite.max(initial=0), 1e-3)
        return (expected == got) | (np.abs(got - expected) <= tolerance * scale) | (np.isnan(expected) & np.isnan(got))


def _dicts(expected, got, tolerance, name):
    if not isinstance(got, dict):
        return Difference(name, described(expected), described(got))
    for key in expected:
        if key not in got:
            return Difference(name, f"the key {shown(key)}", f"a dict without it, of {len(got):,} keys")
    for key in got:
        if key not in expected:
            return Difference(name, f"no key {shown(key)}", "one")
    found = (difference(expected[key], got[key], tolerance, f"{name}[{shown(key)}]") for key in expected)
    return next((one for one in found if one), None)


@np.errstate(all="ignore")
def two_numbers(expected, got):
    """Two numbers as text, in so many digits that they look different."""
    for digits in (4, 6, 9, 12, 17):
        texts = [one_number(value, digits) for value in (expected, got)]
        if texts[0] != texts[1]:
            break
    if np.isfinite(complex(expected)) and not np.isfinite(complex(got)):
        texts[1] += ", which is not finite"
    return texts


def one_number(value, digits=4):
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(value, bool | int):
        return f"{value}"
    return f"{value:.{digits}g}"


def shown(value):
    text = repr(value[:80] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def described(value):
    """What kind of value it is, for a reader: "an array of shape (2, 3)"."""
    if value is None:
        return "None (is the return missing?)"
    if is_number(value):
        return f"one number, {one_number(value)}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, dict):
        return f"a dict of {len(value):,} keys"
    if isinstance(value, str | bytes):
        return f"the text {shown(value)}"
    if isinstance(value, tuple | list | set | frozenset):
        return f"a {type(value).__name__} of {len(value):,}"
    return f"a {type(value).__name__}"


# ------------------------------------------------------------------------------------------------------ to judge
def cases_of(part, number):
    """The arguments that a part is tried on, tuples: the same at every run."""
    return [tuple(case) for case in part.cases(generator(0, f"lesson {number} {part.function}"))]


def attempt(function, case):
    """What the sandbox would tell of one of our functions: its Answer, or what it Raised."""
    functions = []
    packed = worker.pack(tuple(case), functions)
    arguments = worker.unpack(packed, functions)  # a copy, of which nothing is shared
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = function(*arguments)
        except Exception as error:
            return Raised(type(error).__name__, str(error), 0, "")
    return Answer(worker.unpack(worker.pack(value)), arguments)


class Verdict(NamedTuple):
    passed: bool
    message: str = ""  # what is wrong
    case: str = ""
    hint: str = ""


def judge(part, solution, cases, run, source=""):
    """The Verdict on what a Run of a submission gave for the cases."""
    function = getattr(solution, part.function)
    names = list(inspect.signature(function).parameters)
    right = [attempt(function, case) for case in cases]
    for at, outcome in enumerate(run.outcomes):
        if message := problem(part, cases[at], names, right[at], outcome, source):
            shown_case = "" if message.startswith(UNWRITTEN) else in_words(names, cases[at])
            return Verdict(False, tame(message, 800), shown_case, hint(part, cases, right, run.outcomes, at))
    if run.ended or len(run.outcomes) != len(cases):
        ended = told(run.ended, source, part.function) if isinstance(run.ended, Raised) else run.ended
        return Verdict(False, ended or "it ended before all was asked")
    return Verdict(True)


def problem(part, case, names, expected, outcome, source):
    """What is wrong with the outcome of one case; empty if nothing is."""
    if isinstance(outcome, Raised):
        return told(outcome, source, part.function)
    if isinstance(outcome, Garbage):
        return f"out: expected {described(expected.value)}, got {outcome.what}"
    for name, before, after in zip(names, case, outcome.after, strict=False):
        if found := difference(before, after, 0, name):
            return f"it changes its argument: {found.place} was {found.expected}, and is {found.got} after the call"
    if found := difference(expected.value, outcome.value, part.tolerance, names=part.names):
        return f"{found.place}: expected {found.expected}, got {found.got}{found.count}"
    return ""


UNWRITTEN = "not written yet"


def told(raised, source, function):
    """An exception in words, with the line of the submission."""
    if raised.type == "NotImplementedError":
        other = raised.function not in ("", "<module>", function)
        return f"{UNWRITTEN}: {raised.function}, which it calls" if other else UNWRITTEN
    lines = source.replace("\r", "\n").split("\n")  # as Python counts them
    text = f": {tame(lines[raised.line - 1], 80)}" if 0 < raised.line <= len(lines) else ""
    where = f" (line {raised.line}{text})" if raised.line else ""
    return f"{raised.type}{': ' if raised.message else ''}{raised.message}{where}"


def hint(part, cases, right, outcomes, at):
    """The hint of the foreseen wrong answer that comes nearest to a submission which is first wrong in case `at`.

    It must give what the submission gave in that case, of a tuple the first item that is wrong, and in half of all
    cases that are wrong (in all of them, if it is an exception); of several the one that is alike in most cases.
    """
    item = first_wrong_item(right[at], outcomes[at], part.tolerance)
    wrong = [n for n, outcome in enumerate(outcomes) if not same(right[n], outcome, part.tolerance)]
    enough = len(wrong) / 2 if isinstance(outcomes[at], Answer) else len(wrong)
    best, nearest = (0, 0), ""
    for foreseen in part.foreseen:
        given = [attempt(foreseen.wrong, case) for case in cases[: len(outcomes)]]
        whole = [same(*pair, part.tolerance) for pair in zip(given, outcomes, strict=True)]
        alike = [same(*pair, part.tolerance, item) for pair in zip(given, outcomes, strict=True)]
        shows_it = alike[at] and not same(given[at], right[at], part.tolerance, item)
        likely = shows_it and sum(alike[n] for n in wrong) >= enough
        if (len(whole) == len(cases) and all(whole) or likely) and (sum(whole), sum(alike)) > best:
            best, nearest = (sum(whole), sum(alike)), foreseen.hint
    return nearest


def first_wrong_item(right, outcome, tolerance):
    """Which item of a tuple is the first that is wrong; None where the answer is one thing, or no such tuple came."""
    if not (isinstance(outcome, Answer) and isinstance(right.value, tuple) and isinstance(outcome.value, tuple | list)):
        return None
    if len(right.value) != len(outcome.value):
        return None
    items = range(len(right.value))
    return next((item for item in items if not same(right, outcome, tolerance, item)), None)


def same(one, other, tolerance, item=None):
    """Whether two outcomes are the same answer, be it right or wrong; or have the same item, if they are tuples."""
    if isinstance(one, Answer) and isinstance(other, Answer):
        values = one.value, other.value
        if item is not None and all(isinstance(value, tuple | list) and len(value) > item for value in values):
            values = [value[item] for value in values]
        return difference(*values, tolerance) is None
    return isinstance(one, Raised) and isinstance(other, Raised) and one.type == other.type


def in_words(names, case):
    """The arguments of a case, for a reader: small ones as they are, of others the shape."""
    return ", ".join(filter(None, map(argument_in_words, names, case)))


def argument_in_words(name, value):
    if is_number(value):
        return f"{name} = {one_number(value)}"
    if isinstance(value, np.ndarray):
        if 0 < value.size <= 6:
            return f"{name} = {np.array2string(value, precision=4, max_line_width=10**6)}".replace("\n", "")
        return f"{name} of shape {value.shape}"
    if isinstance(value, str | bytes):
        return f"{name} = {shown(value)}"
    if (
        isinstance(value, dict)
        and value
        and all(is_number(item) or isinstance(item, np.ndarray) for item in value.values())
    ):
        return f"{name} with {in_words(value, value.values())}"
    if callable(value) or isinstance(value, np.random.Generator):
        return ""
    if isinstance(value, tuple | list) and len(shown(value)) < 60 and all(map(is_number, value)):
        return f"{name} = {shown(value)}"
    return f"{name} {described(value)}"


# ------------------------------------------------------------------------------------------------------ to grade
def load_exercise(number):
    """The exercise of lesson `number`, two digits. ValueError if the table of points does not fit its grader."""
    found = sorted((FOLDER / "solutions").glob(f"ex{number}_*.py"))
    if len(found) != 1:
        raise ValueError(f"lessons/solutions must have one file ex{number}_*.py; it has {len(found)}")
    table = EXERCISES[number]
    parts = importlib.import_module(f"lessons.graders.g{number}").PARTS
    check_points(number, table, [part.function for part in parts])
    solution = importlib.import_module(f"lessons.solutions.{found[0].stem}")
    return Exercise(number, found[0].stem, parts, solution, table.parts, table.imports)


def check_points(number, table, functions):
    """ValueError if the line of the table of points is none for these functions."""
    where = f"lessons/points.py, exercise {number}"
    if not (isinstance(table, PointsOf) and isinstance(table.parts, dict)):
        raise ValueError(f"{where}: it must be Exercise(weight, {{part: points, …}}, imports), and is {shown(table)}")
    for name in {*functions} ^ {*table.parts}:
        what = "has no points" if name in functions else "is no part of it"
        raise ValueError(f"{where}: {name} {what}; its parts are {', '.join(functions)}")
    for name, points in [*table.parts.items(), ("the weight", table.weight)]:
        if not (isinstance(points, int | float) and 0 <= points <= 1e6):
            raise ValueError(f"{where}: {name} has {shown(points)} points; it must be a number from 0 to a million")
    if not sum(table.parts.values()):
        raise ValueError(f"{where}: no part has a point")
    if not (isinstance(table.imports, tuple) and all(isinstance(name, str) and name for name in table.imports)):
        raise ValueError(f"{where}: imports is {shown(table.imports)}; it must be a tuple of names, as ('itertools',)")


def grade(exercise, source, filename, limits=LIMITS):
    """Grade the text of a submission -> Graded, of a Result a part. A forbidden import gets nothing at all."""
    began, results, missing = perf_counter(), [], ()
    for part in exercise.parts:
        cases = cases_of(part, exercise.number)
        ran = run(source, filename, part.function, cases, exercise.imports, limits, part.made_by)
        missing = ran.missing
        if ran.refused:
            message = f"{ran.refused}: exercise {exercise.number} may import {listed(exercise.imports)}"
            results = nothing(exercise, message)
            break
        verdict = judge(part, exercise.solution, cases, ran, source)
        failed = [result.part for result in results if not result.passed and result.part in ran.calls]
        if failed and not verdict.passed:
            first = f"it calls {failed[0]}, which is not right yet: mend that first"
            verdict = verdict._replace(hint=f"{first}. And {verdict.hint}" if verdict.hint else first)
        maximum = exercise.points[part.function]
        points = maximum if verdict.passed else 0
        results.append(Result(part.function, verdict.passed, points, maximum, *verdict[1:], ran.output))
    return Graded(results, perf_counter() - began, missing)


def nothing(exercise, message):
    """The results of a submission that gets no point, for one reason."""
    return [Result(part.function, False, 0, exercise.points[part.function], message) for part in exercise.parts]


def listed(imports):
    names = ["numpy", "math", *imports]
    return f"{', '.join(names[:-1])} and {names[-1]}"
