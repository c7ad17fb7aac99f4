"""What launches can show, byte by byte: the answer of a self-test, and what numbers of launches decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.made_runs import made_case, made_record, spread

from collbench.analysis.compare import compare
from collbench.analysis.estimate import Estimate
from collbench.analysis.pairs import Pair
from collbench.analysis.planning import Cost, power
from collbench.analysis.results import cells_of
from collbench.report.sensitivity import SelfTest, power_table
from collbench.report.sensitivity import tables as power_tables
from collbench.report.tables import terminal


def pair(size: int, width: float) -> Pair:
    """Equal sides of eight launches."""
    cases = [made_case(policy).having(size=size) for policy in ("host", "multi")]
    medians = enumerate(spread(1e-6, 8, width))
    cells = cells_of(made_record(case, launch, median) for launch, median in medians for case in cases)
    return Pair(cells[cases[0]], cells[cases[1]], "base", "other")


@pytest.mark.parametrize("least", [(0.07, 0.15), (0.07, None), (None, None), (0.1, 0.1)], ids=str)
def test_a_self_test(golden: Callable[[str, str], None], least: tuple[float | None, float | None]) -> None:
    comparisons = compare([pair(8, 0.01), pair(1024, 0.05)])
    found = SelfTest(tuple(comparisons), 0.047, least, 8, (), Cost(0.05, 0.1, 12))
    golden(
        f"selftest-{'-'.join('none' if one is None else f'{one * 100:.0f}' for one in least)}.txt",
        terminal(power_tables(found)),
    )


@pytest.mark.parametrize("in_turns", [True, False])
def test_what_launches_decide(golden: Callable[[str, str], None], in_turns: bool) -> None:
    ratios = [Estimate(1.0, (1 / (1 + width), 1 + width), 8) for width in (0.02, 0.1, 0.8)]
    told = [(power(ratios, number, 0.05), number * 12.0) for number in (7, 25, 100)]
    golden(
        f"power-{'duet' if in_turns else 'blocks'}.txt", terminal([power_table(told, "results/mine", 0.05, in_turns)])
    )
