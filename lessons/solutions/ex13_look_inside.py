"""Our answers to the exercises of lesson 13."""

import numpy as np


def participation_ratio(states):
    centred = states - states.mean(axis=0)
    covariance = centred.T @ centred / len(states)
    return np.trace(covariance) ** 2 / np.sum(covariance**2)


def head_life(decay):
    return -1 / np.log(decay).mean(axis=(0, 1))


def centred_cosine(states, lag):
    centred = states - states.mean(axis=1, keepdims=True)
    unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.mean(np.sum(unit[:, lag:] * unit[:, :-lag], axis=-1))
