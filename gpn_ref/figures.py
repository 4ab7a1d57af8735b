"""What all figures share: colours that every kind of eye and a grey printer tell apart, sizes, and how to save one."""

import io
import logging
import warnings
from itertools import cycle

from gpn_ref.files import atomic_write

# Of Okabe and Ito, in an order whose greys differ too; lines also differ by dash and marker.
BLUE, VERMILION, SKY, BLACK, GREEN, ORANGE = "#0072B2", "#D55E00", "#56B4E9", "#000000", "#009E73", "#E69F00"
GREY = "#555555"
COLOURS = (BLUE, VERMILION, BLACK, SKY, GREEN, ORANGE)
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MAP = "cividis"  # of heat maps: from dark to light for every eye, and in grey


def styles():
    """Endless line styles, no two of the first 24 alike, told apart without colour too."""
    for number, (colour, marker) in enumerate(zip(cycle(COLOURS), cycle(MARKERS), strict=False)):
        yield {"color": colour, "marker": marker, "linestyle": DASHES[number % len(DASHES)]}


def new_figure(title, rows=1, columns=1, width=7.0, height=4.5):
    """A figure and its axes ((rows, columns) of them, or one alone), in inches, legible on a slide."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # where it can keep no cache, say
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=rows * columns == 1)
    figure.suptitle(shown(title), parse_math=False)
    return figure, axes


def shown(text):
    """The text with what no font can draw written out."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def image(figure, kind):
    """The figure as the bytes of a "png" or an "svg", the same for the same figure."""
    import matplotlib

    settings = {"svg.hashsalt": "gpn_ref", "svg.fonttype": "path"}
    metadata = {"Date": None} if kind == "svg" else {}
    with warnings.catch_warnings(), matplotlib.rc_context(settings):
        warnings.simplefilter("ignore")  # letters that the font lacks
        file = io.BytesIO()
        figure.savefig(file, format=kind, metadata=metadata)
    return file.getvalue()


def save(figure, path, kinds=("png", "svg")):
    """Write the figure beside `path`, a path without suffix: path.png and path.svg. -> their paths."""
    paths = [path.with_name(f"{path.name}.{kind}") for kind in kinds]
    for place, kind in zip(paths, kinds, strict=True):
        data = image(figure, kind)
        with atomic_write(place, "wb") as file:
            file.write(data)
    return paths
