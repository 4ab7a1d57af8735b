"""The figures: what is on their axes, and that no text of a token is taken for anything else."""

import numpy as np

from gpn_ref.figures import image
from gpn_ref.inspect.figures import (
    LONGEST_WORD,
    by_life,
    draw_eigenvalues,
    draw_horizons,
    draw_retrieval,
    draw_tokens,
    drawable,
    heights,
    new_figure,
)
from gpn_ref.inspect.heads import EIGENVALUE_BINS


def head(number, life, measured=True):
    pool = "fast" if life is not None and life < 4 else "slow"
    return {"head": number, "pool": pool, "life": life, "life_measured": measured, "forgets": life is not None}


HEADS = [head(0, 991.0, False), head(1, 0.8), head(2, None, False), head(3, 5.0)]


def texts(axes):
    return [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]


def test_heads_go_from_the_shortest_life_to_none():
    order, names = by_life(HEADS)
    assert order == [1, 3, 0, 2]
    assert names == ["head 1 (0.800)", "head 3 (5.00)", "head 0 (~991)", "head 2 (never)"]


def test_words_are_short_and_of_letters_that_the_font_has():
    assert drawable("␣cat⏎") == "␣cat⏎"
    assert drawable("中") == "\\u4e2d"
    assert drawable("a" * 40) == "a" * (LONGEST_WORD - 1) + "…"


def test_histograms_fit_their_rows():
    np.testing.assert_allclose(heights([2, 8, 4]), [0.225, 0.9, 0.45])
    assert heights([0, 0]).tolist() == [0, 0]


def test_tokens_are_drawn_as_they_are():
    """A token that would be mathematics, and one that no training text has."""
    entries = [("$x_1^$", 7, 2), ("\\frac", 0, 3), ("b", 10, 1)]
    names = ("text", "training_count", "training_rank")
    figure, axes = new_figure("")
    draw_tokens(axes, [dict(zip(names, entry, strict=True)) for entry in entries], "")
    assert image(figure, "png").startswith(b"\x89PNG")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["$x_1^$", "\\frac", "b"]
    assert [text.get_text().strip() for text in axes.texts] == ["rank 2", "never", "rank 1"]


def test_rings_are_where_an_earlier_token_is_the_next_one():
    passage = {"tokens": ["$", "b", "$", "b"], "token_ids": [5, 6, 5, 6], "map": [np.eye(4).tolist()], "map_head": 1}
    figure = draw_retrieval(passage, 0)
    axes = figure.axes[0]
    assert figure._suptitle.get_text() == "What head 1, which forgets least, retrieves"
    places = axes.collections[0].get_offsets().tolist()  # (written, read): 5 was followed by 6, 6 by 5
    assert places == [[0, 1], [1, 2]]
    assert texts(axes) == ["$", "b", "$", "b"] * 2
    assert image(figure, "png").startswith(b"\x89PNG")


def test_pools_have_a_line_a_head_and_their_names():
    lags = [1, 2, 4]
    retention = np.exp(-np.array(lags)[:, None] / np.array([991, 0.8, np.inf, 5])).tolist()
    figure = draw_horizons(
        {"lags": lags, "cosine_raw": [0.5, 0.4, 0.3], "cosine_centred": [0.1, None, 0.0], "retention": retention}
        | {"heads": HEADS}
    )
    legend = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert legend == ["fast (1/e life under 4 tokens): head 1", "slow (1/e life from 4 tokens): heads 3, 0, 2"]
    assert len(figure.axes[1].lines) == 4 + 1  # and the line of 1/e


def test_every_head_has_a_row_of_eigenvalues():
    counts = np.ones((4, len(EIGENVALUE_BINS) - 1), int).tolist()
    found = {"eigenvalues_along_key": counts, "eigenvalues_across_key": counts}
    figure = draw_eigenvalues(found | {"eigenvalue_negative": [0.5, 0.25, 0.0, 0.1]}, HEADS)
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows[::-1][:2] == ["head 1 (0.800)\n25 % negative", "head 3 (5.00)\n10 % negative"]
