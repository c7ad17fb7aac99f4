"""parameter_server: train a small network with parameter servers and workers, each of which is a process.

The network, the batches and the optimizer of TensorFlow's example mnist_replica, which Zhao, Goin and Cotton (2018)
measured: 784-100-10 with ReLU, batches of 100, Adam on the servers, 10,000 steps of all workers together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from collbench.schema.case import Case
from collbench.units import counted
from collbench.workloads._datasets import SOURCES
from collbench.workloads._own import compared, started
from collbench.workloads._torch import START, Torch
from collbench.workloads.networks import NETWORKS
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.software import Alternatives

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


#: Data sets of images of 28 x 28 pixels in ten classes.
IMAGE_SETS = {name: source for name, source in SOURCES.items() if source.takes(NETWORKS["fcn5"])}

#: Bytes of a worker that makes its images: 60,000 of 784 pixels, at most five times at once.
IMAGES = 5 * 60_000 * 784


def refuses(case: Case) -> str | None:
    servers, ranks = case["servers"], case["ranks"]
    if servers >= ranks:
        return f"servers={servers} leave no worker among {counted(ranks, 'rank')}; start {servers + 1} or more ranks"
    if ranks > 1 and not servers:
        return f"servers=0 is one process alone, and there are {ranks} ranks; use servers=1"
    return None


def argv(case: Case, times: int) -> Sequence[str]:
    flags = ("servers", "shard", "steps", "data", "seed", "threads")
    return started("parameter_server", **{name: case[name] for name in flags})


WORKLOAD = Program(
    name="parameter_server", suite="dl", title="training with parameter servers",
    summary="steps of asynchronous workers whose weights parameter servers hold, or (servers=0) of one process",
    measures=(Measure("steps", lambda case: case["steps"], "steps", shown="time"),),
    argv=argv, parse=seconds, verify=wrong, figures=figures, repeatable=repeatable, notes=notes, computes=computes,
    software=(Torch(),), alternatives=Alternatives("data", IMAGE_SETS), refuses=refuses,
    memory=lambda case: (case["ranks"] - case["servers"]) * IMAGES, repeated=True, distributed=True, servers="servers",
    axes=(
        parameter("steps", 10_000, "of all workers together", least=1, most=100_000_000),
        parameter("servers", 0, "ranks that hold the weights; 0: one process alone", least=0, most=4, kind="how"),
        parameter("shard", "variable", "a server holds whole variables in turn, or an even part of all weights",
                  among=("variable", "even"), kind="how"),
        parameter("data", "made-up", f"what is learned, made-up images or real ones: {', '.join(IMAGE_SETS)}",
                  among=tuple(IMAGE_SETS)),
        parameter("seed", 1, "of data, weights and batches", least=0, most=1 << 62),
        parameter("threads", 1, "threads of each rank; 0: as many as it has cores for itself",
                  least=0, most=4096, kind="how"),
    ),
)  # fmt: skip
