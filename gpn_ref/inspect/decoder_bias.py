"""A decoder bias trained in: is the mean state only there because the decoder has no bias?

A short second training starts from the trained parameters, with a bias of 0; beside it, its control does the same steps
on the same batches without one.
"""

from dataclasses import replace

import numpy as np

from gpn_ref.model import load_model

SHARE = 0.1  # of the run's peak learning rate: a small one, and steady


def with_and_without(model, params, train_config, task, steps, tick=lambda steps: None):
    """Train `steps` steps on, twice -> two bound models, without the bias and with it: nothing else differs.

    A ValueError if a step is not finite.
    """
    config = model.config
    biased = params | {"decode.bias": np.zeros(config.d_emb, next(iter(params.values())).dtype)}
    starts = (config, params), (replace(config, decode_bias=True), biased)
    trained = []
    for config, begun in starts:
        learning = load_model(config, model.backend)
        learner, batches = learning.learner(begun, train_config), task.batches(train_config)
        for step in range(steps):
            loss, norm = learner.step(*batches.next(), SHARE * train_config.learning_rate)
            if not np.isfinite(norm):
                raise ValueError(
                    f"step {step + 1} of the second training: the gradient norm is {norm}, the loss {loss}"
                )
            tick(1)
        trained.append(learning.bind(learner.params()))
    return trained
