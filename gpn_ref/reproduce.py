"""The paper's table in small: its five models, and three that it lacks, equally large and trained alike.

Every model chooses its learning rate from the same four, on stories with one seed and half of the steps; then it is
trained with three seeds on stories, Python's documentation and the recall task. Each run is a run directory in
DIR/cells. Ctrl-C finishes the step and saves; the same command goes on with what is missing, after a kill too.
It prints the table, and writes it as Markdown, CSV and JSON, with a figure of the losses.

Exit status: 0 all runs are done; 2 bad input; 130 or 143 stopped by Ctrl-C or SIGTERM.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path
from time import perf_counter

from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.config import config_to_dict
from gpn_ref.figures import save
from gpn_ref.files import atomic_write, write_json
from gpn_ref.reproduction import paper_sizes
from gpn_ref.reproduction.cells import cell_experiment, load_tasks, read_result, run_cell
from gpn_ref.reproduction.figures import draw_losses
from gpn_ref.reproduction.plan import FULL, QUICK, size_rows, sweep_cells, table_cells
from gpn_ref.reproduction.progress import Progress, duration, estimate_seconds, tokens_per_second
from gpn_ref.reproduction.report import csv_text, markdown, md_table, models_table, told_run
from gpn_ref.reproduction.table import rate_of, run_record, sweep_of, tabulate
from gpn_ref.training.interrupts import Interrupts
from gpn_ref.training.run_directory import hold

PROG = "python -m gpn_ref.reproduce"
EXAMPLES = """examples:
  python -m gpn_ref.reproduce --quick
  python -m gpn_ref.reproduce --list
  python -m gpn_ref.reproduce
  python -m gpn_ref.reproduce --paper-sizes
