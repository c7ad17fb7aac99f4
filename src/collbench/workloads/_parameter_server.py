"""What the processes of `parameter_server` print, and what a right result is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from collbench.schema.case import Case
from collbench.workloads._loss import compared
from collbench.workloads._torch import START

#: Core seconds in which a worker makes its images, and of a step in a worker and in each server.
_IMAGES, _STEP, _SERVED = 0.5, 1e-3, 1.1e-3


def seconds(output: str) -> Mapping[str, Sequence[float]]:
    return {"steps": [ns * 1e-9 for ns in json.loads(output)["ns"]]}


def wrong(case: Case, output: str) -> int:
    """Steps that no worker took, or one took too many; gradients that a server did not apply, or applied twice."""
    said, steps = json.loads(output), case["steps"]
    return sum(abs(number - steps) for number in (sum(said["steps"]), *said["applied"]))


def figures(case: Case, output: str) -> Mapping[str, float]:
    """Accuracy; with servers also the steps of each worker, and the bytes of weights that each server holds."""
    said = json.loads(output)
    if not said["bytes"]:
        return {"accuracy": said["accuracy"]}
    steps = {f"steps of worker {number}": steps for number, steps in enumerate(said["steps"])}
    held = {f"bytes of server {number}": held for number, held in enumerate(said["bytes"])}
    return {"accuracy": said["accuracy"], **steps, **held}


def repeatable(case: Case, output: str) -> Mapping[str, float]:
    """With several workers the loss depends on which of them is first."""
    said = json.loads(output)
    return {"loss": compared(said["loss"])} if len(said["steps"]) == 1 else {}


def notes(output: str) -> Sequence[str]:
    return (f"accuracy on images held out of: {json.loads(output)['data']}",)


def computes(case: Case, times: int) -> float:
    """Core seconds of all ranks: each begins, a worker makes its images, and each server changes weights every step."""
    servers, ranks = int(case["servers"]), int(case["ranks"])
    return ranks * START + (ranks - servers) * _IMAGES + int(case["steps"]) * (_STEP + _SERVED * servers)
