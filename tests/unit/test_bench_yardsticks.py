"""bench/yardsticks.py: what it leaves out, and the share that it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.bench_modules import bench

program = bench("yardsticks")
SIZES = tuple(program.SIZES.values())


def made(launches: int, draw: np.random.Generator, noise: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Launches as slow as their cores were far apart before them."""
    records, readings = [], []
    for launch in range(launches):
        distance = float(np.exp(draw.normal(5, 0.5)))
        for moment, value in (("before", distance), ("after", 100 + float(draw.random()))):
            values = {"copy": 50 + float(draw.random()), "core_distance": value}
            readings.append({"launch": launch, "moment": moment, "values": values, "reason": None})
        for size in SIZES:
            p50 = distance * 1e-9 * float(np.exp(draw.normal(0, noise)))
            records.append({"launch": launch, "status": "ok", "work": {"amount": size}, "seconds": {"p50": p50}})
    return records, readings


@pytest.mark.parametrize(("noise", "enough"), [(0.1, True), (2.0, False)])
def test_what_the_distance_explains(noise: float, enough: bool) -> None:
    found = program.complete(*made(60, np.random.default_rng(1), noise))
    of_sizes = program.shares(found)
    assert program.is_enough(of_sizes) == enough
    for of_size in of_sizes.values():
        assert (of_size["before core_distance"] > 0.9) == enough
        assert abs(of_size["after all"]) < 0.2
        assert of_size["before all"] >= of_size["before copy"] - 0.05
    assert "openmpi" in program.page([program.part("openmpi", found, of_sizes)])


def test_launches_that_lack_something_are_left_out() -> None:
    records, readings = made(12, np.random.default_rng(1), 0.1)
    records[0]["status"] = "failed"
    readings[3]["reason"] = "late"
    assert len(program.complete(records, readings).medians[SIZES[0]]) == 10
    with pytest.raises(bench("installation").LaunchFailed):
        program.complete(records[: 3 * 4], readings)
