"""What the benchmarks that are sysbench's have in common: the program, its command line, and what it prints.

Since 1.0 sysbench stops after ten seconds unless it is told otherwise, so the number of events is fixed and the time
for them is the sample; the events that it counted are compared with those asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.workloads.program import Measure, Program, Step, parameter, threads_of
from collbench.workloads.software import Software

#: It prints times with four decimals (s).
STEP = 1e-4

_TIME = re.compile(r"^ *total time: +([0-9.]+)s$", re.MULTILINE)
_EVENTS = re.compile(r"^ *total number of events: +([0-9]+)$", re.MULTILINE)
_VERSION = re.compile(r"^sysbench ([0-9]+)\.", re.MULTILINE)


def benchmark(
    test: str, summary: str, *axes: Axis, events: Callable[[Case], int], options: Callable[[Case], Sequence[str]],
    threads: int = 1, measure: Measure | None = None, sizes: tuple[str, ...] = (),
    prepare: Callable[[Case], Sequence[Step]] | None = None, refuses: Callable[[Case], str | None] | None = None,
) -> Program:  # fmt: skip
    """A benchmark that is a test of sysbench, with a fixed number of events; `options` are the test's own.

    The work of a sample is these events, unless a `measure` says otherwise. A test that works in files has to
    `prepare` them, and belongs to the suite io. `refuses` is what else no execution can take.
    """

    def argv(case: Case, times: int) -> Sequence[str]:
        limits = (f"--threads={threads_of(case['threads'])}", f"--events={events(case)}", "--time=0")
        return ("sysbench", test, *limits, *options(case), "run")

    def refused(case: Case) -> str | None:
        if not events(case):
            return f"no event in it, and {test} without a limit has no end"
        return None if refuses is None else refuses(case)

    def verify(case: Case, output: str) -> int:
        return abs(events_in(output) - events(case))

    return Program(
        name=f"sysbench_{test}",
        suite="cpu" if prepare is None else "io",
        title=f"sysbench {test}",
        summary=summary,
        measures=(replace(measure or Measure("total", events, "events"), step=STEP),),
        argv=argv,
        parse=lambda output: {"total": [seconds(output)]},
        verify=verify,
        refuses=refused,
        files=prepare is not None,
        disk=lambda case: 0 if prepare is None else int(case["size"]),
        prepare=prepare or (lambda case: ()),
        software=(Software("sysbench", "sysbench"),),
        repeated=True,
        sizes=sizes,
        axes=(parameter("threads", threads, "threads of the program; 0: as many as cores", least=0, most=4096), *axes),
    )


def seconds(output: str) -> float:
    """Time for all events.

    Raises:
        ValueError: it was not printed.
    """
    return float(_only(_TIME, output, "total time"))


def events_in(output: str) -> int:
    """Events that were performed.

    Raises:
        ValueError: they were not printed, or the version is older than 1.0, which counts otherwise.
    """
    version = _VERSION.search(output)
    if version is not None and int(version[1]) < 1:
        raise ValueError("sysbench 1.0 or later is needed")
    return int(_only(_EVENTS, output, "total number of events"))


def _only(pattern: re.Pattern[str], output: str, what: str) -> str:
    match = pattern.search(output)
    if match is None:
        raise ValueError(f"no line {what!r}")
    return match[1]
