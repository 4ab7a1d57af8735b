"""The training loop: batches to a learner, and what a run directory keeps of it."""

import itertools
import json
import math
from time import perf_counter

import numpy as np
from tqdm import tqdm

from gpn_ref import random_state
from gpn_ref.generate import generate, stream_text
from gpn_ref.measures import perplexity
from gpn_ref.parameters import check_params, init_params
from gpn_ref.text.tokenizer import END, format_ranks, ranks_of
from gpn_ref.training.checkpoint import Checkpoint
from gpn_ref.training.optimizer import learning_rate_at

SAMPLE_TOKENS, SAMPLE_TEMPERATURE = 60, 0.8


class Diverged(Exception):
    """The loss, the gradient or a parameter is not finite."""


class Trainer:
    """A run of an experiment: its learner, its random states, its step, and the directory that keeps them."""

    def __init__(self, run, experiment):
        self.run, self.experiment = run, experiment
        self.train_config = experiment.train_config
        params = init_params(experiment.model_config, self.train_config.seed)
        self.learner = experiment.model.learner(params, self.train_config)
        self.sampler = random_state.generator(self.train_config.seed, "samples")
        self.step, self.tokens, self.saved_step = 0, 0, None

    def resume(self, warn):
        """Go back to the newest checkpoint that can be used, to the beginning if there is none yet.

        Nothing is changed or removed unless the logs hold what that checkpoint says.
        """
        checkpoint = self.run.latest_checkpoint(warn, self._load)
        logs = checkpoint.logs if checkpoint else {}
        self.run.check_logs(logs, checkpoint and checkpoint.step, self.finished)
        self.run.clean(warn)
        self.run.cut_logs(logs)
        self.saved_step = checkpoint and checkpoint.step

    def _load(self, path, checkpoint):
        """Be where the checkpoint is; ValueError, naming the file, if it is of another run."""
        for name in ("model_config", "train_config", "corpus"):
            if getattr(checkpoint, name) != getattr(self.experiment, name):
                raise ValueError(f"{path} is of another run: its {name} differs from that of {self.run.config_path}")
        if path != self.run.checkpoint_path(checkpoint.step) or checkpoint.step > self.train_config.steps:
            raise ValueError(f"{path} is not what its name says: it was saved after step {checkpoint.step}")
        try:
            self.learner.load(checkpoint.params, checkpoint.optimizer)
            self.experiment.batches.load(checkpoint.batches)
            random_state.load(self.sampler, checkpoint.sampler)
        except ValueError as error:
            raise ValueError(f"{path} is not a checkpoint that can be used: {error}") from None
        self.step, self.tokens = checkpoint.step, checkpoint.tokens

    @property
    def finished(self):
        return self.step == self.train_config.steps

    def train(self, should_stop=lambda: False, progress=None):
        """Train to the last step, or until `should_stop()`, and save. `progress` is shown the steps; None: a bar.

        Diverged if the loss, the gradient or a parameter is no longer finite; nothing of that step is kept.
        """
        # what overflows ends as a loss that is not finite
        with np.errstate(all="ignore"), self._progress() if progress is None else progress as bar:
            if self.saved_step is None:
                self._record({"step": 0, "tokens": 0} | self._evaluate(bar))
                self._save()
            while not self.finished and not should_stop():
                self._train_step(bar)
            if self.saved_step != self.step:
                self._save()

    def _train_step(self, bar):
        experiment = self.experiment
        learning_rate = learning_rate_at(self.step, self.train_config)
        self.step += 1
        inputs, targets = experiment.batches.next()
        began = perf_counter()
        try:
            loss, gradient_norm = self.learner.step(inputs, targets, learning_rate)
        except ValueError:
            self._finite_params()  # the step before this one may have been too large
            raise
        tokens_per_second = inputs.size / (perf_counter() - began)
        self._require_finite("loss", loss)
        self._require_finite("gradient norm", gradient_norm)
        self.tokens += inputs.size
        bar.set_postfix_str(
            f"loss {loss:.3f} nats, perplexity {perplexity(loss):.4g}, {tokens_per_second:,.0f} tokens/s", False
        )
        bar.update()
        record = {
            "step": self.step,
            "tokens": self.tokens,
            "loss": loss,
            "learning_rate": learning_rate,
            "gradient_norm": gradient_norm,
            "tokens_per_second": round(tokens_per_second, 1),
        }
        if self.step % experiment.evaluate_every == 0 or self.finished:
            record |= self._evaluate(bar)
        self._record(record)
        if self.step % experiment.checkpoint_every == 0 or self.finished:
            self._save()

    def _evaluate(self, bar):
        """Validation, and a sample of what the model writes now."""
        encoding, validation = self.experiment.encoding, self.experiment.validation
        bound = self.experiment.model.bind(self._finite_params())
        measured = validation.record(self._require_finite("validation loss", validation.loss(bound)))
        end = encoding.encode_single_token(END)
        tokens = generate(bound, self.sampler, end, temperature=SAMPLE_TEMPERATURE)
        text = "".join(stream_text(itertools.islice(tokens, SAMPLE_TOKENS), encoding))
        self.run.append_sample(self.step, text)
        bar.write(
            f"step {self.step:5d}   validation loss {measured['validation_loss']:.3f} nats per token, "
            f"perplexity {measured['validation_perplexity']:.4g}, "
            f"{measured['validation_bits_per_byte']:.3f} bits per byte"
        )
        return measured

    def _record(self, record):
        self.run.append("metrics.jsonl", json.dumps(record, allow_nan=False) + "\n")

    def _save(self):
        experiment = self.experiment
        self.run.save(
            Checkpoint(
                step=self.step,
                tokens=self.tokens,
                model_config=experiment.model_config,
                train_config=self.train_config,
                backend=experiment.backend,
                corpus=experiment.corpus,
                tokenizer=format_ranks(ranks_of(experiment.encoding)),
                params=self._finite_params(),
                optimizer=self.learner.state(),
                batches=experiment.batches.state(),
                sampler=random_state.save(self.sampler),
                logs=self.run.log_lengths(),
            ),
            before=self.saved_step,
        )
        self.saved_step = self.step

    def _finite_params(self):
        params = self.learner.params()
        try:
            check_params(params, self.experiment.model_config)
        except ValueError as error:
            raise self._diverged(error) from None
        return params

    def _require_finite(self, name, value):
        if not math.isfinite(value):
            raise self._diverged(f"the {name} is {value}")
        return value

    def _diverged(self, what):
        rate = self.train_config.learning_rate
        return Diverged(
            f"step {self.step}: {what}; try a new run with --learning-rate {rate / 3:.1g} instead of "
            f"{rate:g} or another --seed; the last good checkpoint is that of step {self.saved_step or 0}"
        )

    def _progress(self):
        return tqdm(
            total=self.train_config.steps,
            initial=self.step,
            desc="training",
            disable=None,
            mininterval=0.2,
            dynamic_ncols=True,
            bar_format="{desc} {percentage:3.0f}%|{bar:20}| {n}/{total} steps, {remaining} left{postfix}",
        )
