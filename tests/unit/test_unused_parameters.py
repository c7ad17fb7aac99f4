"""Parameters that have no effect in a case: it does not have them, and one case is measured instead of several."""

from __future__ import annotations

from typing import Any

import pytest

from collbench import workloads
from collbench.report.headings import operation, variant
from collbench.run.expand import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan


def cases(**benchmark: Any) -> list[Case]:
    return [found.case for found in program_cases(Plan(benchmarks=(benchmark,)), 1)]


@pytest.mark.parametrize(
    ("benchmark", "lacking"),
    [
        ({"name": "fio"}, [{"cache"}]),
        ({"name": "fio", "ramp": (0, 2)}, [{"cache"}, {"cache"}]),
        ({"name": "fio", "direct": 0, "cache": ("cold", "warm"), "ramp": (0, 2)}, [{"ramp"}, set(), set()]),
        ({"name": "ioping", "count": (5, 10)}, [{"seconds"}, {"seconds"}]),
        ({"name": "ioping", "mode": ("cached", "direct"), "count": (5, 10)}, [{"count"}, {"count"}]),
        ({"name": "linpack"}, [set()]),
    ],
)
def test_a_case_has_the_parameters_that_have_an_effect(benchmark: dict[str, Any], lacking: list[set[str]]) -> None:
    row = workloads.get(benchmark["name"])
    names = {axis.name for axis in row.axes}
    found = cases(**benchmark)
    assert [names - {*case.what, *case.how} for case in found] == lacking
    assert all(row.argv(case, 1) for case in found)


def test_a_heading_says_what_applies() -> None:
    direct, cold = cases(name="fio", direct=(1, 0))
    assert "cache" not in variant(direct) and "ramp 2" in operation(direct)
    assert "cache cold" in variant(cold) and "ramp" not in operation(cold)
    assert "--ramp_time=0" in workloads.get("fio").argv(cold, 1)
    assert "--ramp_time=2" in workloads.get("fio").argv(direct, 1)
    latency, cached = cases(name="ioping", mode=("latency", "cached"))
    assert ("count 10" in operation(latency), "seconds" in operation(latency)) == (True, False)
    assert ("seconds 5" in operation(cached), "count" in operation(cached)) == (True, False)
