"""The report: the same sections as text for a terminal and as one HTML file that needs nothing else."""

import base64
from html import escape
from textwrap import fill
from typing import NamedTuple

from gpn_ref.inspect import findings
from gpn_ref.inspect.findings import life_text, number
from gpn_ref.inspect.horizons import FAST
from gpn_ref.inspect.measure import RETRIEVAL

GEOMETRY = (  # what, its name in the summary, the paper's model of 130M parameters
    ("dimensions", "dimensions", "2496"),
    ("states measured", "states", ""),
    ("norm, mean", "norm_mean", "132"),
    ("norm, sd", "norm_sd", "9"),
    ("sd of a dimension, smallest", "sd_smallest", "1.05"),
    ("sd of a dimension, largest", "sd_largest", "11.3"),
    ("dead dimensions", "dead_dimensions", "0"),
    ("|correlation| of two dimensions, mean", "correlation_mean", "0.027"),
    ("|correlation| of two dimensions, largest", "correlation_largest", "0.61"),
    ("components for 90 % of the variance", "components_90", "1131"),
    ("components for 99 % of the variance", "components_99", "2099"),
    ("stable rank", "stable_rank", "40"),
    ("participation ratio", "participation_ratio", "398"),
)
DEFAULT_TOKEN = (
    ("‖s̄‖, length of the mean state", "norm", "107"),
    ("as a share of the mean norm", "share_of_norm", "0.81"),
    ("cosine between batch means, mean", "batch_cosine_mean", "0.988"),
    ("cosine between batch means, sd", "batch_cosine_sd", "0.005"),
    ("Spearman of its logits with the training unigram", "spearman_with_unigram", "+0.46"),
    ("top tokens shared with the mean embedding", "shared_with_embedding", "0"),
    ("Spearman of the mean embedding's logits", "embedding_spearman_with_unigram", ""),
)
WIDTH = 110  # letters of a line on a terminal
WITHOUT_MEMORY = "This model has no memory: there are no heads to look at."


class Table(NamedTuple):
    header: tuple[str, ...]
    rows: list[tuple]  # numbers and text


class Section(NamedTuple):
    title: str
    what: str  # what is measured, and what the paper found
    found: list[str]  # what this model shows
    tables: list[Table]
    figures: tuple[str, ...] = ()  # names; of a figure a layer, the name before "-layer-"


def sections(summary):
    """All that there is to say of a summary."""
    parts = [
        structures(summary),
        geometry(summary),
        default_token(summary),
        horizons(summary),
    ]
    if summary["heads"] is None:
        return [*parts, Section("Heads", "What each head writes and reads.", [WITHOUT_MEMORY], [])]
    return [*parts, heads(summary), eigenvalues(summary)]


def about(summary):
    """Lines on the model and on the text."""
    model = summary["model"]
    memory = f"{model['n_heads']} heads" if model["n_heads"] else "no memory"
    layers = f"{model['n_layers']} layer{'s' * (model['n_layers'] > 1)}"
    length = f"{model['longest']} token{'s' * (model['longest'] > 1)}"
    return [
        f"{model['path']} after {model['step']:,} steps on {model['corpus']}: "
        f"D {model['d_state']:,}, {memory}, {layers}.",
        f"Measured on {model['tokens']:,} tokens in {model['sequences']:,} sequences of up to {length}, each from the "
        f"zero state. It was trained on windows of {model['trained_on_windows_of']}.",
        "A number in brackets is the paper's, of its model of 130M parameters.",
    ]


def structures(summary):
    lines = [
        f"{found['structure']}: {found['appears']} ({found['because']}; rule: {found['rule']})."
        for found in findings.structures(summary)
    ]
    what = "The paper finds three structures in its model of 130M parameters. Each is here if all of its rule holds."
    return Section("The paper's three structures", what, lines, [])


