"""Tests of sysbench: its command lines, and what it prints.

Since 1.0 sysbench stops after ten seconds unless it is told otherwise, so the number of events is fixed and the time
for them is the sample; the events that it counted are compared with those asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.units import format_size
from collbench.workloads.host.files import explained
from collbench.workloads.program import Measure, Program, SideCommand, parameter, threads_of
from collbench.workloads.software import Software

_VERSION = re.compile(r"^sysbench ([0-9]+)\.", re.MULTILINE)


def benchmark(
    test: str, summary: str, *axes: Axis, events: Callable[[Case], int], options: Callable[[Case], Sequence[str]],
    threads: int = 1, measure: Measure | None = None, sizes: tuple[str, ...] = (),
    prepare: Callable[[Case], Sequence[SideCommand]] | None = None,
    refuses: Callable[[Case], str | None] = lambda case: None,
) -> Program:  # fmt: skip
    """A benchmark that is a test of sysbench, with a fixed number of events; `options` are the test's own.

    The work of a sample is these events, unless a `measure` says otherwise. A test that works in files has to
    `prepare` them, and belongs to the suite io. `refuses` is what else no execution can take.
    """

    def argv(case: Case, times: int) -> Sequence[str]:
        limits = (f"--threads={threads_of(case['threads'])}", f"--events={events(case)}", "--time=0")
        return ("sysbench", test, *limits, *options(case), "run")

    endless = f"no event in it, and {test} without a limit has no end"
    return Program(
        name=f"sysbench_{test}", suite="cpu" if prepare is None else "io", title=f"sysbench {test}", summary=summary,
        measures=(replace(measure or Measure("total", events, "events"), step=1e-4),),  # it prints four decimals
        argv=argv, parse=lambda output: {"total": [float(_number(output, "total time", "s"))]},
        verify=lambda case, output: abs(events_in(output) - events(case)),
        refuses=lambda case: refuses(case) if events(case) else endless,
        files=prepare is not None, disk=lambda case: 0 if prepare is None else int(case["size"]),
        prepare=prepare or (lambda case: ()), software=(Software("sysbench", "sysbench"),), repeated=True, sizes=sizes,
        axes=(parameter("threads", threads, "threads of the program; 0: as many as cores", least=0, most=4096), *axes),
    )  # fmt: skip


def _number(output: str, name: str, unit: str = "") -> str:
    if (match := re.search(rf"^ *{name}: +([0-9.]+){unit}$", output, re.MULTILINE)) is None:
        raise ValueError(f"no line {name!r}")
    return match[1]


def events_in(output: str) -> int:
    """Events that were performed. ValueError: none printed, or by a version before 1.0, which counts otherwise."""
    if (version := _VERSION.search(output)) is not None and int(version[1]) < 1:
        raise ValueError("sysbench 1.0 or later is needed")
    return int(_number(output, "total number of events"))


def _fileio_options(case: Case) -> Sequence[str]:
    return (f"--file-num={case['files']}", f"--file-total-size={case['size']}", f"--file-block-size={case['block']}",
            f"--file-test-mode={case['mode']}", f"--file-fsync-freq={case['fsync_freq']}")  # fmt: skip


def _fileio_refuses(case: Case) -> str | None:
    each = case["size"] // case["files"]
    return None if each >= case["block"] else f"a file would have {each} bytes, less than a block ({case['block']})"


def blocks(case: Case) -> int:
    """Whole blocks of the size of the case."""
    return int(case["size"] // case["block"])


def moved(case: Case) -> int:
    return blocks(case) * int(case["block"])


def _memory_refuses(case: Case) -> str | None:
    """sysbench gives every thread as many blocks."""
    threads, number = threads_of(case["threads"]), blocks(case)
    whole = format_size(threads * case["block"])
    why = f"{number} blocks cannot be shared by {threads} threads; use a multiple of {whole} as the size"
    return why if number % threads else None


#: By name.
WORKLOADS = {program.name: program for program in (
    benchmark(
        "cpu", "prime numbers by trial division: integer arithmetic of the cores",
        parameter("max_prime", 20_000, "limit of the numbers that an event tries", least=3, most=1_000_000),
        parameter("events", 1000, "events of a sample", least=1, most=100_000_000),
        events=lambda case: case["events"], options=lambda case: (f"--cpu-max-prime={case['max_prime']}",),
    ),
    benchmark(
        "fileio", "requests to many files, with fsync; the size is that of all files together",
        parameter("mode", "rndrw", "which requests", among=("rndrw", "rndrd", "rndwr", "seqwr", "seqrd")),
        parameter("block", 16_384, "bytes of a request", least=512, most=1 << 30),
        parameter("files", 128, "files", least=1, most=65_536),
        parameter("fsync_freq", 100, "requests before each fsync of all files; 0: none before the end", least=0),
        parameter("events", 10_000, "requests of a sample", least=1, most=100_000_000),
        events=lambda case: case["events"], options=_fileio_options,
        measure=Measure("total", lambda case: case["events"], "requests"), sizes=("1G",), refuses=_fileio_refuses,
        prepare=lambda case: (SideCommand(  # it says on its standard output why it fails
            explained("^FATAL", "sysbench", "fileio", *_fileio_options(case), "prepare")),),
    ),
    benchmark(
        "memory", "a buffer that is written or read by blocks; the size is what all threads move together",
        parameter("block", 1024, "bytes of a block", least=8, most=1 << 30),
        parameter("access", "write", "whether blocks are written or read", among=("write", "read")),
        events=blocks,
        options=lambda case: (f"--memory-block-size={case['block']}", f"--memory-total-size={moved(case)}",
                              f"--memory-oper={case['access']}"),
        refuses=_memory_refuses, measure=Measure("total", moved), sizes=("1G",),
    ),
    benchmark(
        "threads", "many threads that compete for a few locks, on however few cores: the scheduler",
        parameter("yields", 1000, "how often a thread yields in an event", least=1, most=1_000_000),
        parameter("locks", 8, "locks that the threads compete for", least=1, most=1024),
        parameter("events", 500, "events of a sample", least=1, most=100_000_000),
        threads=128, events=lambda case: case["events"],
        options=lambda case: (f"--thread-yields={case['yields']}", f"--thread-locks={case['locks']}"),
    ),
)}  # fmt: skip
