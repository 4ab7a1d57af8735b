"""The command `lessons.check`: what it prints, writes and returns, for one, for Gradescope, and for a class."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import ENVIRONMENT, ROOT, call
from lesson_files import one

from lessons import check
from lessons.points import EXERCISES

RIGHT = one("solutions", "03").read_text(encoding="utf-8")
EMPTY = one("exercises", "03").read_text(encoding="utf-8")
NAME = one("exercises", "03").name
SIGN = RIGHT.replace("return -at_target", "return at_target")
PARTS = ["log_softmax", "cross_entropy", "mean_loss_backward"]
POINTS = [2, 2, 3]

NAMES = ", ".join(sorted(EXERCISES))


def checked(capsys, *arguments):
    return call(capsys, check, *arguments)


def hand_in(folder, source, name=NAME):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(source, encoding="utf-8")
    return folder / name


def assert_told(result, line):
    assert result.status == 2 and result.err == f"{check.PROG}: {line}\n", result


# ------------------------------------------------------------------------------------------------- one submission
def test_all_right(capsys, tmp_path):
    result = checked(capsys, "03", "--file", hand_in(tmp_path, RIGHT))
    assert (result.status, result.err) == (0, "")
    title, *lines = result.out.splitlines()
    assert title.startswith("03 · softmax and cross entropy    ") and title.endswith(NAME)
    assert lines == [*(f"  pass  {p}: {n} of {n}" for p, n in zip(PARTS, POINTS, strict=True)), "  7 of 7 points", ""]


def test_a_wrong_part_is_explained(capsys, tmp_path):
    printing = SIGN.replace("return at_target", "print('look', logits.shape)\n    return at_target")
    result = checked(capsys, "3", "--file", hand_in(tmp_path, printing))
    assert result.status == 1
    lines = [line.strip() for line in result.out.splitlines()]
    start = lines.index("FAIL  cross_entropy: 0 of 2")
    message, case, hint, *printed = lines[start + 1 : start + 8]
    assert message.startswith("out[0, 0]: expected ") and message.endswith("; 6 of 6 entries differ")
    assert re.fullmatch(r"for logits of shape \(2, 3, 5\), targets = \[\[\d \d \d\] \[\d \d \d\]\]", case)
    assert hint == "hint: the sign: a surprise is never negative"
    assert printed == ["it printed:", "| look (2, 3, 5)", "| look (1, 1, 4)", "| look (3, 2, 6)"]
    assert lines[-2] == "5 of 7 points"


def test_a_part_of_another_that_is_not_written(capsys, tmp_path):
    result = checked(capsys, "3", "--file", hand_in(tmp_path, EMPTY))
    assert result.status == 1 and result.out.count("        not written yet\n") == 3


def test_a_folder_is_searched_for_the_file(capsys, tmp_path):
    hand_in(tmp_path / "clone" / "lessons" / "solutions", RIGHT)
    hand_in(tmp_path / ".git", RIGHT)
    hand_in(tmp_path, RIGHT, "ex04_other.py")
    result = checked(capsys, "3", "--file", tmp_path)
    assert_told(result, f"{tmp_path} has no file ex03_*.py; it has ex04_other.py")
    for name in ("a", "b", "c"):
        hand_in(tmp_path / "deep", RIGHT, f"{name}.py")
    (tmp_path / "ex03_a.py").symlink_to(one("solutions", "03"))
    result = checked(capsys, "3", "--file", tmp_path)
    assert_told(result, f"{tmp_path} has no file ex03_*.py; it has ex04_other.py, a.py, b.py, …")


def test_of_several_files_that_of_the_right_name_is_taken_unless_it_is_empty(capsys, tmp_path):
    def graded():
        return checked(capsys, "3", "--file", tmp_path).out.splitlines()[0].rpartition("/")[2]

    for name in ("Ex3.PY", "EX03_old.py"):  # as they may be called
        hand_in(tmp_path / "new", RIGHT, name)
        assert graded() == name
        (tmp_path / "new" / name).unlink()
    hand_in(tmp_path, RIGHT, "ex03.py")
    hand_in(tmp_path, RIGHT, "ex033_other.py")
    assert graded() == "ex03.py"
    exercise = hand_in(tmp_path / "clone" / "lessons" / "exercises", EMPTY)
    assert graded() == "ex03.py"
    exercise.write_bytes(EMPTY.replace("\n", "\r\n").encode())  # as a clone on Windows
    assert graded() == "ex03.py"
    exercise.write_text(RIGHT, encoding="utf-8")
    assert graded() == NAME


@pytest.mark.slow
def test_all_exercises_and_the_course(capsys, monkeypatch):
    monkeypatch.setattr("lessons.grading.Exercise.file", property(lambda self: one("solutions", self.number)))
    result = checked(capsys, "all")
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith("\n\ncourse: 100 % of what these exercises weigh\n")
    assert [line[:2] for line in result.out.splitlines() if " · " in line] == sorted(EXERCISES)


def test_the_course_counts_weights(capsys, monkeypatch, tmp_path):
    files = {"03": hand_in(tmp_path, SIGN), "04": one("exercises", "04")}
    monkeypatch.setattr("lessons.grading.Exercise.file", property(lambda self: files[self.number]))
    result = checked(capsys, "04", "03", "4", "--seconds", "60")
    assert result.status == 1
    assert [line[:2] for line in result.out.splitlines() if " · " in line] == ["04", "03"]
    assert f"course: {100 * (6 * 5 / 7 + 6 * 0) / 12:.0f} % of" in result.out


def test_as_a_student_types_it(tmp_path):
    command = [sys.executable, "-m", "lessons.check", "03", "--file", str(hand_in(tmp_path, SIGN))]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "") and "5 of 7 points" in done.stdout


def test_a_loop_is_told_in_one_line_and_later_parts_are_graded(capsys, tmp_path):
    loop = RIGHT.replace("    at_target = np.take", "    while True:\n        pass\n    at_target = np.take", 1)
    result = checked(capsys, "3", "--file", hand_in(tmp_path, loop), "--seconds", "1.5")
    assert result.status == 1
    assert "FAIL  cross_entropy: 0 of 2\n        stopped: it took more than 1.5 s\n  pass  mean_loss" in result.out


# ------------------------------------------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["99"],
            f"argument NN: there are no exercises '99'; it must be all, or one of {NAMES}; see --help",
        ),
        (
            ["00"],
            f"argument NN: there are no exercises '00'; it must be all, or one of {NAMES}; see --help",
        ),
        ([], "the following arguments are required: NN; see --help"),
        (["3", "--seconds", "0"], "argument --seconds: 0 is too small; it must be above 0; see --help"),
        (["3", "--file", "a", "--class", "b"], "argument --class: not allowed with argument --file; see --help"),
        (["3", "4", "--file", "a"], "--file is for one exercise; give one number"),
        (["3", "--class", "a", "--json", "b"], "--json is for one submission; --class writes --csv"),
        (["3", "--csv", "b"], "--csv is for a class; give --class DIR"),
        (
            ["3", "--seconds", "1e300"],
            "argument --seconds: 1e300 is too large; it must be 3600 or less; see --help",
        ),
        (["3", "--json", "a.py"], "a.py may be somebody's work: give a name that ends in .json"),
        (
            ["3", "--class", "empty", "--csv", "a.PY"],
            "a.PY may be somebody's work: give a name that ends in .csv",
        ),
        (["3", "--json", "empty"], "empty is a folder; give the name of a file"),
        (["3", "--json", "work.txt"], "work.txt may be somebody's work: give a name that ends in .json"),
        (["3", "--json", "/dev/null"], "/dev/null may be somebody's work: give a name that ends in .json"),
        (["3", "--json", f"{'n' * 249}"], f"{'n' * 100} is no name of a file that can be written"),
        (["3", "--class", "empty", "--csv", "no/a.csv"], "no/a.csv: there is no folder {}/no"),
        (["3", "--file", "nowhere.py"], "nowhere.py: No such file or directory"),
        (["3", "--class", "nowhere"], "nowhere: No such file or directory"),
        (["3", "--file", "/dev/null"], "/dev/null is no file"),
        (["3", "--class", "empty"], "empty holds no submission: a .py file, or a folder, for each student"),
    ],
)
def test_bad_commands_get_one_line(capsys, tmp_path, monkeypatch, arguments, line):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "grade", None)  # all of this is found out before the work
    (tmp_path / "empty").mkdir()
    (tmp_path / "work.txt").write_text("work")
    assert_told(checked(capsys, *arguments), line.format(tmp_path))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"parts": {"log_softmax": 2, "cross_entropy": 2}}, "mean_loss_backward has no points; its parts are {}"),
        ({"parts": {**dict.fromkeys(PARTS, 1), "softmax": 1}}, "softmax is no part of it; its parts are {}"),
        ({"parts": dict.fromkeys(PARTS, 0)}, "no part has a point"),
        ({"parts": dict.fromkeys(PARTS, -1)}, "log_softmax has -1 points; it must be a number from 0 to a million"),
        ({"parts": dict.fromkeys(PARTS, "1")}, "log_softmax has '1' points; it must be a number from 0 to a million"),
        ({"weight": -1}, "the weight has -1 points; it must be a number from 0 to a million"),
        ({"imports": (5,)}, "imports is (5,); it must be a tuple of names, as ('itertools',)"),
        (
            {"parts": ("x",)},
            "it must be Exercise(weight, {{part: points, …}}, imports), and is "
            "Exercise(weight=6, parts=('x',), imports=())",
        ),
        ({"imports": "itertools"}, "imports is 'itertools'; it must be a tuple of names, as ('itertools',)"),
    ],
)
def test_a_table_of_points_that_does_not_fit(capsys, monkeypatch, changes, line):
    monkeypatch.setitem(EXERCISES, "03", EXERCISES["03"]._replace(**changes))
    assert_told(checked(capsys, "3"), f"lessons/points.py, exercise 03: {line.format(', '.join(PARTS))}")


def test_points_may_be_fractions_and_weights_nothing(capsys, monkeypatch, tmp_path):
    table = EXERCISES["03"]._replace(weight=0, parts=dict(zip(PARTS, (0.1, 0.2, 1), strict=True)))
    monkeypatch.setitem(EXERCISES, "03", table)
    assert "  1.3 of 1.3 points\n" in checked(capsys, "3", "--file", hand_in(tmp_path, RIGHT)).out
    assert checked(capsys, "3", "--class", tmp_path, "--csv", tmp_path / "a.csv").status == 0
    [row] = rows(tmp_path / "a.csv").values()
    assert [*row.values()][1:-1] == ["0.1", "0.2", "1", "1.3", "100.0"]


def test_two_solutions_of_one_exercise(capsys, monkeypatch, tmp_path):
    for folder, names in (("graders", ["g03.py"]), ("solutions", [NAME, "ex03_copy.py"])):
        for name in names:
            hand_in(tmp_path / folder, RIGHT, name)
    monkeypatch.setattr(check, "FOLDER", tmp_path)
    monkeypatch.setattr("lessons.grading.FOLDER", tmp_path)
    assert_told(checked(capsys, "3"), "lessons/solutions must have one file ex03_*.py; it has 2")


def test_a_file_that_can_not_be_graded_does_not_stop_the_others(capsys, monkeypatch, tmp_path):
    files = {"03": tmp_path / "empty.py", "04": one("solutions", "04")}
    files["03"].touch()
    monkeypatch.setattr("lessons.grading.Exercise.file", property(lambda self: files[self.number]))
    result = checked(capsys, "3", "4", "--json", tmp_path / "results.json")
    assert_told(result, f"{files['03']} is empty; it must hold UTF-8 text")
    assert "  7 of 7 points\n\ncourse: 50 % of what these exercises weigh\n" in result.out
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [test["score"] for test in found["tests"]] == [0, 0, 0, 3, 2, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc")
def test_nothing_stays_of_a_command_that_is_stopped(tmp_path, number):
    sleeps = RIGHT.replace("import numpy as np", "import numpy as np\nload = np.__builtins__['__import__']")
    sleeps += "print(load('os').getpid(), flush=True)\nload('time').sleep(100)\n"
    command = [sys.executable, "-m", "lessons.check", "03", "--seconds", "100"]
    command += ["--file", str(hand_in(tmp_path, sleeps)), "--json", str(tmp_path / "results.json")]
    (tmp_path / "tmp").mkdir()
    environment = ENVIRONMENT | {"TMPDIR": str(tmp_path / "tmp")}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    while not (found := children(process.pid)):
        time.sleep(0.01)
    time.sleep(0.5)  # it sleeps by now, or is about to: both are to be stopped
    process.send_signal(number)
    assert process.communicate()[1] == f"{check.PROG}: stopped\n" and process.returncode == 128 + number
    assert [path.name for path in tmp_path.iterdir() if path.name != NAME] == ["tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []
    for pid in found:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("missing", ["graders", "solutions"])
def test_without_the_answers_the_command_says_who_grades(capsys, monkeypatch, tmp_path, missing):
    for folder in {"graders", "solutions", "exercises"} - {missing}:
        hand_in(tmp_path / folder, RIGHT, "g03.py" if folder == "graders" else NAME)
    monkeypatch.setattr(check, "FOLDER", tmp_path)
    assert_told(checked(capsys, "3"), "there is no grader for 03 here: your teacher grades this file")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "{} is empty; it must hold UTF-8 text"),
        (b"x = '\xff'\n", "{} is not UTF-8 text: byte 5 is 0xff"),
        (b"\0", "{} is a binary file: byte 0 is 0; it must hold UTF-8 text"),
        (b"#" * 1_000_001, "{} has more than 1,000,000 bytes"),
    ],
)
def test_files_that_are_no_text(capsys, tmp_path, data, line):
    path = tmp_path / NAME
    path.write_bytes(data)
    assert_told(checked(capsys, "3", "--file", path), line.format(path))


# ----------------------------------------------------------------------------------------------------- Gradescope
def test_the_results_for_gradescope(capsys, tmp_path):
    results = tmp_path / "results.json"
    assert checked(capsys, "3", "--file", hand_in(tmp_path, SIGN), "--json", results).status == 1
    found = json.loads(results.read_text(encoding="utf-8"))
    seconds = found.pop("execution_time")
    assert 0 < seconds < 100
    explained = found["tests"][1].pop("output")
    assert explained.startswith("out[0, 0]: expected ") and explained.endswith(
        "hint: the sign: a surprise is never negative"
    )
    tests = [
        {
            "name": f"03 {part}",
            "number": f"03.{place}",
            "score": points if place != 2 else 0,
            "max_score": points,
            "status": "passed" if place != 2 else "failed",
            "output": "",
            "output_format": "text",
            "visibility": "visible",
        }
        for place, (part, points) in enumerate(zip(PARTS, POINTS, strict=True), 1)
    ]
    del tests[1]["output"]
    assert found == {
        "score": 5,
        "output": "5 of 7 points",
        "output_format": "text",
        "visibility": "visible",
        "tests": tests,
    }


def test_gradescope_gets_results_for_a_submission_that_is_not_there(capsys, tmp_path):
    results = tmp_path / "results.json"
    assert_told(checked(capsys, "3", "--file", tmp_path, "--json", results), f"{tmp_path} has no file ex03_*.py")
    found = json.loads(results.read_text(encoding="utf-8"))
    assert found["score"] == 0 and [test["max_score"] for test in found["tests"]] == POINTS
    assert {test["output"] for test in found["tests"]} == {f"{tmp_path} has no file ex03_*.py"}


# -------------------------------------------------------------------------------------------------------- a class
def rows(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_a_class(capsys, tmp_path, monkeypatch):
    handed_in = tmp_path / "handed_in"
    hand_in(handed_in, RIGHT, "anna.py")
    hand_in(handed_in / "Zoë B" / "deep", SIGN)
    hand_in(handed_in / "empty", EMPTY)
    hand_in(handed_in / "cheat", "from lessons.solutions.ex03_softmax_and_cross_entropy import *\n")
    hand_in(handed_in / "syntax", RIGHT + "\ndef (\n")
    evil = "raise KeyboardInterrupt('=1+1, \"a\"\\n\\x1b[2J\\ud800')"
    hand_in(handed_in / "evil", evil + "  # \x1b[2J\n")
    hand_in(handed_in, "import numpy as np\nnp.__builtins__['__import__']('os')._exit(0)\n", "=gone.py")
    (handed_in / "latin").mkdir()
    (handed_in / "latin" / NAME).write_bytes(b"# \xe9\n")
    (handed_in / "nothing").mkdir()
    (handed_in / "folder" / NAME).mkdir(parents=True)
    (handed_in / ".hidden").mkdir()
    (handed_in / "notes.txt").write_text("no submission")
    monkeypatch.chdir(tmp_path)
    (handed_in / "bob.zip").write_bytes(b"PK")
    (handed_in / "zoe").symlink_to(handed_in / "Zoë B")
    result = checked(capsys, "03", "--class", "handed_in")
    note = "note: neither a folder nor a .py file, and not graded: bob.zip, notes.txt, zoe\n"
    assert (result.status, result.err) == (0, note)
    assert result.out.splitlines() == [
        "class.csv: 10 students",
        "  03 log_softmax: 2 passed",
        "  03 cross_entropy: 1 passed",
        "  03 mean_loss_backward: 2 passed",
    ]
    found = rows(tmp_path / "class.csv")
    assert {student: [*row.values()][1:6] for student, row in found.items()} == {
        "anna": ["2", "2", "3", "7", "100.0"],
        "Zoë B": ["2", "0", "3", "5", "71.4"],
    } | {
        student: ["0", "0", "0", "0", "0.0"]
        for student in ("empty", "cheat", "syntax", "evil", "'=gone", "latin", "nothing", "folder")
    }
    assert list(found["anna"]) == ["student", *(f"03 {part}" for part in PARTS), "total", "percent", "remarks"]
    remarks = {student: row["remarks"] for student, row in found.items()}
    sign = remarks.pop("Zoë B")
    assert sign.startswith("03 cross_entropy: out[0, 0]: expected ")
    assert sign.endswith("; 6 of 6 entries differ (hint: the sign: a surprise is never negative)")
    solutions = "lessons.solutions.ex03_softmax_and_cross_entropy"
    assert remarks == {
        "anna": "",
        "empty": "03: not written yet",
        "cheat": f"03: imports {solutions} (line 1): exercise 03 may import numpy and math",
        "syntax": f"03: SyntaxError: invalid syntax (line {len(RIGHT.splitlines()) + 2}: def ()",
        "evil": f'03: KeyboardInterrupt: =1+1, "a" \ufffd[2J\ufffd (line 1: {evil} # \ufffd[2J)',
        "'=gone": "03: it ended its process, with status 0",
        "latin": f"03: handed_in/latin/{NAME} is not UTF-8 text: byte 2 is 0xe9",
        "nothing": "03: handed_in/nothing has no file ex03_*.py",
        "folder": "03: handed_in/folder has no file ex03_*.py",
    }


def test_a_class_with_two_exercises(capsys, tmp_path):
    hand_in(tmp_path / "class" / "ben", SIGN)
    hand_in(tmp_path / "class" / "ben", one("solutions", "04").read_text(encoding="utf-8"), one("solutions", "04").name)
    assert checked(capsys, "3", "4", "--class", tmp_path / "class", "--csv", tmp_path / "points.csv").status == 0
    [row] = rows(tmp_path / "points.csv").values()
    assert [*row.values()][:-1] == ["ben", "2", "0", "3", "3", "2", "2", "12", f"{100 * (6 * 5 / 7 + 6) / 12:.1f}"]


def test_a_huge_file_and_one_that_the_grader_may_not_read(capsys, tmp_path, monkeypatch):
    for name in ("anna", "bea", "cleo"):
        hand_in(tmp_path / "class" / name, RIGHT, "ex3.py")
    with open(tmp_path / "class" / "bea" / "ex3.py", "wb") as file:
        file.truncate(10**12)
    real = check.read

    def read(path):
        if path.parent.name == "cleo":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(check, "read", read)
    result = checked(capsys, "3", "--class", tmp_path / "class", "--csv", tmp_path / "a.csv")
    assert_told(result, "the grader failed; not all is graded of cleo")
    found = rows(tmp_path / "a.csv")
    assert {student: (row["total"], row["remarks"].partition(" | ")[0]) for student, row in found.items()} == {
        "anna": ("7", "03: graded ex3.py"),
        "bea": ("0", "03: graded ex3.py"),
        "cleo": (
            "",
            f"03: the grader failed, PermissionError: [Errno 13] Permission denied: '{tmp_path}/class/cleo/ex3.py'",
        ),
    }
    assert found["bea"]["remarks"].endswith("ex3.py has more than 1,000,000 bytes")


@pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc")
def test_nohup_is_respected(tmp_path):
    sleeps = RIGHT + "np.__builtins__['__import__']('time').sleep(1.5)\n"
    command = ["nohup", sys.executable, "-m", "lessons.check", "03", "--file", str(hand_in(tmp_path, sleeps))]
    process = subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not children(process.pid):
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    assert "7 of 7 points" in process.communicate()[0] and process.returncode == 0


def test_students_of_one_name_and_names_that_are_no_text(capsys, tmp_path):
    for name in ("anna.py", "Carl.PY", "\t=1+1\x1b[2J\r.py"):
        hand_in(tmp_path / "class", RIGHT, name)
    hand_in(tmp_path / "class" / "anna", SIGN)
    assert checked(capsys, "3", "--class", tmp_path / "class", "--csv", tmp_path / "a.csv").status == 0
    totals = {student: row["total"] for student, row in rows(tmp_path / "a.csv").items()}
    assert totals == {"'=1+1\ufffd[2J": "7", "Carl": "7", "anna": "5", "anna.py": "7"}


def test_a_fault_of_the_grader_stops_no_class_and_is_no_zero(capsys, tmp_path, monkeypatch):
    hand_in(tmp_path / "class", RIGHT, "anna.py")
    hand_in(tmp_path / "class", RIGHT, "ben.py")
    real = check.grade

    def broken(exercise, source, name, limits):
        if name == "anna.py":
            raise IndexError("list index out of range")
        return real(exercise, source, name, limits)

    monkeypatch.setattr(check, "grade", broken)
    result = checked(capsys, "3", "--class", tmp_path / "class", "--csv", tmp_path / "a.csv")
    assert_told(result, "the grader failed; not all is graded of anna")
    found = rows(tmp_path / "a.csv")
    assert [*found["anna"].values()][1:] == [""] * 5 + ["03: the grader failed, IndexError: list index out of range"]
    assert found["ben"]["total"] == "7"


@pytest.mark.skipif(os.name != "posix", reason="it needs ulimit")
def test_a_system_that_starts_no_process_gives_no_zeros(tmp_path):
    hand_in(tmp_path / "class", RIGHT, "anna.py")
    check = f"{sys.executable} -m lessons.check 03 --class {tmp_path / 'class'} --csv {tmp_path / 'a.csv'}"
    done = subprocess.run(
        f"ulimit -n 9; {check}", shell=True, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.endswith("the grader failed; not all is graded of anna\n")
    assert rows(tmp_path / "a.csv")["anna"]["total"] == ""


def test_missing_limits_are_noted(capsys, tmp_path, monkeypatch):
    real = check.grade
    monkeypatch.setattr(check, "grade", lambda *arguments: real(*arguments)._replace(missing=("memory",)))
    result = checked(capsys, "3", "--file", hand_in(tmp_path, RIGHT))
    assert (result.status, result.err) == (0, "note: this system sets no limit of memory\n")
