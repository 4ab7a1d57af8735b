"""The curves of the figure are those of the finished runs."""

import numpy as np
from made_up_table import diverged, finished, table

from gpn_ref.reproduction.figures import curves, draw_losses, limits


def result(cell):
    if cell.row == "gpn":
        return diverged(cell) if cell.seed == 1 else finished(cell)
    return finished(cell) if cell.row == "gdn-1" else None


def test_curves_of_finished_runs_only():
    found = curves(table(result), "stories")
    assert list(found) == ["gpn", "gdn-1"]
    tokens, losses = found["gdn-1"]
    np.testing.assert_array_equal(tokens, [0, 500, 1000])
    np.testing.assert_array_equal(losses, [[5.7, 2, 1], [5.7, 2, 2], [5.7, 2, 3]])
    assert found["gpn"][1].shape == (2, 3)
    assert limits(found) == (1 - 0.08, 3 + 0.08)  # without the loss before training


def test_a_panel_a_corpus_a_band_a_model():
    figure = draw_losses(table(result))
    assert [axes.get_title() for axes in figure.axes] == ["stories", "python-docs", "recall"]
    panel = figure.axes[0]
    assert [line.get_label() for line in panel.lines] == ["GPN 1 layer", "GDN 1 layer"]
    np.testing.assert_array_equal(panel.lines[1].get_ydata(), [5.7, 2, 2])
    band = panel.collections[1].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 5.7)
    assert draw_losses(table(lambda cell: None)) is None
