"""What is asked in lesson 07, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex07_matrix_memory as ours


def addresses(rng, *shape):
    """Keys or queries as the model makes them: not negative, of length 1."""
    positive = np.maximum(rng.standard_normal(shape), 0) + 1e-3
    return positive / np.sqrt(np.sum(positive**2, axis=-1, keepdims=True))


# ------------------------------------------------------------------------------------------------------- write
def writes(rng):
    """A batch, a memory of 2 × 2, and an empty one: K and U differ but there."""
    for B, H, K, U, full in ((2, 3, 4, 5, 1.0), (1, 1, 2, 2, 1.0), (2, 1, 3, 2, 0.0)):
        memory = full * rng.standard_normal((B, H, K, U))
        yield memory, addresses(rng, B, H, K), rng.standard_normal((B, H, U)), rng.random((B, H)), rng.random((B, H))


def decay_first(memory, key, value, beta, decay):
    return ours.write(decay[..., None, None] * memory, key, value, beta, np.ones_like(decay))


def hebb(memory, key, value, beta, decay):
    return decay[..., None, None] * memory + np.einsum("bh,bhk,bhu->bhku", beta, key, value)


def wrong_sign(memory, key, value, beta, decay):
    return ours.write(memory, key, value, -beta, decay)


def adds_what_is_there(memory, key, value, beta, decay):
    return 2 * hebb(memory, key, value, beta, decay) - ours.write(memory, key, value, beta, decay)


def decays_the_sum(memory, key, value, beta, decay):
    return decay[..., None, None] * ours.write(memory, key, value, beta, np.ones_like(decay))


def never_decays(memory, key, value, beta, decay):
    return ours.write(memory, key, value, beta, np.ones_like(decay))


def without_beta(memory, key, value, beta, decay):
    return ours.write(memory, key, value, np.ones_like(beta), decay)


def transposed(memory, key, value, beta, decay):
    """ValueError unless K = U."""
    error = value - np.einsum("bhku,bhu->bhk", memory, key)
    return decay[..., None, None] * memory + np.einsum("bh,bhk,bhu->bhku", beta, key, error)


# ---------------------------------------------------------------------------------------------- recalled_after
def repeated(rng):
    for n, decay_first in ((1, False), (2, False), (9, False), (2, True), (5, True), (0, False)):
        yield n, rng.uniform(0.3, 0.9, 3), rng.uniform(0.1, 0.95, 3), decay_first


def factor(beta, decay, decay_first):
    return decay * (1 - beta) if decay_first else decay - beta


def in_the_end(n, beta, decay, decay_first):
    return beta / (1 - factor(beta, decay, decay_first))


def towards_one(n, beta, decay, decay_first):
    """As if the share ended at 1."""
    return 1 - factor(beta, decay, decay_first) ** n


# --------------------------------------------------------------------------------------------------- read_text
def texts(rng):
    for B, T, H, K, U in ((2, 5, 2, 3, 4), (1, 2, 1, 2, 2), (3, 1, 1, 4, 2)):
        gates = rng.uniform(0.2, 0.95, (2, B, T, H))
        yield addresses(rng, B, T, H, K), addresses(rng, B, T, H, K), rng.standard_normal((B, T, H, U)), *gates


def shifted(x):
    """x_{t-1} in place of x_t, 0 before the first."""
    return np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)


def run(keys, queries, values, beta, decay, write=ours.write, read_first=False):
    """The loop with the keys as they are given: those of the state before are `shifted(keys)`."""
    B, T, H, K = keys.shape
    memory, recalled = np.zeros((B, H, K, values.shape[-1])), []
    for t in range(T):
        written = write(memory, keys[:, t], values[:, t], beta[:, t], decay[:, t])
        recalled.append(np.einsum("bhku,bhk->bhu", memory if read_first else written, queries[:, t]))
        memory = written
    return np.stack(recalled, axis=1)


PARTS = [
    Part(
        "write",
        writes,
        [
            Foreseen("that is the other order: here the error is against the memory before its decay", decay_first),
            Foreseen("what the memory recalls for the key must be taken from the value first", hebb),
            Foreseen("the sign of the error: the value asked for, less what is there", wrong_sign),
            Foreseen("the error is a difference: what is recalled is taken away, not added", adds_what_is_there),
            Foreseen("decay is for the old memory alone, not for what is written", decays_the_sum),
            Foreseen("where is the decay? A memory without it never forgets", never_decays),
            Foreseen("where is β? It says what share of the error is written", without_beta),
            Foreseen("a key recalls Mᵀ k (U), the rows of M added up; M k is (K), the columns", transposed),
        ],
    ),
    Part(
        "recalled_after",
        repeated,
        [
            Foreseen(
                "the two orders are exchanged: which of them can have a negative factor?",
                lambda n, beta, decay, first: ours.recalled_after(n, beta, decay, not first),
            ),
            Foreseen(
                "the order is always the paper's: what does decay_first change?",
                lambda n, beta, decay, first: ours.recalled_after(n, beta, decay, False),
            ),
            Foreseen(
                "the decay always comes first: the paper's factor is another, where decay_first is False",
                lambda n, beta, decay, first: ours.recalled_after(n, beta, decay, True),
            ),
            Foreseen("that is where it ends after very many writes; after n it is not there yet", in_the_end),
            Foreseen("it does not end at 1: each write finds the old share faded, and adds β", towards_one),
            Foreseen(
                "n = 0: nothing was written yet, so nothing is recalled",
                lambda n, beta, decay, first: ours.recalled_after(max(n, 1), beta, decay, first),
            ),
            Foreseen(
                "one write too many: after none the share is 0, after one it is β",
                lambda n, beta, decay, first: ours.recalled_after(n + 1, beta, decay, first),
            ),
            Foreseen(
                "one write is missing: after one the share is β",
                lambda n, beta, decay, first: ours.recalled_after(max(n - 1, 0), beta, decay, first),
            ),
            Foreseen(
                "a write also takes away what it finds under the key",
                lambda n, beta, decay, first: beta * (1 - decay**n) / (1 - decay),
            ),
            Foreseen(
                "the memory also decays between the writes",
                lambda n, beta, decay, first: ours.recalled_after(n, beta, np.ones_like(decay), first),
            ),
        ],
    ),
    Part(
        "read_text",
        texts,
        [
            Foreseen("the key of the wrong time: step t writes under the key of the state before", run),
            Foreseen(
                "read after the write: the read of step t sees M_t",
                lambda keys, *rest: run(shifted(keys), *rest, read_first=True),
            ),
            Foreseen(
                "the query is that of step t itself; only the key is of the state before",
                lambda keys, queries, *rest: run(shifted(keys), shifted(queries), *rest),
            ),
            Foreseen(
                "value, β and decay are those of step t itself; only the key is of the state before",
                lambda keys, queries, *rest: run(shifted(keys), queries, *(shifted(x) for x in rest)),
            ),
            Foreseen(
                "the value is that of step t itself, which follows the state of the key",
                lambda keys, queries, values, *gates: run(shifted(keys), queries, shifted(values), *gates),
            ),
            Foreseen(
                "β is that of step t itself; only the key is of the state before",
                lambda keys, queries, values, beta, decay: run(shifted(keys), queries, values, shifted(beta), decay),
            ),
            Foreseen(
                "decay is that of step t itself; only the key is of the state before",
                lambda keys, queries, values, beta, decay: run(shifted(keys), queries, values, beta, shifted(decay)),
            ),
            Foreseen(
                "the read asks with the query of step t, not with the key that was just written",
                lambda keys, queries, *rest: run(shifted(keys), shifted(keys), *rest),
            ),
            Foreseen(
                "the read asks with the query of step t, not with its key",
                lambda keys, queries, *rest: run(shifted(keys), keys, *rest),
            ),
            Foreseen(
                "that is the other order of decay and error", lambda keys, *rest: run(shifted(keys), *rest, decay_first)
            ),
            Foreseen(
                "here the key before the first step is 0, not the last one of the text",
                lambda keys, *rest: run(np.roll(keys, 1, axis=1), *rest),
            ),
        ],
    ),
]
