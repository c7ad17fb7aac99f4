"""dd: zeros written block by block to a new file, and brought to the device before dd ends (fdatasync).

Storage that compresses zeros stores nothing of them, and its case fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.workloads.host.files import explained
from collbench.workloads.program import Measure, Program, SideCommand, parameter
from collbench.workloads.software import Software

_COPIED = re.compile(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s,", re.MULTILINE)
_FILE = re.compile(r"^size (\d+) in (\d+) x (\d+)$", re.MULTILINE)


def written(case: Case) -> int:
    return int(case["bs"] * case["count"])


def argv(case: Case, times: int) -> Sequence[str]:
    dd = f"dd if=/dev/zero of=zeros bs={case['bs']} count={case['count']} conv=fdatasync"
    return explained("^dd: ", "sh", "-c", f"{dd} && stat --format='size %s in %b x %B' zeros")


def verify(case: Case, output: str) -> int:
    """The bytes that dd counted, and the size of the file.

    Raises:
        ValueError: one is missing, or the storage has fewer blocks for the file than its bytes need.
    """
    copied, file = _COPIED.search(output), _FILE.search(output)
    if copied is None or file is None:
        raise ValueError("no line with the bytes that dd copied, or none with the size of the file")
    wrong = sum(int(line[1]) != written(case) for line in (copied, file))
    if not wrong and (stored := int(file[2]) * int(file[3])) < written(case):
        raise ValueError(f"{stored} of {written(case)} bytes are stored: a file with holes, or compressed zeros")
    return wrong


WORKLOAD = Program(
    name="dd", suite="io", title="dd",
    summary="zeros written to a new file and brought to the device (fdatasync)",
    measures=(Measure("write", written),),
    argv=argv, parse=lambda output: {"write": [float(seconds) for _, seconds in _COPIED.findall(output)]},
    verify=verify, files=True, disk=written, before=lambda case: (SideCommand(("rm", "-f", "zeros")),),
    software=(Software("dd", "coreutils"),), repeated=True,
    axes=(
        parameter("bs", 65_536, "bytes of a block", least=1, most=1 << 30),
        parameter("count", 1600, "blocks", least=1, most=1 << 30),
    ),
)  # fmt: skip
