"""What is asked in lesson 09, and the wrong answers that we foresee."""

import math

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex09_training as ours

SHAPES = {"decode.proj.weight": (3, 4), "decode.norm.weight": (4,), "write.log_rate": (2,)}
BETA1, BETA2, EPSILON = ours.BETA1, ours.BETA2, ours.EPSILON


def each(function, *dicts):
    """A new dict, of `function` of the arrays that have the same name in all the dicts."""
    return {name: function(*(of[name] for of in dicts)) for name in dicts[0]}


def drawn(rng, size=1.0):
    return {name: size * rng.standard_normal(shape) for name, shape in SHAPES.items()}


# ------------------------------------------------------------------------------------------------- adamw_step
def updates(rng):
    """A first step, later ones, tiny gradients, none at all, and no decay."""
    for step, size, decay in ((1, 1.0, 0.1), (2, 1e-6, 0.1), (7, 3.0, 0.5), (40, 0.0, 0.1), (3, 1.0, 0.0)):
        params, grads, first = drawn(rng), drawn(rng, size), drawn(rng, size if step > 1 else 0.0)
        second = each(lambda m: 2 * m**2, first)
        yield params, grads, first, second, step, 0.01, decay


def uncorrected(params, grads, first, second, step, rate, decay):
    return ours.adamw_step(params, grads, first, second, 10**6, rate, decay)


def counted_from_0(params, grads, first, second, step, rate, decay):
    return ours.adamw_step(params, grads, first, second, step + 1, rate, decay)


def decays_everything(params, grads, first, second, step, rate, decay):
    moved, first, second = ours.adamw_step(params, grads, first, second, step, rate, 0.0)
    return each(lambda new, p: new - rate * decay * p, moved, params), first, second


def decay_in_the_gradient(params, grads, first, second, step, rate, decay):
    grads = each(lambda g, p: g + decay * p * (p.ndim == 2), grads, params)
    return ours.adamw_step(params, grads, first, second, step, rate, 0.0)


def decay_without_the_rate(params, grads, first, second, step, rate, decay):
    return ours.adamw_step(params, grads, first, second, step, rate, decay / rate)


def epsilon_in_the_root(params, grads, first, second, step, rate, decay):
    _, first, second = ours.adamw_step(params, grads, first, second, step, rate, decay)

    def moved(p, m, v):
        change = m / (1 - BETA1**step) / np.sqrt(v / (1 - BETA2**step) + EPSILON)
        return p - rate * (change + decay * p * (p.ndim == 2))

    return each(moved, params, first, second), first, second


def moments_of_before(params, grads, first, second, step, rate, decay):
    _, new_first, new_second = ours.adamw_step(params, grads, first, second, step, rate, decay)

    def moved(p, m, v):
        change = m / (1 - BETA1**step) / (np.sqrt(v / (1 - BETA2**step)) + EPSILON)
        return p - rate * (change + decay * p * (p.ndim == 2))

    return each(moved, params, first, second), new_first, new_second


def second_uncorrected(params, grads, first, second, step, rate, decay):
    _, first, second = ours.adamw_step(params, grads, first, second, step, rate, decay)

    def moved(p, m, v):
        change = m / (1 - BETA1**step) / (np.sqrt(v) + EPSILON)
        return p - rate * (change + decay * p * (p.ndim == 2))

    return each(moved, params, first, second), first, second


def first_uncorrected(params, grads, first, second, step, rate, decay):
    _, first, second = ours.adamw_step(params, grads, first, second, step, rate, decay)

    def moved(p, m, v):
        change = m / (np.sqrt(v / (1 - BETA2**step)) + EPSILON)
        return p - rate * (change + decay * p * (p.ndim == 2))

    return each(moved, params, first, second), first, second


def never_decays(params, grads, first, second, step, rate, decay):
    return ours.adamw_step(params, grads, first, second, step, rate, 0.0)


def decays_by_name(params, grads, first, second, step, rate, decay):
    moved, first, second = ours.adamw_step(params, grads, first, second, step, rate, 0.0)
    decays = {name: decay * name.endswith("weight") for name in params}
    return {name: moved[name] - rate * decays[name] * p for name, p in params.items()}, first, second


def uphill(params, grads, first, second, step, rate, decay):
    moved, first, second = ours.adamw_step(params, grads, first, second, step, rate, decay)
    return each(lambda new, p: 2 * p - new, moved, params), first, second


# ------------------------------------------------------------------------------------------------------- clip
def gradients(rng):
    """Longer than allowed, shorter, much longer, and zero."""
    for size, most in ((1.0, 1.0), (0.01, 1.0), (0.3, 4.0), (100.0, 0.5), (0.0, 1.0)):
        yield drawn(rng, size), most


def always_scaled(grads, most):
    norm = ours.clip(grads, most)[1]
    return each(lambda g: g * most / norm if norm else g, grads), norm


def each_alone(grads, most):
    return {name: ours.clip({name: g}, most)[0][name] for name, g in grads.items()}, ours.clip(grads, most)[1]


def each_entry(grads, most):
    return each(lambda g: np.clip(g, -most, most), grads), ours.clip(grads, most)[1]


def norm_of_after(grads, most):
    grads, norm = ours.clip(grads, most)
    return grads, min(norm, most)


def sum_of_norms(grads, most):
    norm = sum(np.linalg.norm(g) for g in grads.values())
    return each(lambda g: g * min(1, most / norm) if norm else g, grads), norm


