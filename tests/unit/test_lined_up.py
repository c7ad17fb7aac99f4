"""Tables on a terminal: as wide as it is, whatever stands in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.report.tables import Table, latex, lined_up, terminal


@pytest.fixture(autouse=True)
def forty_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of lines of any length, those of a terminal."""
    monkeypatch.setattr("collbench.report.tables.LONGEST_LINE", 40)


def width(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_the_widest_column_is_broken_and_intervals_are_not() -> None:
    rows = [("1", "a sentence of several words", "+12.0 (+9.0 .. +15.0)"), ("2", "short", "same")]
    lines = lined_up(("no.", "what", "difference"), rows).splitlines()
    assert max(map(len, lines)) <= 40
    assert any("(+9.0 .. +15.0)" in line for line in lines)
    assert [line.split()[0] for line in lines if line[0] != " "] == ["no.", "---", "1", "2"]


def test_a_table_that_fits_has_one_line_a_row() -> None:
    assert lined_up(("a", "b"), [("1", "x y"), ("2", "z")]).splitlines() == [
        "a    b", "---  ---", "1    x y", "2    z"]  # fmt: skip


def test_columns_move_together_before_intervals_break() -> None:
    ends = "(1.00 .. 2.00)"
    narrow = lined_up(("a", "b", "c"), [(ends, ends, "12345678")])
    assert width(narrow) <= 40 and narrow.count(ends) == 2
    text = lined_up(("a", "b", "c"), [(ends, ends, "1234567890")])
    assert width(text) == 40 and text.count(ends) == 2 and f"{ends} {ends} 1" in text
    broken = lined_up(("a", "b", "c"), [(ends, ends, ends)])
    assert width(broken) <= 40 and ends not in broken


WORD = st.text("abc", min_size=1, max_size=8)
CELL = st.lists(WORD, max_size=6).map(" ".join)


@given(st.integers(1, 4).flatmap(lambda columns: st.lists(st.tuples(*[CELL] * columns), min_size=1, max_size=4)))
def test_no_word_is_lost_and_no_line_is_too_wide(rows: list[tuple[str, ...]]) -> None:
    heads = tuple(f"head {number}" for number in range(len(rows[0])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collbench.report.tables.LONGEST_LINE", 40)
        text = terminal([Table("title", heads, tuple(rows))])
    assert width(text) <= 40
    words = sorted(word for row in rows for cell in row for word in cell.split())
    assert sorted(word for word in text.split() if set(word) <= set("abc")) == words


def test_a_table_for_a_paper_has_in_its_caption_what_all_rows_share() -> None:
    """And small type, smaller for wide rows."""
    rows = (("8", "host", "1.00", "-1 .. +2"), ("1M", "host", "20.0", "+3 .. +9"))
    text = latex([Table("bcast", ("size (B)", "place", "difference (%)", "difference 95 %"), rows, ("5 % noise",))])
    assert "\\caption{bcast, place host}" in text and "\\small" in text and "% 5 \\% noise\n" in text
    assert "\n8 & 1.00 (-1 .. +2) \\\\\n1M & 20.0 (+3 .. +9) \\\\\n\\bottomrule" in text
    wide = Table("", ("a", "b"), (("x" * 30, "y" * 30), ("z", "w")))
    assert "\\footnotesize" in latex([wide])
