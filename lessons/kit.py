"""What lessons need beside `gpn_ref`: a place for figures. Scripts in this folder say `from kit import show`."""

import sys
from pathlib import Path

from gpn_ref.figures import save

OUT = Path(__file__).resolve().parent / "out"


def show(figure, name):
    """Keep the figure as lessons/out/NAME.png, and show it where the lesson runs as a notebook."""
    OUT.mkdir(exist_ok=True)
    save(figure, OUT / name, kinds=("png",))
    if "IPython" in sys.modules:
        from IPython.display import Image, display

        display(Image(OUT / f"{name}.png"))
    print(f"figure: lessons/out/{name}.png")
