"""The lessons and exercises that are there, cut into what their tests look at."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "lessons"
FILES = sorted(LESSONS.glob("[0-9][0-9]_*.py"))
NUMBERS = sorted(path.name[2:4] for path in (LESSONS / "exercises").glob("ex[0-9][0-9]_*.py"))


class Cell(NamedTuple):
    markdown: bool
    lines: list  # of markdown without its "# "

    @property
    def text(self):
        return "\n".join(self.lines)


def cells(path):
    """The cells of a script in percent format."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# %%"):
            found.append(Cell(line == "# %% [markdown]", []))
        elif found[-1].markdown:
            assert line == "" or re.match("# |#$", line), f"{path.name}: no prose: {line}"
            found[-1].lines.append(line[2:])
        else:
            found[-1].lines.append(line)
    return found


def prose(path):
    return "\n\n".join(cell.text for cell in cells(path) if cell.markdown)


def header(path):
    """The lesson's title and the four rows of its first table, by name."""
    first = cells(path)[0].text
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", first, re.MULTILINE)
    return re.search("^# (.+)", first)[1], dict(rows)


def one(folder, number):
    [path] = (LESSONS / folder).glob(f"*{number}_*.py")
    return path


def functions(path):
    """name -> ast of every function at the top of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def unwritten(path):
    """The functions of an exercise that are left to write."""
    return {
        name: node
        for name, node in functions(path).items()
        if ast.unparse(node.body[-1]) == "raise NotImplementedError"
    }


def imported(path):
    """All that a file imports: modules, or names in modules."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def minutes(text):
    """ "45, and 30 for the exercises" -> (45, 30); "10" -> (10, 0)."""
    found = re.fullmatch(r"(\d+)(?:, and (\d+) for the exercises?)?(?:;.*)?", text)
    return int(found[1]), int(found[2] or 0)


def syllabus_row(path):
    """The lesson's row of the table in lessons/README.md, made of its header."""
    title, rows = header(path)
    number, name = title.split(" · ", 1)
    lesson, exercises = minutes(rows["Minutes"])
    time = f"{lesson} + {exercises}" if exercises else f"{lesson}"
    return f"| {number} | [{name}]({path.name}) | {time} | {rows['You need']} | {rows['You will see']} |"


if __name__ == "__main__":
    print("\n".join(map(syllabus_row, FILES)))
