"""Figures, table and verdict of made-up seconds."""

import pytest

from gpn_ref.benchmarks import report
from gpn_ref.benchmarks.products import LAYOUTS, PARTS, products
from gpn_ref.config import PRESETS
from gpn_ref.parameters import count_params

NANO = PRESETS["nano"]
N_PARAMS = count_params(NANO)
MACHINE = {"peak_gflops": 2.0, "read_gb": 4.0}
ONE_MS = {
    f"{product.name}, {part}, {layout}": 1e-3 for product in products(NANO) for part in PARTS for layout in LAYOUTS
}
ANSWERS = {
    "machine": {"seconds": {"product": 1.0, "read": 1.0}, "peak_bytes": 0},
    "products": {"seconds": ONE_MS, "peak_bytes": 0},
    "numba": {
        "seconds": {"forward": 0.01, "loss": 0.04, "optimizer": 1e-5, "step": 0.05, "generate": 0.008},
        "peak_bytes": 1 << 29,
    },
    "jax": {"seconds": {"forward": 0.02, "loss": 0.1, "step": 0.2}, "peak_bytes": 1 << 30},
}


@pytest.fixture
def rows():
    return report.figures("nano", 2, 3, ANSWERS, MACHINE)


def test_the_machine_is_taken_at_its_best():
    answers = [{"seconds": {"product": 2.0, "read": 0.5}}, {"seconds": {"product": 1.0, "read": 1.0}}]
    found = report.machine_figures(size=1000, n_bytes=3 * 10**9, answers=answers)
    assert found == pytest.approx({"peak_gflops": 2.0, "read_gb": 6.0})


def test_the_figures(rows):
    products_seconds = 1e-3 * (3 * (3 * 2 + 1) + 3 * 3)
    assert rows["products"]["loss"] == pytest.approx(6 / products_seconds)
    assert rows["numba"] == pytest.approx(
        {
            "forward": 600.0,
            "loss": 150.0,
            "step": 120.0,
            "generate": 2000.0,
            "loss_to_products": products_seconds / 0.04,
            "loss_to_peer": 2.5,
            "forward_to_peer": 2.0,
            "gflops": 1e-9 * 31920 * 150,  # operations of a token with gradients
            "of_peak": 1e-9 * 31920 * 150 / 2,
            "generate_of_read": 4 * N_PARAMS * 2000 / 4e9,
            "adamw_gb": 28 * N_PARAMS / 1e-5 / 1e9,
            "adamw_of_read": 28 * N_PARAMS / 1e-5 / 4e9,
            "peak_gib": 0.5,
        }
    )
    assert rows["jax"].keys() == {"forward", "loss", "step", "loss_to_products", "peak_gib", "gflops", "of_peak"}


def test_the_table_is_aligned_and_leaves_out_empty_columns(rows):
    lines = report.table({"nano": rows})
    assert lines[0].split()[:3] == ["size", "forward", "loss,"]
    assert [line.split()[:2] for line in lines[1:]] == [["nano", "products"], ["nano", "numba"], ["nano", "jax"]]
    assert lines[2].split()[2:9] == ["600", "150", "120", "2,000", "0.75", "2.50", "2.00"]
    assert lines[3].split()[2:6] == ["300", "60.0", "30.0", "-"]
    assert len({len(line) for line in lines}) == 1
    del rows["jax"], rows["numba"]["loss_to_peer"], rows["numba"]["forward_to_peer"]
    assert "/peer" not in report.table({"nano": rows})[0]


def test_the_verdict_names_goals_where_there_are_some(rows):
    line = report.verdict({"tiny": rows, "nano": rows}, "numba")
    assert line == (
        "verdict: loss with all gradients, numba against the products alone: tiny 0.75 (goal 0.8), nano 0.75"
    )
