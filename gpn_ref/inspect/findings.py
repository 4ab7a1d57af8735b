"""What the numbers of a summary say, in sentences by rule: nothing here knows which model it speaks of."""

from gpn_ref.inspect.horizons import FAST

FILLS = 0.1  # a state uses its dimensions if none is dead and its participation ratio is this share of them, or more
LONG, ALIKE, FREQUENT = 0.5, 0.95, 0.3  # a default token: the mean state's share of the norm, batch cosines, Spearman
REACHED = 0.98  # cosine at which a running mean has reached the mean state
BEYOND_CHANCE = 2  # a head retrieves what comes next if it does so this many times as often as chance


def structures(summary):
    """The paper's three structures: a list of name, rule, whether it appears ("yes", "in part", "no"), and why."""
    layer, default = summary["geometry"][-1], summary["default_token"]
    ratio = layer["participation_ratio"] and layer["participation_ratio"] / layer["dimensions"]
    found = [
        (
            "A state that uses its dimensions",
            f"none is dead, and the participation ratio is {percent(FILLS)} of them or more",
            [
                (f"{layer['dead_dimensions']:,} are dead", layer["dead_dimensions"] == 0),
                at_least("participation ratio over dimensions", ratio, FILLS),
            ],
        ),
        (
            "A default token",
            f"the mean state has {LONG:g} of the mean norm or more, batch means a cosine of {ALIKE:g} or more, "
            f"its logits a rank correlation of {FREQUENT:g} or more with the training counts",
            [
                at_least("share of the norm", default["share_of_norm"], LONG),
                at_least("cosine", default["batch_cosine_mean"], ALIKE),
                at_least("rank correlation", default["spearman_with_unigram"], FREQUENT),
            ],
        ),
        ("Fast and slow heads", f"heads on both sides of a 1/e life of {FAST:g} tokens", pools(summary)),
    ]
    return [
        {"structure": name, "rule": rule, "appears": verdict(tests), "because": ", ".join(why for why, _ in tests)}
        for name, rule, tests in found
    ]


def pools(summary):
    heads, told = summary["horizons"]["heads"], bool(summary["horizons"]["lags"])
    if not heads:
        return [("no memory", False)]
    counts = {pool: sum(head["pool"] == pool for head in heads) for pool in ("fast", "slow")}
    return [(f"{count} {pool}", count > 0 if told else None) for pool, count in counts.items()]


def at_least(name, value, least):
    """A line on a number, and whether it is large enough; None where it can't be told."""
    return f"{name} {number(value)}", None if value is None else value >= least


def verdict(tests):
    """yes, no, or in part, of what could be told."""
    told = [good for _, good in tests if good is not None]
    if not told:
        return "not told"
    return "yes" if all(told) else "in part" if any(told) else "no"


# ---------------------------------------------------------------------------------------- a section's sentences
def of_geometry(summary):
    found, several = [], len(summary["geometry"]) > 1
    for i, layer in enumerate(summary["geometry"], 1):
        D, dead = layer["dimensions"], layer["dead_dimensions"]
        begin = f"Layer {i}: a" if several else "A"
        line = f"{begin} state is {number(layer['norm_mean'])} long (sd {number(layer['norm_sd'])}); "
        line += f"{dead:,} of {D:,} dimensions are dead."
        if layer["components_90"]:
            share, ratio = layer["components_90"] / D, layer["participation_ratio"] / D
            line += (
                f" {percent(share)} of the principal components hold 90 % of the variance (the paper's model: 45 %), "
            )
            line += f"and the participation ratio is {percent(ratio)} of the dimensions (16 %)."
        if layer["states"] <= D:
            line += f" {layer['states']:,} states are too few to tell {D:,} dimensions."
        found.append(line)
    return found


