"""What is asked in lesson 11, and the wrong answers that we foresee."""

import numpy as np

from lessons.graders.g07 import addresses
from lessons.grading import Foreseen, Part
from lessons.solutions import ex11_make_it_fast as ours


# ----------------------------------------------------------------------------------------------------- hoisted
def loops(rng):
    """A batch, one text of one step, and a batch of many steps."""
    for B, T, E, D in ((2, 3, 4, 5), (1, 1, 2, 3), (3, 7, 2, 2)):
        W, embedded = rng.standard_normal((D, E)), rng.standard_normal((B, T, E))

        def product(x, W=W, n=B * T):
            if np.shape(x)[-1:] != W.shape[1:] or np.size(x) != n * W.shape[1]:
                raise ValueError(
                    f"it wants all {n} vectors of {W.shape[1]} in one call, and got the shape {np.shape(x)}"
                )
            return x @ W.T

        yield embedded, rng.uniform(0.1, 0.9, D), rng.standard_normal((B, D)), product


def at_every_step(embedded, gate, start, product):
    states = [start]
    for t in range(embedded.shape[1]):
        states.append(gate * states[-1] + product(embedded[:, t]))
    return np.stack(states[1:], axis=1)


def gate_on_both(embedded, gate, start, product):
    """s = gate ⊙ (s + W x)."""
    return ours.hoisted(embedded, gate, start, lambda x: gate * product(x))


def from_zero(embedded, gate, start, product):
    return ours.hoisted(embedded, gate, 0 * start, product)


def without_gate(embedded, gate, start, product):
    return start[:, None] + np.cumsum(product(embedded), axis=1)


def mixes_texts(embedded, gate, start, product):
    B, T, _ = embedded.shape

    def mixed(x):
        return product(x).reshape(T, B, -1).swapaxes(0, 1)

    return ours.hoisted(embedded, gate, start, mixed)


def like_an_average(embedded, gate, start, product):
    return ours.hoisted(embedded, gate, start, lambda x: (1 - gate) * product(x))


def always_from_the_start(embedded, gate, start, product):
    return gate * start[:, None] + product(embedded)


def last_everywhere(embedded, gate, start, product):
    states = ours.hoisted(embedded, gate, start, product)
    return np.repeat(states[:, -1:], states.shape[1], axis=1)


def one_too_early(embedded, gate, start, product):
    states = ours.hoisted(embedded, gate, start, product)
    return np.concatenate([start[:, None], states[:, :-1]], axis=1)


# ----------------------------------------------------------------------------------------------------- stacked
def looks(rng):
    """Two and three matrices, one of them with a single row; and a state so small that the 1e-6 counts."""
    for B, D, rows, size in ((2, 5, (3, 2), 1.0), (1, 4, (2, 1, 4), 1.0), (3, 3, (2, 2, 2), 1e-3)):

        def product(W, x, rows=rows, shape=(B, D)):
            if len(W) != sum(rows):
                raise ValueError(f"it wants one W of {sum(rows)} rows, and got {len(W)}")
            if np.ndim(W) != 2 or np.shape(x) != shape:
                raise ValueError(f"it wants x of the shape {shape}, and got {np.shape(x)}")
            return x @ W.T

        weights = [rng.standard_normal((n, D)) for n in rows]
        yield size * rng.standard_normal((B, D)), weights, [rng.uniform(0.5, 2, D) for _ in rows], product


def one_by_one(x, weights, scales, product):
    normalized = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-6)
    return [product(weight, normalized * scale) for weight, scale in zip(weights, scales, strict=True)]


def unscaled(x, weights, scales, product):
    return ours.stacked(x, weights, [np.ones_like(scale) for scale in scales], product)


def one_scale_for_all(x, weights, scales, product):
    return ours.stacked(x, weights, [scales[0]] * len(scales), product)


def unnormalized(x, weights, scales, product):
    rms = np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-6)
    return [y * rms for y in ours.stacked(x, weights, scales, product)]


