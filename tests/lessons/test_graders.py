"""The graders are graded: our solutions pass, empty exercises don't, and each foreseen wrong answer gets its hint."""

import ast
import inspect
import itertools
import re

import numpy as np
import pytest
from lesson_files import FILES, LESSONS, NUMBERS, functions, imported, one, unwritten

from lessons.grading import Foreseen, attempt, cases_of, grade, judge, load_exercise, same
from lessons.points import EXERCISES
from lessons.sandbox import Answer, Run
from lessons.worker import pack

WITHOUT_EXERCISES = {"00", "15"}
exercises = pytest.mark.parametrize("number", NUMBERS)


def parts(number):
    """(part, its cases, the right outcomes) for every part of an exercise."""
    exercise = load_exercise(number)
    for part in exercise.parts:
        cases = cases_of(part, number)
        yield part, cases, [attempt(getattr(exercise.solution, part.function), case) for case in cases]


def outcomes(function, cases):
    return [attempt(function, case) for case in cases]


# ---------------------------------------------------------------------------------------------- files and the table
def test_every_lesson_has_exercises_solutions_a_grader_and_points():
    numbers = {path.name[:2] for path in FILES} - WITHOUT_EXERCISES
    there = {"exercises": set(NUMBERS), "points": set(EXERCISES)}
    for folder in ("solutions", "graders"):
        there[folder] = {re.search(r"\d\d", path.name)[0] for path in (LESSONS / folder).glob("*[0-9]*.py")}
    assert {name: sorted(numbers ^ found) for name, found in there.items() if found != numbers} == {}


@exercises
def test_the_table_has_the_parts_of_the_exercise_in_its_order(number):
    names = list(unwritten(one("exercises", number)))
    assert 2 <= len(names) <= 3
    assert list(EXERCISES[number].parts) == names
    assert [part.function for part in load_exercise(number).parts] == names
    assert all(points > 0 for points in EXERCISES[number].parts.values())


def test_the_weights_are_percent():
    weights = [exercise.weight for exercise in EXERCISES.values()]
    assert min(weights) > 0
    assert sum(weights) == 100 or len(weights) < 14 and sum(weights) < 100


@exercises
def test_the_table_allows_what_the_exercise_imports(number):
    assert imported(one("exercises", number)) - {"numpy", "math"} == set(EXERCISES[number].imports)


@exercises
def test_exercise_and_solution_have_the_same_functions(number):
    exercise, solution = one("exercises", number), one("solutions", number)
    assert exercise.name == solution.name == f"ex{one('', number).name}"
    asked, answered = functions(exercise), functions(solution)
    assert {name: ast.unparse(node.args) for name, node in unwritten(exercise).items()} == {
        name: ast.unparse(answered[name].args) for name in unwritten(exercise)
    }
    given = asked.keys() - unwritten(exercise).keys()
    for name in given & answered.keys():  # what is given is the same, docstrings aside
        assert code(asked[name]) == code(answered[name]), name