"""
LEFT = re.compile(r"\.lock|\.plan\.json\.\d+\.tmp")  # what a start that was killed may leave
OUT, QUICK_OUT = "runs/reproduce", "runs/reproduce-quick"


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    what = "folder for all its files, new or one to go on in"
    parser.add_argument("--out", type=cli.path, metavar="DIR", help=f"{what} (default {OUT}; --quick: {QUICK_OUT})")
    what = "four small models, one seed, fewer steps: the whole way in about three minutes"
    parser.add_argument("--quick", action="store_true", help=what)
    what = "train nothing: print the plan, parameter counts, what is done and how long the rest should take"
    parser.add_argument("--list", action="store_true", help=what)
    what = "train nothing: build the paper's five models of 130M parameters, and take one step of each"
    parser.add_argument("--paper-sizes", action="store_true", help=what)
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    if options.paper_sizes:
        if options.out or options.quick or options.list:
            raise ValueError("--paper-sizes stands alone; leave the other flags out")
        return paper_sizes.main()
    plan, folder = (QUICK, QUICK_OUT) if options.quick else (FULL, OUT)
    reproduction = Reproduction(Path(options.out or folder), plan)
    reproduction.require_ours()
    if options.list:
        return reproduction.list()
    reproduction.folder.mkdir(parents=True, exist_ok=True)
    with hold(reproduction.folder):
        reproduction.begin()
        return reproduction.run(f"{PROG}{' --quick' * options.quick} --out {cli.shell(reproduction.folder)}")


def warn(line):
    print(f"{PROG}: {line}", file=sys.stderr)


def difference(one, other, name="plan"):
    """The name of the first part in which two records of JSON types differ, and the two parts as text."""
    if isinstance(one, dict) and isinstance(other, dict):
        for part in one | other:
            if one.get(part) != other.get(part):
                return difference(one.get(part), other.get(part), part)
    return name, json.dumps(one), json.dumps(other)


class Reproduction:
    """A plan and its folder, with the tasks and the models' sizes, which all of its cells share."""

    def __init__(self, folder, plan):
        self.folder, self.cells, self.plan = folder, folder / "cells", plan
        self.plan_path, self.speeds_path = folder / "plan.json", folder / "speeds.json"
        self.tasks = load_tasks(plan)
        self.sizes = size_rows(plan, {corpus: task.encoding.n_vocab for corpus, task in self.tasks.items()})

    def record(self):
        """All that decides what the runs come to, as JSON types: the plan, the models' sizes, the texts."""
        models = {corpus: {row: config_to_dict(size) for row, size in of.items()} for corpus, of in self.sizes.items()}
        texts = {corpus: task.checksum() for corpus, task in self.tasks.items()}
        return json.loads(json.dumps(self.plan.record() | {"models": models, "texts": texts}))

    def require_ours(self):
        """ValueError unless the folder is free, or what is in it was begun by this very plan."""
        folder, path = self.folder, self.plan_path
        if path.is_file():
            try:
                begun = json.loads(path.read_text(encoding="utf-8"))
            except (ValueError, RecursionError):
                begun = None
            if not isinstance(begun, dict):
                raise ValueError(f"{path} is damaged: it is not the plan of a table")
            if begun != (wanted := self.record()):
                name, there, here = difference(begun, wanted)
                what = f"its {name} is {there:.60}, not {here:.60}"
                raise ValueError(f"{folder} holds a table of another plan: {what}; choose another --out")
        elif folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; --out must name a folder, new or empty")
        elif folder.exists() and any(not LEFT.fullmatch(path.name) for path in folder.iterdir()):
            raise ValueError(f"{folder} is not empty and holds no table; --out must name a new or empty folder")

    def begin(self):
        """Keep the plan in the folder, where another is refused from then on; drop what a killed process has left."""
        for path in self.folder.glob(".*.tmp"):
            path.unlink()
        write_json(self.plan_path, self.record())

    def experiment(self, cell):
        return cell_experiment(self.plan, cell, self.tasks[cell.corpus], self.sizes[cell.corpus][cell.row])

    def runs(self):
        """All cells with their results, None where there is none yet: those of the sweep, then those of the table.

        A cell of the table has no learning rate as long as the sweep of its row is not done.
        """
        sweep = [(cell, read_result(self.cells, cell)) for cell in sweep_cells(self.plan)]
        records = [run_record(*run) for run in sweep]
        rates = {row: rate_of(self.plan, sweep_of(row, records)) for row in self.plan.rows}
        cells = table_cells(self.plan, rates)
        return sweep + [(cell, cell.learning_rate and read_result(self.cells, cell)) for cell in cells]

    def tabulate(self):
        return tabulate(self.plan, self.sizes, [run_record(*run) for run in self.runs()], self.speeds())

    def speeds(self):
        """Row -> tokens per second in training, as `time_rows` left it; None if it did not yet."""
        try:
            speeds = json.loads(self.speeds_path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return speeds if isinstance(speeds, dict) and speeds.keys() == set(self.plan.rows) else None

    def time_rows(self):
        """Time steps of all rows one after another: what else the machine does then is the same for all."""
        cells = table_cells(self.plan, dict.fromkeys(self.plan.rows, self.plan.rates[0]))
        first = {cell.row: cell for cell in reversed(cells)}  # of each row
        rows = tqdm(self.plan.rows, desc="timing", unit=" rows", disable=None, leave=False)
        write_json(self.speeds_path, {row: tokens_per_second(self.experiment(first[row])) for row in rows})

    def to_do(self):
        return [cell for cell, result in self.runs() if result is None]

    def estimate(self, cells):
        """Name of a cell -> seconds that it should take, by steps that are timed now, of each row and corpus once."""
        steps, found = self.plan.all_choices()["steps"], {}
        for cell in cells:
            place = cell.row, cell.corpus
            if place not in found:
                longest = cell._replace(steps=steps, learning_rate=self.plan.rates[0])
                found[place] = estimate_seconds(self.experiment(longest))
        return {cell.name: found[cell.row, cell.corpus] * cell.steps / steps for cell in cells}

    def list(self):
        """Print the plan, what is done, and how long the rest should take; returns the exit status."""
        table = self.tabulate()
        print(models_table(table), end="\n\n")
        sweeps = [("sweep", lambda run: run["sweep"])] if sweep_cells(self.plan) else []
        kinds = sweeps + [(corpus, partial(_of_table, corpus)) for corpus in self.plan.corpora]
        lines = []
        for row, content in table["rows"].items():
            own = [[run for run in table["runs"] if run["row"] == row and belongs(run)] for _, belongs in kinds]
            done = [sum(run["status"] != "missing" for run in runs) for runs in own]
            counts = [f"{n} of {len(runs)}" for n, runs in zip(done, own, strict=True)]
            lines.append([content["name"], *counts])
        print(md_table(["runs done", *(name for name, _ in kinds)], lines), end="\n\n")
        cells = self.to_do()
        left = duration(sum(self.estimate(cells).values()))
        print(f"{table['n_cells'] - len(cells)} of {table['n_cells']} runs are done in {self.folder}; ", end="")
        print(f"the rest should take {left}, by steps timed just now" if cells else "nothing is left to do")
        return 0

    def run(self, again):
        """Train what is missing, and write the table; returns the exit status. `again` is the command to go on."""
        cells = self.to_do()
        seconds = self.estimate(cells)
        n_cells = len(self.runs())
        if cells:
            print(f"{len(cells)} of {n_cells} runs to do, about {duration(sum(seconds.values()))}", flush=True)
        with Interrupts() as stop, Progress(seconds, n_cells - len(cells)) as progress:
            while (cells := self.to_do()) and self.train(cells[0], stop, progress):
                pass
        if not self.to_do() and not self.speeds():
            self.time_rows()
        table = self.tabulate()
        paths = self.write(table)
        if table["missing"]:
            print(f"stopped after {n_cells - table['missing']} of {n_cells} runs; go on with: {again}")
            return stop.exit_status
        print(f"\n{markdown(table)}")
        print(f"files  {self.folder}/: {', '.join(path.name for path in paths)}, cells/")
        return 0

    def train(self, cell, stop, progress):
        """Whether the cell was trained to its end."""
        began = perf_counter()
        experiment = self.experiment(cell)
        steps = partial(progress.steps, cell)
        try:
            result = None if stop() else run_cell(self.cells, cell, experiment, stop, steps, warn)
        except ValueError as error:
            error.add_note(f"remove {self.cells / cell.name}, and it is trained again")
            raise
        if result:
            progress.end(cell, f"{cell.name}: {told_run(result)}, {duration(perf_counter() - began)}")
        return result is not None

    def write(self, table):
        """Write the table and its figure -> their paths."""
        write_json(self.folder / "table.json", table)
        for name, text in (("table.md", markdown(table)), ("table.csv", csv_text(table))):
            with atomic_write(self.folder / name) as file:
                file.write(text)
        figures = []
        try:
            if figure := draw_losses(table):
                figures = save(figure, self.folder / "loss")
        except Exception as error:  # a picture is not worth a table
            warn(f"cannot draw the losses: {' '.join(str(error).split())}")
        return [self.folder / name for name in ("table.md", "table.csv", "table.json")] + figures


def _of_table(corpus, run):
    return run["corpus"] == corpus and not run["sweep"]


if __name__ == "__main__":
    cli.run(main, PROG)
