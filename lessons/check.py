"""Grade exercises: yours, one that was handed in, or those of a class.

Exit status: 0 if all parts passed (or a class was graded), 1 if not, 2 for a command or a file that can't be graded.
Submissions run in processes of their own, with limits of time, memory and output, and without a network.
"""

import argparse
import csv
import os
import sys
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.files import atomic_write, read_text, write_json
from lessons.grading import FOLDER, Graded, grade, load_exercise, nothing
from lessons.points import EXERCISES
from lessons.sandbox import LIMITS, tame

PROG = "python -m lessons.check"
EXAMPLES = """examples:
  python -m lessons.check 06
  python -m lessons.check all
  python -m lessons.check 06 --file handed_in/ex06_through_time.py --json results.json
  python -m lessons.check 06 --class handed_in --csv class06.csv
"""
LARGEST = 1_000_000  # bytes of a submission


def number(text):
    """An argument type: the number of a lesson with exercises, in two digits, or "all"."""
    two_digits = text.zfill(2)
    if text != "all" and two_digits not in EXERCISES:
        numbers = f"it must be all, or one of {', '.join(sorted(EXERCISES))}"
        raise argparse.ArgumentTypeError(f"there are no exercises {text!r:.60}; {numbers}")
    return text if text == "all" else two_digits


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    what = "the numbers of the lessons whose exercises are graded, or all"
    parser.add_argument("numbers", nargs="+", type=number, metavar="NN", help=what)
    where = parser.add_mutually_exclusive_group()
    what = "what is graded instead of lessons/exercises/exNN_*.py: a file, or a folder that has such a file"
    where.add_argument("--file", type=cli.path, metavar="PATH", help=what)
    what = "grade a class: in DIR each student has a file or a folder, which gives the name"
    where.add_argument("--class", dest="folder", type=cli.path, metavar="DIR", help=what)
    what = "where the points of a class go (default class.csv)"
    parser.add_argument("--csv", type=cli.path, default="class.csv", metavar="PATH", help=what)
    what = "write the results for Gradescope too, in its results.json format"
    parser.add_argument("--json", type=cli.path, metavar="PATH", help=what)
    seconds = LIMITS.seconds
    what = f"how long each part may take (default {seconds:g})"
    parser.add_argument("--seconds", type=cli.number(above=0), default=seconds, metavar="X", help=what)
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    numbers = sorted(EXERCISES) if "all" in options.numbers else list(dict.fromkeys(options.numbers))
    if options.file and len(numbers) > 1:
        raise ValueError("--file is for one exercise; give one number")
    if options.folder and options.json:
        raise ValueError("--json is for one submission; --class writes --csv")
    for number in numbers:
        if not all([*FOLDER.glob(f"{room}/*{number}*.py")] for room in ("graders", "solutions")):  # not handed out
            raise ValueError(f"there is no grader for {number} here: your teacher grades this file")
    exercises, limits = [load_exercise(number) for number in numbers], LIMITS._replace(seconds=options.seconds)
    if options.folder:
        return grade_class(Path(options.folder), exercises, limits, options.csv)
    try:
        graded = [grade_file(one, options.file and Path(options.file), limits) for one in exercises]
    except (OSError, ValueError) as error:
        if options.json:  # Gradescope shows nothing without it
            graded = [Graded(nothing(one, str(error)), 0, ()) for one in exercises]
            write_json(options.json, gradescope(graded, exercises))
        raise
    if options.json:
        write_json(options.json, gradescope(graded, exercises))
    if len(exercises) > 1:
        print(f"course: {percent(graded, exercises):.0f} % of what these exercises weigh")
    note_missing(graded)
    return 0 if all(result.passed for one in graded for result in one.results) else 1


# ------------------------------------------------------------------------------------------------- one submission
def grade_file(exercise, place, limits):
    """Grade a submission, print what it got -> Graded."""
    path = find(place, exercise) if place else exercise.file
    graded = grade(exercise, read(path), path.name, limits)
    print(f"{exercise.title}    {tame(os.path.relpath(path))}")
    for result in graded.results:
        print(f"  {'pass' if result.passed else 'FAIL'}  {result.part}: {result.points} of {result.maximum}")
        for line in explanation(result):
            print(f"        {line}")
    print(f"  {graded.points} of {graded.maximum} points\n")
    return graded


def find(place, exercise):
    """The submission: the file itself, or the one of the exercise that a folder has, at any depth.

    A file of just the right name is preferred, then the least deep. Solutions, what is hidden, and links don't count.
    """
    if not place.is_dir():
        return place
    found = []
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name not in ("solutions", "__MACOSX") and name[0] != "."]
        paths = [Path(folder, name) for name in files if name.startswith(f"ex{exercise.number}_")]
        found += [path for path in paths if path.suffix == ".py" and path.is_file() and not path.is_symlink()]
    if not found:
        raise ValueError(f"{place} has no file ex{exercise.number}_*.py")
    return min(found, key=lambda path: (path.name != exercise.file.name, len(path.parts), path))


