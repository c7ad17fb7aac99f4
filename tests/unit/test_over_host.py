"""The ratio to the host in the table of a run: of the blocks in which both sides have a time."""

from __future__ import annotations

import pytest
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_runs import made_case, made_record, spread

from collbench.analysis.compare import compare
from collbench.analysis.estimate import ratio_in_blocks
from collbench.analysis.observations import Cell, Pair
from collbench.report.launches import OverHost, program_launches, summary

US = 1e-6


def cell_of(policy: str, medians: list[float | None], barriers: int = 0) -> Cell:
    """Its first launches by the gate barrier."""
    found = Cell(made_case(policy))
    for launch, median in enumerate(medians):
        if median is not None:
            gate = "barrier" if launch < barriers else "roundtime"
            found.add(made_record(found.case, launch, median, gate=gate), launch)
    return found


@pytest.mark.parametrize(
    ("inside", "host", "said"),
    [
        ([2 * US, 6 * US, 4 * US], [1 * US, 2 * US, 2 * US], "2.00"),
        ([2 * US, None, 6 * US], [1 * US, 5 * US, 2 * US], "2.45"),
        ([2 * US, 6 * US], [1 * US, None], "2.00"),
        ([0.0, 6 * US, 5 * US], [1 * US, 2 * US, 0.0], "3.00"),
        ([2 * US, None], [None, 2 * US], ""),
    ],
)
def test_only_blocks_in_which_both_took_time_count(
    inside: list[float | None], host: list[float | None], said: str
) -> None:
    assert OverHost()(cell_of("single", inside), cell_of("host", host)) == said


def test_blocks_of_a_program_during_which_tasks_waited_on_either_side_do_not_count() -> None:
    host, inside = Cell(program_case()), Cell(program_case("multi", "strict"))
    for launch in range(3):
        host.add(program_record(host.case, launch, 1.0, contended=launch == 0), launch)
        inside.add(program_record(inside.case, launch, (7.0, 9.0, 2.0)[launch], contended=launch == 1), launch)
    assert OverHost()(inside, host) == "2.00"


def test_what_was_measured_differently_has_no_ratio_and_the_table_says_why() -> None:
    host, inside = cell_of("host", [1 * US] * 8), cell_of("multi", [2 * US] * 8, barriers=3)
    over_host = OverHost()
    assert over_host(inside, host) == "", "5 launches were measured alike, fewer than an interval takes"
    said = over_host.notes([host, inside])
    (why,) = (one.why for one in compare([Pair(host, inside, "host", "multi")]))
    assert said == [
        "over the host: the median of the ratios within each block of launches",
        f"not over the host (multi), because it was measured differently: {why}",
    ]
    assert why.startswith("gate roundtime against barrier and roundtime")


def test_launches_that_were_measured_differently_do_not_count_as_in_compare() -> None:
    host = cell_of("host", [1 * US] * 8)
    inside = cell_of("multi", [9 * US, 9 * US, *spread(2 * US, 6, 0.1)], barriers=2)
    over_host = OverHost()
    (found,) = compare([Pair(host, inside, "host", "multi")])
    assert found.ratio is not None and found.ratio.interval is not None
    six = ratio_in_blocks(spread(2 * US, 6, 0.1), [1 * US] * 6)
    assert found.ratio.n == six.n and six.interval is not None
    low, high = six.interval
    assert over_host(inside, host) == f"{six.value:.2f} ({low:.2f} .. {high:.2f})"
    assert over_host.notes([host, inside])[1:] == [
        "over the host: launches left out, because they were measured differently: 2"
    ]


def test_a_table_of_a_program_says_it_too() -> None:
    host, inside = Cell(program_case()), Cell(program_case("multi", "strict"))
    for launch in range(6):
        host.add(program_record(host.case, launch, 1.0, driver="native"), launch)
        inside.add(program_record(inside.case, launch, 2.0, driver="python"), launch)
    table = program_launches([host, inside])
    assert "over the host (95 % interval)" not in table.columns
    assert any("because it was measured differently: driver native against python" in note for note in table.notes)
    assert all(f"* {note}\n" in summary({host.case: host, inside.case: inside}) for note in table.notes)
