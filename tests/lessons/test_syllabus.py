"""lessons/README.md tells the truth: its syllabus is that of the lessons, plans add up, files and flags exist."""

import re
import shlex

import pytest
from lesson_files import FILES, LESSONS, ROOT, header, syllabus_row

from lessons import check

README = (LESSONS / "README.md").read_text(encoding="utf-8")
BLOCKS = "\n".join(re.findall(r"^```\w*\n(.*?)^```", README, re.DOTALL | re.MULTILINE))
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE))
ROWS = {row[2:4]: row for row in README.splitlines() if re.match(r"\| \d\d \|", row)}
NUMBERS = [f"{number:02}" for number in range(16)]


def split(row):
    return [cell.strip() for cell in row.strip("|").split("|")]


def table(heading):
    """The rows of the table below a heading, as lists of cells."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [split(line) for line in section.splitlines() if line.startswith("|")][2:]


def minutes_of(number):
    """Of the lesson, and of its exercises."""
    lesson, _, exercises = split(ROWS[number])[2].partition(" + ")
    return int(lesson), int(exercises or 0)


def test_it_promises_sixteen_lessons_and_all_are_there():
    assert list(ROWS) == NUMBERS
    there = [path.name[:2] for path in FILES]
    assert [ROWS[number] for number in NUMBERS if number not in there] == [], "these lessons are missing"
    assert there == NUMBERS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_syllabus_says_what_the_lesson_says(path):
    assert header(path)[0].startswith(f"{path.name[:2]} · ")
    assert ROWS[path.name[:2]] == syllabus_row(path)  # printed by: python tests/lesson_files.py


def test_four_weeks_have_every_lesson_once_and_add_up():
    rows = table("Four weeks")
    taught = [re.findall(r"\d\d", lessons) for _, lessons, *_ in rows]
    assert sum(taught, []) == NUMBERS
    claimed = [(int(at_school), int(at_home)) for _, _, at_school, at_home, _ in rows]
    assert claimed == [tuple(map(sum, zip(*map(minutes_of, week), strict=True))) for week in taught]


def test_two_days_add_up():
    rows = table("Two days")
    claimed, real = [], []
    for _, lessons, exercises, minutes in rows:
        taught, practised = re.findall(r"\d\d", lessons), re.findall(r"\d\d", exercises)
        assert set(practised) <= set(taught)
        claimed.append(int(minutes))
        real.append(sum(minutes_of(n)[0] for n in taught) + sum(minutes_of(n)[1] for n in practised))
    assert claimed == real


def test_every_file_that_it_names_exists():
    named = {
        name for name in INLINE if re.fullmatch(r"(?:gpn_ref|lessons|tests|data)/[\w./-]+|[\w-]+\.(?:py|md|toml)", name)
    }
    named |= {link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link}
    named |= set(re.findall(r"(?:lessons|tests)/[\w/]+\.py", BLOCKS))
    assert (
        named - {"lessons/out/"}
        and [
            name for name in sorted(named - {"lessons/out/"}) if not any((at / name).exists() for at in (ROOT, LESSONS))
        ]
        == []
    )


def test_every_command_is_understood():
    commands = re.findall(r"python -m lessons\.check (.*)", "\n".join([BLOCKS, *INLINE]))
    assert len(commands) >= 4
    for command in commands:
        check.parser().parse_args(shlex.split(command))
    flags = {flag.split()[0] for flag in INLINE if flag.startswith("--")}
    assert flags <= {option for action in check.parser()._actions for option in action.option_strings}


def test_every_lesson_has_two_or_three_questions_with_answers():
    section = README.split("\n## Questions")[1].split("\n## ")[0]
    found = re.findall(r"^\*\*(\d\d)\.\*\*(.*?)(?=^\*\*\d\d|\Z)", section, re.DOTALL | re.MULTILINE)
    assert [number for number, _ in found] == NUMBERS
    for number, text in found:
        questions = re.findall(r"\*([^*]+\?)[^*]*\*", text)
        assert 2 <= len(questions) <= 3, number
        answers = re.split(r"\*[^*]+\*", text)[1:]
        assert len(answers) == len(questions) and all(len(answer.split()) >= 8 for answer in answers), number
