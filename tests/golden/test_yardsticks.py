"""What selftest says of yardsticks."""

from __future__ import annotations

from collections.abc import Callable

from collbench.analysis.planning import Cost, Movement
from collbench.report.sensitivity import restlessness


def test_selftest(golden: Callable[[str, str], None]) -> None:
    moved = (Movement("core_distance", 50.0, 67.0, 14), Movement("core_speed", 950.0, 980.0, 14))
    lines = [
        restlessness(moved, Cost(0.021, 0.02, 9)),
        restlessness((), Cost(0.3, 0.05, 297)),
        restlessness(moved, None),
    ]
    golden("yardsticks-selftest.txt", "".join(f"{line}\n" for line in lines))
