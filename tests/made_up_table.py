"""Tables of numbers that nobody trained, to test what is said of them."""

from gpn_ref.reproduction.plan import FULL, size_rows, sweep_cells, table_cells
from gpn_ref.reproduction.table import run_record, tabulate

VOCAB_SIZES = {"stories": 295, "python-docs": 1024, "recall": 81}
RATE = 2e-3


def finished(cell, **numbers):
    """What a run came to, `numbers` aside: a model as good as all others."""
    return {
        "cell": cell._asdict(),
        "status": "finished",
        "tokens": 1000,
        "validation_loss": 1.0 + (cell.learning_rate != RATE),
        "perplexity": 3.0,
        "bits_per_byte": 0.5,
        "tokens_per_second": 5000.0,
        "state_floats": 256,
        "state_tokens": 64,
        "curve": [[0, 5.7], [500, 2.0], [1000, 1.0 + cell.seed]],
    } | numbers


def diverged(cell):
    numbers = {"state_floats": 256, "state_tokens": 64}
    return {"cell": cell._asdict(), "status": "diverged", "message": "step 7: the loss is nan"} | numbers


def table(result, plan=FULL):
    """The table of a plan; `result` makes of a cell what it came to, None for one that is not done."""
    cells = sweep_cells(plan) + table_cells(plan, dict.fromkeys(plan.rows, RATE))
    sizes = size_rows(plan, {corpus: VOCAB_SIZES[corpus] for corpus in plan.corpora})
    return tabulate(plan, sizes, [run_record(cell, result(cell)) for cell in cells], dict.fromkeys(plan.rows, 5000.0))