def of_the_sum(x, weights, scales, product):
    ratio = np.sqrt((np.mean(x**2, axis=1, keepdims=True) + 1e-6) / (np.sum(x**2, axis=1, keepdims=True) + 1e-6))
    return [y * ratio for y in ours.stacked(x, weights, scales, product)]


def over_the_batch(x, weights, scales, product):
    ratio = np.sqrt((np.mean(x**2, axis=1, keepdims=True) + 1e-6) / (np.mean(x**2) + 1e-6))
    return [y * ratio for y in ours.stacked(x, weights, scales, product)]


def without_epsilon(x, weights, scales, product):
    mean = np.mean(x**2, axis=1, keepdims=True)
    return [y * np.sqrt((mean + 1e-6) / mean) for y in ours.stacked(x, weights, scales, product)]


def divided_by_the_scales(x, weights, scales, product):
    return ours.stacked(x, weights, [1 / scale for scale in scales], product)


def with_a_last_border(x, weights, scales, product):
    y = np.concatenate(ours.stacked(x, weights, scales, product), axis=1)
    return np.split(y, np.cumsum([len(weight) for weight in weights]), axis=1)


def split_at_the_sizes(x, weights, scales, product):
    y = np.concatenate(ours.stacked(x, weights, scales, product), axis=1)
    return np.split(y, [len(weight) for weight in weights], axis=1)


# ---------------------------------------------------------------------------------------------- write_and_read
def steps(rng):
    """A batch of wider values, one of wider keys, and a memory of 2 × 2."""
    for B, H, K, U in ((2, 2, 3, 4), (2, 1, 4, 2), (1, 1, 2, 2)):
        memory, (key, query, next_key) = rng.standard_normal((B, H, K, U)), addresses(rng, 3, B, H, K)
        value, expected = rng.standard_normal((B, H, U)), np.einsum("bhku,bhk->bhu", memory, key)
        beta, decay = rng.uniform(0.1, 0.9, (2, B, H))
        yield memory, key, value, expected, beta, decay, query, next_key


def recalls(memory, query):
    return np.einsum("bhku,bhk->bhu", memory, query)


def reads_first(memory, key, value, expected, beta, decay, query, next_key):
    written, _, after = ours.write_and_read(memory, key, value, expected, beta, decay, query, next_key)
    return written, recalls(memory, query), after


def expects_of_the_old(memory, key, value, expected, beta, decay, query, next_key):
    written, recalled, _ = ours.write_and_read(memory, key, value, expected, beta, decay, query, next_key)
    return written, recalled, recalls(memory, next_key)


def both_of_the_old(memory, key, value, expected, beta, decay, query, next_key):
    written, _, _ = ours.write_and_read(memory, key, value, expected, beta, decay, query, next_key)
    return written, recalls(memory, query), recalls(memory, next_key)


def decay_first(memory, key, value, expected, beta, decay, *rest):
    return ours.write_and_read(memory, key, value, decay[..., None] * expected, beta, decay, *rest)


def hebb(memory, key, value, expected, *rest):
    return ours.write_and_read(memory, key, value, 0 * expected, *rest)


def without_beta(memory, key, value, expected, beta, *rest):
    return ours.write_and_read(memory, key, value, expected, np.ones_like(beta), *rest)


def never_decays(memory, key, value, expected, beta, decay, *rest):
    return ours.write_and_read(memory, key, value, expected, beta, np.ones_like(decay), *rest)


def decays_the_sum(memory, key, value, expected, beta, decay, *rest):
    return ours.write_and_read(memory, key, value, expected, beta * decay, decay, *rest)


def wrong_sign(memory, key, value, expected, beta, *rest):
    return ours.write_and_read(memory, key, value, expected, -beta, *rest)


def expects_for_the_old_key(memory, key, value, expected, beta, decay, query, next_key):
    written, recalled, _ = ours.write_and_read(memory, key, value, expected, beta, decay, query, next_key)
    return written, recalled, recalls(written, key)


