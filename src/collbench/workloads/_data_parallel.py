"""What `ddp` starts on each rank, and what it reads of the output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from collbench.schema.case import Case
from collbench.workloads._loss import compared
from collbench.workloads.networks import NETWORKS

#: Bytes of a parameter in two trainings, with gradient, momentum and place in a bucket, and in what is reduced alone.
_OF_PARAMETER = (2 * 4 + 1) * 4


def argv(case: Case, times: int) -> Sequence[str]:
    flags = {name: case[name] for name in ("network", "batch", "bucket", "device", "threads")} | {"times": times}
    words = (word for name, value in flags.items() for word in (f"--{name}", str(value)))
    return (sys.executable, "-m", "collbench.workloads.programs.ddp", *words)


def parse(output: str) -> Mapping[str, Sequence[float]]:
    return {measure: [ns * 1e-9 for ns in taken] for measure, taken in json.loads(output)["ns"].items()}


def verify(case: Case, output: str) -> int:
    """Ranks with other parameters than rank 0 after the steps, and losses that are no finite numbers."""
    said = json.loads(output)
    return int(said["apart"]) + int(said["nonfinite"])


def repeatable(case: Case, output: str) -> Mapping[str, float]:
    """The loss of rank 0 after the first steps."""
    return {"loss": compared(json.loads(output)["loss"])}


def messages(case: Case, output: str) -> Sequence[int]:
    return [int(size) for size in json.loads(output)["messages"]]


def notes(output: str) -> Sequence[str]:
    return tuple(json.loads(output)["notes"])


def memory(case: Case) -> int:
    """What can be told beforehand, of all ranks: not what layers give."""
    return _OF_PARAMETER * NETWORKS[case["network"]].parameters * int(case["ranks"])
