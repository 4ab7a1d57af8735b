"""Our answers to the exercises of lesson 06."""

import numpy as np


def loop_backward(d_own, gate, x, s_0):
    states = [s_0]
    for t in range(x.shape[1]):
        states.append(gate * states[-1] + x[:, t])  # (B, D)
    d_gate, d_x, d_state = np.zeros(gate.shape), np.zeros(x.shape), np.zeros(s_0.shape)
    for t in reversed(range(x.shape[1])):
        d_state = d_state + d_own[:, t]
        d_gate += np.sum(d_state * states[t], axis=0)  # states[t] is what step t started from
        d_x[:, t] = d_state
        d_state = d_state * gate
    return d_gate, d_x, d_state


def truncated(d_own, gate, x, s_0, length):
    d_gate, state = np.zeros(gate.shape), s_0
    for start in range(0, x.shape[1], length):
        part = slice(start, start + length)
        d_gate += loop_backward(d_own[:, part], gate, x[:, part], state)[0]
        for x_t in x[:, part].swapaxes(0, 1):
            state = gate * state + x_t
    return d_gate


def left(gates):
    kept = np.ones(gates.shape)
    for t in reversed(range(len(gates) - 1)):
        kept[t] = kept[t + 1] * gates[t + 1]
    return kept
