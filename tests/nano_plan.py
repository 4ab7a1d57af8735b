"""A plan of a table that is trained in seconds. As a script, the command `reproduce` of this plan."""

import sys

from gpn_ref import cli, reproduce
from gpn_ref.reproduction import cells
from gpn_ref.reproduction.plan import Plan

NANO = Plan(
    rows=("transformer-deep", "gpn+m-1", "gpn"),
    corpora=("stories", "recall"),
    seeds=(0, 1),
    rates=(1e-3, 1e-2),
    sweep_steps=4,
    choices={
        "preset": "nano",
        "steps": 8,
        "batch_size": 2,
        "window": 12,
        "warmup_steps": 2,
        "evaluate_every": 4,
        "checkpoint_every": 3,
        "backend": "numpy",
    },
)


def load_tasks(plan):
    """The plan's tasks, with little of the stories to validate on, and few questions."""
    tasks = cells.load_tasks(plan)
    stories = tasks["stories"]
    stories.validation_tokens = stories.validation_tokens[:400]
    stories.validation_starts = stories.validation_starts[stories.validation_starts < 380]
    stories.cloze_items = stories.cloze_items[:6]
    return tasks


if __name__ == "__main__":
    reproduce.FULL, reproduce.load_tasks = NANO, load_tasks
    cli.run(lambda: reproduce.main(sys.argv[1:]), reproduce.PROG)
