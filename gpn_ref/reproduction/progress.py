"""How long it takes: seconds of each cell from a few measured steps, and a bar over all cells with the time left."""

from statistics import median
from time import perf_counter

from tqdm import tqdm

from gpn_ref.blas import blas_threads
from gpn_ref.parameters import count_params, init_params

TIMED_STEPS = 3  # to estimate with
SPEED_STEPS = 25  # to tell a speed
FORWARD = 1 / 3  # of the work of a training step: what an evaluation does with a token
SURE = 30  # seconds after which the pace of this run is known better than the estimate


def time_steps(experiment, n_steps):
    """Seconds and tokens of each of so many training steps, a list of pairs; nothing of them is kept."""
    learner = experiment.model.learner(init_params(experiment.model_config), experiment.train_config)
    found = []
    with blas_threads(count_params(experiment.model_config)):
        for _ in range(n_steps + 1):
            inputs, targets = experiment.batches.next()
            began = perf_counter()
            learner.step(inputs, targets, 0.0)
            found.append((perf_counter() - began, inputs.size))
    return found[1:]  # the first one may load compiled code


def tokens_per_second(experiment):
    """The median over SPEED_STEPS training steps."""
    return median(tokens / seconds for seconds, tokens in time_steps(experiment, SPEED_STEPS))


def estimate_seconds(experiment):
    """Seconds that a cell takes, by timing some of its steps."""
    seconds, tokens = map(sum, zip(*time_steps(experiment, TIMED_STEPS), strict=True))
    steps = experiment.train_config.steps
    evaluations = 1 + -(-steps // experiment.evaluate_every)
    asked = sum(len(question.prefix) for question in experiment.task.cloze_questions())
    evaluated = evaluations * experiment.validation.size + asked
    return steps * seconds / TIMED_STEPS + FORWARD * evaluated * seconds / tokens


def duration(seconds):
    """`1 h 05 min`, `3 min 20 s`, `8 s`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


class Progress:
    """A bar over all cells: `seconds`, by name, is what each that is to do should take, `done` the number of others."""

    def __init__(self, seconds, done):
        self.seconds, self.done, self.n_cells = dict(seconds), done, done + len(seconds)
        self.total, self.began = sum(seconds.values()), perf_counter()
        self.ended = self.spent = 0.0  # seconds of the estimate: of the cells that are done; and of steps since
        self.trained = 0.0  # what of it this process has trained
        self.bar = tqdm(
            total=self.total,
            disable=None,
            leave=False,
            dynamic_ncols=True,
            mininterval=0.2,
            miniters=0,
            bar_format="{percentage:3.0f}%|{bar:20}| {desc}",
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.bar.close()

    def steps(self, cell, first):
        """What a Trainer shows its steps on; the cell goes on after step `first`."""
        seconds = self.seconds[cell.name] / cell.steps
        self.spent += seconds * first
        return Steps(self, cell, seconds)

    def add(self, seconds):
        self.spent, self.trained = self.spent + seconds, self.trained + seconds
        self.bar.n = min(self.spent, self.total)
        self.bar.update(0)

    def left(self):
        """Seconds to go: the estimate, at the pace that this process has kept so far."""
        elapsed = perf_counter() - self.began
        pace = elapsed / self.trained if elapsed > SURE and self.trained else 1
        return max(0, self.total - self.spent) * pace

    def end(self, cell, line):
        """Print the line of a cell that is done, be it that it diverged early."""
        self.done += 1
        self.ended += self.seconds[cell.name]
        self.spent = self.ended
        self.bar.write(f"[{self.done}/{self.n_cells}] {line}")


class Steps:
    """The progress of one cell, as a Trainer shows it."""

    def __init__(self, progress, cell, seconds):
        self.progress, self.cell, self.seconds = progress, cell, seconds  # of a step

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def update(self):
        self.progress.add(self.seconds)

    def set_postfix_str(self, text, refresh):
        left = duration(self.progress.left())
        done = f"{self.progress.done}/{self.progress.n_cells} cells, {left} left"
        self.progress.bar.set_description_str(f"{done}; {self.cell.name}: {text}", refresh)

    def write(self, text):
        """Validations are told when the cell is done."""
