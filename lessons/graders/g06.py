"""What is asked in lesson 06, and the wrong answers that we foresee."""

import numpy as np

from lessons.grading import Foreseen, Part
from lessons.solutions import ex06_through_time as ours


def loops(rng):
    """A batch that starts in a state, one of a single step, and one from the zero state."""
    for B, T, D, start in ((2, 3, 4, 1.0), (1, 1, 2, 1.0), (3, 5, 2, 0.0)):
        d_own, x = rng.standard_normal((2, B, T, D))
        yield d_own, rng.uniform(0.2, 1, D), x, start * rng.standard_normal((B, D))


def windows(rng):
    """Windows that fit, a last one that is shorter, windows of one step, and one window of all."""
    for (B, T, D), length in (((2, 6, 3), 3), ((3, 5, 2), 2), ((1, 3, 4), 1), ((2, 4, 2), 4)):
        d_own, x = rng.standard_normal((2, B, T, D))
        yield d_own, rng.uniform(0.2, 1, D), x, rng.standard_normal((B, D)), length


def gates(rng):
    """As they come; one step; a gate that is shut; and so many steps that the product of all gates is 0 in floats."""
    for T, D in ((4, 2), (1, 3), (6, 1)):
        yield (rng.uniform(0.2, 1, (T, D)),)
    shut = rng.uniform(0.2, 1, (5, 2))
    shut[2, 0] = 0
    yield (shut,)
    yield (np.full((2000, 1), 0.5),)


def states_of(gate, x, s_0):
    states = [s_0]
    for t in range(x.shape[1]):
        states.append(gate * states[-1] + x[:, t])
    return states


def last_loss_only(d_own, gate, x, s_0):
    last = np.zeros_like(d_own)
    last[:, -1] = d_own[:, -1]
    return ours.loop_backward(last, gate, x, s_0)


def own_loss_only(d_own, gate, x, s_0):
    """No gradient comes from the step after."""
    states = states_of(gate, x, s_0)
    d_gate = sum(np.sum(d_own[:, t] * states[t], axis=0) for t in range(x.shape[1]))
    return d_gate, d_own.copy(), d_own[:, 0] * gate


def state_after(d_own, gate, x, s_0):
    _, d_x, d_s_0 = ours.loop_backward(d_own, gate, x, s_0)
    states = states_of(gate, x, s_0)
    return sum(np.sum(d_x[:, t] * states[t + 1], axis=0) for t in range(x.shape[1])), d_x, d_s_0


def gate_forgotten(d_own, gate, x, s_0):
    states = states_of(gate, x, s_0)
    d_x = np.cumsum(d_own[:, ::-1], axis=1)[:, ::-1]
    return sum(np.sum(d_x[:, t] * states[t], axis=0) for t in range(x.shape[1])), d_x, d_x[:, 0]


def in_forward_order(d_own, gate, x, s_0):
    states, d_state = states_of(gate, x, s_0), np.zeros(s_0.shape)
    d_gate, d_x = np.zeros(gate.shape), np.zeros(x.shape)
    for t in range(x.shape[1]):
        d_state = d_state + d_own[:, t]
        d_gate += np.sum(d_state * states[t], axis=0)
        d_x[:, t] = d_state
        d_state = d_state * gate
    return d_gate, d_x, d_state


def overwritten(d_own, gate, x, s_0):
    _, d_x, d_s_0 = ours.loop_backward(d_own, gate, x, s_0)
    return np.sum(d_x[:, 0] * s_0, axis=0), d_x, d_s_0


def by_sequence(d_own, gate, x, s_0):
    _, d_x, d_s_0 = ours.loop_backward(d_own, gate, x, s_0)
    states = states_of(gate, x, s_0)
    return sum(d_x[:, t] * states[t] for t in range(x.shape[1])), d_x, d_s_0


def one_gate_short(d_own, gate, x, s_0):
    d_gate, d_x, _ = ours.loop_backward(d_own, gate, x, s_0)
    return d_gate, d_x, d_x[:, 0]


def inputs_for_states(d_own, gate, x, s_0):
    _, d_x, d_s_0 = ours.loop_backward(d_own, gate, x, s_0)
    return np.sum(d_x * x, axis=(0, 1)), d_x, d_s_0


def averaged_over_batch(d_own, gate, x, s_0):
    d_gate, d_x, d_s_0 = ours.loop_backward(d_own, gate, x, s_0)
    return d_gate / len(x), d_x, d_s_0


def inputs_of_own_loss(d_own, gate, x, s_0):
    d_gate, _, d_s_0 = ours.loop_backward(d_own, gate, x, s_0)
    return d_gate, d_own.copy(), d_s_0


