"""Training on the card is the learner's: the same steps, the same state, and from one to the other and back."""

import numpy as np
import pytest
from fast.cpu.test_equality import calm
from strategies import cast, largest_difference, point

from gpn_ref import TrainConfig, load_model
from gpn_ref.config import ModelConfig
from gpn_ref.fast.cuda import training
from gpn_ref.fast.cuda.card import Card
from gpn_ref.random_state import generator

BARE = ModelConfig(11, 5, 6, 7)
MEMORY = ModelConfig(11, 5, 6, 7, n_heads=2, d_key=4, d_value=5)
DEEP = ModelConfig(11, 5, 6, 7, n_heads=2, d_key=4, d_value=5, n_layers=2, decode_bias=True)
EPSILON = 1e-4  # the optimizer's: with less, the least gradients' signs decide, which are a matter of rounding
WAYS = {  # how a batch of 4 windows of 5 tokens is gone through
    "whole": TrainConfig(clip_norm=1e9, epsilon=EPSILON),
    "clipped": TrainConfig(clip_norm=0.5, epsilon=EPSILON),
    "in segments": TrainConfig(bptt=2, epsilon=EPSILON),
    "in parts": TrainConfig(accumulation=4, epsilon=EPSILON),
    "in segments and parts": TrainConfig(bptt=3, accumulation=2, clip_norm=0.5, epsilon=EPSILON),
}


@pytest.fixture(autouse=True)
def order():
    """One order of threads and blocks is enough where others look at that."""


def params(config, dtype="float64"):
    return cast(calm(point(config, 0)), dtype).params


def batch(seed, dtype=np.int64):
    tokens = generator(seed, "tokens").integers(0, 11, (4, 6)).astype(dtype)
    return tokens[:, :-1], tokens[:, 1:]


def learner(backend, config, way=WAYS["whole"], dtype="float64"):
    return load_model(config, backend).learner(params(config, dtype), way)


def steps(one, seeds, learning_rate=0.1):
    """(loss, norm) of each."""
    return [one.step(*batch(seed), learning_rate) for seed in seeds]


def same(one, other, rounding=0.0):
    """Parameters and the optimizer's arrays."""
    for found, expected in ((one.params(), other.params()), (one.state(), other.state())):
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            assert largest_difference(found[name], value) <= rounding, name


@pytest.mark.parametrize(
    ("config", "way"),
    [(BARE, "whole"), (BARE, "in segments and parts"), (DEEP, "in segments and parts")]
    + [(MEMORY, way) for way in WAYS],
    ids=lambda value: value if isinstance(value, str) else f"{value.n_layers} layers, {value.n_heads} heads",
)
def test_three_steps(config, way):
    reference, one = learner("numpy", config, WAYS[way]), learner("cuda", config, WAYS[way])
    expected, found = steps(reference, range(3)), steps(one, range(3))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    if "clipped" in way:
        assert min(norm for _, norm in expected) > WAYS[way].clip_norm
    same(one, reference, 1e-9)


def test_three_steps_in_float32():
    reference, one = learner("numpy", MEMORY), learner("cuda", MEMORY, dtype="float32")
    np.testing.assert_allclose(steps(one, range(3), 0.01), steps(reference, range(3), 0.01), rtol=1e-4)
    for found, expected in ((one.params(), reference.params()), (one.state(), reference.state())):
        for name, value in expected.items():
            assert name == "updates" or found[name].dtype == np.float32
            assert largest_difference(found[name].astype(float), value) < 1e-3, name


def test_windows_of_other_shapes_between():
    """More of them than are kept."""
    reference, one = learner("numpy", BARE), learner("cuda", BARE)
    for length in range(training.SHAPES + 2, 0, -1):
        tokens = generator(length, "tokens").integers(0, 11, (2, length + 1))
        for which in (reference, one):
            which.step(tokens[:, :-1], tokens[:, 1:], 0.01)
            which.step(*batch(length), 0.01)
    same(one, reference, 1e-9)
    kept = [window for _, window in one._training._windows]  # the latest of them, and no more
    assert len(kept) == training.SHAPES and kept[-2:] == [1, batch(1)[0].shape[1]]


def test_a_full_card_keeps_fewer_windows(monkeypatch):
    """The others make room; where there are none, it is told."""
    one = learner("cuda", BARE)
    for length in (1, 2):
        one.step(*(tokens[:, :length] for tokens in batch(0)), 0.01)
    engine = one._training.engine
    make, windows = engine.new_window, one._training._windows

    def full(*shape, training):
        if windows or shape[1] == 4:
            raise MemoryError("the card's memory is too small")
        return make(*shape, training=training)

    monkeypatch.setattr(engine, "new_window", full)
    one.step(*(tokens[:, :3] for tokens in batch(0)), 0.01)
    assert [window for _, window in windows] == [3]
    with pytest.raises(MemoryError, match="too small"):
        one.step(*(tokens[:, :4] for tokens in batch(0)), 0.01)