def geometry(summary):
    layers = summary["geometry"]
    names = [f"layer {i}" for i in range(1, len(layers) + 1)] if len(layers) > 1 else ["here"]
    return Section(
        "Geometry",
        "How long predicted states are, how far each dimension moves, and how many directions they fill. A dimension "
        "is dead if its sd is under 1 % of the median sd. In the paper's model none is, and no few directions "
        "dominate: it takes 45 % of them to hold 90 % of the variance.",
        findings.of_geometry(summary),
        [Table(("", *names, "paper"), [(what, *(x[name] for x in layers), paper) for what, name, paper in GEOMETRY])],
        ("geometry",),
    )


def default_token(summary):
    default = summary["default_token"]
    tops = zip(default["top"], default["embedding_top"], strict=True)
    columns = ("text", "training_count", "training_rank")
    return Section(
        "Default token",
        "The mean of all states, s̄, what it says when it is decoded, and how soon a sequence's own mean points that "
        "way. In the paper's model it is most of a typical state, the same in every batch, and decodes to function "
        "words.",
        findings.of_default_token(summary),
        [
            Table(("", "here", "paper"), [(what, default[name], paper) for what, name, paper in DEFAULT_TOKEN]),
            Table(
                ("mean state", "times in training", "rank", "mean embedding", "times in training", "rank"),
                [tuple(entry[name] for entry in pair for name in columns) for pair in tops],
            ),
            Table(
                ("first states", "cosine of their mean with s̄"),
                list(zip(default["running_tokens"], default["running_cosine"], strict=True)),
            ),
        ],
        ("default-token",),
    )


def horizons(summary):
    found = summary["horizons"]
    cosines = zip(found["lags"], found["cosine_raw"], found["cosine_centred"], strict=True)
    tables = [Table(("lag", "cosine", "less the sequence's mean"), [row for row in cosines if is_told(row[0], found)])]
    if found["heads"]:
        lives = [
            (head["head"], head["pool"], life_text(head, "life"), life_text(head, "half_life"))
            for head in sorted(found["heads"], key=lambda head: (not head["forgets"], head["life"] or 0))
        ]
        tables.append(Table(("head", "pool", "1/e life (the paper's half-life)", "half life"), lives))
    note = [] if found["heads"] else [WITHOUT_MEMORY]
    return Section(
        "Horizons",
        "How alike two states are by the tokens between them, and how much is left of a head's memory: the mean "
        "product of its decays. The 1/e life, in tokens, is where 1/e of it is left (the paper calls this half-life), "
        f"the half life where half is. ~ is extrapolated beyond the longest lag. A head is fast if its 1/e life is "
        f"under {FAST:g} tokens. In the paper's model what changes in states is gone by 256 tokens, and heads fall "
        "into two pools.",
        findings.of_horizons(summary) + note,
        [table for table in tables if table.rows],
        ("horizons",),
    )


def is_told(lag, found):
    """Whether a lag has a row: 1, 2, 4, 8, ... and the longest."""
    at_least = {next(x for x in found["lags"] if x >= 2**n) for n in range(20) if 2**n <= found["lags"][-1]}
    return lag in at_least or lag == found["lags"][-1]


def heads(summary):
    found, tables = summary["heads"], []
    several = len(found["layers"]) > 1
    for i, layer in enumerate(found["layers"], 1):
        columns = ("share_heads", "retrieves_itself", "distance_median", "distance_90", "retrieves_next_token")
        tables.append(
            Table(
                (
                    f"layer {i}, head" if several else "head",
                    "β",
                    "decay",
                    "share of update",
                    "retrieves itself",
                    "tokens back: median",
                    "90 %",
                    "retrieves the next",
                ),
                [
                    (h, found["beta_mean"][h], found["decay_mean"][h], *(layer[name][h] for name in columns))
                    for h in range(len(found["beta_mean"]))
                ],
            )
        )
    return Section(
        "What heads write and read",
        "Beyond the paper. A layer's update, what it gives less what it takes, is the sum of gate, feed-forward "
        "network and a read a head; the share of a part is its projection on the update, over the update's square. "
        "What a read retrieves is unrolled exactly into the values written before, for the first "
        f"{RETRIEVAL} tokens of each sequence; the token retrieved is the one that gives most. Where that token equals "
        "the one that comes next, the memory has the answer.",
        findings.of_heads(summary),
        tables,
        ("heads", "retrieval"),
    )


