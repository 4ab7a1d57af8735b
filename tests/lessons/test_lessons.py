"""The lessons: they have the form that was agreed, name only what exists, and run as a student runs them."""

import ast
import importlib
import re
import subprocess
import sys

import pytest
from commands import ENVIRONMENT, ROOT
from lesson_files import FILES, LESSONS, cells, header, minutes, prose

lessons = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
WITHOUT_EXERCISES = ("00", "15")
HEADER = ["You will be able to", "You need", "Minutes", "You will see"]
SECTION = r"^## (.+)$"


def snippets(text):
    """What stands in backquotes."""
    return re.findall(r"`([^`\n]+)`", text)


# ---------------------------------------------------------------------------------------------------------- form
@lessons
def test_the_header_is_complete(path):
    title, rows = header(path)
    assert re.fullmatch(rf"{path.name[:2]} · \S.*", title)
    assert list(rows) == HEADER
    lesson, exercises = minutes(rows["Minutes"])
    assert 5 <= lesson <= 120 and (exercises > 0) == (path.name[:2] not in WITHOUT_EXERCISES)


@lessons
def test_the_parts_are_three_to_six_and_then_it_is_broken(path):
    sections = re.findall(SECTION, prose(path), re.MULTILINE)
    numbered, last = sections[:-1], sections[-1]
    assert [title.split(" · ")[0] for title in numbered] == [str(n + 1) for n in range(len(numbered))]
    titles = [title.split(" · ")[1] for title in numbered]
    assert titles[-1].startswith("Break it") and 3 <= len(titles) - 1 <= 6
    assert last.startswith("Where the finished version lives")


@lessons
def test_every_part_asserts_what_it_claims(path):
    part, asserts = None, {}
    for cell in cells(path):
        if cell.markdown:
            titles = re.findall(SECTION, cell.text, re.MULTILINE)
            part = titles[-1] if titles else part
        elif part:
            asserts[part] = asserts.get(part, 0) + len(re.findall(r"^ *assert(?:_\w+)?\b", cell.text, re.MULTILINE))
    assert asserts and [title for title, count in asserts.items() if not count] == []


@lessons
def test_it_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 250
    for cell in cells(path):
        if not cell.markdown:
            lines = [line for line in cell.lines if line.strip()]
            code = len(lines) - len([line for line in lines if line.strip().startswith("#")]) - docstrings(cell.text)
            assert code <= 20 and len(lines) <= 25, f"{code} lines of code, {len(lines)} in all: {lines[0]}"


def docstrings(text):
    """How many lines of the code are docstrings."""
    nodes = [node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    found = [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return sum(node.end_lineno - node.lineno + 1 for node in found)


@lessons
def test_it_imports_public_names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        assert not [name for name in [*modules, *names] if re.search(r"(^|\.)_(?!_)", name)], names
        assert not any(name.startswith(("lessons", "tests")) for name in [*modules, *names]), "say `from kit import`"


# -------------------------------------------------------------------------------------------------------- truth
@lessons
def test_the_files_that_it_names_exist(path):
    text = path.read_text(encoding="utf-8")
    found = set(re.findall(r"\b(?:gpn_ref|lessons|data|tests)/[\w./-]*\w", text))
    found |= {name for name in snippets(prose(path)) if re.fullmatch(r"[\w.-]+\.(?:py|md|toml|txt|ranks|json)", name)}
    found |= {link for link in re.findall(r"\]\(([^)#]+)", prose(path)) if "://" not in link}
    made = {name for name in found if name.startswith(("lessons/out", "runs/"))}
    known = {path.name for path in (ROOT / "gpn_ref").rglob("*.*")}  # `heads.py`, where its folder has been named
    missing = {name for name in found - made - known if not any((at / name).exists() for at in (ROOT, LESSONS))}
    assert missing == set()


def exists(name):
    """Whether a dotted name is a module, or something in one."""
    module, names = name, []
    while module:
        try:
            thing = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            names.insert(0, last)
        else:
            for part in names:
                thing = getattr(thing, part, None)
            return thing is not None
    return False


@lessons
def test_the_modules_that_it_names_exist(path):
    text = re.sub(r"python3? -m (\S+)", r"\1", path.read_text(encoding="utf-8"))
    names = set(re.findall(r"\b(?:gpn_ref|lessons)(?:\.\w+)+", text))
    assert [name for name in sorted(names) if not name.endswith(".py") and not exists(name)] == []


SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for room in ("gpn_ref", "lessons") for path in sorted((ROOT / room).rglob("*.py"))
)
WORDS = set(re.findall(r"\w+", "\n".join(line for line in SOURCES.splitlines() if not re.match(r" *#", line))))


@lessons
def test_the_names_in_its_prose_are_names_of_code(path):
    identifiers = {
        word
        for snippet in snippets(prose(path))
        if re.fullmatch(r"[A-Za-z_][\w.]*(\(.*\))?", snippet) and "/" not in snippet
        for word in re.split(r"[.(]", snippet.split("(")[0])
        if word
    }
    assert sorted(identifiers - WORDS) == []


@lessons
def test_the_end_names_the_exercises_and_what_comes_next(path):
    number = path.name[:2]
    end = prose(path)[prose(path).index("## Where the finished version lives") :]
    assert re.search(r"`gpn_ref/[\w/]+(\.py)?`", end), "where?"
    if number not in WITHOUT_EXERCISES:
        assert f"lessons/exercises/ex{path.name}" in end and f"python -m lessons.check {number}" in end
    if number != "15":
        assert re.search(rf"\blesson {int(number) + 1:02}\b", end, re.IGNORECASE), "what comes next?"


@lessons
def test_it_points_forward_only_to_say_what_comes(path):
    named = {int(n) for n in re.findall(r"\blessons? (\d\d)\b", header(path)[1]["You need"])}
    assert all(n < int(path.name[:2]) for n in named), "it needs a later lesson"


# ------------------------------------------------------------------------------------------------------ it runs
def output_of(path, folder):
    """What the lesson prints, run as a student would in this folder; measured times left out."""
    command = [sys.executable, str(path.relative_to(folder))]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return [line for line in done.stdout.splitlines() if not re.search("seconds|times as fast", line)]


@pytest.mark.slow
@lessons
def test_it_runs_from_both_folders_and_prints_the_same(path):
    printed = output_of(path, ROOT)
    assert printed == output_of(path, LESSONS)
    for name in re.findall(r"^figure: (lessons/out/\S+)", "\n".join(printed), re.MULTILINE):
        assert (ROOT / name).stat().st_size > 5000 and name.startswith(f"lessons/out/{path.name[:2]}_")
