"""What is asked in lesson 02, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex02_one_vector_and_the_loop as ours

SIZES = (  # B, T, V, D, E, F, N
    (2, 4, 7, 4, 5, 6, 1),
    (1, 1, 3, 2, 2, 1, 1),
    (3, 5, 6, 5, 3, 4, 2),
)


def parameters(rng, V, D, E, F, N):
    """Nothing is 0, and no norm's weight is 1."""
    shapes = {"embedding.weight": (V, E), "ground.norm.weight": (E,), "ground.proj.weight": (D, E)}
    for gate in ("ground.gate", *(f"layers.{i}.gate" for i in range(N))):
        shapes |= {f"{gate}.norm.weight": (D,), f"{gate}.weight": (D, D), f"{gate}.bias": (D,)}
    for ffn in (f"layers.{i}.ffn" for i in range(N)):
        shapes |= {f"{ffn}.norm.weight": (D,), f"{ffn}.gate.weight": (F, D), f"{ffn}.value.weight": (F, D)}
        shapes |= {f"{ffn}.out.weight": (D, F)}
    shapes |= {"decode.norm.weight": (D,), "decode.proj.weight": (E, D)}
    params = {name: 0.7 * rng.standard_normal(shape) for name, shape in shapes.items()}
    return {name: value + 1 if name.endswith("norm.weight") else value for name, value in params.items()}


# ---------------------------------------------------------------------------------------------------- ground
def grounding(rng):
    for B, _, V, D, E, F, N in SIZES:
        yield parameters(rng, V, D, E, F, N), rng.standard_normal((B, D)), rng.integers(0, V, B)
    yield parameters(rng, 3, 2, 2, 1, 1), np.zeros((2, 2)), np.array([2, 2])  # the zero state


def seen(params, tokens):
    return ours.ground(params, np.zeros((len(tokens), len(params["ground.proj.weight"]))), tokens)


def not_gated(params, predicted, tokens):
    return predicted + seen(params, tokens)


def all_gated(params, predicted, tokens):
    return ours.gate(params, "ground.gate", predicted) * (predicted + seen(params, tokens))


def mixed(params, predicted, tokens):
    gate = ours.gate(params, "ground.gate", predicted)
    return gate * predicted + (1 - gate) * seen(params, tokens)


def forgets(params, predicted, tokens):
    return (1 - ours.gate(params, "ground.gate", predicted)) * predicted + seen(params, tokens)


def gate_of_the_seen(params, predicted, tokens):
    s = seen(params, tokens)
    return ours.gate(params, "ground.gate", s) * predicted + s


def gate_of_both(params, predicted, tokens):
    s = seen(params, tokens)
    return ours.gate(params, "ground.gate", predicted + s) * predicted + s


def embedding_as_it_is(params, predicted, tokens):
    from_embedding = params["embedding.weight"][tokens] @ params["ground.proj.weight"].T
    return ours.gate(params, "ground.gate", predicted) * predicted + from_embedding


def normed_late(params, predicted, tokens):
    normed = ours.rms(params["embedding.weight"] @ params["ground.proj.weight"].T, 1.0)[tokens]
    return ours.gate(params, "ground.gate", predicted) * predicted + normed


def weightless(params, predicted, tokens):
    return ours.ground(params | {"ground.norm.weight": np.ones_like(params["ground.norm.weight"])}, predicted, tokens)


def not_transposed(params, predicted, tokens):
    s = ours.rms(params["embedding.weight"][tokens], params["ground.norm.weight"]) @ params["ground.proj.weight"]
    return ours.gate(params, "ground.gate", predicted) * predicted + s


def gate_of_a_layer(params, predicted, tokens):
    return ours.gate(params, "layers.0.gate", predicted) * predicted + seen(params, tokens)


def only_the_seen(params, predicted, tokens):
    return seen(params, tokens)


# --------------------------------------------------------------------------------------------------- predict
def predicting(rng):
    for B, _, V, D, E, F, N in SIZES:
        yield parameters(rng, V, D, E, F, N), N, rng.standard_normal((B, D))
    yield parameters(rng, 3, 4, 2, 3, 3), 3, rng.standard_normal((2, 4))


def layers(step):
    """A predict of layers that each do step(params, layer, x, x of the first)."""

    def predict(params, n_layers, grounded):
        x = grounded
        for i in range(n_layers):
            x = step(params, f"layers.{i}", x, grounded)
        return x

    return predict


def kept(params, layer, x):
    return ours.gate(params, f"{layer}.gate", x) * x


def added(params, layer, z, squash=lambda a: a * ours.sigmoid(a), opens="gate", value="value"):
    opens, value = (z @ params[f"{layer}.ffn.{name}.weight"].T for name in (opens, value))
    return (squash(opens) * value) @ params[f"{layer}.ffn.out.weight"].T


def z_of(params, layer, x, norm="ffn"):
    return ours.rms(x, params[f"{layer}.{norm}.norm.weight"])


