"""Ablations: measured on models whose every loss and answer is known, with and without what is taken away."""

from types import SimpleNamespace

import numpy as np
import pytest
from small_runs import new_trainer

from gpn_ref import PRESETS, init_params, load_model
from gpn_ref.cloze import Question
from gpn_ref.inspect import ablations
from gpn_ref.inspect.ablations import MEASURES, Rows, changed, compare, effect, effects
from gpn_ref.inspect.decoder_bias import with_and_without
from gpn_ref.model import Interventions
from gpn_ref.text.recall import recall_evaluation
from gpn_ref.training.tasks import load_task

V = 5
WEIGHTS = np.array([3.0, 1.0, 0.5, 0.0])  # what each head of Planted adds to the logit of the right token
REACH = 3  # tokens that Planted's memory needs to be as it was


class Planted:
    """A model to which every token t is followed by t + 1; its heads say so, each as loudly as WEIGHTS.

    Without a mean state of (1, 1) before decoding it is half as sure; while its memory is lost, sure of the wrong.
    """

    def trace(self, inputs, interventions=None, keep=()):
        change = interventions or Interventions()
        sure = np.full(inputs.shape, WEIGHTS.sum())
        for heads in (change.no_read, change.no_write, change.no_past):
            if heads is not None:
                sure -= WEIGHTS[heads].sum()
        if change.decode_offset is not None:
            sure *= 1 - change.decode_offset.mean() / 2
        if change.clear_at is not None:
            since = np.arange(1, inputs.shape[1] + 1) - change.clear_at[:, None]
            sure[(change.clear_at[:, None] > 0) & (since > 0) & (since <= REACH)] = -1
        logits = np.zeros((*inputs.shape, V))
        np.put_along_axis(logits, ((inputs + 1) % V)[..., None], sure[..., None], axis=-1)
        decay = np.broadcast_to(np.exp(-1 / np.array([0.5, 2, 8, 1e9])), (*inputs.shape, 4))
        return SimpleNamespace(logits=logits, decay=decay)

    def forward(self, inputs):
        return SimpleNamespace(hidden=np.stack([inputs, np.full_like(inputs, 2)], axis=-1).astype(np.float32))


def cost(sure):
    """The loss of Planted's right token."""
    return np.log(np.exp(sure) + V - 1) - sure


def counting(batch=6, length=12, asked=()):
    """Rows that count on from different tokens; the targets at `asked` are questions."""
    inputs = (np.arange(batch)[:, None] + np.arange(length)) % V
    questions = np.zeros(inputs.shape, bool)
    questions[:, list(asked)] = True
    return Rows(inputs, (inputs + 1) % V, True, questions, np.full(batch, np.nan))


def exactly(value):
    return pytest.approx(value, abs=1e-12)


# ------------------------------------------------------------------------------------------------- what is measured
def test_a_change_that_changes_nothing_is_exactly_0():
    config = PRESETS["nano"]
    bound = load_model(config, "numpy").bind(init_params(config, 0))
    rows = counting(asked=[4, 11])
    nothing = {
        "offset": Interventions(decode_offset=np.zeros(config.d_state), ground_offset=np.zeros(config.d_state)),
        "heads": ablations.without_heads("no_read", (), config.n_heads),
        "never": Interventions(clear_at=np.full(6, -1)),
        "too late": Interventions(clear_at=np.full(6, 12)),
    }
    changes = {name: changed(bound, change) for name, change in nothing.items()}
    _, differences = compare(changed(bound), changes, [rows, rows])
    for name in nothing:
        for found in effects(differences[name], ablations.sizes([rows, rows])).values():
            assert found == {"change": 0, "low": 0, "high": 0, "sequences": 12}


def test_heads_cost_what_they_said():
    batches = [counting(4), counting(3, 7, asked=[2, 3])]
    heads = {"loud": (0,), "two": (1, 2), "mute": (3,), "all": (0, 1, 2, 3)}
    for kind in ablations.HEADS:
        changes = {name: changed(Planted(), ablations.without_heads(kind, of, 4)) for name, of in heads.items()}
        unchanged, differences = compare(changed(Planted()), changes, batches)
        sizes = ablations.sizes(batches)
        np.testing.assert_array_equal(sizes, [[12] * 4 + [7] * 3, [0] * 4 + [2] * 3])
        assert effects(unchanged, sizes)["loss"]["change"] == exactly(cost(4.5))
        assert effects(unchanged, sizes)["accuracy"] == {"change": 1, "low": 1, "high": 1, "sequences": 3}
        for name, of in heads.items():
            loss = effects(differences[name], sizes)["loss"]
            assert loss["change"] == exactly(cost(4.5 - WEIGHTS[list(of)].sum()) - cost(4.5)) == exactly(loss["low"])
        none_left = effects(differences["all"], sizes)["accuracy"]  # all tokens alike: the first is taken, 0
        zeros = np.mean([batches[1].targets[:, [2, 3]] == 0])
        assert none_left["change"] == exactly(zeros - 1)


