"""The figures of inspect, drawn from its summary alone."""

from textwrap import fill

import numpy as np

from gpn_ref.figures import BLACK, BLUE, GREY, MAP, VERMILION, new_figure, styles
from gpn_ref.inspect.findings import life_text, percent
from gpn_ref.inspect.geometry import CORRELATION_BINS
from gpn_ref.inspect.heads import EIGENVALUE_BINS
from gpn_ref.inspect.horizons import EFOLD, FAST

POOLS = {"fast": {"color": VERMILION, "linestyle": "--"}, "slow": {"color": BLUE, "linestyle": "-"}}
BELOW = {"frameon": False, "loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}  # where no line is
LONGEST_WORD = 14  # letters of a token on an axis


def figures(summary):
    """Name -> figure: of the heads too where the model has a memory."""
    found = {
        "geometry": draw_geometry(summary["geometry"]),
        "default-token": draw_default_token(summary["default_token"]),
        "horizons": draw_horizons(summary["horizons"]),
    }
    if summary["heads"]:
        heads = summary["horizons"]["heads"]
        found["heads"] = draw_passage(summary["passage"], heads)
        layers = len(summary["passage"]["map"])
        for i in range(layers):
            name = f"retrieval-layer-{i + 1}" if layers > 1 else "retrieval"
            found[name] = draw_retrieval(summary["passage"], i)
        found["eigenvalues"] = draw_eigenvalues(summary["heads"], heads)
    return found


def numbers(values):
    """As floats, None as NaN, which is not drawn."""
    return np.array(values, np.float64)


# ------------------------------------------------------------------------------------------------ states
def draw_geometry(layers):
    """How far each dimension moves, how pairs of them go together, and how many directions hold the variance."""
    figure, [(left, middle, right)] = new_figure("Geometry of the predicted states", 1, 3, 12.5, 4.2)
    for number, (layer, style) in enumerate(zip(layers, styles(), strict=False), 1):
        line = {"color": style["color"], "linestyle": style["linestyle"]}
        name = f"layer {number}" if len(layers) > 1 else None
        D = layer["dimensions"]
        rank = np.arange(1, D + 1)
        left.plot(rank, numbers(layer["sd_sorted"]), **line, label=name)
        middle.stairs(layer["correlation_histogram"], CORRELATION_BINS, **line)
        reached = [(layer[f"components_{share}"], share / 100) for share in (90, 99)]
        held = f"{reached[0][0]:,} for 90 %, {reached[1][0]:,} for 99 %" if reached[0][0] else "no variance"
        right.plot(rank, numbers(layer["cumulative_variance"]), **line, label=f"{name}: {held}" if name else held)
        right.plot(*numbers(reached).T, "o", color=style["color"])
    left.set(xlabel="dimension, from the one that moves most", ylabel="standard deviation", ylim=(0, None))
    middle.set(xlabel="correlation of two dimensions", ylabel="pairs of dimensions", xlim=(-1, 1))
    middle.set_xticks([-1, -0.5, 0, 0.5, 1])
    right.set(xlabel="principal components", ylabel="share of the variance", ylim=(0, 1.03), xlim=(0, None))
    right.legend(frameon=False, loc="lower right")
    if len(layers) > 1:
        left.legend(frameon=False)
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    return figure


def draw_default_token(found):
    """The tokens that the mean state and the mean embedding decode to, and the running mean on its way."""
    figure, [(left, middle, right)] = new_figure("The default token", 1, 3, 12.5, 4.6)
    draw_tokens(left, found["top"], "the mean state says")
    draw_tokens(middle, found["embedding_top"], "the mean embedding says")
    middle.sharex(left) if left.get_xlim()[1] > middle.get_xlim()[1] else left.sharex(middle)
    tokens, cosines = numbers(found["running_tokens"]), numbers(found["running_cosine"])
    right.plot(tokens, cosines, color=BLUE, marker="o")
    right.set(title="the mean of the first states", xlabel="states from the start (tokens)", xscale="log")
    right.set(ylabel="cosine with the mean state", ylim=(min(0, cosines.min() - 0.05), 1.03))
    right.set_xticks(tokens, [f"{n:.0f}" for n in tokens])
    right.minorticks_off()
    right.grid(alpha=0.3)
    return figure


def draw_tokens(axes, listed, title):
    """A point a token, at how often it occurs in the training text; a token that never does is at 1/2."""
    places, counts = np.arange(len(listed)), [max(entry["training_count"], 0.5) for entry in listed]
    axes.scatter(counts, places, color=BLUE, s=45, zorder=3)
    axes.set_yticks(places, [drawable(entry["text"]) for entry in listed], parse_math=False)
    for place, count, entry in zip(places, counts, listed, strict=True):
        note = f"   rank {entry['training_rank']:,}" if entry["training_count"] else "   never"
        axes.text(count, place, note, va="center", fontsize=10)
    axes.invert_yaxis()
    axes.set(title=title, xlabel="times in the training text", xscale="log", xlim=(0.4, 12 * max(counts)))
    axes.grid(alpha=0.3)


def draw_horizons(found):
    """How alike states stay, and what heads keep, by lag."""
    rows = 2 if found["heads"] else 1
    figure, _ = new_figure("Horizons", 1, rows, 6.2 * rows, 5.2)
    left, panels = figure.axes[0], list(figure.axes)
    lags = numbers(found["lags"])
    left.plot(lags, numbers(found["cosine_raw"]), color=BLUE, marker="o", markersize=3, label="as they are")
    centred = numbers(found["cosine_centred"])
    left.plot(
        lags, centred, color=VERMILION, linestyle="--", marker="s", markersize=3, label="less their sequence's mean"
    )
    left.axhline(0, color=GREY, linewidth=0.8)
    left.set(title="two predicted states", xlabel="lag (tokens)", ylabel="mean cosine")
    left.legend(**BELOW)
    if rows == 2:
        draw_retention(panels[1], lags, found)
    for panel in panels:
        panel.grid(alpha=0.3)
        if len(lags):
            panel.set(xscale="log", xlim=(0.8, 1.25 * lags[-1]))  # also where there is no number to draw
            panel.xaxis.set_major_formatter("{x:g}")
        else:
            panel.text(0.5, 0.7, "sequences of one token have no lag", transform=panel.transAxes, ha="center")
    return figure


def draw_retention(axes, lags, found):
    """A line a head, those of the fast pool dashed."""
    retention, order = numbers(found["retention"]), by_life(found["heads"])[0]
    for pool, style in POOLS.items() if len(lags) else ():
        members = [h for h in order if found["heads"][h]["pool"] == pool]
        name = f"{pool} (1/e life {'under' if pool == 'fast' else 'from'} {FAST:g} tokens): "
        name = fill(name + f"head{'s' * (len(members) > 1)} {', '.join(map(str, members))}", 52)
        for h in members:
            axes.plot(lags, retention[:, h], **style, label=name if h == members[0] else None)
    axes.axhline(EFOLD, color=GREY, linewidth=0.8, linestyle=":")
    axes.text(0.01, EFOLD, "1/e", transform=axes.get_yaxis_transform(), va="bottom", color=GREY)
    axes.set(title="what is left of a head's memory", xlabel="lag (tokens)", ylabel="mean of Π decay", ylim=(0, 1.05))
    if len(lags):
        axes.legend(**BELOW)


# ------------------------------------------------------------------------------------------------- heads
def by_life(heads):
    """Head numbers from the shortest life to the longest, and a label for each."""
    longest = np.inf
    ordered = sorted(heads, key=lambda head: longest if head["life"] is None else head["life"])
    order = [head["head"] for head in ordered]
    return order, [f"head {head['head']} ({life_text(head, 'life')})" for head in ordered]


def draw_passage(passage, heads):
    """Heat maps over the words: β, decay, and each part's share of the update, a panel a layer."""
    order, names = by_life(heads)
    layers, words = len(passage["shares"]), [drawable(token) for token in passage["tokens"]]
    figure, _ = new_figure(
        "What each head writes, keeps and reads in a passage; 1/e life in tokens",
        2 + layers,
        1,
        max(6.0, 3 + 0.22 * len(words)),
        2.2 + (2 + layers) * (0.8 + 0.2 * len(order)),
    )
    axes = list(figure.axes)
    beta, decay = (numbers(passage[name]).T[order] for name in ("beta", "decay"))  # (H, T)
    heat(figure, axes[0], beta, names, "β: how strongly it writes", 0, 1)
    heat(figure, axes[1], decay, names, "decay: how much it keeps", 0, 1)
    for number, panel in enumerate(axes[2:]):
        parts = numbers(passage["shares"][number]).T[[0, 1, *(2 + h for h in order)]]  # (2 + H, T)
        title = "share of the update" + f" of layer {number + 1}" * (layers > 1)
        low, high = max(-0.5, min(0, parts.min())), min(1, parts.max())
        heat(figure, panel, parts, ["gate", "feed-forward", *names], title, low, high)
    for panel in axes[:-1]:
        panel.set_xticks([])
    put_words(axes[-1], words, axis="x")
    return figure


def heat(figure, axes, values, rows, title, low, high):
    """One heat map (rows, T) with its colour bar."""
    picture = axes.imshow(values, cmap=MAP, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(rows)), rows, fontsize=9)
    axes.set_title(title, fontsize=11, loc="left")
    below, above = np.nanmin(values) < low, np.nanmax(values) > high
    extend = ["neither", "min", "max", "both"][below + 2 * above]
    figure.colorbar(picture, ax=axes, pad=0.01, extend=extend)


