"""The rows are as large as each other; the cells are all that the table needs."""

from dataclasses import replace

import pytest
from made_up_table import VOCAB_SIZES

from gpn_ref.config import DEFAULTS, PRESETS
from gpn_ref.parameters import count_params
from gpn_ref.reproduction.plan import (
    FULL,
    QUICK,
    ROWS,
    chosen_rate,
    fitting_layers,
    size_rows,
    sweep_cells,
    table_cells,
)


@pytest.fixture(scope="module")
def sizes():
    return size_rows(FULL, VOCAB_SIZES)


def test_all_rows_have_the_parameters_of_the_preset(sizes):
    for corpus, vocab_size in VOCAB_SIZES.items():
        wanted = count_params(replace(PRESETS["mini"], vocab_size=vocab_size))
        assert sizes[corpus].keys() == ROWS.keys()
        for row, config in sizes[corpus].items():
            assert config.vocab_size == vocab_size
            assert count_params(config) == pytest.approx(wanted, rel=0.005), row


def test_each_row_is_what_its_name_says(sizes):
    found = {row: (size.name, size.n_layers) for row, size in sizes["stories"].items()}
    assert found == {
        "transformer-deep": ("transformer", 12),
        "gdn-deep": ("gdn", 10),
        "gpn+m-1": ("gpn+m", 1),
        "gpn+m-2": ("gpn+m", 2),
        "gpn": ("gpn", 1),
        "gdn-1": ("gdn", 1),
        "transformer-1": ("transformer", 1),
        "gpn+m-decay-first": ("gpn+m", 1),
    }
    decays_first = [row for row, size in sizes["stories"].items() if getattr(size, "decay_first", False)]
    assert decays_first == ["gpn+m-decay-first"]
    assert sizes["stories"]["gpn+m-1"] == replace(PRESETS["mini"], vocab_size=295)
    assert ROWS["gdn-1"].named(1) == "GDN 1 layer" and ROWS["gdn-deep"].named(10) == "GDN 10 layers"


def test_too_many_layers_become_as_many_as_fit():
    plan = replace(FULL, rows=("transformer-deep", "gpn+m-2"), choices={"preset": "nano"})
    layers = fitting_layers(plan, VOCAB_SIZES.values())
    assert 1 < layers["transformer-deep"] < 12 and layers["gpn+m-2"] == 2
    sizes = size_rows(plan, VOCAB_SIZES)
    assert {of["transformer-deep"].n_layers for of in sizes.values()} == {layers["transformer-deep"]}  # of all corpora
    with pytest.raises(ValueError, match="a gdn of 1 layer cannot have about 11,644 parameters"):
        fitting_layers(replace(plan, rows=("gdn-deep",)), [1024])


def test_the_cells_of_the_full_table():
    rates = dict.fromkeys(ROWS, 1e-3) | {"gpn": 4e-3}
    sweep, table = sweep_cells(FULL), table_cells(FULL, rates)
    assert len(sweep) == 8 * 4 and len(table) == 8 * 3 * 3
    assert {(cell.corpus, cell.seed, cell.steps) for cell in sweep} == {("stories", 0, 300)}
    assert {cell.steps for cell in table} == {DEFAULTS["steps"]} == {600}
    assert {cell.learning_rate for cell in table if cell.row == "gpn"} == {4e-3}
    assert [cell.seed for cell in table] == [0] * 24 + [1] * 24 + [2] * 24
    assert len({cell.name for cell in sweep + table}) == 104


def test_one_rate_needs_no_sweep():
    assert sweep_cells(QUICK) == [] and len(table_cells(QUICK, dict.fromkeys(QUICK.rows, 2e-3))) == 8


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ({1e-3: 1.3, 2e-3: 1.1, 4e-3: 1.2}, 2e-3),
        ({1e-3: 1.3, 2e-3: 1.1, 4e-3: None}, 2e-3),
        ({1e-3: 1.1, 2e-3: 1.1, 4e-3: 1.2}, 1e-3),  # the lower of equals
        ({1e-3: None, 2e-3: None}, 1e-3),
    ],
)
def test_the_rate_of_the_lowest_loss_is_chosen(losses, chosen):
    assert chosen_rate(losses) == chosen
