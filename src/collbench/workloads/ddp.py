"""ddp: a step of data-parallel training, the same step without its all-reduces, and these alone.

torch's DistributedDataParallel averages gradients while the backward pass computes. The step less the step without
all-reduces is the communication that is not hidden behind computing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from collbench.machine.facts import Stretch
from collbench.schema.case import Case
from collbench.workloads._own import loss, notes, started, times
from collbench.workloads._torch import START, Torch
from collbench.workloads.networks import NETWORKS
from collbench.workloads.program import ALL_CORES, Measure, Program, parameter

#: Numbers that are kept of a parameter: in two trainings it, gradient, momentum and place in a bucket; what is reduced.
_COPIES = 2 * 4 + 1

#: Steps of each training before the first sample; all-reduces alone in steps, about.
_BEFORE, _REDUCED = 3, 0.3


def argv(case: Case, times: int) -> Sequence[str]:
    flags = {name: case[name] for name in ("network", "batch", "bucket", "device", "threads")}
    return started("ddp", **flags, times=times)


def verify(case: Case, output: str) -> int:
    """Ranks with other parameters than rank 0 after the steps, and losses that are no finite numbers."""
    said = json.loads(output)
    return int(said["apart"]) + int(said["nonfinite"])


def messages(case: Case, output: str) -> Sequence[int]:
    return [int(size) for size in json.loads(output)["messages"]]


def slices(output: str) -> Stretch | None:
    return msgspec.convert(json.loads(output)["slices"], Stretch | None)


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


WORKLOAD = Program(
    name="ddp", suite="dl", title="data-parallel training",
    summary="a training step on all ranks by torch's DistributedDataParallel, and what of it is communication",
    measures=tuple(
        Measure(name, lambda case: 1, "steps", shown="time") for name in ("step", "compute", "communication")
    ),
    argv=argv, parse=times, verify=verify,
    repeatable=loss, notes=notes,
    messages=messages, memory=memory, computes=computes,
    distributed=True, takes_turns=True, slices=slices, software=(Torch(),),
    axes=(
        parameter("network", "fcn5", f"what is trained: {', '.join(NETWORKS)}", among=tuple(NETWORKS)),
        parameter("batch", 0, "examples of each rank in a step; 0: the network's default", least=0, most=1 << 20),
        parameter("bucket", 0, "MiB of a bucket of gradients; 0: torch's choice", least=0, most=1 << 14, kind="how"),
        parameter("threads", ALL_CORES, "threads of torch; 0: as many as a rank has cores for itself",
                  least=0, most=4096, kind="how"),
        parameter("device", "cpu", "where it is trained: cpu (gloo), cuda (NCCL)", among=("cpu", "cuda"), kind="how"),
    ),
)  # fmt: skip
