"""Figures of each rank in a table: one column, from the least to the largest."""

from __future__ import annotations

from collbench.report.numbers import is_numbered, numbered


def test_a_column_has_the_range_of_all_ranks() -> None:
    rows = [
        {"accuracy": 0.9, "steps of worker 0": 498.0, "steps of worker 1": 502.0, "bytes of server 0": 318_040.0},
        {"accuracy": 0.8},
        {"steps of worker 0": 1000.0, "bytes of server 0": 440.0, "bytes of server 1": 317_600.0},
    ]
    assert numbered(rows) == {
        "steps of workers": ["498 .. 502", "", "1000"], "bytes of servers": ["318040", "", "440 .. 317600"]
    }  # fmt: skip


def test_other_figures_keep_their_columns() -> None:
    assert not any(map(is_numbered, ("accuracy", "residual", "top 5", "share of pages")))
    assert numbered([{"top 5": 1.0}]) == {}
