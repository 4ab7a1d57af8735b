"""Is what the card computes what the reference computes? With fresh random inputs, in both precisions.

All arrays on the card are full of NaN before they are used, so that an entry that is never written reaches a result.
Everything is computed twice: where the bits of the two differ, the kernels race. And a learner that launches graphs
must give the bits of one that launches kernels.
"""

import os
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from gpn_ref.benchmarks.agreement import worst
from gpn_ref.config import GDNConfig, ModelConfig, TrainConfig
from gpn_ref.fast.cuda import ladder
from gpn_ref.fast.cuda.products import products
from gpn_ref.gradcheck import Point, draw_point
from gpn_ref.model import load_model
from gpn_ref.training.optimizer import global_norm

TOLERANCE = {"float64": 1e-9, "float32": 2e-4}  # of a tensor's largest entry, or of G / 1000 for a gradient
SCALE = 0.7  # of the loss
LEARNING_RATE = 0.01
EPSILON = 1e-3  # of AdamW: large, so that a step does not follow the sign of an entry that is nothing but rounding
MOST_DRAWS = 100

_odd = {"vocab_size": 611, "d_state": 600, "d_emb": 72, "d_ffn": 700}  # no multiples of a block's threads
_small = {"vocab_size": 300, "d_state": 96, "d_emb": 40, "d_ffn": 88}
_single = ("float32",)
_tiny = {"vocab_size": 7, "d_state": 5, "d_emb": 4, "d_ffn": 6}


class Case(NamedTuple):
    name: str
    config: ModelConfig | GDNConfig
    windows: list  # of (B, T)
    precisions: tuple = ("float64", "float32")
    learner: bool = True
    steps: int = 4  # of the learner: the first launches kernels, the second records graphs, the others launch them
    params: dict | None = None  # where the point is not to be drawn


CASES = [
    Case("1 layer", ModelConfig(**_odd, n_heads=3, d_key=37, d_value=45), [(5, 7), (2, 10), (1, 1)]),
    Case(
        "2 layers, decay first, bias",
        ModelConfig(**_small, n_heads=2, d_key=20, d_value=70, n_layers=2, decode_bias=True, decay_first=True),
        [(3, 5), (1, 2)],
    ),
    Case("2 layers, no memory", ModelConfig(**_small, n_layers=2), [(4, 5)], _single),
    Case("K 128, U 256", ModelConfig(**_small, n_heads=2, d_key=128, d_value=256), [(4, 7)]),
    Case("GDN", GDNConfig(300, 96, 2, n_heads=2, d_key=37, d_value=70, d_ffn=88), [(3, 10)], _single, learner=False),
]
SIMULATED = [  # a simulated thread takes a millisecond
    Case(
        "1 layer, bias",
        ModelConfig(**_tiny, n_heads=1, d_key=4, d_value=5, decode_bias=True),
        [(1, 2)],
        ("float64",),
        steps=2,
    ),
    Case("no memory", ModelConfig(**_tiny), [(1, 1)], _single, learner=False),
    Case("GDN", GDNConfig(7, 4, 1, n_heads=1, d_key=4, d_value=5, d_ffn=5), [(1, 2)], _single, learner=False),
]


def timed_case(name, config, params):
    """A size that is timed: its kernels are compiled for that anyway."""
    return Case(name, config, [(3, 5)], _single, learner=False, params=params)


def check(card, case, rng):
    """Yields a row for each window, precision and way to multiply, and for each learner."""
    libraries = [products(card, np.dtype(np.float32)).name]
    if libraries == ["cublas"] and isinstance(case.config, ModelConfig):  # a GDN multiplies in NumPy
        libraries.append("own")
    for precision in case.precisions:
        dtype = np.dtype(precision)
        for batch_size, window in case.windows:
            at, exact, discarded = point(case, rng, batch_size, window, dtype)
            facts = {"case": case.name, "window": [batch_size, window], "precision": precision, "discarded": discarded}
            for library in libraries:
                with poisoned(card), environment(GPN_REF_PRODUCTS=library):
                    once, again = (tensors(load_model(case.config, "cuda").bind(at.params), at) for _ in range(2))
                yield facts | {"products": library} | verdict(exact, once, again, precision)
                facts["discarded"] = 0  # they are counted once
        if case.learner:
            facts = {"case": f"{case.name}, learner", "window": list(case.windows[0]), "precision": precision}
            yield facts | {"products": libraries[0]} | check_learner(card, case, rng, dtype)


