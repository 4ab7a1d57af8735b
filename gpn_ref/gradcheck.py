"""Check the hand-written gradients against centred differences.

    python -m gpn_ref.gradcheck

The function checked is f = loss + Σ d_state · final state, in float64, at a point where a mistake shows: parameters are
jittered away from their initial values (where the matrices of the gates and the way out of the FFN are zero, and many
gradients with them), and the state is not zero. At small sizes every entry of every parameter and of the initial state
is moved by ±h and ±2h; at a larger size each array is moved along random directions. The two differences tell each
other's error: a point where they disagree lies at a kink of a ReLU, or where a norm divides by almost nothing, and
another is drawn.
The error of an array is the largest difference over its largest gradient, or over a thousandth of the largest gradient
of all if that is more.
"""

from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from gpn_ref import cli
from gpn_ref.config import GDNConfig, ModelConfig, TransformerConfig
from gpn_ref.measures import cross_entropy
from gpn_ref.model import load_model
from gpn_ref.parameters import init_params
from gpn_ref.random_state import generator

PROG = "python -m gpn_ref.gradcheck"
STEP = 3e-5  # h: the formula errs by an order of h⁴, rounding by 1e-16 / h
TOLERANCE = 1e-6
PAST = 3  # tokens before the window, where a state has any number of them

_small = {"vocab_size": 7, "d_state": 6, "d_emb": 5, "d_ffn": 7}
_memory = {"n_heads": 2, "d_key": 4, "d_value": 5}
CONFIGS = {
    "GPN": ModelConfig(**_small),
    "GPN, 2 layers, bias": ModelConfig(**_small, n_layers=2, decode_bias=True),
    "GPN+M": ModelConfig(**_small, **_memory),
    "GPN+M, 2 layers, bias": ModelConfig(**_small, **_memory, n_layers=2, decode_bias=True),
    "GPN+M, decay first": ModelConfig(**_small, **_memory, decay_first=True),
    "Transformer++, 2 layers": TransformerConfig(vocab_size=7, d_model=8, n_layers=2, n_heads=2, d_ffn=7),
    "GDN, 2 layers": GDNConfig(vocab_size=7, d_model=6, n_layers=2, n_heads=2, d_key=4, d_value=5, d_ffn=7),
}
LARGER = ModelConfig(
    vocab_size=40, d_state=32, d_emb=20, d_ffn=48, n_heads=3, d_key=8, d_value=12, n_layers=2, decode_bias=True
)


class Point(NamedTuple):
    """Where the gradients are checked: arrays of float64, tokens (B, T)."""

    params: dict[str, np.ndarray]
    inputs: np.ndarray
    targets: np.ndarray
    state: Any
    d_state: Any  # None where the state gets no gradient


class Row(NamedTuple):
    name: str
    checked: int  # entries or directions
    largest: float  # gradient
    error: float  # relative
    passed: bool


class Check(NamedTuple):
    rows: list[Row]
    discarded: int  # points where centred differences don't tell the derivative


def draw_point(config, rng, batch=2, length=5):
    """A random point: jittered parameters, a state and a gradient of the final state, none of them zero."""
    params = init_params(config, int(rng.integers(2**32)), np.float64)
    for name, value in params.items():  # matrices by less the wider they are: the loop must not become chaotic
        params[name] = value + rng.normal(0.0, 0.3 if value.ndim == 1 else value.shape[1] ** -0.5, value.shape)
    zero, growing = load_model(config, "numpy").initial_state(batch, np.float64), isinstance(config, TransformerConfig)
    shapes = [(*value.shape[:3], PAST, value.shape[4]) if growing else value.shape for value in zero]
    state, d_state = (type(zero)(*(rng.normal(0.0, 0.5, shape) for shape in shapes)) for _ in range(2))
    d_state = None if growing else d_state
    inputs, targets = rng.integers(0, config.vocab_size, (2, batch, length))
    return Point(params, inputs, targets, state, d_state)


def check(config, seed=0, directions=0, progress=lambda arrays: arrays):
    """One Row for each parameter and each part of the initial state: every entry, or random `directions`."""
    rng = generator(seed, "gradcheck")
    for discarded in count():
        rows = _check_at(config, draw_point(config, rng), directions, rng, progress)
        if rows is not None:
            return Check(rows, discarded)


