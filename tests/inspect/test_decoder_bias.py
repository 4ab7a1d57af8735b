"""The second training: two learners, the same steps on the same batches, and one of them has a bias."""

from dataclasses import replace

import numpy as np
import pytest
from small_runs import new_trainer

from gpn_ref.inspect.decoder_bias import SHARE, with_and_without
from gpn_ref.model import load_model
from gpn_ref.parameters import init_params


@pytest.mark.parametrize("steps", [0, 3])
def test_both_are_what_a_learner_makes_of_the_runs_own_batches(steps, tmp_path):
    experiment = new_trainer(tmp_path, backend="numpy", window_start="any").experiment
    config, train_config, task = experiment.model_config, experiment.train_config, experiment.task
    params = init_params(config, seed=5)
    done = []
    control, biased = with_and_without(experiment.model, params, train_config, task, steps, done.append)
    assert sum(done) == 2 * steps
    inputs = task.batches(train_config).next()[0]
    for found, bias in ((control, {}), (biased, {"decode.bias": np.zeros(config.d_emb, np.float32)})):
        model = load_model(replace(config, decode_bias=bool(bias)), "numpy")
        learner, batches = model.learner(params | bias, train_config), task.batches(train_config)
        for _ in range(steps):
            learner.step(*batches.next(), SHARE * train_config.learning_rate)
        wanted = model.bind(learner.params()).forward(inputs).logits
        np.testing.assert_array_equal(found.forward(inputs).logits, wanted)
    same = np.array_equal(control.forward(inputs).logits, biased.forward(inputs).logits)
    assert same == (steps == 0)


def test_a_step_that_is_not_finite_is_named(tmp_path):
    experiment = new_trainer(tmp_path, backend="numpy", window_start="any").experiment
    params = {name: value * np.float32(1e18) for name, value in init_params(experiment.model_config).items()}
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="step 1 of the second training: the gradient norm"):
        with_and_without(experiment.model, params, experiment.train_config, experiment.task, 2)
