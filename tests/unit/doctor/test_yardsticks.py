"""Every outcome of the check `yardsticks`."""

from __future__ import annotations

import math
import statistics
from typing import get_args

import pytest
from tests.unit.doctor.machines import only, write

from collbench import yardsticks as registry
from collbench.analysis.compare import MARGIN
from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import Cost
from collbench.doctor import processors
from collbench.doctor.frame import Machine, here
from collbench.schema.store import NoReading
from collbench.yardsticks import Readings


def readings(*distances: float) -> list[Readings]:
    return [Readings({"core_distance": distance, "core_speed": 900.0}) for distance in distances]


def test_cores_that_stay_as_they_are() -> None:
    assert processors.judge_yardsticks(readings(100, 105, 119)).status == "ok"


def test_what_launches_cost_that_spread_alike() -> None:
    """By the yardstick that spreads most; readings in turns are the two sides."""
    assert processors.judge_yardsticks(readings(*[100] * 8)).cost == Cost(0.0, MARGIN, FEWEST)
    found = processors.judge_yardsticks(readings(100, 105, 101, 100, 103, 100, 100, 104)).cost
    assert found is not None
    logs = [math.log(105 / 100), math.log(100 / 101), math.log(100 / 103), math.log(104 / 100)]
    assert found.spread == pytest.approx(statistics.stdev(logs))
    assert found.launches == FEWEST
    assert processors.judge_yardsticks(readings(100, 140, 101, 100, 103, 130, 100, 104)).cost.launches > FEWEST  # type: ignore[union-attr]
    assert processors.judge_yardsticks(readings(100)).cost is None


def test_cores_that_move_more_than_the_resolution() -> None:
    problem = only(processors.judge_yardsticks(readings(100, 122)), "warn")
    assert "100 to 122 ns" in problem.cause
    assert "core" in problem.cause and "1/us" not in problem.cause, "that one stayed"


@pytest.mark.parametrize("reason", get_args(NoReading))
def test_what_could_not_be_read(reason: NoReading) -> None:
    none = Readings(dict.fromkeys(registry.names()), reason)
    only(processors.judge_yardsticks([none]), "unknown")


def test_it_does_not_go_on_where_nothing_can_be_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def take(cores: frozenset[int]) -> Readings:
        asked.append(cores)
        return Readings(dict.fromkeys(registry.names()), "core_refused")

    monkeypatch.setattr(registry, "take", take)
    write(machine, "proc/self/status", "Cpus_allowed_list:\t1-2\n")
    assert processors.yardsticks(machine).status == "unknown"
    assert asked == [frozenset((1, 2))]


def test_here_a_dozen_readings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = registry.take

    def counted(cores: frozenset[int]) -> Readings:
        taken.append(take(cores))
        return taken[-1]

    monkeypatch.setattr(registry, "take", counted)
    processors.yardsticks(here())
    assert len(taken) == processors.READINGS
