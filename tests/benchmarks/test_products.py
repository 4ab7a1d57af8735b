"""The list of matrix products, their operations, and what they come to, against counts by hand."""

import numpy as np
import pytest

from gpn_ref.bench import SIZES
from gpn_ref.benchmarks.products import (
    LAYOUTS,
    PARTS,
    Product,
    machine_works,
    operations,
    product_works,
    products,
    products_only,
)
from gpn_ref.config import PRESETS
from gpn_ref.parameters import parameter_shapes

NANO = PRESETS["nano"]  # V 257, D 16, E 8, F 24, H 2, K 8, U 8


def test_the_products_of_nano():
    assert products(NANO) == [
        Product("ground gate", 16, 16, True),
        Product("projections", 2 * 24 + 16 + 2 * 16 + 2 * 16 + 2 * 2, 16, True),
        Product("ways out", 16, 24 + 16, True),
        Product("ground", 16, 8, False),
        Product("decode", 8, 16, False),
        Product("logits", 257, 8, False),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_every_matrix_is_multiplied_with_once(size):
    config = PRESETS[SIZES[size].preset]
    entries = sum(np.prod(shape) for shape in parameter_shapes(config).values() if len(shape) == 2)
    assert operations(config, backward=False) == 2 * entries
    assert operations(config, backward=True) == 6 * entries


def test_the_operations_of_nano():
    assert operations(NANO, backward=False) == 2 * (256 + 2112 + 640 + 128 + 128 + 2056)


def test_both_layouts_give_the_same_product():
    works = product_works(NANO, batch_size=2, window=3)
    for product in products(NANO):
        columns = 2 if product.every_step else 6
        shapes = {
            "forward": (product.n_out, columns),
            "backward": (product.n_in, columns),
            "gradient": (product.n_out, product.n_in),
        }
        for part in PARTS:
            last, first = (works[f"{product.name}, {part}, {layout}"][0]() for layout in LAYOUTS)
            assert last.shape == shapes[part]
            np.testing.assert_allclose(last, first if part == "gradient" else first.T, rtol=1e-5)


def test_a_timing_repeats_what_is_short_and_not_what_is_long():
    works = product_works(PRESETS["tiny"], batch_size=16, window=256)
    assert works["ground gate, forward, batch last"][1] == 50
    assert works["logits, forward, batch last"][1] == 1  # 2 · 512 · 128 · 4096 operations are half a billion


def test_products_only_takes_the_faster_layout_and_every_step():
    seconds = {
        f"{product.name}, {part}, {layout}": (3.0 if part == "gradient" else 1.0) * (1 + 9 * (layout == "batch last"))
        for product in products(NANO)
        for part in PARTS
        for layout in LAYOUTS
    }
    steps = 3 * (7 * (1 + 1) + 3)  # three matrices at each of seven steps, both ways, and their gradients once
    assert products_only(NANO, window=7, seconds=seconds) == steps + 3 * (1 + 1 + 3)


def test_the_machine_multiplies_and_reads_all_that_it_says():
    works = machine_works(size=8, n_bytes=4096)
    assert sum(works["read"][0]()) == 1024
    assert works["product"][0]().shape == (8, 8)