def check_learner(card, case, rng, dtype):
    """Some steps of a learner on the card, whose batches come in parts and segments."""
    params, batches, train_config, exact, discarded = lesson(case, rng, dtype)
    model = load_model(case.config, "cuda")
    with poisoned(card):
        once = learned(model.learner(params, train_config), batches)
        with environment(GPN_REF_CUDA_GRAPHS="0"):
            again = learned(model.learner(params, train_config), batches)
    return {"discarded": discarded} | verdict(exact, once, again, dtype.name)


def verdict(exact, once, again, precision):
    """Which tensor is the worst of both runs, which have other bits in the second, and whether all is well."""
    found = max((worst(exact, tensors) for tensors in (once, again)), key=lambda worst: worst.error)
    moved = [name for name in once if once[name].tobytes() != again[name].tobytes()]
    passed = found.error <= TOLERANCE[precision] and not moved
    return {"tensor": found.tensor, "error": found.error, "moved": moved, "passed": passed}


def check_ladder(card, H, K, U, rng):
    """A row for each version of the memory kernel, in float32: two sequences of random inputs."""
    kind, batch_size, seed = np.dtype(np.float32), 2, int(rng.integers(2**31))
    for name, version in ladder.versions(H, K, U, kind.type, card.tuning).items():
        runs = []
        for _ in range(2):
            with poisoned(card):
                arrays = ladder.random_arrays(card, batch_size, H, K, U, kind, seed)
            before = [card.get(array).astype(np.float64) for array in arrays[:-1]]
            version.launch(card, U, *arrays)
            runs.append({"M": card.get(arrays[0]), "out": card.get(arrays[-1])})
        yield {"case": f"ladder, {name}", "precision": "float32"} | verdict(written(*before, H), *runs, "float32")


def written(M, key, query, value, beta, decay, H):
    """Eq. 8 to 11 in NumPy, for arrays as the ladder's kernels take them."""
    B = len(M)
    key, query, value = (array.reshape(B, H, -1) for array in (key, query, value))
    M = M.reshape(B, H, key.shape[-1], value.shape[-1])
    error = value - np.einsum("bhku,bhk->bhu", M, key)
    M = decay[..., None, None] * M + np.einsum("bh,bhk,bhu->bhku", beta, key, error)
    return {"M": M.reshape(B, -1), "out": np.einsum("bhku,bhk->bhu", M, query).reshape(B, -1)}


# ------------------------------------------------------------------------------------------------ what is compared
def tensors(bound, at):
    """Name -> array, of all that a model computes at a point."""
    forward, (logits, state) = bound.forward(at.inputs, at.state), bound.step(at.inputs[:, 0], at.state)
    out = bound.loss_and_grads(*at[1:], SCALE)
    found = {"logits": forward.logits, "hidden": forward.hidden, "logits of one token": logits, "nll": out.nll}
    states = {"state": forward.state, "state of one token": state, "state in training": out.state}
    states["gradient of state"] = out.d_state
    found |= {f"gradient of {name}": grad for name, grad in out.grads.items()}
    for name, state in states.items():
        found |= {f"{name}, {field}": value for field, value in state._asdict().items()}
    return found


def learned(learner, batches):
    """Name -> array, of losses, norms and what the steps made of the parameters."""
    told = np.array([learner.step(*batch, LEARNING_RATE) for batch in batches])
    found = {"loss": told[:, 0], "norm": told[:, 1]}
    found |= {f"{name} after the steps": value for name, value in learner.params().items()}
    return found | {f"{name} of the optimizer": value for name, value in learner.state().items()}