def exchanged(memory, key, value, expected, beta, decay, query, next_key):
    return ours.write_and_read(memory, key, value, expected, beta, decay, next_key, query)


def under_the_next_key(memory, key, value, expected, beta, decay, query, next_key):
    return ours.write_and_read(memory, next_key, value, expected, beta, decay, query, next_key)


def not_added_up(memory, key, value, expected, beta, decay, query, next_key):
    """= for +=: what the last row of M gives is all that is left."""
    written, _, _ = ours.write_and_read(memory, key, value, expected, beta, decay, query, next_key)
    last = written[:, :, -1]
    return written, query[:, :, -1:] * last, next_key[:, :, -1:] * last


PARTS = [
    Part(
        "hoisted",
        loops,
        [
            Foreseen("the gate is for the state before alone, not for what is seen", gate_on_both),
            Foreseen("`product` wants all B · T vectors in one call, before the loop", at_every_step),
            Foreseen("s_1 comes from `start`, not from zeros", from_zero),
            Foreseen("each step goes on from the state before it, not from `start`", always_from_the_start),
            Foreseen("the gate is for the state before alone: here is no 1 - gate", like_an_average),
            Foreseen("one array, changed in place, is in the list T times: keep a copy of each state", last_everywhere),
            Foreseen("reshape does not exchange B and T: it mixes the texts", mixes_texts),
            Foreseen("where is the gate? Each step keeps gate ⊙ s_{t-1}", without_gate),
            Foreseen("that begins with the start: the first state asked for is s_1", one_too_early),
            Foreseen("all T states are asked for, not the last alone", lambda *loop: ours.hoisted(*loop)[:, -1]),
            Foreseen("batch first: (B, T, D)", lambda *loop: ours.hoisted(*loop).swapaxes(0, 1)),
        ],
    ),
    Part(
        "stacked",
        looks,
        [
            Foreseen("where are the scales? Fold them into the columns: W_i · w_i", unscaled),
            Foreseen("`product` wants one W for all: stack the matrices on each other first", one_by_one),
            Foreseen("each matrix has a norm, and so a scale, of its own", one_scale_for_all),
            Foreseen("x̂ is x divided by its rms", unnormalized),
            Foreseen("the rms has the mean of the squares under its root, not the sum", of_the_sum),
            Foreseen("each row of x has an rms of its own: the mean is over D alone", over_the_batch),
            Foreseen("what stands under the root beside the mean? Small states tell", without_epsilon),
            Foreseen("w multiplies x̂, and so the columns of W", divided_by_the_scales),
            Foreseen("np.split wants the borders between parts: after the last part there is none", with_a_last_border),
            Foreseen("np.split asks where the parts end, not how long they are", split_at_the_sizes),
        ],
    ),
    Part(
        "write_and_read",
        steps,
        [
            Foreseen("the read comes after the write: it must see M_t", reads_first),
            Foreseen("what is recalled for the next key comes from M_t, too", expects_of_the_old),
            Foreseen("both readings come after the write: they must see M_t", both_of_the_old),
            Foreseen("that is the other order: here the error is against the memory before its decay", decay_first),
            Foreseen("where is `expected`? The error is what was missing under the key", hebb),
            Foreseen("where is β?", without_beta),
            Foreseen("where is the decay?", never_decays),
            Foreseen("decay is for the old memory alone, not for what is written", decays_the_sum),
            Foreseen("the sign of the error: value - expected", wrong_sign),
            Foreseen("what is expected next is recalled for the next key, not for this one", expects_for_the_old_key),
            Foreseen("query and next_key are exchanged", exchanged),
            Foreseen("the write goes under `key`; the next key only reads", under_the_next_key),
            Foreseen("a reading is a sum over the rows of M: += for each j", not_added_up),
        ],
        names=("M_t", "recalled", "next_expected"),
    ),
]