def read(path):
    if path.is_dir() or path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has more than {LARGEST:,} bytes")
    return read_text(path)


def explanation(result):
    """The lines that say why a part failed, and what it printed."""
    lines = [result.message] if result.message else []
    lines += [f"for {result.case}"] if result.case else []
    lines += [f"hint: {result.hint}"] if result.hint else []
    printed = result.output.rstrip("\n").split("\n") if result.output else []
    return lines + ["it printed:"] * bool(printed) + [f"| {line}" for line in printed]


def gradescope(graded, exercises):
    """The results as Gradescope's results.json has them: gradescope-autograders.readthedocs.io/en/latest/specs."""
    tests = [
        {
            "name": f"{exercise.number} {result.part}",
            "number": f"{exercise.number}.{place}",
            "score": result.points,
            "max_score": result.maximum,
            "status": "passed" if result.passed else "failed",
            "output": "\n".join(explanation(result)),
            "output_format": "text",
            "visibility": "visible",
        }
        for one, exercise in zip(graded, exercises, strict=True)
        for place, result in enumerate(one.results, 1)
    ]
    points, maximum = sum(one.points for one in graded), sum(one.maximum for one in graded)
    return {
        "score": points,
        "execution_time": round(sum(one.seconds for one in graded), 3),
        "output": f"{points} of {maximum} points",
        "output_format": "text",
        "visibility": "visible",
        "tests": tests,
    }


def percent(graded, exercises):
    """The points of all exercises in percent, each counted by its weight in the course."""
    weights = [EXERCISES[exercise.number].weight for exercise in exercises]
    shares = [one.points / one.maximum for one in graded]
    return 100 * sum(w * share for w, share in zip(weights, shares, strict=True)) / sum(weights)


def note_missing(graded):
    if missing := sorted({name for one in graded for name in one.missing}):
        print(f"note: this system sets no limit of {' and '.join(missing)}", file=sys.stderr)


# -------------------------------------------------------------------------------------------------------- a class
class Row(NamedTuple):
    """What a student got: Graded by exercise, and remarks."""

    student: str
    graded: list
    remarks: list


def grade_class(folder, exercises, limits, path):
    """Grade every submission of a folder; write a table of points."""
    places = [place for place in sorted(folder.iterdir()) if place.name[0] != "."]
    places = [place for place in places if place.is_dir() or place.suffix == ".py"]
    if not places:
        raise ValueError(f"{folder} holds no submission: a .py file, or a folder, for each student")
    rows = []
    for place in tqdm(places, desc="grading", unit=" students", disable=None, leave=False):
        rows.append(grade_student(place, exercises, limits))
    write_csv(path, rows, exercises)
    print(f"{path}: {len(rows)} students")
    for column, exercise in enumerate(exercises):
        results = [row.graded[column].results for row in rows]
        for part, of_part in enumerate(zip(*results, strict=True)):
            passed = sum(result.passed for result in of_part)
            print(f"  {exercise.number} {results[0][part].part}: {passed} passed")
    note_missing(one for row in rows for one in row.graded)
    return 0


def grade_student(place, exercises, limits):
    """Grade the submissions of one student -> Row. Nothing that they do stops the others."""
    graded, remarks = [], []
    for exercise in exercises:
        try:
            path = find(place, exercise)
            one = grade(exercise, read(path), path.name, limits)
        except Exception as error:  # the file can't be read; or the grader has a fault, and fifty students wait
            known = isinstance(error, ValueError | OSError)
            what = str(error) if known else f"the grader failed, {type(error).__name__}: {error}"
            one = Graded(nothing(exercise, what), 0, ())
        graded.append(one)
        reasons = {result.message for result in one.results}
        if len(reasons) == 1 and reasons != {""}:
            remarks.append(f"{exercise.number}: {reasons.pop()}")
        else:
            remarks += [f"{exercise.number} {remark(result)}" for result in one.results if not result.passed]
    return Row(place.stem if place.is_file() else place.name, graded, remarks)


def remark(result):
    return f"{result.part}: {result.message}{' (hint: ' + result.hint + ')' if result.hint else ''}"


def write_csv(path, rows, exercises):
    """A line a student: points of each part, their sum, percent by the weights of the exercises, remarks.

    Excel takes the mark at the beginning as a sign of UTF-8, and a name that begins with = as a formula: not so with '.
    """
    parts = [f"{exercise.number} {part.function}" for exercise in exercises for part in exercise.parts]
    with atomic_write(path) as file:
        file.write("\ufeff")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["student", *parts, "total", "percent", "remarks"])
        for row in rows:
            student = "'" * row.student.startswith(("=", "+", "-", "@")) + row.student
            points = [result.points for one in row.graded for result in one.results]
            total = f"{percent(row.graded, exercises):.1f}"
            line = [student, *points, sum(points), total, " | ".join(row.remarks)]
            writer.writerow([str(word).encode("utf-8", "backslashreplace").decode() for word in line])


if __name__ == "__main__":
    cli.run(main, PROG)