def of_default_token(summary):
    default = summary["default_token"]
    top, tokens = default["top"], default["running_tokens"]
    lines = []
    if default["share_of_norm"] is not None:
        share = percent(default["share_of_norm"])
        lines.append(f"The mean state is {share} as long as a state is on average (the paper's: 81 %).")
    if default["batch_cosine_mean"] is None:
        lines.append("There is one batch only, so batches can't be compared.")
    words = " ".join(entry["text"] for entry in top)
    lines.append(
        f"Decoded it says: {words}. Its logits and the training counts have a rank correlation of "
        f"{number(default['spearman_with_unigram'])} (+0.46), and {default['shared_with_embedding']} of these "
        f"{len(top)} tokens are among those of the mean embedding (0 of 10)."
    )
    by = [n for n, cosine in zip(tokens, default["running_cosine"], strict=True) if cosine >= REACHED]
    reached = f"has reached a cosine of {REACHED} with it by token"
    reached = f"{reached} {by[0]:,}" if by else f"has not {reached.removeprefix('has ')} {tokens[-1]:,}"
    lines.append(f"The mean of a sequence's first states {reached} (the paper's: by token 10).")
    return lines


def of_horizons(summary):
    horizons, lines = summary["horizons"], []
    lags, raw, centred = (horizons[name] for name in ("lags", "cosine_raw", "cosine_centred"))
    if not lags:
        return ["Sequences of one token have no lag: nothing can be told."]
    lines.append(
        f"One token apart, states have a cosine of {number(raw[0])}, less their sequence's mean {number(centred[0])} "
        f"(0.31); {lags[-1]:,} tokens apart {number(raw[-1])} and {number(centred[-1])} (0.65, and about 0 by 256)."
    )
    for pool in ("fast", "slow"):
        lives = [head for head in horizons["heads"] if head["pool"] == pool]
        if lives:
            lives.sort(key=lambda head: (not head["forgets"], head["life"]))
            span = life_text(lives[0], "life") + (f" to {life_text(lives[-1], 'life')}" if len(lives) > 1 else "")
            theirs = "6 of 1 to 3" if pool == "fast" else "9 of 5 to 322"
            lines.append(f"{len(lives)} {pool} head{'s' * (len(lives) > 1)}: 1/e life {span} tokens ({theirs}).")
    return lines


def of_heads(summary):
    heads, lines = summary["heads"], []
    several = len(heads["layers"]) > 1
    for i, layer in enumerate(heads["layers"], 1):
        shares, answers = layer["share_heads"], layer["retrieves_next_token"]
        most, best, chance = largest(shares), largest(answers), heads["next_token_by_chance"]
        begin = f"In layer {i} reads" if several else "Reads"
        lines.append(
            f"{begin} make {percent(sum(shares))} of the update, the feed-forward network "
            f"{percent(layer['share_ffn'])}, the gate {percent(layer['share_gate'])}; of all heads, head {most} makes "
            f"most, {percent(shares[most])}."
        )
        if answers[best] >= BEYOND_CHANCE * chance and answers[best] > 0:
            lines.append(
                f"Head {best} retrieves a token equal to the next one in {percent(answers[best], 1)} of its reads; any "
                f"token so far would be in {percent(chance, 1)}."
            )
        else:
            lines.append("No head retrieves the next token much more often than chance.")
    return lines


def of_eigenvalues(summary):
    negative = summary["heads"]["eigenvalue_negative"]
    turned = [h for h, share in enumerate(negative) if share > 0]
    if not turned:
        return ["No eigenvalue is negative."]
    most = largest(negative)
    return [
        f"{len(turned)} of {len(negative)} heads have negative eigenvalues along the key; head {most} most often, in "
        f"{percent(negative[most])} of its writes."
    ]


def largest(values):
    return max(range(len(values)), key=values.__getitem__)


# ------------------------------------------------------------------------------------------------------- numbers
def number(value):
    """A number as text, three digits of it; a dash for what can't be told."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:#.3g}".rstrip(".")


def percent(share, digits=0):
    return f"{100 * share:.{digits}f} %"


def life_text(head, name):
    """A head's life as text: "~" before what is extrapolated, "never" for a head that forgets nothing."""
    if head["pool"] is None:
        return "–"
    if not head["forgets"]:
        return "never"
    return "~" * (not head[f"{name}_measured"]) + number(head[name])
