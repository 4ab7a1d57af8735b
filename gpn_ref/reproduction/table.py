"""The numbers of the table: each row's, over its seeds."""

import math
from statistics import mean, stdev

from gpn_ref.parameters import count_params
from gpn_ref.reproduction.findings import findings
from gpn_ref.reproduction.plan import FULL, ROWS, chosen_rate, reference

METRICS = {  # of a corpus: the metrics of its runs, and what a table calls them
    "stories": {
        "perplexity": "perplexity",
        "bits_per_byte": "bits per byte",
        "cloze_accuracy": "last words right",
        "cloze_perplexity": "their perplexity",
    },
    "python-docs": {"perplexity": "perplexity", "bits_per_byte": "bits per byte"},
    "recall": {"recall_accuracy": "values recalled", "recall_untrained_gaps": "after longer gaps than trained"},
}


def sweep_of(row, runs):
    """Of a row's sweep: rate -> validation loss, None where it diverged; runs that are not done are left out."""
    done = [run for run in runs if run["sweep"] and run["row"] == row and run["status"] != "missing"]
    return {run["learning_rate"]: run.get("validation_loss") for run in done}


def rate_of(plan, sweep):
    """The learning rate of a row, or None while its sweep, as `sweep_of` gives it, is not done."""
    if len(plan.rates) == 1:
        return plan.rates[0]
    return chosen_rate(sweep) if len(sweep) == len(plan.rates) else None


def run_record(cell, result):
    """A run as a flat record: the cell, its status, and what it came to."""
    return {**cell._asdict(), "status": "missing", **{k: v for k, v in (result or {}).items() if k != "cell"}}


def tabulate(plan, sizes, runs, speeds=None):
    """All numbers of the table, as JSON types.

    sizes: corpus -> row -> configuration; runs: a list of `run_record`s; speeds: row -> tokens per second, as they were
    timed one after another, None if they were not.
    """
    choices = plan.all_choices()
    table = {
        "plan": plan.record(),
        "leaves_out": leaves_out(plan),
        "corpora": list(plan.corpora),
        "seeds": list(plan.seeds),
        "window": choices["window"],
        "bptt": choices["bptt"],
        "recall_chance": 1 / choices["recall_n_values"],
        "rows": {row: _row(plan, row, sizes, runs, (speeds or {}).get(row)) for row in plan.rows},
        "n_cells": len(runs),
        "missing": sum(run["status"] == "missing" for run in runs),
        "diverged": [run for run in runs if run["status"] == "diverged" and not run["sweep"]],
        "runs": runs,
    }
    return table | {"findings": findings(table)}


def _row(plan, row, sizes, runs, speed):
    configs = {corpus: sizes[corpus][row] for corpus in plan.corpora}
    layers, sweep = next(iter(configs.values())).n_layers, sweep_of(row, runs)
    rate, own = rate_of(plan, sweep), [run for run in runs if run["row"] == row and not run["sweep"]]
    known = [run for run in own if "state_floats" in run]
    return {
        "name": ROWS[row].named(layers),
        "layers": layers,
        "paper": ROWS[row].paper and ROWS[row].paper._asdict(),
        "sizes": {corpus: config.sizes() for corpus, config in configs.items()},
        "parameters": {corpus: count_params(config) for corpus, config in configs.items()},
        "of_reference": {
            corpus: count_params(config) / count_params(reference(plan, config.vocab_size))
            for corpus, config in configs.items()
        },
        "state": {run["corpus"]: {"floats": run["state_floats"], "tokens": run["state_tokens"]} for run in known},
        "tokens_per_second": speed,
        "sweep": sweep,
        "learning_rate": rate,
        "at_edge": len(sweep) > 1 and rate in (min(plan.rates), max(plan.rates)),
        "measured": {
            corpus: {metric: _over_seeds(plan, corpus, metric, own) for metric in METRICS[corpus]}
            for corpus in plan.corpora
        },
    }


def _over_seeds(plan, corpus, metric, runs):
    """One number of a row: of each seed, None where there is none; mean and standard deviation of those there are."""
    by_seed = {run["seed"]: run for run in runs if run["corpus"] == corpus}
    seeds = [by_seed.get(seed, {}).get(metric) for seed in plan.seeds]
    statuses = [by_seed.get(seed, {"status": "missing"})["status"] for seed in plan.seeds]
    there = [value for value in seeds if value is not None]
    return {
        "seeds": seeds,
        "statuses": statuses,
        "mean": mean(there) if there else None,
        "sd": stdev(there) if len(there) > 1 else None,
    }


def leaves_out(plan):
    """What this plan has less than the full table, in words."""
    rows = [ROWS[row].named(ROWS[row].layers) for row in FULL.rows if row not in plan.rows]
    corpora = [corpus for corpus in FULL.corpora if corpus not in plan.corpora]
    budget, full_budget = (math.prod(of.all_choices()[name] for name in ("steps", "batch_size")) for of in (plan, FULL))
    found = []
    if rows:
        found.append(f"the models {', '.join(rows)}")
    if corpora:
        found.append(f"the corpus {', '.join(corpora)}")
    if len(plan.seeds) < len(FULL.seeds):
        found.append(f"{len(FULL.seeds) - len(plan.seeds)} of {len(FULL.seeds)} seeds")
    if len(plan.rates) == 1:
        found.append(f"the choice of a learning rate for each model (it is {plan.rates[0]:g} for all)")
    if budget < full_budget:
        found.append(f"{100 * (1 - budget / full_budget):.0f} % of the tokens")
    return found