def in_windows(d_own, gate, x, s_0, length, begin):
    """The sum over windows, where begin(start) is the state in which one begins."""
    parts = (slice(start, start + length) for start in range(0, x.shape[1], length))
    return sum(ours.loop_backward(d_own[:, part], gate, x[:, part], begin(part.start))[0] for part in parts)


def never_cut(d_own, gate, x, s_0, length):
    return ours.loop_backward(d_own, gate, x, s_0)[0]


def from_zero(d_own, gate, x, s_0, length):
    return in_windows(d_own, gate, x, s_0, length, lambda start: s_0 if start == 0 else np.zeros_like(s_0))


def from_the_first(d_own, gate, x, s_0, length):
    return in_windows(d_own, gate, x, s_0, length, lambda start: s_0)


def last_window(d_own, gate, x, s_0, length):
    start = (x.shape[1] - 1) // length * length
    state = states_of(gate, x, s_0)[start]
    return ours.loop_backward(d_own[:, start:], gate, x[:, start:], state)[0]


def whole_windows(d_own, gate, x, s_0, length):
    T = x.shape[1] // length * length
    return ours.truncated(d_own[:, :T], gate, x[:, :T], s_0, length)


def averaged(d_own, gate, x, s_0, length):
    return ours.truncated(d_own, gate, x, s_0, length) / -(-x.shape[1] // length)


def own_gate_too(gates):
    return np.cumprod(gates[::-1], axis=0)[::-1]


def not_turned_back(gates):
    return ours.left(gates)[::-1]


def gates_before(gates):
    return np.cumprod(gates, axis=0)


def own_gate_for_next(gates):
    left = np.ones(gates.shape)
    for t in reversed(range(len(gates) - 1)):
        left[t] = left[t + 1] * gates[t]
    return left


def divided(gates):
    """NaN behind a gate that is shut, and where the product is too small for a float."""
    so_far = np.cumprod(gates, axis=0)
    return so_far[-1] / so_far


def by_logs(gates):
    """NaN behind a gate that is shut."""
    so_far = np.cumsum(np.log(gates), axis=0)
    return np.exp(so_far[-1] - so_far)


PARTS = [
    Part(
        "loop_backward",
        loops,
        [
            Foreseen("the loss of every step sends a gradient, not that of the last alone", last_loss_only),
            Foreseen("a state moves the states after it too: pass the gradient on to the step before", own_loss_only),
            Foreseen("d_gate: which state did the gate multiply, that before the step or that after?", state_after),
            Foreseen("on its way to the step before, the gradient passes something", gate_forgotten),
            Foreseen("the first step is undone last", in_forward_order),
            Foreseen("the gate serves at every step: its gradients add up, they don't replace each other", overwritten),
            Foreseen("one gate serves the whole batch: what is the shape of d_gate?", by_sequence),
            Foreseen("d_s_0: between s_0 and s_1 there is one gate more", one_gate_short),
            Foreseen("d_gate: the gate multiplies the state before the step, not x", inputs_for_states),
            Foreseen(
                "d_gate adds up over the batch; if the loss is a mean, d_own says so already", averaged_over_batch
            ),
            Foreseen("d_x: all of s_t's gradient, what later steps send back too, not d_own alone", inputs_of_own_loss),
        ],
        names=("d_gate", "d_x", "d_s_0"),
    ),
    Part(
        "truncated",
        windows,
        [
            Foreseen("that is the whole gradient: nothing was cut between the windows", never_cut),
            Foreseen("a window goes on from the state that the one before left, not from zero", from_zero),
            Foreseen("s_0 is where the first window starts; the second starts where the first ended", from_the_first),
            Foreseen("the gradients of all windows add up; this is that of the last", last_window),
            Foreseen("the gradients add up; nobody asked for their mean", averaged),
            Foreseen("the last window counts too, though it may be shorter than the others", whole_windows),
        ],
    ),
    Part(
        "left",
        gates,
        [
            Foreseen("the gate of step t acts before s_t is there: only later ones touch it", own_gate_too),
            Foreseen("which row is the last step? Nothing has happened to s_T yet", not_turned_back),
            Foreseen("those are the gates before a step; what acts on s_t comes after it", gates_before),
            Foreseen("from s_t to s_{t+1} the state passes gate_{t+1}, not its own", own_gate_for_next),
            Foreseen("where gates are 0, or many, that divides 0 by 0: multiply, from the last step back", divided),
            Foreseen("a gate of 0 has no logarithm: multiply, from the last step back", by_logs),
        ],
    ),
]