def whole(params, layer, x, **changes):
    return kept(params, layer, x) + added(params, layer, z_of(params, layer, x), **changes)


def not_transposed_inside(params, n_layers, grounded):
    raise ValueError("shapes")  # D and F differ in all cases


def one_layer(params, n_layers, grounded):
    return ours.predict(params, 1, grounded)


def same_layer(params, n_layers, grounded):
    for _ in range(n_layers):
        grounded = ours.predict(params, 1, grounded)
    return grounded


def last_layer(params, n_layers, grounded):
    return whole(params, f"layers.{n_layers - 1}", grounded)


# --------------------------------------------------------------------------------------------------- forward
def windows(rng):
    """A fresh text, and ones that go on from a state."""
    for (B, T, V, D, E, F, N), scale in zip(SIZES, (0.0, 1.0, 1.0), strict=True):
        start = scale * rng.standard_normal((B, D))
        yield parameters(rng, V, D, E, F, N), N, rng.integers(0, V, (B, T)), start
    yield parameters(rng, 4, 3, 3, 4, 1), 1, rng.integers(0, 4, (2, 6)), rng.standard_normal((2, 3))


def loop(step):
    """A forward whose every turn does step(params, n_layers, tokens, predicted, start) -> what to decode, predicted."""

    def forward(params, n_layers, inputs, predicted):
        start, decoded = predicted, []
        for tokens in inputs.T:
            shown, predicted = step(params, n_layers, tokens, predicted, start)
            decoded.append(ours.decode(params, shown))
        return np.stack(decoded, axis=1), predicted

    return forward


def turn(params, n_layers, tokens, predicted):
    return ours.predict(params, n_layers, ours.ground(params, predicted, tokens))


def from_the_start_each_time(params, n_layers, tokens, predicted, start):
    return (turn(params, n_layers, tokens, start),) * 2


def decodes_the_grounded(params, n_layers, tokens, predicted, start):
    grounded = ours.ground(params, predicted, tokens)
    return grounded, ours.predict(params, n_layers, grounded)


def hands_on_the_grounded(params, n_layers, tokens, predicted, start):
    grounded = ours.ground(params, predicted, tokens)
    return ours.predict(params, n_layers, grounded), grounded


def decodes_first(params, n_layers, tokens, predicted, start):
    return predicted, turn(params, n_layers, tokens, predicted)


def grounds_last(params, n_layers, inputs, predicted):
    logits, grounded = [], predicted
    for tokens in inputs.T:
        predicted = ours.predict(params, n_layers, grounded)
        logits.append(ours.decode(params, predicted))
        grounded = ours.ground(params, predicted, tokens)
    return np.stack(logits, axis=1), predicted


def grounds_last_from_zero(params, n_layers, inputs, predicted):
    return grounds_last(params, n_layers, inputs, np.zeros_like(predicted))


def not_handed_on(params, n_layers, inputs, predicted):
    return loop(from_the_start_each_time)(params, n_layers, inputs, predicted)[0], predicted


def returns_the_grounded(params, n_layers, inputs, predicted):
    logits, before = ours.forward(params, n_layers, inputs, predicted)[0], predicted
    if inputs.shape[1] > 1:
        before = ours.forward(params, n_layers, inputs[:, :-1], predicted)[1]
    return logits, ours.ground(params, before, inputs[:, -1])


def starts_from_zero(params, n_layers, inputs, predicted):
    return ours.forward(params, n_layers, inputs, np.zeros_like(predicted))


def returns_the_start(params, n_layers, inputs, predicted):
    return ours.forward(params, n_layers, inputs, predicted)[0], predicted


def time_first(params, n_layers, inputs, predicted):
    logits, predicted = ours.forward(params, n_layers, inputs, predicted)
    return logits.swapaxes(0, 1), predicted


def last_logits(params, n_layers, inputs, predicted):
    logits, predicted = ours.forward(params, n_layers, inputs, predicted)
    return logits[:, -1], predicted


def logits_alone(params, n_layers, inputs, predicted):
    return ours.forward(params, n_layers, inputs, predicted)[0]


