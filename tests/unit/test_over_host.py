"""The ratio to the host in the table of a run: of the blocks in which both sides have a time."""

from __future__ import annotations

import pytest
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_runs import made_case, made_record

from collbench.analysis.observations import Cell
from collbench.report.launches import over_host

US = 1e-6


def cell_of(policy: str, medians: list[float | None]) -> Cell:
    found = Cell(made_case(policy))
    for launch, median in enumerate(medians):
        if median is not None:
            found.add(made_record(found.case, launch, median), launch)
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
    assert over_host(cell_of("single", inside), cell_of("host", host)) == said


def test_blocks_of_a_program_during_which_tasks_waited_on_either_side_do_not_count() -> None:
    host, inside = Cell(program_case()), Cell(program_case("multi", "strict"))
    for launch in range(3):
        host.add(program_record(host.case, launch, 1.0, contended=launch == 0), launch)
        inside.add(program_record(inside.case, launch, (7.0, 9.0, 2.0)[launch], contended=launch == 1), launch)
    assert over_host(inside, host) == "2.00"