def draw_retrieval(passage, layer):
    """From which earlier token each read gets how much; a ring where that token is the one that comes next."""
    drawn, ids = [drawable(token) for token in passage["tokens"]], np.array(passage["token_ids"])
    size = max(4.0, 1.8 + 0.19 * len(drawn))
    title = f"What head {passage['map_head']}, which forgets least, retrieves"
    title += f" in layer {layer + 1}" * (len(passage["map"]) > 1)
    figure, axes = new_figure(title, width=size + 1, height=size)
    amounts = numbers(passage["map"][layer])  # (T, T)
    amounts[np.triu_indices(len(amounts), 1)] = np.nan
    picture = axes.imshow(amounts, cmap=MAP, vmin=0, vmax=1, interpolation="nearest")
    rows, columns = np.nonzero(np.tril(ids[1:, None] == ids))
    for colour, width in (("black", 3), ("white", 1.5)):
        axes.scatter(columns, rows, s=42, facecolors="none", edgecolors=colour, linewidths=width)
    put_words(axes, drawn, axis="x")
    put_words(axes, drawn, axis="y")
    axes.set(xlabel="token written (ring: it is what comes next)", ylabel="token at which it is read")
    figure.colorbar(picture, ax=axes, pad=0.01, shrink=0.7, label="share of what is retrieved")
    return figure


