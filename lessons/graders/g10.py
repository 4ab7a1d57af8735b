"""What is asked in lesson 10, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex10_sampling as ours

draw, with_temperature, top_p = ours.draw, ours.with_temperature, ours.top_p


# ------------------------------------------------------------------------------------------- with_temperature
def logits_and_temperatures(rng):
    """Warm and cold, the model's own, 0 with and without a tie, logits that overflow, and a temperature near 0."""
    for V, size, temperature in ((5, 1.0, 0.5), (4, 2.0, 3.0), (6, 1.0, 1.0), (5, 1.0, 0.0)):
        yield size * rng.standard_normal(V), temperature
    yield np.array([1.0, 3.0, 3.0, 2.0]), 0.0
    yield np.array([2000.0, 1999.0, -2000.0]), 0.5
    yield 0.01 * rng.standard_normal(5), 1e-3


def softmax(logits):
    return with_temperature(logits, 1.0)


def after_the_softmax(logits, temperature):
    scaled = softmax(logits) / temperature if temperature else softmax(logits)
    return scaled / scaled.sum()


def to_the_power(logits, temperature):
    """p^(1/τ), which is the same on paper."""
    if temperature == 0:
        return with_temperature(logits, 0)
    weights = softmax(logits) ** (1 / temperature)
    return weights / weights.sum()


def multiplied(logits, temperature):
    return softmax(logits * temperature)


def unshifted(logits, temperature):
    if temperature == 0:
        return with_temperature(logits, 0)
    weights = np.exp(logits / temperature)
    return weights / weights.sum()


def divides_by_0(logits, temperature):
    return softmax(logits / temperature)


def divides_by_a_python_0(logits, temperature):
    """ZeroDivisionError at temperature 0."""
    return softmax(logits * (1 / temperature))


def shared_by_equals(logits, temperature):
    if temperature:
        return with_temperature(logits, temperature)
    largest = logits == logits.max()
    return largest / largest.sum()


def not_summed_up(logits, temperature):
    if temperature == 0:
        return with_temperature(logits, 0)
    return np.exp((logits - logits.max()) / temperature)


# ------------------------------------------------------------------------------------------------------ top_p
def probabilities_and_thresholds(rng):
    """Thresholds between sums, so that no rounding decides; all tokens, one, equal ones, and a sum that is just p."""
    p = np.array([0.1, 0.4, 0.2, 0.3])
    for threshold in (0.35, 0.45, 0.75, 0.95, 1e-9):
        yield p, threshold
    yield rng.permutation(p), 1.0
    yield np.full(4, 0.25), 0.6
    yield softmax(2 * rng.standard_normal(12)), 0.8
    yield np.array([0.25, 0.5, 0.25]), 0.5  # exact in binary


def ranked(probabilities):
    order = np.argsort(-probabilities, kind="stable")
    return order, np.cumsum(probabilities[order])


def only(probabilities, tokens):
    """Of these tokens only, scaled to sum to 1; NaN if there are none."""
    kept = np.zeros(len(probabilities))
    kept[tokens] = probabilities[tokens]
    return kept / kept.sum()


def without_the_crossing(probabilities, p):
    order, total = ranked(probabilities)
    return only(probabilities, order[total <= p])


def at_least_one(probabilities, p):
    order, total = ranked(probabilities)
    return only(probabilities, order[: max(1, np.count_nonzero(total <= p))])


def one_too_many(probabilities, p):
    order, total = ranked(probabilities)
    return only(probabilities, order[: np.count_nonzero(total < p) + 2])


def up_to_p(probabilities, p):
    order, total = ranked(probabilities)
    return only(probabilities, order[total - probabilities[order] <= p])


def last_of_equals(probabilities, p):
    order = np.argsort(probabilities, kind="stable")[::-1]
    before = np.cumsum(probabilities[order]) - probabilities[order]
    return only(probabilities, order[before < p])


def in_ranked_order(probabilities, p):
    return np.sort(top_p(probabilities, p))[::-1]


def sums_to_less(probabilities, p):
    return np.where(top_p(probabilities, p) > 0, probabilities, 0.0)


def in_the_vocabularys_order(probabilities, p):
    before = np.cumsum(probabilities) - probabilities
    return only(probabilities, before < p)


def the_unlikely(probabilities, p):
    order = np.argsort(probabilities, kind="stable")
    before = np.cumsum(probabilities[order]) - probabilities[order]
    return only(probabilities, order[before < p])


def each_above_p(probabilities, p):
    return only(probabilities, probabilities >= p)


# --------------------------------------------------------------------------------------------------- generate
def texts(rng):
    """A small recurrent model, with prompts of one and of several tokens, greedy, and with no draws."""
    V, D = 7, 5
    embedding, out, mix = rng.standard_normal((V, D)), 2 * rng.standard_normal((V, D)), rng.standard_normal((D, D))

    def step(token, state):
        state = np.zeros(D) if state is None else state
        state = np.tanh(mix @ state + embedding[token])
        return out @ state, state

    for prompt, temperature, p in (([3], 1.0, 1.0), ([1, 4, 6], 1.0, 0.8), ([0, 5], 0.4, 0.95), ([2, 2], 0.0, 1.0)):
        yield step, prompt, temperature, p, rng.random(8).tolist()
    yield step, [1, 5], 2.0, 0.9, rng.random(12).tolist()
    yield step, [1], 1.0, 1.0, []


