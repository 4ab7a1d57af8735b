"""Grade exercises: yours, one that was handed in, or those of a class.

Exit status: 0 if all parts passed (or a class was graded), 1 if not, 2 for what can't be graded. Submissions run in
processes of their own, with limits of time, memory and output, and without a network. All is written at the end: who
stops it has no table.
"""

import argparse
import codecs
import csv
import os
import re
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.files import atomic_write, read_text, write_json
from lessons.grading import FOLDER, Graded, grade, load_exercise, nothing, total
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
    what = "where the points of a class go, in place of what is there (default class.csv)"
    parser.add_argument("--csv", type=cli.path, metavar="PATH", help=what)
    what = "write the results for Gradescope too, in its results.json format"
    parser.add_argument("--json", type=cli.path, metavar="PATH", help=what)
    seconds = LIMITS.seconds
    what = f"how long each part may take (default {seconds:g})"
    parser.add_argument("--seconds", type=cli.number(above=0, at_most=3600), default=seconds, metavar="X", help=what)
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    numbers = sorted(EXERCISES) if "all" in options.numbers else list(dict.fromkeys(options.numbers))
    if options.file and len(numbers) > 1:
        raise ValueError("--file is for one exercise; give one number")
    if options.folder and options.json:
        raise ValueError("--json is for one submission; --class writes --csv")
    if options.csv and not options.folder:
        raise ValueError("--csv is for a class; give --class DIR")
    for number in numbers:
        if not all([*FOLDER.glob(f"{room}/*{number}*.py")] for room in ("graders", "solutions")):  # not handed out
            raise ValueError(f"there is no grader for {number} here: your teacher grades this file")
    exercises, limits = [load_exercise(number) for number in numbers], LIMITS._replace(seconds=options.seconds)
    with ended_as_by_ctrl_c():
        if options.folder:
            return grade_class(Path(options.folder), exercises, limits, writable(options.csv or "class.csv", ".csv"))
        place, results = options.file and Path(options.file), options.json and writable(options.json, ".json")
        return grade_one(place, exercises, limits, results)


