"""Where a world in turns waits: before each case that it measures, and once after the last one."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.run.experiment import reports_in_turns


def stood(measured: Sequence[int], backends: Sequence[Sequence[int]]) -> list[Any]:
    """Of backends whose cases have these sizes, of which some are measured and the others executed briefly."""
    cases = [[SimpleNamespace(identities=(size,)) for size in sizes] for sizes in backends]
    experiment: Any = SimpleNamespace(
        executed=lambda number: tuple(cases[number]), executed_last=len(cases) - 1,
        chosen=SimpleNamespace(measures=lambda identities: identities[0] in measured),
    )  # fmt: skip
    return [size for number in range(len(cases)) for size in reports_in_turns(experiment, number).values()]


@pytest.mark.parametrize(
    ("measured", "backends", "expected"),
    [
        ((8, 16), [[8, 16]], [8, 16, None]),
        ((16,), [[8, 16]], [16, None]),
        ((8,), [[8, 16, 32]], [8, None]),  # those after it are executed, once it has said that it is over
        ((8, 32), [[8, 16, 32, 64]], [8, 32, None]),
        ((8, 64), [[8, 16], [32, 64]], [8, 64, None]),
        ((8,), [[8], [16]], [8, None]),
    ],
)
def test_a_world_stands_before_each_case_that_it_measures_and_once_at_its_end(
    measured: Sequence[int], backends: Sequence[Sequence[int]], expected: list[int | None]
) -> None:
    assert stood(measured, backends) == expected
