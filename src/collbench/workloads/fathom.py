"""fathom: a training step of the networks of Fathom, defined anew in torch, on made-up data.

After R. Adolf, S. Rama, B. Reagen, G. Wei, D. Brooks, "Fathom: Reference Workloads for Modern Deep Learning Methods",
IISWC 2016, as its public source runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from collbench.schema.case import Case
from collbench.workloads._own import notes, started
from collbench.workloads._torch import Torch
from collbench.workloads.fathom_networks import NETWORKS
from collbench.workloads.program import ALL_CORES, Measure, Program, parameter, threads_of

_WHICH = f"one of {', '.join(NETWORKS)}; all: each of them"


def argv(case: Case, times: int) -> Sequence[str]:
    asked = {name: case[name] for name in ("network", "batch", "device")}
    return started("fathom", **asked, threads=threads_of(case["threads"]), times=times)


def memory(case: Case) -> int:
    size, device = NETWORKS[case["network"]], case["device"]
    return size.memory(case["batch"] or size.usual(device), device)


def loss(case: Case, output: str) -> Mapping[str, float]:
    return json.loads(output)["loss"]  # type: ignore[no-any-return]


WORKLOAD = Program(
    name="fathom",
    suite="fathom",
    title="Fathom",
    summary="a training step of each of Fathom's networks, in torch, on made-up data",
    measures=(Measure("step", lambda case: 1, "steps", shown="time"),),
    argv=argv,
    parse=lambda output: {"step": [ns * 1e-9 for ns in json.loads(output)["ns"]]},
    verify=lambda case, output: sum(not math.isfinite(one) for one in json.loads(output)["losses"]),
    figures=loss,
    repeatable=lambda case, output: loss(case, output) if json.loads(output)["repeatable"] else {},
    notes=notes,
    memory=memory,
    software=(Torch(),),
    axes=(
        parameter("network", "alexnet", _WHICH, among=tuple(NETWORKS), groups={"all": tuple(NETWORKS)}),
        parameter("batch", 0, "samples of a step; 0: as many as the original has", least=0, most=65_536),
        parameter("device", "cpu", "where it is trained", among=("cpu", "cuda"), kind="how"),
        parameter("threads", ALL_CORES, "threads of torch; 0: as many as cores", least=0, most=4096, kind="how"),
    ),
)
