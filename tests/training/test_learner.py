"""The learner: truncation and accumulation are what they say, and its state goes on exactly."""

import numpy as np
import pytest

from gpn_ref import PRESETS, TrainConfig, init_params, load_model
from gpn_ref.random_state import generator
from gpn_ref.training.optimizer import AdamW

CONFIG = PRESETS["nano"]


def batch(seed=0, size=4, length=10):
    tokens = generator(seed, "tokens").integers(0, CONFIG.vocab_size, (size, length + 1))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.fixture
def learner(backend):
    """A function that makes a new learner, with these changes of its TrainConfig."""

    def new(**changes):
        return load_model(CONFIG, backend).learner(init_params(CONFIG, dtype=np.float64), TrainConfig(**changes))

    return new


def same(one, other, tolerance=1e-9):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=tolerance, err_msg=name)


def test_accumulation_is_the_same_step(learner):
    """Ten times the floor of AdamW's sign-like first step apart would be a different gradient; rounding is not."""
    whole, parts = learner(batch_size=4), learner(batch_size=4, accumulation=4)
    for seed in range(3):
        one, other = whole.step(*batch(seed), 1e-3), parts.step(*batch(seed), 1e-3)
        np.testing.assert_allclose(one, other, rtol=1e-9)
    same(whole.params(), parts.params(), 1e-7)


def test_truncation_carries_the_state_and_cuts_the_gradient(learner, backend):
    """Against the same written out: segments of 4, 4 and 2 tokens, weighted by their length."""
    inputs, targets = batch()
    truncated = learner(bptt=4)
    params = truncated.params()
    bound, state, total, loss = load_model(CONFIG, backend).bind(params), None, {}, 0.0
    for start, stop in ((0, 4), (4, 8), (8, 10)):
        out = bound.loss_and_grads(inputs[:, start:stop], targets[:, start:stop], state, scale=(stop - start) / 10)
        state, loss = out.state, loss + out.loss * (stop - start) / 10
        total = {name: total.get(name, 0) + grad for name, grad in out.grads.items()}
    norm = AdamW(params, TrainConfig()).update(params, total, 1e-3)
    np.testing.assert_allclose(truncated.step(inputs, targets, 1e-3), (loss, norm), rtol=1e-12)
    same(truncated.params(), params)

    full = learner()
    assert full.step(inputs, targets, 1e-3)[0] == pytest.approx(loss, rel=1e-12)
    with pytest.raises(AssertionError):
        same(full.params(), params)


def test_state_goes_on_exactly(learner):
    straight, first = learner(), learner()
    for seed in range(4):
        straight.step(*batch(seed), 1e-3)
    for seed in range(2):
        first.step(*batch(seed), 1e-3)
    second = learner()
    second.load(first.params(), first.state())
    for seed in range(2, 4):
        second.step(*batch(seed), 1e-3)
    same(straight.params(), second.params(), 0)
    same(straight.state(), second.state(), 0)


def test_what_it_gives_is_a_copy(learner):
    one = learner()
    one.step(*batch(), 1e-3)
    params, state = one.params(), one.state()
    for value in [*params.values(), *state.values()]:
        value += 1
    assert (one.params()["decode.norm.weight"] != params["decode.norm.weight"]).all()
    assert (one.state()["first/decode.norm.weight"] != state["first/decode.norm.weight"]).all()


def test_a_foreign_state_is_refused(learner):
    one = learner()
    state = one.state()
    with pytest.raises(ValueError, match="optimizer state 'updates' is missing"):
        one.load(one.params(), {name: value for name, value in state.items() if name != "updates"})
    with pytest.raises(ValueError, match="optimizer state 'first/other' is not this model"):
        one.load(one.params(), state | {"first/other": np.zeros(1)})
    with pytest.raises(ValueError, match="parameter 'embedding.weight' is missing"):
        one.load({}, state)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("first/decode.norm.weight", np.full(16, np.nan), r"must be a finite float64 array of shape \(16,\)"),
        ("first/decode.norm.weight", np.zeros(16, np.float32), "must be a finite float64 array"),
        ("first/decode.norm.weight", np.zeros(15), "must be a finite float64 array"),
        ("second/decode.norm.weight", np.full(16, -1.0), "has negative entries"),
        ("updates", np.array(-1), "has negative entries"),
        ("updates", np.array(1.5), "must be a finite int64 array"),
    ],
)
def test_a_damaged_state_is_refused(learner, name, value, message):
    one = learner()
    before = one.params()
    with pytest.raises(ValueError, match=f"optimizer state '{name}' {message}"):
        one.load({key: param + 1 for key, param in before.items()}, one.state() | {name: value})
    same(one.params(), before, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda learner: learner().step(batch()[0], batch()[1][:, :5], 0.1),
            r"targets has shape \(4, 5\), but inputs has shape \(4, 10\)",
        ),
        (lambda learner: learner().step([1, 2], [2, 3], 0.1), r"inputs has shape \(2,\); it must be \(B, T\)"),
        (lambda learner: learner().step(np.zeros((2, 0), int), np.zeros((2, 0), int), 0.1), "none of them 0"),
        (
            lambda learner: learner(batch_size=8, accumulation=8).step(*batch(), 0.1),
            "4 sequences, fewer than accumulation, 8",
        ),
        (lambda learner: learner().step(*batch(), float("nan")), "learning_rate is nan; it must be a finite number"),
        (lambda learner: learner().step(*batch(), -1.0), "learning_rate is -1.0"),
        (lambda learner: learner().step(*batch(), "fast"), "learning_rate is 'fast'"),
        (lambda _: load_model(CONFIG).learner(init_params(CONFIG), None), "train_config is a NoneType"),
        (lambda _: load_model(CONFIG).learner({}, TrainConfig()), "parameter 'embedding.weight' is missing"),
        (lambda learner: learner().load(init_params(CONFIG), learner().state()), "not of this learner's type"),
    ],
)
def test_bad_calls_are_named(learner, call, message):
    with pytest.raises(ValueError, match=message):
        call(learner)


def test_a_loss_that_is_not_finite_changes_nothing(backend):
    params = init_params(CONFIG)
    params["decode.norm.weight"] *= np.float32(1e30)
    params["decode.proj.weight"] *= np.float32(1e30)
    one = load_model(CONFIG, backend).learner(params, TrainConfig())
    with np.errstate(all="ignore"):
        loss, norm = one.step(*batch(), 1e-3)
    assert not np.isfinite(loss) and not np.isfinite(norm)
    same(one.params(), params, 0)