def test_the_mean_state_is_measured_and_taken_away_where_it_is_said():
    mean, norm = ablations.mean_state(Planted(), [counting(5, 5), counting(5, 5)])
    np.testing.assert_allclose(mean, [2, 2])
    assert norm == pytest.approx(np.mean([np.hypot(token, 2) for token in range(V)]))
    fields = {}
    for where in ablations.MEAN_STATE:
        change = ablations.without_mean(mean, where)
        fields[where] = [name for name, value in vars(change).items() if value is not None]
        assert all(getattr(change, name) is mean for name in fields[where])
    assert fields == {
        "before decoding": ["decode_offset"],
        "before grounding": ["ground_offset"],
        "before both": ["ground_offset", "decode_offset"],
    }
    changes = {"": changed(Planted(), ablations.without_mean(np.ones(2), "before decoding"))}
    _, differences = compare(changed(Planted()), changes, [counting()])
    assert differences[""][0] == exactly(np.full(6, 12 * (cost(2.25) - cost(4.5))))


def test_lives_of_heads_of_steady_decay():
    lives = ablations.lives(Planted(), [counting(2, 20), counting(2, 5)], 4)
    assert lives == pytest.approx([0.5, 2, 8, 1e9], rel=0.01)


def test_an_effect_weighs_sequences_by_what_they_hold():
    found = effect(np.array([2.0, 0.0, 7.0]), np.array([1, 3, 0]))  # where nothing counts, nothing is
    assert found["change"] == 0.5 and found["sequences"] == 2
    assert (found["low"], found["high"]) == (0, 2)
    assert effect(np.array([1.0, 7.0]), np.array([2, 0])) == {"change": 0.5, "low": None, "high": None, "sequences": 1}
    assert effect(np.zeros(3), np.zeros(3)) is None
    assert MEASURES == ("loss", "accuracy")


# -------------------------------------------------------------------------------------------------- random sets
def test_random_sets_are_seeded_distinct_and_never_the_tested_one():
    sets = ablations.random_sets(8, (0, 1, 5), 20, seed=3)
    assert len(set(sets)) == 20 and (0, 1, 5) not in sets
    assert all(len(drawn) == 3 and list(drawn) == sorted(set(drawn)) for drawn in sets)
    assert sets == ablations.random_sets(8, (0, 1, 5), 20, seed=3) != ablations.random_sets(8, (0, 1, 5), 20, seed=4)
    everything = {drawn for seed in range(60) for drawn in ablations.random_sets(8, (0, 1, 5), 4, seed)}
    assert len(everything) == 55  # each of the 56 sets but one has its turn


@pytest.mark.parametrize(
    ("n_heads", "tested", "others"), [(1, (0,), 0), (4, (0, 1, 2, 3), 0), (2, (1,), 1), (3, (0, 2), 2)]
)
def test_there_are_no_more_random_sets_than_there_are(n_heads, tested, others):
    assert len(ablations.random_sets(n_heads, tested, 4)) == others


# ----------------------------------------------------------------------------------------- the memory lost at a step
def test_groups_of_lags():
    starts = ablations.lag_starts(40)
    assert starts.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40]
    assert ablations.lag_starts(1).tolist() == [1]
    assert set(ablations.CLEARINGS) <= set(ablations.lag_starts(128).tolist())


def test_sums_by_lag():
    values = np.arange(12.0).reshape(2, 6)
    found = ablations.by_lag(values, np.array([3, 1]), np.array([1, 2, 4]))
    np.testing.assert_array_equal(found, [[3, 4 + 5, 0], [7, 8 + 9, 10 + 11]])
    assert not ablations.by_lag(values, np.array([-1, 0]), np.array([1, 2, 4])).any()