def _check_at(config, point, directions, rng, progress):
    """The rows at this point, or None where a derivative cannot be measured."""
    out = load_model(config, "numpy").loss_and_grads(*point)
    arrays, grads = point.params, out.grads
    if out.d_state is not None:
        arrays = arrays | {f"state.{name}": value for name, value in point.state._asdict().items()}
        grads = grads | {f"state.{name}": value for name, value in out.d_state._asdict().items()}
    if not config.n_heads:  # then nothing reads the grounded state of the step before
        del arrays["state.grounded"]
    rows, measured = [], {}
    for name in progress([name for name in arrays if arrays[name].size]):
        shape = arrays[name].shape
        moves = rng.normal(size=(directions, *shape)) if directions else np.eye(arrays[name].size).reshape(-1, *shape)
        moves /= np.sqrt(np.sum(np.square(moves), axis=tuple(range(1, moves.ndim)), keepdims=True))
        slopes = np.array([_slopes(config, point, name, move) for move in moves])  # (moves, 2)
        measured[name] = moves, slopes
    largest_of_all = max(np.abs(slopes).max() for _, slopes in measured.values())
    for name, (moves, slopes) in measured.items():
        near, far = slopes.T
        scale = max(np.abs(near).max(), largest_of_all / 1000)
        if np.abs(near - far).max() > 10 * TOLERANCE * scale:
            return None
        numeric = (4 * near - far) / 3  # their errors, of order h² and (2h)², cancel
        analytic = np.array([np.sum(grads[name] * move) for move in moves])
        error = np.abs(analytic - numeric).max() / scale
        largest = np.abs(grads[name]).max()
        rows.append(Row(name, len(moves), largest, error, bool(error <= TOLERANCE and largest > 0)))
    return rows


def _slopes(config, point, name, move):
    """(f(x + h · move) - f(x - h · move)) / 2h, where x is the array `name`, for h and for 2h."""
    return [
        (_value(config, point, name, h * move) - _value(config, point, name, -h * move)) / (2 * h)
        for h in (STEP, 2 * STEP)
    ]


def _value(config, point, name, move):
    params, state = point.params, point.state
    if name.startswith("state."):
        field = name.removeprefix("state.")
        state = state._replace(**{field: getattr(state, field) + move})
    else:
        params = params | {name: params[name] + move}
    out = load_model(config, "numpy").forward(params, point.inputs, state)
    through_state = zip(point.d_state or (), out.state if point.d_state else (), strict=True)
    return cross_entropy(out.logits, point.targets).mean() + sum(np.sum(d * value) for d, value in through_state)


def main(argv=None):
    parser = cli.Parser(
        prog=PROG,
        description="Check every hand-written gradient of the reference against centred differences, in float64.",
        epilog="example:\n  python -m gpn_ref.gradcheck --seed 3\n\nexit status: 0 all agree, 1 some do not",
    )
    parser.add_argument("--seed", type=cli.SEED, default=0, help="of the checked point (default 0)")
    parser.add_argument(
        "--directions", type=cli.integer(1, 10**4), default=4, help="an array at the larger size (default 4)"
    )
    arguments = parser.parse_args(argv)
    return report(arguments.seed, arguments.directions)


def report(seed, directions):
    """Print the table; 0 if all agree, else 1."""
    rows = []
    checks = [(name, config, 0) for name, config in CONFIGS.items()] + [("GPN+M, larger", LARGER, directions)]
    for title, config, moves in checks:
        bar = partial(tqdm, desc=title, leave=False, unit=" arrays", disable=None)
        result = check(config, seed, moves, bar)
        print(f"{title} ({result.discarded} unmeasurable points discarded)")
        print(
            f"  {'array':<32}{'directions' if moves else 'entries':>10}  {'max |gradient|':>15}  {'relative error':>15}"
        )
        for row in result.rows:
            verdict = "ok" if row.passed else "WRONG" if row.largest else "WRONG (all zero)"
            print(f"  {row.name:<32}{row.checked:>10}  {row.largest:>15.2e}  {row.error:>15.1e}  {verdict}")
        rows += result.rows
    passed, worst = sum(row.passed for row in rows), max(row.error for row in rows)
    print(f"{passed} of {len(rows)} gradients agree; worst relative error {worst:.1e}, tolerance {TOLERANCE:.0e}")
    return 0 if passed == len(rows) else 1


if __name__ == "__main__":
    cli.run(main, PROG)
