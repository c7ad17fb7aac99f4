"""ddp: a step of data-parallel training, the same step without its all-reduces, and these all-reduces alone.

torch's DistributedDataParallel averages gradients while the backward pass computes. The step less the step without
all-reduces is the communication that is not hidden behind computing.
"""

from __future__ import annotations

from collbench.workloads import _data_parallel
from collbench.workloads._torch import Torch
from collbench.workloads.networks import NETWORKS
from collbench.workloads.parameters import ALL_CORES, parameter
from collbench.workloads.program import Measure, Program

WORKLOAD = Program(
    name="ddp", suite="dl", title="data-parallel training",
    summary="a training step on all ranks by torch's DistributedDataParallel, and what of it is communication",
    measures=tuple(
        Measure(name, lambda case: 1, "steps", shown="time") for name in ("step", "compute", "communication")
    ),
    argv=_data_parallel.argv, parse=_data_parallel.parse, verify=_data_parallel.verify,
    repeatable=_data_parallel.repeatable, notes=_data_parallel.notes,
    messages=_data_parallel.messages, memory=_data_parallel.memory, computes=_data_parallel.computes,
    distributed=True, takes_turns=True, software=(Torch(),),
    axes=(
        parameter("network", "fcn5", f"what is trained: {', '.join(NETWORKS)}", among=tuple(NETWORKS)),
        parameter("batch", 0, "examples of each rank in a step; 0: the network's default", least=0, most=1 << 20),
        parameter("bucket", 0, "MiB of a bucket of gradients; 0: torch's choice", least=0, most=1 << 14, kind="how"),
        parameter("threads", ALL_CORES, "threads of torch; 0: as many as a rank has cores for itself",
                  least=0, most=4096, kind="how"),
        parameter("device", "cpu", "where it is trained: cpu (gloo), cuda (NCCL)", among=("cpu", "cuda"), kind="how"),
    ),
)  # fmt: skip
