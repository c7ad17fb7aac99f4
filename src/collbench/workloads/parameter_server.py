"""parameter_server: train a small network with parameter servers and workers, each of which goes at its own pace.

The network, the batches and the optimizer of TensorFlow's example mnist_replica, which Zhao, Goin and Cotton (2018)
measured: 784-100-10 with ReLU, batches of 100, Adam on the servers, 10,000 steps of all workers together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.units import counted
from collbench.workloads._parameter_server import computes, figures, notes, repeatable, seconds, wrong
from collbench.workloads._torch import Torch
from collbench.workloads.datasets import SOURCES
from collbench.workloads.networks import NETWORKS
from collbench.workloads.parameters import parameter
from collbench.workloads.program import Measure, Program
from collbench.workloads.software import Alternatives

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
    values = {name: case[name] for name in ("servers", "shard", "steps", "data", "seed", "threads")}
    flags = (word for name, value in values.items() for word in (f"--{name}", str(value)))
    return (sys.executable, "-m", "collbench.workloads.programs.parameter_server", *flags)


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
