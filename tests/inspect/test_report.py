"""The report's tables as text and as HTML."""

from gpn_ref.inspect.report import Table, html_table, is_text, is_told, text_table

TABLE = Table(("token", "count", "life"), [("<b>", 1200, "~9.50"), ("␣x & y", None, "1,081")])


def test_a_table_as_text_is_aligned():
    assert text_table(TABLE) == [
        "token   count   life",
        "<b>     1,200  ~9.50",
        "␣x & y      –  1,081",
    ]


def test_columns_of_words_and_of_numbers():
    assert [is_text(TABLE, i) for i in range(3)] == [True, False, False]
    assert is_text(Table(("pool",), [("fast",), ("–",)]), 0)


def test_a_table_in_html_is_escaped():
    page = html_table(TABLE)
    assert "<td>&lt;b&gt;</td>" in page and "<td>␣x &amp; y</td>" in page
    assert '<td class="number">1,200</td>' in page


def test_lags_of_a_table_are_doubled():
    lags = [*range(1, 33), 35, 38, 70]
    assert [lag for lag in lags if is_told(lag, {"lags": lags})] == [1, 2, 4, 8, 16, 32, 70]