def loop(step, prompt, choose, draws, read=None, carry=True, feed=True):
    """The loop of the solution, with one thing changed."""
    state, written = None, []
    for token in prompt if read is None else read(prompt):
        logits, state = step(token, state if carry else None)
    for u in draws:
        written.append(choose(logits, u))
        if feed:
            logits, state = step(written[-1], state if carry else None)
    return written


def chosen(temperature, p):
    return lambda logits, u: draw(top_p(with_temperature(logits, temperature), p), u)


def forgets_the_state(step, prompt, temperature, p, draws):
    return loop(step, prompt, chosen(temperature, p), draws, carry=False)


def keeps_the_first_state(step, prompt, temperature, p, draws):
    state, written = None, []
    for token in prompt:
        logits, state = step(token, state)
    for u in draws:
        written.append(chosen(temperature, p)(logits, u))
        logits, _ = step(written[-1], state)
    return written


def forgets_the_prompt(step, prompt, temperature, p, draws):
    state, written = None, []
    for token in prompt:
        logits, state = step(token, state)
    for u in draws:
        written.append(chosen(temperature, p)(logits, u))
        logits, _ = step(written[-1], None)
    return written


def never_reads_what_it_wrote(step, prompt, temperature, p, draws):
    return loop(step, prompt, chosen(temperature, p), draws, feed=False)


def reads_the_last_only(step, prompt, temperature, p, draws):
    return loop(step, prompt, chosen(temperature, p), draws, read=lambda prompt: prompt[-1:])


def reads_the_last_twice(step, prompt, temperature, p, draws):
    return loop(step, prompt, chosen(temperature, p), draws, read=lambda prompt: [*prompt, prompt[-1]])


def with_the_prompt(step, prompt, temperature, p, draws):
    return [*prompt, *ours.generate(step, prompt, temperature, p, draws)]


def greedy(step, prompt, temperature, p, draws):
    return loop(step, prompt, lambda logits, u: int(np.argmax(logits)), draws)


def no_top_p(step, prompt, temperature, p, draws):
    return ours.generate(step, prompt, temperature, 1.0, draws)


def no_temperature(step, prompt, temperature, p, draws):
    return ours.generate(step, prompt, 1.0, p, draws)


def top_p_first(step, prompt, temperature, p, draws):
    def choose(logits, u):
        kept = top_p(softmax(logits), p)
        with np.errstate(divide="ignore"):
            return draw(with_temperature(np.log(kept), temperature), u)

    return loop(step, prompt, choose, draws)


PARTS = [
    Part(
        "with_temperature",
        logits_and_temperatures,
        [
            Foreseen(
                "dividing probabilities changes nothing: the sum divides it out. Divide the logits", after_the_softmax
            ),
            Foreseen("a power of a probability may be 0 for all tokens: divide the logits", to_the_power),
            Foreseen("a low temperature makes logits larger, not smaller", multiplied),
            Foreseen("exp overflows: subtract the largest logit first", unshifted),
            Foreseen("temperature 0 is a case of its own: what is the limit?", divides_by_0),
            Foreseen("temperature 0 is a case of its own: what does it divide by?", divides_by_a_python_0),
            Foreseen("at temperature 0 one token has it all: of equal logits the first", shared_by_equals),
            Foreseen("probabilities sum to 1", not_summed_up),
        ],
    ),
    Part(
        "top_p",
        probabilities_and_thresholds,
        [
            Foreseen("the token that crosses p is in: without it, a small p leaves nothing", without_the_crossing),
            Foreseen("the token that crosses p is in, not only where nothing else is", at_least_one),
            Foreseen("one token too many: stop as soon as p is reached", one_too_many),
            Foreseen("before a token that stays there is less than p, not p itself", up_to_p),
            Foreseen("of equal ones the smaller token goes first: a turned order has them turned too", last_of_equals),
            Foreseen("the answer is in the order of the vocabulary: put them back where they were", in_ranked_order),
            Foreseen("what is kept must sum to 1 again", sums_to_less),
            Foreseen("rank the tokens first, the likeliest in front", in_the_vocabularys_order),
            Foreseen("these are the unlikeliest: rank the other way round", the_unlikely),
            Foreseen("p is for the sum of the kept ones, not for each of them", each_above_p),
        ],
    ),
    Part(
        "generate",
        texts,
        [
            Foreseen("carry the state: step's second answer is its second argument next time", forgets_the_state),
            Foreseen("the state goes on after the prompt too", keeps_the_first_state),
            Foreseen(
                "what is written is read with the state, too: None is for the first token alone", forgets_the_prompt
            ),
            Foreseen("what was written must be read: step with the new token", never_reads_what_it_wrote),
            Foreseen("the model reads the whole prompt, not its last token alone", reads_the_last_only),
            Foreseen(
                "the prompt's last token is read once: its logits already say what comes next", reads_the_last_twice
            ),
            Foreseen("only the new tokens are asked for", with_the_prompt),
            Foreseen("draw with u; the likeliest token is for temperature 0", greedy),
            Foreseen("where is top-p?", no_top_p),
            Foreseen("where is the temperature?", no_temperature),
            Foreseen("temperature first, then top-p", top_p_first),
        ],
    ),
]
