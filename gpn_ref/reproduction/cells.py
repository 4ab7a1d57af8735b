"""One cell of the table: a run directory, trained to its end, measured, and kept as cell.json."""

import json
from math import isfinite
from statistics import median

import numpy as np

from gpn_ref import cloze
from gpn_ref.blas import blas_threads
from gpn_ref.files import write_json
from gpn_ref.measures import perplexity, recall, recall_rows
from gpn_ref.parameters import count_params, init_params
from gpn_ref.text.tokenizer import format_ranks, ranks_of
from gpn_ref.training.experiment import new_experiment, recall_config
from gpn_ref.training.run_directory import RunDirectory
from gpn_ref.training.tasks import RecallTask, load_task
from gpn_ref.training.trainer import Diverged, Trainer

RESULT = "cell.json"


def load_tasks(plan):
    """corpus -> its task, loaded once for all cells."""
    choices = plan.all_choices()
    recall_sizes = recall_config(choices)
    return {name: load_task(name, vocab_size=choices["vocab_size"], recall=recall_sizes) for name in plan.corpora}


def cell_experiment(plan, cell, task, config):
    """The Experiment of a cell: the plan's choices with the cell's corpus, seed, rate and steps."""
    of_cell = {name: getattr(cell, name) for name in ("corpus", "seed", "learning_rate", "steps")}
    return new_experiment(plan.choices | of_cell, task, config)


def read_result(folder, cell):
    """What a finished cell came to, or None."""
    path = folder / cell.name / RESULT
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        result = None
    if not is_result(result, cell):
        raise ValueError(f"{path} is not the result of this cell; remove its folder, and it is trained again")
    return result


def is_result(result, cell):
    """Whether this is what a run of the cell can have come to."""
    if not isinstance(result, dict) or result.get("cell") != cell._asdict():
        return False
    numbers = ["parameters", "state_floats", "state_tokens"]
    if result.get("status") == "finished":
        numbers += ["tokens", "validation_loss", "tokens_per_second", "perplexity", "bits_per_byte"]
        numbers += {"stories": ["cloze_accuracy", "cloze_perplexity"], "recall": ["recall_accuracy"]}.get(
            cell.corpus, []
        )
        curve = result.get("curve")
        if not (isinstance(curve, list) and curve and all(is_point(point) for point in curve)):
            return False
    elif result.get("status") != "diverged":
        return False
    shares = [result[name] for name in ("cloze_accuracy", "recall_accuracy", "recall_untrained_gaps") if name in result]
    values = [result.get(name) for name in numbers] + shares
    return all(is_number(value) and value >= 0 for value in values) and all(share <= 1 for share in shares)


def is_point(point):
    return isinstance(point, list) and len(point) == 2 and all(map(is_number, point))


def is_number(value):
    return type(value) in (int, float) and isfinite(value)


def run_cell(folder, cell, experiment, stop, progress, warn):
    """Train and measure a cell, from its last checkpoint on -> its result, or None if `stop()` came before the end.

    A run that diverges is a result too. Only the last checkpoint of a cell that is done is kept.
    """
    with open_run(folder / cell.name, experiment) as run, blas_threads(count_params(experiment.model_config)):
        trainer = Trainer(run, experiment)
        trainer.resume(warn)
        try:
            trainer.train(stop, progress(trainer.step))
        except Diverged as error:
            found = {"status": "diverged", "message": str(error).split(";")[0]}
        else:
            if not trainer.finished:
                return None
            found = {"status": "finished"} | summarize(run.metrics()) | measure(trainer)
        result = {"cell": cell._asdict()} | found | describe(experiment)
        for path in run.checkpoint_paths()[1:]:
            path.unlink()
        write_json(run.path / RESULT, result)
        return result


def open_run(path, experiment):
    """The run directory of the experiment, made if it is not there; ValueError if it is that of another one."""
    if not (path / "config.json").exists():
        ranks = format_ranks(ranks_of(experiment.encoding))
        counts = np.bincount(experiment.task.tokens, minlength=experiment.encoding.n_vocab)
        return RunDirectory.create(path, experiment.config(), ranks, counts)
    run = RunDirectory(path)
    if run.config != json.loads(json.dumps(experiment.config())):
        raise ValueError(f"{path} was begun with other settings; remove it, and it is trained again")
    return run


def describe(experiment):
    """A model's size, and that of the state that it carries after a window of T tokens, in floats."""
    config, T = experiment.model_config, experiment.train_config.window
    state = experiment.model.forward(init_params(config), np.zeros((1, T), int)).state
    sizes = {"model": config.sizes(), "parameters": count_params(config)}
    return sizes | {"state_floats": sum(part.size for part in state), "state_tokens": T}


def summarize(metrics):
    """What a run's records tell: its last validation, its speed, and the validation loss by tokens trained on."""
    evaluated = [record for record in metrics if "validation_loss" in record]
    last, speeds = evaluated[-1], [record["tokens_per_second"] for record in metrics if "loss" in record]
    return {
        "tokens": metrics[-1]["tokens"],
        "validation_loss": last["validation_loss"],
        "perplexity": last["validation_perplexity"],
        "bits_per_byte": last["validation_bits_per_byte"],
        "tokens_per_second": median(speeds) if speeds else None,
        "curve": [[record["tokens"], record["validation_loss"]] for record in evaluated],
    }


def measure(trainer):
    """What a trained model answers, where its corpus has questions."""
    task = trainer.experiment.task
    bound, found = trainer.experiment.model.bind(trainer.learner.params()), {}
    if questions := task.cloze_questions():
        answers = cloze.ask(bound, questions)
        found["cloze_accuracy"] = answers.accuracy
        found["cloze_perplexity"] = perplexity(answers.losses.sum() / answers.sizes.sum())
    if isinstance(task, RecallTask):
        rows = recall_rows(task.config, max(task.asked_gaps))
        untrained = [gap for gap in task.asked_gaps if gap not in task.gaps]
        for name, gaps in (("recall_accuracy", task.gaps), ("recall_untrained_gaps", untrained)):
            if gaps:
                found[name] = recall(bound, task.config, gaps, rows).accuracy
    return found
