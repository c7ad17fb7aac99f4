"""What doctor and selftest say of yardsticks."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import click

from collbench import yardsticks
from collbench.analysis.planning import Cost, Movement
from collbench.cli.doctor import describe
from collbench.doctor.yardsticks import judge
from collbench.report.sensitivity import restlessness
from collbench.schema.yardsticks import Reason
from collbench.yardsticks import Readings

CALM = {"copy": 50.0, "core_distance": 100.0, "core_speed": 950.0}


def test_doctor(golden: Callable[[str, str], None]) -> None:
    moved = CALM | {"core_distance": 310.0, "core_speed": 700.0}
    none = dict.fromkeys(yardsticks.names())
    findings = {
        "calm": judge([Readings({**CALM}), Readings({**CALM})]),
        "restless": judge([Readings({**CALM}), Readings({**moved})]),
        **{reason: judge([Readings({**none}, reason)]) for reason in get_args(Reason)},
    }
    golden(
        "yardsticks-doctor.txt",
        click.unstyle("".join(f"{describe(name.ljust(13), one, 100)}\n" for name, one in findings.items())),
    )


def test_selftest(golden: Callable[[str, str], None]) -> None:
    moved = (Movement("core_distance", 50.0, 67.0, 14), Movement("core_speed", 950.0, 980.0, 14))
    lines = [
        restlessness(moved, Cost(0.021, 0.02, 9)),
        restlessness((), Cost(0.3, 0.05, 297)),
        restlessness(moved, None),
    ]
    golden("yardsticks-selftest.txt", "".join(f"{line}\n" for line in lines))