# -------------------------------------------------------------------------------------------------------- points
# Where the reference itself moves by more than a share of the tolerance when the parameters move by one rounding, no
# program of that precision can be held to it: such points are discarded, and counted.
def point(case, rng, batch_size, window, dtype):
    """A point in this precision, what the reference computes there in float64, and how many were discarded first."""
    if case.params:
        at = around(case.config, case.params, rng, batch_size, window)
        return at, exactly(case.config, at), 0
    for discarded in range(MOST_DRAWS):
        at = cast(draw_point(case.config, rng, batch_size, window), dtype)
        exact = exactly(case.config, at)
        if worst(exact, exactly(case.config, at._replace(params=moved(at.params, rng)))).error <= moves(dtype, 100):
            return at, exact, discarded
    raise ValueError(f"no point in {MOST_DRAWS} where {dtype} tells one result from another")


def lesson(case, rng, dtype):
    """Parameters, batches, a TrainConfig, what the reference's learner makes of them, and how many were discarded."""
    (batch_size, window), model = case.windows[0], load_model(case.config, "numpy")
    n_parts = min(2, batch_size)
    for discarded in range(MOST_DRAWS):
        params = cast(draw_point(case.config, rng, batch_size, window), dtype).params
        batches = rng.integers(0, case.config.vocab_size, (case.steps, 2, batch_size, window))
        norm = global_norm(model.loss_and_grads(exactly_these(params), *batches[0]).grads)
        train_config = TrainConfig(
            batch_size=n_parts, accumulation=n_parts, bptt=-(-window // 2), clip_norm=norm / 2, epsilon=EPSILON
        )
        exact, found = (
            learned(model.learner(start, train_config), batches)
            for start in (exactly_these(params), moved(params, rng))
        )
        if worst(exact, found).error <= moves(dtype, 10):  # steps make more of a rounding
            return params, batches, train_config, exact, discarded
    raise ValueError(f"no lesson in {MOST_DRAWS} where {dtype} tells one result from another")


def exactly_these(params):
    return {name: value.astype(np.float64) for name, value in params.items()}


def moved(params, rng):
    """The parameters in float64, each moved by one rounding of its own precision."""
    rounding = {
        name: np.finfo(value.dtype).eps / 2 * rng.choice([-1, 1], value.shape) for name, value in params.items()
    }
    return {name: value * (1 + rounding[name]) for name, value in exactly_these(params).items()}


def moves(dtype, share):
    """How far a result may move."""
    return TOLERANCE[dtype.name] / share


def around(config, params, rng, batch_size, window):
    """A point with these parameters."""
    dtype = next(iter(params.values())).dtype
    zero = load_model(config, "numpy").initial_state(batch_size, dtype)
    state, d_state = (type(zero)(*(rng.normal(0, 0.5, part.shape).astype(dtype) for part in zero)) for _ in range(2))
    inputs, targets = rng.integers(0, config.vocab_size, (2, batch_size, window))
    return Point(params, inputs, targets, state, d_state)


def exactly(config, at):
    """What the reference computes at a point, in float64."""
    at = cast(at, np.dtype(np.float64))
    return tensors(load_model(config, "numpy").bind(at.params), at)


def cast(at, dtype):
    """The point with all its numbers rounded to `dtype`."""
    state, d_state = (type(state)(*(value.astype(dtype) for value in state)) for state in (at.state, at.d_state))
    params = {name: value.astype(dtype) for name, value in at.params.items()}
    return at._replace(params=params, state=state, d_state=d_state)


# ------------------------------------------------------------------------------------------------------- settings
@contextmanager
def poisoned(card):
    """New arrays on the card are full of NaN."""
    card.poisoned = True
    try:
        yield
    finally:
        card.poisoned = False


@contextmanager
def environment(**values):
    """Environment variables, in the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
