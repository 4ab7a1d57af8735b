"""What the matrix products alone take, and what the machine can do: the figures that a backend is held against.

Products-only is fixed, so that it means the same everywhere: the products of one layer that no plan for the recurrence
can do without, through NumPy's BLAS with all its threads. n = 2F + D + 2HK + 2HU + 2H.

- Every step, over the B sequences: (D, D), the gate of the ground step; (n, D), all that the grounded state is
  projected to, stacked; (D, F + HU), the ways out of the FFN and of the read; and their transposes on the way back.
- Once a window, over B·T columns: the gradients of these three matrices; and (D, E), (E, D) and (V, E), the products
  that wait for no step, with both gradients of each.

Each is timed with the batch last, `W @ S`, and with the batch first, `X @ W.T`, and the faster one counts.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from gpn_ref.random_state import generator

PARTS = ("forward", "backward", "gradient")
LAYOUTS = ("batch last", "batch first")
LONG_ENOUGH = 5e8  # operations, some milliseconds, that a timing should have


class Product(NamedTuple):
    name: str
    n_out: int
    n_in: int
    every_step: bool  # or once a window


def products(config):
    """The matrices that are multiplied with, of a model of one layer."""
    V, D, E, F, H = config.vocab_size, config.d_state, config.d_emb, config.d_ffn, config.n_heads
    HK, HU = H * config.d_key, H * config.d_value
    return [
        Product("ground gate", D, D, True),
        Product("projections", 2 * F + D + 2 * HK + 2 * HU + 2 * H, D, True),
        Product("ways out", D, F + HU, True),
        Product("ground", D, E, False),
        Product("decode", E, D, False),
        Product("logits", V, E, False),
    ]


def operations(config, backward):
    """Floating-point operations of the matrix products a token: 2 for each entry of a matrix, with gradients 6."""
    entries = sum(product.n_out * product.n_in for product in products(config))
    return (6 if backward else 2) * entries


def product_works(config, batch_size, window):
    """ "name, part, layout" -> a function that does this product, and how often a timing should call it."""
    works = {}
    for product in products(config):
        columns = batch_size if product.every_step else batch_size * window
        sizes = {"forward": columns, "backward": columns, "gradient": batch_size * window}
        for part, n in sizes.items():
            calls = int(np.clip(LONG_ENOUGH / (2 * product.n_out * product.n_in * n), 1, 50))
            for layout, work in zip(LAYOUTS, _layouts(product, part, n), strict=True):
                works[f"{product.name}, {part}, {layout}"] = work, calls
    return works


def _layouts(product, part, n):
    """The product of this part over n columns, with the batch last and with the batch first."""
    random = generator(0, f"bench {product.name}")
    m, k = product.n_out, product.n_in
    weight, x, d_y = (random.random(shape, np.float32) for shape in ((m, k), (n, k), (n, m)))
    x_last, d_y_last = (np.ascontiguousarray(array.T) for array in (x, d_y))
    if part == "forward":
        return lambda: weight @ x_last, lambda: x @ weight.T
    if part == "backward":
        return lambda: weight.T @ d_y_last, lambda: d_y @ weight
    return lambda: d_y_last @ x_last.T, lambda: d_y.T @ x


def products_only(config, window, seconds):
    """Seconds of a window's products, from the best seconds of each of product_works."""
    total = 0.0
    for product in products(config):
        for part in PARTS:
            times = window if product.every_step and part != "gradient" else 1
            total += times * min(seconds[f"{product.name}, {part}, {layout}"] for layout in LAYOUTS)
    return total


def machine_works(size, n_bytes):
    """A product of two float32 matrices (size, size), and the sum of n_bytes of float32 in as many threads as cores."""
    random = generator(0, "bench machine")
    a, b = random.random((2, size, size), np.float32)
    n_threads = os.cpu_count() or 1
    parts = np.array_split(np.ones(n_bytes // 4, np.float32), n_threads)
    pool = ThreadPoolExecutor(n_threads)
    return {"read": (lambda: list(pool.map(np.sum, parts)), 1), "product": (lambda: a @ b, 1)}
