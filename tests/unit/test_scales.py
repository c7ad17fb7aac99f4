"""The unit of a column of times or rates, and what a row of a program's table is told apart by."""

from __future__ import annotations

import pytest
from tests.unit.made_suite import inside

from collbench.report.headings import heading, own_names, row_words, table_key, value_text, varying
from collbench.report.numbers import each_of, rate_scale, time_each, time_scale
from collbench.schema.case import Case, case_of
from collbench.schema.record import Unit, Work

REQUESTS = Work(amount=200, unit="requests", shown="time")


@pytest.mark.parametrize(
    ("seconds", "unit", "texts"),
    [
        ([2.5e-7, 3e-6], "us", ["0.250", "3.000"]),
        ([0.0, 2e-3, 1.5], "ms", ["0.000", "2.000", "1500"]),
        ([1.0, 90000.0], "s", ["1.000", "90000"]),
        ([2e-4, 1.5], "", ["200 us", "1.5 s"]),
        ([], "us", []),
    ],
)
def test_the_unit_of_times_suits_the_smallest_and_is_none_where_others_are_far(
    seconds: list[float], unit: str, texts: list[str]
) -> None:
    scale = time_scale(seconds)
    assert (scale.unit, list(map(scale.text, seconds))) == (unit, texts)
    assert scale.heading("median") == ("median" if not unit else f"median ({unit})")


@pytest.mark.parametrize(
    ("unit", "amounts", "heading", "texts"),
    [
        ("bytes", (3e9, 1e9), "rate (GB/s)", ["3.000", "1.000"]),
        ("bytes", (3e9, 183e6), "rate (MB/s)", ["3000", "183.0"]),
        ("flop", (5e8,), "rate (GFLOP/s)", ["0.500"]),
        ("requests", (10526.0,), "rate (IOPS)", ["10526"]),
    ],
)
def test_rates_have_the_unit_that_people_know(
    unit: Unit, amounts: tuple[float, ...], heading: str, texts: list[str]
) -> None:
    shown = [(Work(amount=amount, unit=unit, shown="rate"), 1.0) for amount in amounts]
    scale = rate_scale(shown)
    assert (scale.heading("rate"), [scale.text(*one) for one in shown]) == (heading, texts)


def test_rates_of_different_work_have_their_units_in_the_cells() -> None:
    shown = [(Work(amount=3e9, shown="rate"), 1.0), (Work(amount=20, unit="events", shown="rate"), 0.0)]
    scale = rate_scale(shown)
    assert scale.heading("rate") == "rate"
    assert [scale.text(*one) for one in shown] == ["3.000 GB/s", "- events/s"]


def test_of_requests_known_by_their_time_one_is_shown() -> None:
    assert time_each(REQUESTS, 1.0) == 0.005
    assert time_each(Work(amount=200, unit="requests", shown="rate"), 1.0) == 1.0
    assert time_each(Work(amount=200, unit="bytes"), 1.0) == 1.0
    assert each_of([REQUESTS, REQUESTS]) == " a request"
    assert each_of([REQUESTS, Work(amount=1, unit="batches")]) == each_of([]) == each_of([Work(amount=1)]) == ""


def test_parameters_keep_their_order_and_the_place_is_none_of_them() -> None:
    first = case_of("fio", {"rw": "read", "bs": 4096, "storage": "volume", "size": 1 << 20, "measure": "p99"})
    cases: list[Case] = [first, inside(first.having(bs=65536)), inside(first)]
    assert own_names(cases) == ("rw", "bs", "storage", "size", "measure")
    assert varying(cases) == ("bs", "size")
    assert row_words(first, ("rw", "bs", "storage", "size")) == "rw read, bs 4096, on volume, 1M"
    assert [value_text(first, name) for name in ("bs", "size", "nothing")] == ["4096", "1M", ""]


def test_worlds_of_one_program_share_a_table_with_a_column_of_ranks() -> None:
    """A training of 1 worker and of 2; of a collective, worlds are tables."""
    one, two = (case_of("ddp", {"measure": "step", "network": "fcn5", "ranks": ranks}) for ranks in (1, 2))
    assert varying([one, two]) == ("ranks",)
    assert table_key(one) == table_key(two)
    assert heading(two) == "ddp step, network fcn5, 2 ranks"
    made = [case_of("allreduce", {"backend": "mpi", "size": 8, "ranks": ranks}) for ranks in (2, 4)]
    assert table_key(made[0]) != table_key(made[1])