def test_what_is_lost_with_the_memory_comes_back_when_it_does():
    rows, starts = counting(batch=40, asked=[9]), ablations.lag_starts(11)
    steps = ablations.clearing_steps(rows, 3, np.random.default_rng(0))
    assert [lost.shape for lost in steps] == [(40,)] * 3
    assert {int(step) for lost in steps for step in lost} == set(range(1, 12))
    sums, sizes = ablations.clear_memory(Planted(), [rows], [steps], starts)
    assert sizes[0].sum() == sum((12 - lost).sum() for lost in steps)
    rise = sums[0].sum(axis=0) / sizes[0].sum(axis=0)
    wanted = np.where(starts <= REACH, cost(-1) - cost(4.5), 0)
    np.testing.assert_allclose(rise, wanted, atol=1e-12)
    lost, asked = sums[1].sum(axis=0), sizes[1].sum(axis=0)
    assert asked[starts <= 8].all() and asked.sum() == sum((lost <= 9).sum() for lost in steps)
    np.testing.assert_array_equal(lost, np.where(starts <= REACH, -asked, 0))


def passages():
    """Questions of 2 to 41 tokens whose answer Planted knows; the answer was last mentioned 5 tokens before."""
    for length in range(2, 42):
        prefix = [token % V for token in range(length)]
        yield Question(prefix, [length % V, 99], None if length < 5 else 5, None)


def test_passages_are_chosen_evenly_and_asked_for_their_last_word():
    batches = ablations.passage_rows(list(passages()), 1000)
    lengths = np.concatenate([rows.asked.argmax(axis=1) + 1 for rows in batches])
    assert sorted(lengths) == list(range(2, 42))
    for rows in batches:
        at = np.nonzero(rows.asked)
        np.testing.assert_array_equal(rows.targets[at], (rows.inputs[at] + 1) % V)
        assert rows.asked.sum(axis=1).tolist() == [1] * len(rows.inputs) and not rows.is_text
    chosen = ablations.passage_rows(list(passages()), 4)
    assert sorted(np.concatenate([rows.asked.argmax(axis=1) + 1 for rows in chosen])) == [2, 15, 28, 41]
    assert ablations.passage_rows([], 4) == []


def test_passages_lose_the_memory_so_many_tokens_before_the_word():
    batches, starts = ablations.passage_rows(list(passages()), 1000), ablations.lag_starts(128)
    steps = [ablations.clearing_steps(rows, 9, None) for rows in batches]
    sums, sizes = ablations.clear_memory(Planted(), batches, steps, starts)
    assert not sizes[0].any()
    asked = dict(zip(starts.tolist(), sizes[1].sum(axis=0).tolist(), strict=True))
    lags = [1, 2, 4, 8, 16, 32]
    assert {lag: count for lag, count in asked.items() if count} == {lag: 41 - max(lag, 1) for lag in lags}
    lost = sums[1].sum(axis=0)[np.isin(starts, lags)]
    assert lost.tolist() == [-40, -39, 0, 0, 0, 0]


# ----------------------------------------------------------------------------------------------------------- the text
def test_text_counts_every_token_and_the_recall_task_asks_for_its_values(tmp_path):
    task = new_trainer(tmp_path).experiment.task
    batches = ablations.text_rows(task, 12, 100)
    assert sum(rows.inputs.size for rows in batches) <= 100
    assert all(rows.is_text and not rows.asked.any() for rows in batches)
    recall = load_task("recall")
    batches = ablations.text_rows(recall, None, 10_000)
    assert all(rows.inputs.size <= 4096 for rows in batches) and len(batches) > len(recall.gaps)
    first = batches[0]
    wanted = recall_evaluation(recall.config, 256, recall.gaps[0])
    for found, all_of_them in zip(first, wanted[:2], strict=False):
        np.testing.assert_array_equal(found, all_of_them[: len(found)])
    np.testing.assert_array_equal(first.asked, wanted[2][: len(first.asked)])


# -------------------------------------------------------------------------------------------------- a decoder bias
def test_the_bias_is_all_that_tells_the_second_training_from_its_control(tmp_path):
    experiment = new_trainer(tmp_path).experiment
    model, train_config = experiment.model, experiment.train_config
    params = init_params(model.config, 3)
    inputs, nothing = np.arange(20).reshape(2, 10), np.zeros(model.config.d_state)
    control, biased = with_and_without(model, params, train_config, experiment.task, 0)
    for bound in (control, biased):
        np.testing.assert_array_equal(bound.forward(inputs).logits, model.forward(params, inputs).logits)
    control, biased = with_and_without(model, params, train_config, experiment.task, 2)
    learner, batches = model.learner(params, train_config), experiment.task.batches(train_config)
    for _ in range(2):
        learner.step(*batches.next(), train_config.learning_rate / 10)
    np.testing.assert_array_equal(control.forward(inputs).logits, model.bind(learner.params()).forward(inputs).logits)
    assert not control.decode(nothing).any() and biased.decode(nothing).any()
    np.testing.assert_allclose(biased.forward(inputs).hidden, control.forward(inputs).hidden, atol=1e-3)
