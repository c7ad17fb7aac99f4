"""What `ddp` starts on each rank, and what it reads of the output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from collbench.schema.case import Case
from collbench.workloads._loss import compared
from collbench.workloads._torch import START
from collbench.workloads.networks import NETWORKS

#: Numbers that are kept of a parameter: in two trainings it, gradient, momentum and place in a bucket; what is reduced.
_COPIES = 2 * 4 + 1

#: Steps of each training before the first sample; all-reduces alone in steps, about.
_BEFORE, _REDUCED = 3, 0.3


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
    """About, of all ranks: one of the two trainings takes a step at a time."""
    network = NETWORKS[case["network"]]
    return int(case["ranks"]) * network.memory(_COPIES, case["batch"] or network.batch, case["device"])


def computes(case: Case, times: int) -> float:
    """Core seconds of all ranks: of each sample a step, one without its all-reduces, and these alone.

    What a GPU takes is not known.
    """
    if case["device"] != "cpu":
        return 0.0
    network, steps = NETWORKS[case["network"]], 2 * (_BEFORE + times) + _REDUCED * times
    return int(case["ranks"]) * (START + steps * network.step(case["batch"] or network.batch))
