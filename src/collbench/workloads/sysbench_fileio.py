"""sysbench fileio: requests to many files at random or in sequence, with fsync after every so many and at the end."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.workloads._files import explained
from collbench.workloads._sysbench import benchmark
from collbench.workloads.program import Measure, Step, parameter


def options(case: Case) -> Sequence[str]:
    return (f"--file-num={case['files']}", f"--file-total-size={case['size']}", f"--file-block-size={case['block']}",
            f"--file-test-mode={case['mode']}", f"--file-fsync-freq={case['fsync_freq']}")  # fmt: skip


def prepare(case: Case) -> Sequence[Step]:
    """It says on its standard output why it fails."""
    return (Step(explained("^FATAL", "sysbench", "fileio", *options(case), "prepare")),)


def refuses(case: Case) -> str | None:
    each = case["size"] // case["files"]
    return None if each >= case["block"] else f"a file would have {each} bytes, less than a block ({case['block']})"


WORKLOAD = benchmark(
    "fileio",
    "requests to many files, with fsync; the size is that of all files together",
    parameter("mode", "rndrw", "which requests", among=("rndrw", "rndrd", "rndwr", "seqwr", "seqrd")),
    parameter("block", 16_384, "bytes of a request", least=512, most=1 << 30),
    parameter("files", 128, "files", least=1, most=65_536),
    parameter("fsync_freq", 100, "requests before each fsync of all files; 0: none before the end", least=0),
    parameter("events", 10_000, "requests of a sample", least=1, most=100_000_000),
    events=lambda case: case["events"],
    options=options,
    measure=Measure("total", lambda case: case["events"], "requests"),
    sizes=("1G",),
    prepare=prepare,
    refuses=refuses,
)
