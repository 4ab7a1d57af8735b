"""What is compared, on what, with which budget: the rows of the table, and the cells, the runs that fill them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from gpn_ref.config import DEFAULTS, PRESETS
from gpn_ref.parameters import count_params
from gpn_ref.sizes import LAYERS, baseline_like, deeper, without_memory

SWEEP_CORPUS, SWEEP_SEED = "stories", 0
NEARBY = 0.02  # share of the reference's parameters that a row may have more or fewer
REFERENCE = "gpn+m-1"  # the row whose parameters all others match


class Paper(NamedTuple):
    """What the paper reports of a model of 130M parameters."""

    perplexity: float  # on FineWeb-Edu
    cloze_accuracy: float  # on LAMBADA, as the next
    cloze_perplexity: float


class Row(NamedTuple):
    """A model of the table. `like(config, layers)` makes one as large as the reference `config`, or a ValueError."""

    title: str
    like: Callable
    layers: int = 1
    paper: Paper | None = None

    def named(self, layers):
        """What tables call it."""
        return f"{self.title} {layers} layer{'s' * (layers > 1)}"


def _transformer(config, layers):
    return baseline_like("transformer", config, layers)


def _gdn(config, layers):
    return baseline_like("gdn", config, layers)


def _gpn(config, layers):
    return without_memory(config)


def _decay_first(config, layers):
    return replace(config, decay_first=True)


ROWS = {  # the paper's five, then three that it lacks
    "transformer-deep": Row("Transformer++", _transformer, LAYERS["transformer"], Paper(16.05, 0.223, 18.99)),
    "gdn-deep": Row("GDN", _gdn, LAYERS["gdn"], Paper(15.34, 0.208, 17.23)),
    REFERENCE: Row("GPN+M", deeper, 1, Paper(18.06, 0.146, 33.45)),
    "gpn+m-2": Row("GPN+M", deeper, 2, Paper(16.95, 0.160, 27.39)),
    "gpn": Row("GPN", _gpn, 1, Paper(23.51, 0.015, 263.6)),
    "gdn-1": Row("GDN", _gdn),
    "transformer-1": Row("Transformer++", _transformer),
    "gpn+m-decay-first": Row("GPN+M (decay first)", _decay_first),
}


@dataclass(frozen=True)
class Plan:
    """A whole table, and what each run of it does beside the defaults of `train_tiny`."""

    rows: tuple[str, ...] = tuple(ROWS)
    corpora: tuple[str, ...] = ("stories", "python-docs", "recall")
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3, 8e-3)  # peak learning rates to choose from; one alone needs no sweep
    sweep_steps: int = DEFAULTS["steps"] // 2
    choices: dict = field(default_factory=lambda: {"evaluate_every": 50})  # often enough for a curve

    def all_choices(self):
        return DEFAULTS | self.choices

    def record(self):
        """The plan as JSON types: a folder is of this plan if it holds the same."""
        parts = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return parts | {"choices": self.all_choices()}


FULL = Plan()
QUICK = Plan(
    rows=(REFERENCE, "gpn", "gdn-1", "transformer-1"),
    corpora=("stories", "recall"),
    seeds=(0,),
    rates=(2e-3,),
    choices={"batch_size": 16, "steps": 540, "evaluate_every": 60},
)


class Cell(NamedTuple):
    """A run: a row trained on a corpus with a seed and a peak learning rate; `sweep` if to choose the rate."""

    row: str
    corpus: str
    seed: int
    learning_rate: float
    steps: int
    sweep: bool = False

    @property
    def name(self):
        """Of its folder."""
        return f"sweep-{self.row}-{self.learning_rate:g}" if self.sweep else f"{self.corpus}-{self.row}-{self.seed}"


def sweep_cells(plan):
    """The runs that choose the learning rates; none where there is no choice."""
    if len(plan.rates) == 1:
        return []
    place = (SWEEP_CORPUS, SWEEP_SEED)
    return [Cell(row, *place, rate, plan.sweep_steps, sweep=True) for row in plan.rows for rate in plan.rates]


def table_cells(plan, rates):
    """The runs of the table, from row -> its learning rate: all of a seed before the next, so one is soon whole."""
    steps = plan.all_choices()["steps"]
    places = [(row, corpus, seed) for seed in plan.seeds for corpus in plan.corpora for row in plan.rows]
    return [Cell(row, corpus, seed, rates[row], steps) for row, corpus, seed in places]


def chosen_rate(losses):
    """Of rate -> validation loss (None: it diverged), the rate of the lowest loss; the lowest rate if all diverged."""
    finite = {rate: loss for rate, loss in losses.items() if loss is not None}
    return min(finite, key=finite.get) if finite else min(losses)


def fitting_layers(plan, vocab_sizes):
    """Row -> its layers: as many as in the paper, or the most with which it is as large as the reference everywhere."""
    references = [reference(plan, vocab_size) for vocab_size in vocab_sizes]
    return {row: _fitting(ROWS[row], references) for row in plan.rows}


def _fitting(row, references):
    for layers in range(row.layers, 0, -1):
        try:
            for config in references:
                row.like(config, layers)
            return layers
        except ValueError as error:
            problem = error
    raise problem


def reference(plan, vocab_size):
    """The preset's configuration, a GPN+M of one layer, which sets the number of parameters."""
    return replace(PRESETS[plan.all_choices()["preset"]], vocab_size=vocab_size)


def size_rows(plan, vocab_sizes):
    """corpus -> row -> the model's configuration, from corpus -> V; all are within NEARBY of the reference."""
    layers = fitting_layers(plan, vocab_sizes.values())
    sizes = {}
    for corpus, vocab_size in vocab_sizes.items():
        config = reference(plan, vocab_size)
        sizes[corpus] = {row: ROWS[row].like(config, layers[row]) for row in plan.rows}
        for row, size in sizes[corpus].items():
            if abs(count_params(size) / count_params(config) - 1) > NEARBY:
                wanted = f"it must have about {count_params(config):,}"
                raise ValueError(f"{row} on {corpus} has {count_params(size):,} parameters; {wanted}")
    return sizes
