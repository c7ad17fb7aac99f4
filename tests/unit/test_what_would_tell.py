"""How many launches would decide, or why launches would not: each reason with the number of its cells."""

from __future__ import annotations

import pytest
from tests.unit.made_runs import made_case, made_cell

from collbench.analysis.compare import Comparison, Reason
from collbench.analysis.estimate import Estimate
from collbench.analysis.pairs import Pair
from collbench.report.verdict import what_tells

OVER = Reason("launches", (None,))


def undecided(ratio: float, more: int | None, why: Reason | None = None, size: int = 8) -> Comparison:
    """A cell that needs so many more launches, or has no interval where `why` says so."""
    pair = Pair(made_cell(made_case(size=size), ()), made_cell(made_case(size=size), ()), "a", "b")
    interval = None if why is not None and why.kind == "few launches" else (0.9 * ratio, 1.1 * ratio)
    return Comparison(pair, None, None, Estimate(ratio, interval, 7), 3, None, "unclear",
                      why or Reason("launches", (more,)), more, True, (7, 7))  # fmt: skip


FEW = undecided(1.8, 2, Reason("few launches", (2,)))
CLOCK = undecided(1.001, None, Reason("clock", (0.042,)))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([undecided(1.009, 5), undecided(1.46, 22, size=1 << 20), undecided(0.9, None, OVER), undecided(0.97, 841)],
         "5 to 841 more launches would decide (3 cells); needs more than 1000 more launches (1 cell)"),
        ([FEW, undecided(1.1, 16)],
         "an interval needs at least 2 more launches (1 cell); 16 more launches would decide (1 cell)"),
        ([FEW], "an interval needs at least 2 more launches"),
        ([undecided(1.1, 5), undecided(1.2, 9)], "5 to 9 more launches would decide"),
        ([undecided(1.1, None, OVER), undecided(1.2, None, OVER)], "needs more than 1000 more launches"),
        ([CLOCK], "the clock resolves these times to 4.2 % only"),
        ([undecided(1.1, None, Reason("blocks", (blocks,))) for blocks in (14, 9, 9)],
         "not decided after 9 to 14 blocks"),
        ([undecided(1.1, None, Reason("blocks", (9,))), CLOCK, CLOCK],
         "the clock resolves these times to 4.2 % only (2 cells); not decided after 9 blocks (1 cell)"),
    ],
)  # fmt: skip
def test_what_would_tell(cells: list[Comparison], said: str) -> None:
    assert what_tells(cells) == said