def put_words(axes, words, axis):
    """A word a place on an axis of a heat map."""
    if axis == "x":
        axes.set_xticks(range(len(words)), words, rotation=90, fontsize=9, parse_math=False)
    else:
        axes.set_yticks(range(len(words)), words, fontsize=9, parse_math=False)


def draw_eigenvalues(found, heads):
    """Where the transition's eigenvalues lie, a row a head: along the key filled, across it (the decay) as a line."""
    order, names = by_life(heads)
    figure, axes = new_figure(
        "Eigenvalues of each head's transition; 1/e life in tokens", 1, 1, 8.5, 1.6 + 0.55 * len(order)
    )
    middles = (EIGENVALUE_BINS[1:] + EIGENVALUE_BINS[:-1]) / 2
    for row, h in enumerate(order):
        base = len(order) - 1 - row
        along, across = (heights(found[f"eigenvalues_{which}_key"][h]) for which in ("along", "across"))
        for part, colour, hatch in ((middles < 0, VERMILION, "////"), (middles > 0, BLUE, None)):
            edges = EIGENVALUE_BINS[: part.sum() + 1] if colour == VERMILION else EIGENVALUE_BINS[-part.sum() - 1 :]
            axes.stairs(
                base + along[part], edges, baseline=base, fill=True, color=colour, hatch=hatch, edgecolor="white"
            )
        axes.stairs(base + across, EIGENVALUE_BINS, baseline=base, color=BLACK, linewidth=1)
    axes.axvline(0, color=GREY, linewidth=1)
    names = [
        f"{name}\n{percent(found['eigenvalue_negative'][h])} negative" for h, name in zip(order, names, strict=True)
    ]
    axes.set_yticks([row + 0.3 for row in range(len(order))], names[::-1], fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="eigenvalue: along the key (filled), across it (line)", xlim=(-1.03, 1.03), ylim=(-0.1, len(order)))
    axes.spines[["left", "right", "top"]].set_visible(False)
    return figure


def heights(counts):
    """A histogram (bins) with its highest bar at .9 of a row."""
    counts = np.array(counts, np.float64)
    return 0.9 * counts / max(counts.max(), 1)


def drawable(text):
    """A token's text as the font can draw it, and no longer than an axis has room for."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont("DejaVu Sans"))
    text = text if len(text) <= LONGEST_WORD else text[: LONGEST_WORD - 1] + "…"
    return "".join(x if font.get_char_index(ord(x)) else x.encode("unicode_escape").decode() for x in text)
