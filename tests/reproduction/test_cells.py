"""A cell: what it is trained on, what it comes to, and what is not trained again."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from made_up_table import finished
from nano_plan import NANO, load_tasks

from gpn_ref.reproduction.cells import cell_experiment, describe, read_result, run_cell
from gpn_ref.reproduction.plan import Cell, size_rows
from gpn_ref.training.run_directory import RunDirectory

PLAN = replace(NANO, rows=("transformer-deep", "gpn+m-1", "gpn+m-decay-first"))


class Silent:
    """A progress that shows nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def update(self):
        pass

    def write(self, text):
        pass

    def set_postfix_str(self, text, refresh):
        pass


@pytest.fixture(scope="module")
def tasks():
    return load_tasks(PLAN)


@pytest.fixture(scope="module")
def experiment(tasks):
    sizes = size_rows(PLAN, {corpus: task.encoding.n_vocab for corpus, task in tasks.items()})
    return lambda cell: cell_experiment(PLAN, cell, tasks[cell.corpus], sizes[cell.corpus][cell.row])


def run(folder, cell, experiment, stop=lambda: False):
    return run_cell(folder, cell, experiment(cell), stop, lambda step: Silent(), pytest.fail)


def batches(experiment, count=50):
    """Inputs and targets of the first steps."""
    return [batch.tolist() for _ in range(count) for batch in experiment.batches.next()]


@pytest.mark.parametrize("corpus", NANO.corpora)
def test_all_models_of_a_corpus_and_seed_see_the_same_tokens_in_the_same_order(experiment, corpus):
    seen = {
        (row, seed): batches(experiment(Cell(row, corpus, seed, rate, 8)))
        for row, rate in zip(PLAN.rows, (1e-3, 2e-3, 4e-3), strict=True)
        for seed in (0, 1)
    }
    for (_, seed), found in seen.items():
        assert found == seen[PLAN.rows[0], seed]
    assert seen[PLAN.rows[0], 0] != seen[PLAN.rows[0], 1]


def test_a_run_is_that_of_its_cell(experiment, tmp_path):
    cell = Cell("gpn+m-decay-first", "stories", 1, 3e-3, 8)
    result = run(tmp_path, cell, experiment)
    directory = RunDirectory(tmp_path / cell.name)
    assert directory.config["model"]["decay_first"]
    training = directory.config["training"]
    assert [training[name] for name in ("seed", "learning_rate", "steps", "window")] == [1, 3e-3, 8, 12]
    assert result == read_result(tmp_path, cell) == json.loads((tmp_path / cell.name / "cell.json").read_text())
    assert result["cell"] == cell._asdict() and result["status"] == "finished"
    assert len(directory.checkpoint_paths()) == 1  # the last one
    last = directory.metrics()[-1]
    assert result["validation_loss"] == last["validation_loss"]
    assert result["perplexity"] == pytest.approx(math.exp(last["validation_loss"]))
    assert result["bits_per_byte"] == last["validation_bits_per_byte"]
    assert result["tokens"] == 8 * 2 * 12
    speeds = [record["tokens_per_second"] for record in directory.metrics()[1:]]
    assert result["tokens_per_second"] == np.median(speeds)
    assert [tokens for tokens, _ in result["curve"]] == [0, 4 * 24, 8 * 24]
    assert result["curve"][-1][1] == last["validation_loss"]
    assert 0 <= result["cloze_accuracy"] <= 1 and result["cloze_perplexity"] == pytest.approx(295, rel=0.3)


def test_recall_is_measured_at_the_gaps_of_training_and_beyond(experiment, tmp_path):
    result = run(tmp_path, Cell("gpn+m-1", "recall", 0, 1e-3, 2), experiment)
    assert 0 <= result["recall_accuracy"] < 0.2 and 0 <= result["recall_untrained_gaps"] < 0.2
    assert "cloze_accuracy" not in result


def test_the_state_of_a_transformer_grows_that_of_a_gpn_does_not(experiment):
    transformer, gpn = (experiment(Cell(row, "stories", 0, 1e-3, 8)) for row in ("transformer-deep", "gpn+m-1"))
    d, n_layers = transformer.model_config.d_model, transformer.model_config.n_layers
    assert describe(transformer)["state_floats"] == 12 * 2 * d * n_layers  # a key and a value for each of 12 tokens
    assert describe(gpn)["state_floats"] == 16 + 16 + 2 * 8 * 8  # predicted, grounded, the memory
    assert describe(gpn)["state_tokens"] == 12


def test_a_stopped_cell_goes_on_to_the_same_end(experiment, tmp_path):
    cell = Cell("gpn+m-1", "stories", 0, 1e-3, 8)
    alone = run(tmp_path / "alone", cell, experiment)
    answers = iter([False] * 4 + [True])
    assert run(tmp_path, cell, experiment, lambda: next(answers)) is None
    assert read_result(tmp_path, cell) is None
    assert RunDirectory(tmp_path / cell.name).metrics()[-1]["step"] == 4
    result = run(tmp_path, cell, experiment)
    assert result | {"tokens_per_second": 0} == alone | {"tokens_per_second": 0}


def test_a_run_that_diverges_is_a_result(experiment, tmp_path):
    cell = Cell("gpn+m-1", "stories", 0, 1e30, 8)
    result = run(tmp_path, cell, experiment)
    assert result["status"] == "diverged" and result["message"].startswith("step ")
    assert "validation_loss" not in result and result["parameters"] == 5812
    assert read_result(tmp_path, cell) == result


def test_what_is_no_result_of_the_cell_is_refused(experiment, tmp_path):
    cell = Cell("gpn+m-1", "stories", 0, 1e-3, 8)
    path = tmp_path / cell.name / "cell.json"
    path.parent.mkdir()
    for text in ("{", "[]", json.dumps({"cell": cell._replace(learning_rate=2e-3)._asdict()})):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"cell\.json is not the result of this cell; remove its folder"):
            read_result(tmp_path, cell)
    other = tmp_path / "other"
    run(other, cell, experiment, lambda: True)
    with pytest.raises(ValueError, match="was begun with other settings; remove it"):
        run(other, cell._replace(learning_rate=2e-3), experiment)


@pytest.mark.parametrize(
    "damage",
    [
        {"status": None},
        {"status": "xyz"},
        {"curve": []},
        {"curve": None},
        {"curve": [[0, "a"]]},
        {"perplexity": "abc"},
        {"perplexity": -5},
        {"perplexity": float("nan")},
        {"recall_accuracy": 7.5},
        {"recall_accuracy": None},
        {"state_floats": "a"},
    ],
)
def test_a_result_that_no_run_can_have_come_to_is_named(damage, tmp_path):
    cell = Cell("gpn", "recall", 0, 1e-3, 8)
    (tmp_path / cell.name).mkdir()
    path = tmp_path / cell.name / "cell.json"
    good = finished(cell, parameters=9, recall_accuracy=0.5, recall_untrained_gaps=0.25)
    path.write_text(json.dumps(good), encoding="utf-8")
    assert read_result(tmp_path, cell) == good
    bad = {name: value for name, value in (good | damage).items() if value is not None}
    path.write_text(json.dumps(bad), encoding="utf-8")
    with pytest.raises(ValueError, match="cell.json is not the result of this cell; remove its folder"):
        read_result(tmp_path, cell)
    path.write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(ValueError, match="cell.json is not the result of this cell; remove its folder"):
        read_result(tmp_path, cell)
