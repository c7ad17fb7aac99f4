"""What the benchmarks that are sysbench's have in common: the program, its command line, and what it prints.

Since 1.0 sysbench stops after ten seconds unless it is told otherwise, so the number of events is fixed and the time
for them is the sample; the events that it counted are compared with those asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from collbench.workloads.parameters import parameter
from collbench.workloads.software import Software

SYSBENCH = Software("sysbench", "sysbench")

THREADS = parameter("threads", 1, "threads of the program", least=1, most=4096)

_TIME = re.compile(r"^ *total time: +([0-9.]+)s$", re.MULTILINE)
_EVENTS = re.compile(r"^ *total number of events: +([0-9]+)$", re.MULTILINE)
_VERSION = re.compile(r"^sysbench ([0-9]+)\.", re.MULTILINE)


def command(test: str, threads: int, events: int, *options: str) -> Sequence[str]:
    """One execution of a test, which ends after so many events."""
    return ("sysbench", test, f"--threads={threads}", f"--events={events}", "--time=0", *options, "run")


def seconds(output: str) -> float:
    """Time for all events.

    Raises:
        ValueError: it was not printed.
    """
    return float(_only(_TIME, output, "total time"))


def events(output: str) -> int:
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


def total(output: str) -> Mapping[str, Sequence[float]]:
    """The only sample, of the measure `total`."""
    return {"total": [seconds(output)]}