def eigenvalues(summary):
    found = summary["heads"]
    columns = ("eigenvalue_mean", "eigenvalue_smallest", "eigenvalue_negative")
    return Section(
        "Eigenvalues",
        "Beyond the paper. A step multiplies what a head holds by the decay across the key, and by decay - β along it. "
        "The latter can be negative: then a value comes back with its sign turned. In Gated DeltaNet's order it is "
        "decay (1 - β), which never is.",
        findings.of_eigenvalues(summary),
        [
            Table(
                ("head", "along the key: mean", "smallest", "share negative"),
                [(h, *(found[name][h] for name in columns)) for h in range(len(found["beta_mean"]))],
            )
        ],
        ("eigenvalues",),
    )


# ------------------------------------------------------------------------------------------------------- as text
def as_text(summary):
    """For a terminal: what was found, and the tables."""
    lines = [fill(line, WIDTH) for line in about(summary)]
    for section in sections(summary):
        lines += ["", section.title.upper(), *(fill(line, WIDTH) for line in section.found)]
        for table in section.tables:
            lines += ["", *text_table(table)]
    return "\n".join(lines)


def text_table(table):
    """Aligned lines: text to the left, numbers to the right."""
    cells = [table.header, *([number(value) for value in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.header))]
    left = [is_text(table, i) for i in range(len(table.header))]
    return [
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in cells
    ]


def is_text(table, column):
    """Whether a column holds words and no numbers."""
    drop = str.maketrans("", "", "~+,.")
    return all(isinstance(row[column], str) and not row[column].translate(drop).isdecimal() for row in table.rows)


# ------------------------------------------------------------------------------------------------------- as HTML
STYLE = """
body { font: 16px/1.5 sans-serif; color: #111; background: #fff; max-width: 60rem; margin: auto; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid #999; }
img { max-width: 100%; height: auto; } .wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .2rem .7rem; border-bottom: 1px solid #ddd; }
th { text-align: left; vertical-align: bottom; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.found { font-weight: 600; }
@media print { body { max-width: none; font-size: 11pt; } section, img, table { break-inside: avoid; } }
"""


def as_html(summary, images):
    """One page that needs no other file.  images: name -> the bytes of an SVG."""
    title = escape(f"Inside {summary['model']['path']}")
    body = [f"<h1>{title}</h1>", *(f"<p>{escape(line)}</p>" for line in about(summary))]
    for section in sections(summary):
        body += ["<section>", f"<h2>{escape(section.title)}</h2>", f"<p>{escape(section.what)}</p>"]
        body += [f'<p class="found">{escape(line)}</p>' for line in section.found]
        for name in [name for name in images if name.split("-layer-")[0] in section.figures]:
            data = base64.b64encode(images[name]).decode("ascii")
            body.append(f'<p><img alt="{escape(section.title)}: {name}" src="data:image/svg+xml;base64,{data}"></p>')
        body += [html_table(table) for table in section.tables]
        body.append("</section>")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}'
    page = f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</title><style>{STYLE}</style></head>\n<body>\n'
    return page + "\n".join(body) + "\n</body>\n</html>\n"


def html_table(table):
    rows = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in table.header) + "</tr>"]
    kinds = ["" if is_text(table, i) else ' class="number"' for i in range(len(table.header))]
    for row in table.rows:
        cells = zip(row, kinds, strict=True)
        rows.append("<tr>" + "".join(f"<td{kind}>{escape(number(value))}</td>" for value, kind in cells) + "</tr>")
    return '<div class="wide"><table>' + "\n".join(rows) + "</table></div>"