def test_state_goes_on_exactly():
    """Also the stacks that are made of the parameters are those of the loaded ones."""
    straight, first, second = (learner("cuda", MEMORY, WAYS["in segments and parts"]) for _ in range(3))
    expected = steps(straight, range(3))
    found = steps(first, [0])
    second.load(first.params(), first.state())
    assert found + steps(second, [1, 2]) == expected
    same(second, straight)


@pytest.mark.parametrize("there", ["numpy", "numba"])
def test_one_backend_goes_on_where_another_stopped(there):
    """A step elsewhere, two here, and two elsewhere again."""
    reference, elsewhere, here = learner("numpy", MEMORY), learner(there, MEMORY), learner("cuda", MEMORY)
    expected, found = steps(reference, range(5)), steps(elsewhere, [0])
    here.load(elsewhere.params(), elsewhere.state())
    found += steps(here, [1, 2])
    elsewhere.load(here.params(), here.state())
    found += steps(elsewhere, [3, 4])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    same(elsewhere, reference, 1e-9)


def test_what_it_gives_is_a_copy():
    one, other = learner("cuda", BARE), learner("cuda", BARE)
    steps(one, [0])
    for value in [*one.params().values(), *one.state().values()]:
        value += 1
    steps(other, [0])
    same(one, other)


def loud(params):
    """The logits overflow."""
    return params | {"decode.proj.weight": 1e308 * params["decode.proj.weight"]}


def steep(params):
    """All states are 0, and so are all logits, but the way back to the states is as steep as can be."""
    silent = ("ground.proj.weight", "ffn.out.weight", "read.out.weight")
    params = {name: 0 * value if name.endswith(silent) else value for name, value in params.items()}
    return params | {"decode.proj.weight": 1e307 * params["decode.proj.weight"]}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("extreme", [loud, steep])
def test_a_loss_or_a_norm_that_is_not_finite_changes_nothing(extreme):
    """And what follows is as if that step had never been."""
    config = BARE
    one = load_model(config, "cuda").learner(extreme(params(config)), TrainConfig())
    before, state = one.params(), one.state()
    loss, norm = one.step(*batch(0), 0.1)
    assert np.isfinite(loss) == (extreme is steep) and not np.isfinite(norm)
    for name, value in (before | state).items():
        np.testing.assert_array_equal((one.params() | one.state())[name], value)
    one.load(params(config), state)
    other = load_model(config, "cuda").learner(params(config), TrainConfig())
    assert steps(one, [1]) == steps(other, [1])
    same(one, other)


def test_the_rate_is_of_each_step():
    one, other = learner("numpy", BARE), learner("cuda", BARE)
    for seed, rate in enumerate((0.1, 0.0, 0.03)):
        np.testing.assert_allclose(other.step(*batch(seed), rate), one.step(*batch(seed), rate), rtol=1e-9)
    same(other, one, 1e-9)


class Recorded:
    """A graph, as card.Graph: nothing is done when it is made, and then always the launches of that time."""

    def __init__(self, card, work):
        self._card, self._launches = card, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(card, "launch", lambda *launch: self._launches.append(launch), raising=False)
            for name in ("put", "get", "empty", "wait"):  # none of which a graph may hold
                patch.setattr(card, name, lambda *_, name=name: pytest.fail(f"{name} in a graph"), raising=False)
            work()

    def launch(self):
        for launch in self._launches:
            self._card.launch(*launch)


@pytest.mark.parametrize(
    ("config", "way", "lengths"),
    [(MEMORY, "in segments", (5, 5, 5, 5)), (BARE, "whole", (3, 3, 3, 1, 2, 4, 5, 3, 3, 3))],
    ids=["in segments", "more shapes than are kept"],
)
def test_steps_by_graphs(config, way, lengths, monkeypatch):
    """What changes from step to step lies in arrays. A window that was given up is made anew, with its graph."""
    monkeypatch.setenv("GPN_REF_PRODUCTS", "own")  # so that all is a launch
    made = []
    monkeypatch.setattr(Card, "capture", lambda card, work: made.append(Recorded(card, work)) or made[-1])
    reference, one = learner("numpy", config, WAYS[way]), learner("cuda", config, WAYS[way])
    for seed, length in enumerate(lengths):
        tokens = generator(seed, "tokens").integers(0, 11, (2, length + 1))
        found, expected = (which.step(tokens[:, :-1], tokens[:, 1:], 0.1 / (1 + seed)) for which in (one, reference))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert len(made) == 2 + 2  # the two ends of a step; both segments, or the window of 3 twice
    same(one, reference, 1e-9)
