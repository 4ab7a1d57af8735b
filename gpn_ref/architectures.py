"""The kinds of models, and what computes each of them: an engine for every backend."""

from collections.abc import Callable
from typing import NamedTuple

from gpn_ref.baselines import gated_deltanet, transformer
from gpn_ref.baselines.engine import GDNEngine, TransformerEngine, with_card, with_numba
from gpn_ref.config import GDNConfig, ModelConfig, TransformerConfig
from gpn_ref.reference import gpn
from gpn_ref.reference.decode import decode_forward
from gpn_ref.training.optimizer import AdamW

BACKENDS = ("numpy", "numba", "cuda")


class Reference:
    """The engine "numpy": the reference and the plain optimizer. Every engine has these methods; none checks its input.

    `params` is the engine's own copy; its learner changes it in place.
    """

    AdamW = AdamW

    def __init__(self, config, params):
        self.config = config
        self.params = {name: value.copy() for name, value in params.items()}
        self.dtype = next(iter(params.values())).dtype

    def loss_and_grads(self, inputs, targets, state, d_state, scale):
        """-> nll (B, T), grads, the final state, d_state of the initial state."""
        return gpn.loss_and_grads(self.params, self.config, inputs, targets, state, d_state, scale)

    def forward(self, inputs, state):
        """-> logits (B, T, V), hidden (B, T, D), the final state."""
        return gpn.window_forward(self.params, self.config, inputs, state)[:3]

    def step(self, tokens, state):
        """-> logits (B, V), the next state."""
        state, _ = gpn.step_forward(self.params, self.config, tokens, state)
        return decode_forward(self.params, state.predicted)[0], state


def _needs_numba(engine):
    """The engine that `engine()` imports, or a ValueError that says what it needs."""

    def load():
        try:
            import numba  # noqa: F401
        except ImportError as error:
            needs = "backend 'numba' needs numba (pip install numba), which does not import"
            raise ValueError(f"{needs}: {error}") from None
        return engine()

    return load


def _compiled():
    from gpn_ref.fast.cpu.engine import Engine

    return Engine


def _needs_a_card(engine):
    """The engine that `engine()` imports, or a ValueError that says what is missing."""

    def load():
        try:
            import numba_cuda  # noqa: F401

            from gpn_ref.fast.cuda.card import the_card
        except (ImportError, RuntimeError) as error:  # RuntimeError: it does not find a library of CUDA's toolkit
            needs = "backend 'cuda' needs numba-cuda (pip install -r requirements-cuda.txt), which does not import"
            raise ValueError(f"{needs}: {str(error).splitlines()[0]}") from None
        the_card()
        return engine()

    return load


def _on_the_card():
    from gpn_ref.fast.cuda.engine import Engine

    return Engine


class Architecture(NamedTuple):
    """A kind of model: what a text starts from, and what computes it."""

    initial_state: Callable  # config, batch size, dtype -> a NamedTuple of arrays
    engines: dict[str, Callable]  # backend -> a function that gives the engine: numba's import takes a second
    growing: int | None = None  # the axis on which the state grows, token by token; such a state gets no gradient


ARCHITECTURES = {  # by the type of the configuration
    ModelConfig: Architecture(
        gpn.initial_state,
        {"numpy": lambda: Reference, "numba": _needs_numba(_compiled), "cuda": _needs_a_card(_on_the_card)},
    ),
    TransformerConfig: Architecture(
        transformer.initial_state,
        {"numpy": lambda: TransformerEngine, "numba": _needs_numba(lambda: with_numba(TransformerEngine))},
        growing=3,
    ),
    GDNConfig: Architecture(
        gated_deltanet.initial_state,
        {
            "numpy": lambda: GDNEngine,
            "numba": _needs_numba(lambda: with_numba(GDNEngine)),
            "cuda": _needs_a_card(lambda: with_card(GDNEngine)),
        },
    ),
}


def default_backend() -> str:
    """The fastest backend that this machine has: "numba" where numba imports, otherwise "numpy"."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return "numpy"
    return "numba"