PARTS = [
    Part(
        "ground",
        grounding,
        [
            Foreseen("the prediction goes through the gate; yours is added whole", not_gated),
            Foreseen("the gate is for the prediction alone; what was seen is added as it is", all_gated),
            Foreseen("what was seen is not weighted with 1 - gate: equation 4 adds all of it", mixed),
            Foreseen("the gate says how much is kept, not how much is forgotten", forgets),
            Foreseen("gate_f looks at the prediction, not at what was seen", gate_of_the_seen),
            Foreseen("gate_f looks at the prediction alone, before what was seen is added", gate_of_both),
            Foreseen("the embedding is scaled by rms before W_fuse", embedding_as_it_is),
            Foreseen("rms comes before W_fuse, not after it", normed_late),
            Foreseen("the norm of the embedding has a weight: ground.norm.weight", weightless),
            Foreseen("where is the prediction? This is only what was seen", only_the_seen),
            Foreseen("equation 4 has a gate of its own: ground.gate, not layers.0.gate", gate_of_a_layer),
            Foreseen("matrices are (out, in) and vectors rows: W x is x @ W.T", not_transposed),
        ],
    ),
    Part(
        "predict",
        predicting,
        [
            Foreseen(
                "the network sees rms(x), not x itself",
                layers(lambda p, layer, x, _: kept(p, layer, x) + added(p, layer, x)),
            ),
            Foreseen(
                "the network has a norm of its own: layers.i.ffn.norm.weight, not the gate's",
                layers(lambda p, layer, x, _: kept(p, layer, x) + added(p, layer, z_of(p, layer, x, "gate"))),
            ),
            Foreseen(
                "silu(a) is a · sigmoid(a); yours is the sigmoid alone",
                layers(lambda p, layer, x, _: whole(p, layer, x, squash=ours.sigmoid)),
            ),
            Foreseen(
                "silu is missing: W_g z must open and shut",
                layers(lambda p, layer, x, _: whole(p, layer, x, squash=lambda a: a)),
            ),
            Foreseen(
                "silu is around W_g z (ffn.gate), not around W_u z (ffn.value)",
                layers(lambda p, layer, x, _: whole(p, layer, x, opens="value", value="gate")),
            ),
            Foreseen(
                "x goes through the gate before the network's output is added",
                layers(lambda p, layer, x, _: x + added(p, layer, z_of(p, layer, x))),
            ),
            Foreseen(
                "what the network adds is not gated; x alone is",
                layers(
                    lambda p, layer, x, _: ours.gate(p, f"{layer}.gate", x) * (x + added(p, layer, z_of(p, layer, x)))
                ),
            ),
            Foreseen(
                "where is what stays, gate_p(x) ⊙ x?",
                layers(lambda p, layer, x, _: added(p, layer, z_of(p, layer, x))),
            ),
            Foreseen("there are n_layers layers; yours is the first alone", one_layer),
            Foreseen("each layer has parameters of its own: layers.0, layers.1, …", same_layer),
            Foreseen("each layer starts from the x of the one before; yours all start from s^g", last_layer),
            Foreseen(
                "from the second layer on the network sees rms of x, of the layer before, not of s^g",
                layers(lambda p, layer, x, first: kept(p, layer, x) + added(p, layer, z_of(p, layer, first))),
            ),
            Foreseen(
                "from the second layer on the gate looks at x, of the layer before, not at s^g",
                layers(
                    lambda p, layer, x, first: (
                        ours.gate(p, f"{layer}.gate", first) * x + added(p, layer, z_of(p, layer, x))
                    )
                ),
            ),
            Foreseen(
                "from the second layer on it is x, of the layer before, that is kept, not s^g",
                layers(
                    lambda p, layer, x, first: (
                        ours.gate(p, f"{layer}.gate", x) * first + added(p, layer, z_of(p, layer, x))
                    )
                ),
            ),
            Foreseen(
                "what is kept, gate_p(x) ⊙ x, is of the x of the layer before, not of s^g",
                layers(lambda p, layer, x, first: kept(p, layer, first) + added(p, layer, z_of(p, layer, x))),
            ),
            Foreseen(
                "each layer has a gate of its own, layers.i.gate; ground.gate is that of equation 4",
                layers(lambda p, layer, x, _: ours.gate(p, "ground.gate", x) * x + added(p, layer, z_of(p, layer, x))),
            ),
            Foreseen(
                "matrices are (out, in) and vectors rows, if shapes disagree: W x is x @ W.T", not_transposed_inside
            ),
        ],
    ),
    Part(
        "forward",
        windows,
        [
            Foreseen("hand the prediction on: each token starts from the one before", loop(from_the_start_each_time)),
            Foreseen("decode the prediction s^p_t, not the grounded s^g_t", loop(decodes_the_grounded)),
            Foreseen("the next token is grounded on s^p_t; you hand on s^g_t", loop(hands_on_the_grounded)),
            Foreseen("decode after predicting: logits_t has seen x_t", loop(decodes_first)),
            Foreseen("ground first, then predict: your logits_t has not seen x_t", grounds_last),
            Foreseen("ground comes first: your first logits are scores of the zero state", grounds_last_from_zero),
            Foreseen("start from the state that is given; it need not be zero", starts_from_zero),
            Foreseen("hand the prediction on inside the loop: each token starts from the one before", not_handed_on),
            Foreseen("return the prediction after the LAST token", returns_the_start),
            Foreseen("the state that goes out is s^p_t, the prediction; you return s^g_t", returns_the_grounded),
            Foreseen("logits are (B, T, V): stack the steps along axis 1", time_first),
            Foreseen("the logits of all T steps are asked, not the last ones alone", last_logits),
            Foreseen("two things are asked: the logits, and the prediction after the last token", logits_alone),
        ],
    ),
]
