"""train: a network is trained by torch; the first epoch with its loading is timed, and batches after it.

After P. Xu, S. Shi and X. Chu, "Performance Evaluation of Deep Learning Tools in Docker Containers", BigCom 2017.
"""

from __future__ import annotations

import json

from collbench.workloads import _training
from collbench.workloads._torch import Torch
from collbench.workloads.datasets import SOURCES
from collbench.workloads.networks import NETWORKS
from collbench.workloads.parameters import ALL_CORES, parameter
from collbench.workloads.program import Measure, Program
from collbench.workloads.software import Alternatives

WORKLOAD = Program(
    name="train", suite="dl", title="training",
    summary="train a network by torch: seconds a batch, and the first epoch with what it loads",
    measures=(
        Measure("batch", lambda case: 1, "batches", shown="time"),
        Measure("first", _training.epoch, "batches", shown="time", once=True),
    ),
    argv=_training.argv, parse=_training.parse, verify=lambda case, output: int(json.loads(output)["nonfinite"]),
    repeatable=_training.repeatable, notes=lambda output: tuple(json.loads(output)["notes"]),
    files=True, prepare=_training.prepare, before=_training.before,
    refuses=_training.refuses, memory=_training.memory, computes=_training.computes,
    software=(Torch(),), alternatives=Alternatives("data", SOURCES),
    axes=(
        parameter("network", "fcn5", f"what is trained: {', '.join(NETWORKS)}", among=tuple(NETWORKS)),
        parameter("batch", 0, "examples of a batch; 0: the network's default", least=0, most=1 << 20),
        parameter("epoch", 4, "batches of an epoch; 0: those of the network's data set", least=0, most=1 << 20),
        parameter("steps", 4, "the step whose loss must come out equal", least=1, most=1 << 20),
        parameter("data", "made-up", f"the examples, made up or real: {', '.join(SOURCES)}", among=tuple(SOURCES),
                  kind="how"),
        parameter("loaders", 0, "processes that load batches; 0: the one that trains", least=0, most=64, kind="how"),
        parameter("threads", ALL_CORES, "threads of torch; 0: as many as cores", least=0, most=4096, kind="how"),
        parameter("device", "cpu", "where it is trained", among=("cpu", "cuda"), kind="how"),
        parameter("cache", "cold", "of the file, before the first epoch", among=("cold", "warm"), kind="how"),
    ),
)  # fmt: skip