def writable(path, ending):
    """The path of a table or of results, if it can be written; an error before the work rather than after it."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if is_python(target) or target.exists() and target.suffix.lower() != ending:
        raise ValueError(f"{path} may be somebody's work: give a name that ends in {ending}")
    if len(os.fsencode(target.name)) > 200 or target.exists() and not target.is_file():
        raise ValueError(f"{path:.100} is no name of a file that can be written")
    if not target.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise ValueError(f"{path}: nothing can be written to {target.parent}")
    return path


@contextmanager
def ended_as_by_ctrl_c():
    """In the block SIGTERM and a closed terminal do what Ctrl-C does: nothing that was started stays behind."""

    def stop(number, frame):
        raise KeyboardInterrupt(number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # not all on Windows
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup's wish
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ------------------------------------------------------------------------------------------------- one submission
def grade_one(place, exercises, limits, results):
    """Grade the exercises of one student, print what they got, write it to `results` -> the exit status."""
    graded, shown, can_be_graded = [], [], True
    for exercise in exercises:
        try:
            path = find(place, exercise) if place else exercise.file
            source = read(path)
        except (OSError, ValueError) as error:
            print(f"{PROG}: {cli.reason(error)}", file=sys.stderr)
            can_be_graded = False
            graded.append(Graded(nothing(exercise, cli.reason(error)), 0, ()))  # Gradescope shows nothing without it
            continue
        graded.append(grade(exercise, source, path.name, limits))
        if results:  # first, for what is printed may have no reader
            shown.append((exercise, path, graded[-1]))
        else:
            show(exercise, path, graded[-1])
    if results:
        write_json(results, gradescope(graded, exercises))
    for one in shown:
        show(*one)
    if len(exercises) > 1:
        print(f"course: {percent(graded, exercises):.0f} % of what these exercises weigh")
    note_missing(graded)
    if not can_be_graded:
        return 2
    return 0 if all(result.passed for one in graded for result in one.results) else 1


def show(exercise, path, graded):
    """Print what a submission got."""
    print(f"{exercise.title}    {tame(os.path.relpath(path))}")
    for result in graded.results:
        print(f"  {'pass' if result.passed else 'FAIL'}  {result.part}: {result.points} of {result.maximum}")
        for line in explanation(result):
            print(f"        {line}")
    print(f"  {graded.points} of {graded.maximum} points\n")


def find(place, exercise):
    """The submission: the file itself, or the one of the exercise that a folder has, at any depth.

    A file that was worked on is preferred to the empty exercise, one of just the right name to ex6.py, the least deep
    to others. Solutions, what is hidden, and links don't count.
    """
    if not place.is_dir():
        return place
    files = []
    for folder, folders, names in os.walk(place, onerror=raised):
        folders[:] = [name for name in folders if name not in ("solutions", "__MACOSX") and name[0] != "."]
        paths = [Path(folder, name) for name in names if name.lower().endswith(".py")]
        files += [path for path in paths if path.is_file() and not path.is_symlink()]
    pattern = re.compile(rf"ex0*{int(exercise.number)}(\D.*)?", re.IGNORECASE)
    found = [path for path in files if pattern.fullmatch(path.stem)]
    if not found:
        files.sort(key=lambda path: (len(path.parts), path))
        others = f"; it has {', '.join(path.name for path in files[:3])}{', …' * (len(files) > 3)}" * bool(files)
        raise Unreadable(f"{place} has no file ex{exercise.number}_*.py{others}")
    empty = plain(exercise.file) if exercise.file.exists() else None
    return min(found, key=lambda path: (plain(path) == empty, path.name != exercise.file.name, len(path.parts), path))


def raised(error):
    raise error


def plain(path):
    """The bytes of a file, as many as one may have, without the ends of lines, which a clone on Windows changes."""
    with open(path, "rb") as file:
        return file.read(LARGEST).replace(b"\r", b"").removeprefix(codecs.BOM_UTF8)


def read(path):
    if path.is_dir() or path.exists() and not path.is_file():
        raise Unreadable(f"{path} is no file")
    if path.stat().st_size > LARGEST:
        raise Unreadable(f"{path} has more than {LARGEST:,} bytes")
    try:
        return read_text(path)
    except ValueError as error:  # no text
        raise Unreadable(str(error)) from None


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
    points, maximum = total(one.points for one in graded), total(one.maximum for one in graded)
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
    weights = weights if any(weights) else [1] * len(weights)
    shares = [one.points / one.maximum for one in graded]
    return 100 * sum(w * share for w, share in zip(weights, shares, strict=True)) / sum(weights)


def note_missing(graded):
    if missing := sorted({name for one in graded for name in one.missing}):
        print(f"note: this system sets no limit of {' and '.join(missing)}", file=sys.stderr)


# -------------------------------------------------------------------------------------------------------- a class
class Row(NamedTuple):
    """What a student got: Graded by exercise, None where the grader failed, and remarks."""

    student: str
    graded: list
    remarks: list


def grade_class(folder, exercises, limits, path):
    """Grade every submission of a folder, write a table of points -> the exit status."""
    places = [place for place in sorted(folder.iterdir()) if place.name[0] != "."]
    students = [place for place in places if not place.is_symlink() and (place.is_dir() or is_python(place))]
    if not students:
        raise ValueError(f"{folder} holds no submission: a .py file, or a folder, for each student")
    stems = [place.stem for place in students]
    rows = []
    for place in tqdm(students, desc="grading", unit=" students", disable=None, leave=False):
        one_of_many = stems.count(place.stem) > 1 or place.is_dir()  # anna.py and anna/
        rows.append(grade_student(place.name if one_of_many else place.stem, place, exercises, limits))
    write_csv(path, rows, exercises)
    print(f"{path}: {len(rows)} students")
    for column, exercise in enumerate(exercises):
        results = [row.graded[column].results for row in rows if row.graded[column]]
        for of_part in zip(*results, strict=True):
            print(f"  {exercise.number} {of_part[0].part}: {sum(result.passed for result in of_part)} passed")
    if others := [tame(place.name) for place in places if place not in students]:
        print(f"note: neither a folder nor a .py file, and not graded: {', '.join(others)}", file=sys.stderr)
    note_missing(one for row in rows for one in row.graded if one)
    if failed := [row.student for row in rows if None in row.graded]:
        print(f"{PROG}: the grader failed; not all is graded of {', '.join(map(tame, failed))}", file=sys.stderr)
        return 2
    return 0


class Unreadable(ValueError):
    """What was handed in is no submission."""


def is_python(path):
    return path.suffix.lower() == ".py"


def grade_student(name, place, exercises, limits):
    """Grade the submissions of one student -> Row. Nothing that they do stops the others."""
    graded, remarks = [], []
    for exercise in exercises:
        path = None
        try:
            path = find(place, exercise)
            one = grade(exercise, read(path), path.name, limits)
        except Unreadable as error:
            one = Graded(nothing(exercise, cli.reason(error)), 0, ())
        except Exception as error:  # no fault of the student, who gets no zero for it; and fifty others wait
            graded.append(None)
            remarks.append(f"{exercise.number}: the grader failed, {type(error).__name__}: {error}")
            continue
        graded.append(one)
        if path and place.is_dir() and path.name != exercise.file.name:
            remarks.append(f"{exercise.number}: graded {path.name}")
        reasons = {result.message for result in one.results}
        if len(reasons) == 1 and reasons != {""}:
            remarks.append(f"{exercise.number}: {reasons.pop()}")
        else:
            remarks += [f"{exercise.number} {remark(result)}" for result in one.results if not result.passed]
    return Row(name, graded, remarks)


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
            writer.writerow(
                [str(word).encode("utf-8", "backslashreplace").decode() for word in csv_line(row, exercises)]
            )


def csv_line(row, exercises):
    name = tame(row.student, also="")
    name = "'" * name.startswith(("=", "+", "-", "@")) + name
    points = []
    for one, exercise in zip(row.graded, exercises, strict=True):
        points += [result.points for result in one.results] if one else [""] * len(exercise.parts)
    sums = ["", ""] if None in row.graded else [total(points), f"{percent(row.graded, exercises):.1f}"]
    return [name, *points, *sums, tame(" | ".join(row.remarks), 5000)]


if __name__ == "__main__":
    cli.run(main, PROG)
