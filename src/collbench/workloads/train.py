"""train: a network is trained by torch; the first epoch with its loading is timed, and batches.

After P. Xu, S. Shi and X. Chu, "Performance Evaluation of Deep Learning Tools in Docker Containers", BigCom 2017.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod

from collbench.schema.case import Case
from collbench.workloads._datasets import SOURCES
from collbench.workloads._own import loss, notes, started
from collbench.workloads._torch import START, Torch
from collbench.workloads.networks import NETWORKS, Network
from collbench.workloads.program import ALL_CORES, Measure, Program, Step, parameter, threads_of
from collbench.workloads.programs.train_data import FILE
from collbench.workloads.software import Alternatives

#: Numbers that are kept of a parameter: itself, its gradient and its momentum.
_COPIES = 3


#: Core seconds in which examples are made, and written.
_FILE = 1.0


def network(case: Case) -> Network:
    return NETWORKS[case["network"]]


def batch(case: Case) -> int:
    """Examples of a batch."""
    return case["batch"] or network(case).batch


def epoch(case: Case) -> int:
    """Batches of an epoch: whole ones."""
    return case["epoch"] or max(network(case).examples // batch(case), 1)


def memory(case: Case) -> int:
    """About: of the training, or of making its file."""
    of = network(case)
    written = epoch(case) * batch(case) * (prod(of.example) + 1) * (2 if of.tokens else 1)
    return max(of.memory(_COPIES, batch(case), case["device"]), 2 * written)


def computes(case: Case, times: int) -> float:
    """Core seconds: the file, the first epoch, the samples, and steps up to the one whose loss is compared.

    What a GPU takes is not known.
    """
    if case["device"] != "cpu":
        return 0.0
    steps = max(epoch(case) + times, int(case["steps"]))
    return _FILE + START + steps * network(case).step(batch(case))


def refuses(case: Case) -> str | None:
    source = SOURCES[case["data"]]
    if source.takes(network(case)):
        return None
    fitting = [name for name, other in NETWORKS.items() if source.takes(other)]
    return f"its examples have another shape; use data=made-up, or network={' or '.join(fitting)}"


def prepare(case: Case) -> Sequence[Step]:
    examples = epoch(case) * batch(case)
    return (Step(started("train_data", network=case["network"], data=case["data"], examples=examples)),)


def before(case: Case) -> Sequence[Step]:
    return (Step(started("page_cache", case["cache"], FILE), json.loads),)


def argv(case: Case, times: int) -> Sequence[str]:
    return started(
        "train", network=case["network"], device=case["device"], batch=batch(case), steps=case["steps"],
        threads=threads_of(case["threads"]), loaders=case["loaders"], times=times,
    )  # fmt: skip


def parse(output: str) -> Mapping[str, Sequence[float]]:
    found = json.loads(output)
    return {"batch": [ns * 1e-9 for ns in found["ns"]], "first": [found["first"] * 1e-9]}


WORKLOAD = Program(
    name="train", suite="dl", title="training",
    summary="train a network by torch: seconds a batch, and the first epoch with what it loads",
    measures=(
        Measure("batch", lambda case: 1, "batches", shown="time"),
        Measure("first", epoch, "batches", shown="time", once=True),
    ),
    argv=argv, parse=parse, verify=lambda case, output: int(json.loads(output)["nonfinite"]),
    repeatable=loss, notes=notes,
    files=True, prepare=prepare, before=before,
    refuses=refuses, memory=memory, computes=computes,
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