def code(function):
    """The lines of a function's body, without docstring, comments and blank lines."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [line for node in body for line in ast.unparse(node).splitlines()]


@exercises
def test_the_docstrings_say_what_is_asked(number):
    exercise = one("exercises", number)
    module = ast.get_docstring(ast.parse(exercise.read_text(encoding="utf-8")))
    assert f"python -m lessons.check {number}" in module and "may import numpy" in module
    source = one("solutions", number).read_text(encoding="utf-8").splitlines()
    for name, node in unwritten(exercise).items():
        text = ast.get_docstring(node)
        assert "->" in text, f"{name}: no shapes"
        about = re.search(r"About (\d+)\s+lines?\b", text)
        assert about, f"{name}: how many lines?"
        answer = functions(one("solutions", number))[name]
        body = source[answer.body[ast.get_docstring(answer) is not None].lineno - 1 : answer.end_lineno]
        lines = len([line for line in body if line.strip() and not line.strip().startswith("#")])
        assert lines / 2 <= int(about[1]) <= lines * 2, f"{name}: about {about[1]} lines, and ours has {lines}"


# -------------------------------------------------------------------------------------------- what the graders know
@exercises
def test_solutions_are_right_and_change_nothing(number):
    exercise = load_exercise(number)
    for part, cases, right in parts(number):
        assert len(cases) >= 2 and all(isinstance(outcome, Answer) for outcome in right), (part.function, right)
        assert not judge(part, exercise.solution, cases, Run(right)).message


@exercises
def test_cases_are_the_same_each_time(number):
    for part, cases, _ in parts(number):
        assert [pack(case, []) for case in cases_of(part, number)] == [pack(case, []) for case in cases]


@exercises
def test_every_foreseen_wrong_answer_fails_with_its_hint(number):
    exercise = load_exercise(number)
    for part, cases, _ in parts(number):
        for foreseen in part.foreseen:
            verdict = judge(part, exercise.solution, cases, Run(outcomes(foreseen.wrong, cases)))
            assert verdict.message, f"{part.function}: this is not wrong: {foreseen.hint}"
            assert verdict.hint == foreseen.hint, part.function


@exercises
def test_no_two_foreseen_answers_are_the_same(number):
    for part, cases, _ in parts(number):
        given = [outcomes(foreseen.wrong, cases) for foreseen in part.foreseen]
        for (i, one_answer), (j, other) in itertools.combinations(enumerate(given), 2):
            alike = all(map(same, one_answer, other, [part.tolerance] * len(cases)))
            assert not alike, (part.function, part.foreseen[i].hint, part.foreseen[j].hint)


@exercises
def test_hints_are_many_and_short(number):
    found = [(part.function, foreseen) for part in load_exercise(number).parts for foreseen in part.foreseen]
    assert len(found) >= 3
    assert len({function for function, _ in found}) == len(EXERCISES[number].parts), "a part without a foreseen answer"
    for _, foreseen in found:
        assert isinstance(foreseen, Foreseen) and 10 < len(foreseen.hint) <= 120, foreseen.hint
        assert "\n" not in foreseen.hint and not foreseen.hint.endswith(".")


@exercises
def test_the_arguments_have_names(number):
    exercise = load_exercise(number)
    for part, cases, _ in parts(number):
        names = inspect.signature(getattr(exercise.solution, part.function)).parameters
        assert {len(case) for case in cases} == {len(names)}, part.function


@exercises
def test_the_names_of_what_is_returned_are_as_many_as_that(number):
    for part, _, right in parts(number):
        counts = {len(outcome.value) for outcome in right if isinstance(outcome.value, tuple | list)}
        assert not part.names or counts == {len(part.names)}, part.function


# ---------------------------------------------------------------------------------------- as files, in the sandbox
@pytest.mark.slow
@exercises
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_a_file_is_graded(number, folder):
    exercise = load_exercise(number)
    path = one(folder, number)
    graded = grade(exercise, path.read_text(encoding="utf-8"), path.name)
    if folder == "solutions":
        assert [result.message for result in graded.results] == [""] * len(exercise.parts)
        assert graded.points == graded.maximum == sum(EXERCISES[number].parts.values())
    else:
        assert [result.message for result in graded.results] == ["not written yet"] * len(exercise.parts)
        assert graded.points == 0
    assert [result.output for result in graded.results] == [""] * len(exercise.parts)


def literal(value):
    """Python source of a value."""
    if isinstance(value, np.ndarray):
        return f"np.array({literal(value.ravel().tolist())}, {value.dtype.str!r}).reshape({value.shape})"
    if isinstance(value, np.generic):
        return literal(value.item())
    if isinstance(value, tuple | list):
        items = "".join(f"{literal(item)}, " for item in value)
        return f"({items})" if isinstance(value, tuple) else f"[{items}]"
    if isinstance(value, dict):
        return "{" + "".join(f"{literal(key)}: {literal(item)}, " for key, item in value.items()) + "}"
    return f"float('{value}')" if isinstance(value, float) else repr(value)


def planted(function, given):
    """The text of a submission whose function gives these outcomes, one after the other."""
    lines = [
        f"    lambda: {literal(outcome.value)},"
        if isinstance(outcome, Answer)
        else f"    lambda: throw({outcome.type}),"
        for outcome in given
    ]
    throw = "def throw(error):\n    raise error\n"
    return "\n".join(
        [
            "import numpy as np",
            throw,
            "OUTCOMES = iter([",
            *lines,
            "])",
            f"def {function}(*arguments):",
            "    return next(OUTCOMES)()",
        ]
    )


@pytest.mark.slow
@exercises
def test_three_wrong_answers_as_files(number):
    exercise = load_exercise(number)
    some = itertools.zip_longest(*([(part, foreseen) for foreseen in part.foreseen] for part in exercise.parts))
    for part, foreseen in list(filter(None, itertools.chain(*some)))[:3]:
        given = outcomes(foreseen.wrong, cases_of(part, number))
        only = exercise._replace(parts=[part._replace(made_by="")])  # which plays outcomes back, and is no kernel
        [result] = grade(only, planted(part.function, given), "ex_planted.py").results
        assert (result.points, result.hint) == (0, foreseen.hint)
        assert result.message and result.maximum == EXERCISES[number].parts[part.function]
