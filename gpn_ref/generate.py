"""Sampling: from logits to a distribution, from a distribution to tokens, from tokens to text as it comes."""

import codecs

import numpy as np
from tqdm import tqdm

from gpn_ref.text.tokenizer import END, decode_stream


def token_probabilities(logits, temperature=1.0, top_k=0, top_p=1.0):
    """(V,) probabilities of the next token, float64, from (V,) logits.

    softmax(logits / temperature); then all but the `top_k` likeliest are dropped (0: none is), then all but
    the fewest whose joint probability reaches `top_p`. Temperature 0 is the limit: all on the largest logit.
    Of equal logits the smaller token goes first.
    """
    logits = np.asarray(logits, np.float64)
    order = np.argsort(-logits, kind="stable")
    ranked = logits[order] - logits[order[0]]
    if temperature == 0:
        weights = np.zeros(len(ranked))
        weights[0] = 1.0
    else:
        with np.errstate(over="ignore"):  # -inf is what a tiny temperature asks for
            weights = np.exp(ranked / temperature)
    if top_k:
        weights[top_k:] = 0.0
    weights /= weights.sum()
    before = np.cumsum(weights) - weights  # joint probability of the likelier ones
    weights[1:][before[1:] >= top_p] = 0.0
    probabilities = np.empty_like(weights)
    probabilities[order] = weights / weights.sum()
    return probabilities


def generate(bound, rng, end, prompt=(), temperature=1.0, top_k=0, top_p=1.0):
    """Yield tokens without end, in constant memory.

    A text starts with the token `end` and the zero state; so does the next one after each `end` that is
    drawn. The first text goes on from `prompt`, a list of tokens, which is not yielded.
    """
    logits, state = bound.step(np.array([end]), None)
    for token in tqdm(prompt, desc="reading the prompt", unit=" tokens", disable=None, leave=False, delay=1):
        logits, state = bound.step(np.array([token]), state)
    while True:
        probabilities = token_probabilities(logits[0], temperature, top_k, top_p)
        token = int(rng.choice(len(probabilities), p=probabilities))
        yield token
        logits, state = bound.step(np.array([token]), None if token == end else state)


def stream_text(tokens, encoding):
    """Yield the text of the tokens as it comes; END becomes a blank line.

    Bytes that don't yet make a whole character are held back; those that never do become U+FFFD.
    """
    end = encoding.encode_single_token(END)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token, data in decode_stream(tokens, encoding):
        text = decoder.decode(data, final=token == end)
        if token == end:
            text += "\n\n"
        if text:
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
