"""The parts of the summary, from what the two passes have added up: names, numbers, lists and text."""

import numpy as np

from gpn_ref.inspect.default_token import frequency_ranks, spearman, top_tokens
from gpn_ref.inspect.heads import quantile_of_counts, retrieved_tokens, shares
from gpn_ref.inspect.horizons import EFOLD, HALF, head_lives, is_fast, life
from gpn_ref.text.tokenizer import BYTE, DIGITS

VISIBLE = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}


def default_token(trained, states, running, counts):
    """Section 7.2 by name."""
    embedding = trained.checkpoint.params["embedding.weight"].astype(np.float64)
    logits = trained.bound.decode(states.mean)  # (V,)
    from_embedding = embedding @ embedding.mean(axis=0)  # (V,)
    top, top_of_embedding = top_tokens(logits), top_tokens(from_embedding)
    cosine_mean, cosine_sd = states.batch_means.mean_and_sd()
    norm = np.linalg.norm(states.mean)
    rank = frequency_ranks(counts)

    def listed(tokens, logits):
        return [
            {
                "token": int(token),
                "text": visible(trained.encoding.decode_single_token_bytes(int(token))),
                "logit": logits[token],
                "training_count": counts[token],
                "training_rank": rank[token],
            }
            for token in tokens
        ]

    return {
        "norm": norm,
        "share_of_norm": norm / states.moments.norm_mean if states.moments.norm_mean else np.nan,
        "batch_cosine_mean": cosine_mean,
        "batch_cosine_sd": cosine_sd,
        "spearman_with_unigram": spearman(logits, counts),
        "top": listed(top, logits),
        "embedding_top": listed(top_of_embedding, from_embedding),
        "embedding_spearman_with_unigram": spearman(from_embedding, counts),
        "shared_with_embedding": len(set(top.tolist()) & set(top_of_embedding.tolist())),
        "running_tokens": running.marks,
        "running_cosine": running.means(),
    }


def horizons(states, inside):
    """Section 7.3 by name."""
    found = {
        "lags": states.lags,
        "cosine_raw": states.cosines.raw(),
        "cosine_centred": states.cosines.centred(),
        "retention": None,
        "heads": [],
    }
    if inside.config.n_heads:
        retention = inside.retention.means()  # (L, H)
        found["retention"] = retention
        fast = is_fast(head_lives(states.lags, retention))
        for h in range(inside.config.n_heads):
            efold, half = (life(states.lags, retention[:, h], share) for share in (EFOLD, HALF))
            pool = ("fast" if fast[h] else "slow") if len(states.lags) else None
            found["heads"].append(
                {
                    "head": h,
                    "pool": pool,
                    "life": efold[0],
                    "life_measured": efold[1],
                    "half_life": half[0],
                    "half_life_measured": half[1],
                    "forgets": not np.isinf(efold[0]),
                }
            )
    return found


def heads(inside):
    """What heads write and read over the whole text, by name."""
    eigen, retrievals = inside.eigenvalues, inside.retrievals
    answers, totals = retrievals.answers(), shares(inside.parts, inside.whole)
    layers = []
    for i in range(inside.config.n_layers):
        distances = retrievals.distances[i]  # (H, longest)
        layers.append(
            {
                "share_gate": totals[i, 0],
                "share_ffn": totals[i, 1],
                "share_heads": totals[i, 2:],
                "retrieves_itself": distances[:, 0] / max(retrievals.reads, 1),
                "distance_median": [quantile_of_counts(of_head, 0.5) for of_head in distances],
                "distance_90": [quantile_of_counts(of_head, 0.9) for of_head in distances],
                "retrieves_next_token": answers[i],
            }
        )
    beta, decay = inside.sums / max(inside.count, 1)
    return {
        "beta_mean": beta,
        "decay_mean": decay,
        "eigenvalue_mean": eigen.mean(),
        "eigenvalue_smallest": eigen.smallest,
        "eigenvalue_negative": eigen.negative(),
        "eigenvalues_along_key": eigen.along,
        "eigenvalues_across_key": eigen.across,
        "next_token_by_chance": retrievals.chance(),
        "layers": layers,
    }


def passage_inside(trained, inside, passage):
    """What heads do token by token in a passage (T,), by name; the map is of the head of the largest mean decay."""
    trace = trained.bound.trace(passage[None], keep=inside.keep)
    amounts = inside.amounts(trace, 0)  # (N, H, T, T)
    _, decay = inside.sums  # (H,)
    slowest = int(decay.argmax())
    of_slowest = amounts[:, slowest]  # (N, T, T)
    return {
        "tokens": list(words(passage.tolist(), trained.encoding)),
        "token_ids": passage,
        "beta": trace.beta[0],
        "decay": trace.decay[0],
        "shares": [shares(*inside.update(trace, i))[0] for i in range(inside.config.n_layers)],
        "retrieved": retrieved_tokens(amounts),
        "map_head": slowest,
        "map": of_slowest / np.maximum(of_slowest.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny),
    }


# ------------------------------------------------------------------------------------------------ as text and JSON
def words(tokens, encoding):
    """The text of each token; behind BYTE, the two hexadecimal digits that the tokens stand for."""
    byte, digits = encoding.encode_single_token(BYTE), 0
    for token in tokens:
        is_digit = digits > 0 and token < DIGITS
        yield f"{token:x}" if is_digit else visible(encoding.decode_single_token_bytes(token))
        digits = 2 if token == byte else digits - 1 if is_digit else 0


def visible(data):
    """A token's bytes as text that can be printed: white space is drawn, what is no text is written out."""
    text = data.decode("utf-8", "backslashreplace")
    drawn = (VISIBLE.get(letter, letter) for letter in text)
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in drawn)


def plain(value):
    """As JSON types: six digits of a number, None for what is no finite one."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(part) for part in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value