def largest_norm(grads, most):
    norm = max(np.linalg.norm(g) for g in grads.values())
    return each(lambda g: g * min(1, most / norm) if norm else g, grads), norm


def squared(grads, most):
    norm = ours.clip(grads, most)[1] ** 2
    return each(lambda g: g * min(1, most / norm) if norm else g, grads), norm


def divides_by_0(grads, most):
    """ZeroDivisionError where all gradients are 0."""
    norm = ours.clip(grads, most)[1]
    return each(lambda g: g * min(1, most / norm), grads), norm


# ------------------------------------------------------------------------------------------- learning_rate_at
def steps_of_schedules(rng):
    """Both ends, the peak and its neighbours, the middle and beyond the last, with and without a warm-up."""
    for peak, warmup, steps, final in ((1e-3, 4, 12, 0.1), (0.02, 0, 9, 0.25)):
        for step in (0, 1, 3, 4, 5, 8, steps - 1, steps, steps + 7):
            yield step, peak, warmup, steps, final


def starts_at_0(step, peak, warmup, steps, final):
    return peak * step / warmup if step < warmup else ours.learning_rate_at(step, peak, warmup, steps, final)


def cosine_from_the_start(step, peak, warmup, steps, final):
    if step < warmup:
        return peak * (step + 1) / warmup
    return ours.learning_rate_at(step, peak, 0, steps, final)


def cosine_between(first, last):
    """The schedule with x = 0 at step warmup + first, and x = 1 at step steps + last."""

    def rate(step, peak, warmup, steps, final):
        if step < warmup:
            return peak * (step + 1) / warmup
        x = min(1.0, max(0.0, (step - warmup - first) / (steps + last - warmup - first)))
        return peak * (final + (1 - final) * (1 + math.cos(math.pi * x)) / 2)

    return rate


def cosine_begins_again(step, peak, warmup, steps, final):
    if step <= steps:
        return ours.learning_rate_at(step, peak, warmup, steps, final)
    x = (step - warmup) / (steps - warmup)
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * x)) / 2)


def straight_down(step, peak, warmup, steps, final):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (1 - (1 - final) * min(1.0, (step - warmup) / (steps - warmup)))


def down_to(end):
    """The schedule that ends at end(peak, final) instead of final · peak."""
    return lambda step, peak, warmup, steps, final: ours.learning_rate_at(step, peak, warmup, steps, end(peak, final))


def without_the_half(step, peak, warmup, steps, final):
    right = ours.learning_rate_at(step, peak, warmup, steps, final)
    return right if step < warmup else 2 * right - peak * final


PARTS = [
    Part(
        "adamw_step",
        updates,
        [
            Foreseen("m and v start at 0 and are too small at first: where are m̂ and v̂?", uncorrected),
            Foreseen("v starts at 0 too, like m: where is v̂?", second_uncorrected),
            Foreseen("m starts at 0 too, like v: where is m̂?", first_uncorrected),
            Foreseen("where is the weight decay, λ p?", never_decays),
            Foreseen("t is the given step: it counts from 1 already", counted_from_0),
            Foreseen("scales, biases and rates don't decay: only what is two-dimensional", decays_everything),
            Foreseen("a norm's scale is called weight, too: go by the dimensions, not by the name", decays_by_name),
            Foreseen("the decay stands beside m̂ / √v̂, not in the gradient: v must not see it", decay_in_the_gradient),
            Foreseen("the decay is multiplied by the rate too", decay_without_the_rate),
            Foreseen("ε is added to the root, not under it", epsilon_in_the_root),
            Foreseen("p moves by the new m and v, not by those of before", moments_of_before),
            Foreseen("the sign: we go down", uphill),
        ],
        names=("params", "first", "second"),
    ),
    Part(
        "clip",
        gradients,
        [
            Foreseen("a gradient that is short enough stays as it is: the factor is never above 1", always_scaled),
            Foreseen("one norm for all arrays together: one factor keeps the direction", each_alone),
            Foreseen("scale, don't cut entries off: cutting turns the gradient", each_entry),
            Foreseen("the norm to return is that before clipping: it is what a log should show", norm_of_after),
            Foreseen("the length is the root of the sum of squares", squared),
            Foreseen("the length of all is not the sum of their lengths: add squares, then the root", sum_of_norms),
            Foreseen("the length of all is more than that of the longest: add squares, then the root", largest_norm),
            Foreseen("all gradients may be 0: mind the division", divides_by_0),
        ],
        names=("grads", "norm"),
    ),
    Part(
        "learning_rate_at",
        steps_of_schedules,
        [
            Foreseen("step 0 is the first to warm up: a rate of 0 would waste it", starts_at_0),
            Foreseen("the cosine starts where the warm-up ends: x = 0 at step = warmup", cosine_from_the_start),
            Foreseen("x is 0 at step = warmup and 1 at step = steps, not one before", cosine_between(0, -1)),
            Foreseen("x is 0 at step = warmup: the cosine begins at the peak", cosine_between(-1, -1)),
            Foreseen(
                "after the last step the rate stays: x is at most 1, or the cosine comes up again", cosine_begins_again
            ),
            Foreseen("a cosine, not a line: look at the middle", straight_down),
            Foreseen("it ends at final · peak, not at 0", down_to(lambda peak, final: 0.0)),
            Foreseen("final is a share of the peak, not a rate", down_to(lambda peak, final: final / peak)),
            Foreseen("(1 + cos) goes from 2 to 0: halve it", without_the_half),
        ],
    ),
]
