"""The benchmarks of sysbench: their commands, and what is made of its output; stored outputs of version 1.0.20."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from collbench import workloads
from collbench.run.expand import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan

OUTPUTS = Path(__file__).parents[1] / "data" / "outputs"

#: By benchmark: what its stored output was asked for, the events in it, and the seconds that they took.
STORED: dict[str, tuple[dict[str, Any], int, float]] = {
    "cpu": ({"threads": 2, "events": 200, "max_prime": 2000}, 200, 0.0072),
    "memory": ({"size": "1M", "access": "read"}, 1024, 0.0007),
    "threads": ({"threads": 4, "events": 50, "yields": 10, "locks": 2}, 50, 0.0028),
}


def stored(test: str) -> str:
    return (OUTPUTS / f"sysbench-1.0.20-{test}.txt").read_text(encoding="utf-8")


def case_of(test: str) -> Case:
    (case,) = program_cases(Plan(benchmarks=({"name": f"sysbench_{test}", **STORED[test][0]},)), 1)
    return case.case


@pytest.mark.parametrize("test", STORED)
def test_a_stored_output_is_read_and_is_right(test: str) -> None:
    program, case = workloads.get(f"sysbench_{test}"), case_of(test)
    assert program.verify(case, stored(test)) == 0
    assert program.parse(stored(test)) == {"total": [STORED[test][2]]}


@pytest.mark.parametrize("test", STORED)
def test_another_number_of_events_is_wrong(test: str) -> None:
    events = STORED[test][1]
    for counted in (events - 3, 0):
        text = stored(test).replace(f"total number of events:              {events}",
                                    f"total number of events:              {counted}")  # fmt: skip
        assert workloads.get(f"sysbench_{test}").verify(case_of(test), text) == events - counted


@pytest.mark.parametrize("test", STORED)
@pytest.mark.parametrize("damage", ["", "cut", "comma", "old"])
def test_a_damaged_output_cannot_be_read(test: str, damage: str) -> None:
    """Nothing, one that was cut off, one with a decimal comma, one of a version that counts otherwise."""
    text = {
        "": "",
        "cut": stored(test).partition("General")[0],
        "comma": re.sub(r"(total time: +0)\.", r"\1,", stored(test)),
        "old": stored(test).replace("sysbench 1.0.20", "sysbench 0.4.12"),
    }[damage]
    program = workloads.get(f"sysbench_{test}")

    def read() -> None:
        program.verify(case_of(test), text)
        program.parse(text)

    with pytest.raises(ValueError, match=r"no line|1\.0 or later is needed"):
        read()


def test_the_commands_say_everything() -> None:
    """Since 1.0 sysbench ends after ten seconds where it is not told otherwise."""
    commands = {test: workloads.get(f"sysbench_{test}").argv(case_of(test), 1) for test in STORED}
    assert commands == {
        "cpu": ("sysbench", "cpu", "--threads=2", "--events=200", "--time=0", "--cpu-max-prime=2000", "run"),
        "memory": ("sysbench", "memory", "--threads=1", "--events=1024", "--time=0", "--memory-block-size=1024",
                   "--memory-total-size=1048576", "--memory-oper=read", "run"),
        "threads": ("sysbench", "threads", "--threads=4", "--events=50", "--time=0", "--thread-yields=10",
                    "--thread-locks=2", "run"),
    }  # fmt: skip


def test_work_is_whole_blocks() -> None:
    (case,) = program_cases(Plan(benchmarks=({"name": "sysbench_memory", "size": "1000", "block": 300},)), 1)
    (measure,) = workloads.get("sysbench_memory").measures
    assert (measure.work(case.case).amount, measure.work(case.case).unit) == (900, "bytes")
