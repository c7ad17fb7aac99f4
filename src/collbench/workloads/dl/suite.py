"""The suite `dl`: training of a network by one process, data-parallel on all ranks, or with parameter servers.

train: after P. Xu, S. Shi and X. Chu, "Performance Evaluation of Deep Learning Tools in Docker Containers", BigCom
2017. ddp: by torch's DistributedDataParallel. parameter_server: TensorFlow's example mnist_replica, which Zhao, Goin
and Cotton (2018) measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.schema.record import Work
from collbench.units import counted
from collbench.workloads.dl.datasets import FILE, NETWORKS, SOURCES, Network, entropy
from collbench.workloads.host.files import cached
from collbench.workloads.program import ALL_CORES, Measure, Program, SideCommand, parameter, threads_of
from collbench.workloads.protocol import loss, notes, slices, started, times
from collbench.workloads.software import Alternatives, Torch

#: Core seconds until a process has imported torch, and what is imported with the first optimizer; seen on a core of an
#: AMD EPYC. A process that only meets others needs as long.
START = 2.6


def network(case: Case) -> Network:
    return NETWORKS[case["network"]]


def batch(case: Case) -> int:
    """Examples of a batch."""
    return case["batch"] or network(case).batch


def _network(usual: str) -> Axis:
    return parameter("network", usual, f"what is trained: {', '.join(NETWORKS)}", among=tuple(NETWORKS))


NETWORK = _network("fcn5")

#: Parameters of trainings by one process.
BATCH = parameter("batch", 0, "examples of a batch; 0: the network's default", least=0, most=1 << 20)
DATA = parameter("data", "made-up", f"the examples, made up or real: {', '.join(SOURCES)}", among=tuple(SOURCES),
                 kind="how")  # fmt: skip
DEVICE = parameter("device", "cpu", "where it is trained", among=("cpu", "cuda"), kind="how")


@dataclass(frozen=True)
class _Steps(Measure):
    """Steps of a training. On words they are shown as a rate, of all ranks: the time is then that of the steps."""

    def work(self, case: Case) -> Work:
        of, steps = network(case), self.amount(case)
        if not of.tokens:
            return super().work(case)
        return Work(amount=steps * case["ranks"] * batch(case) * prod(of.example), unit="tokens", shown="rate")


def _threads(usual: int, means: str) -> Axis:
    return parameter("threads", usual, means, least=0, most=4096, kind="how")


# train ---------------------------------------------------------------------------------------------------------------


def epoch(case: Case) -> int:
    """Batches of an epoch: whole ones."""
    return case["epoch"] or max(network(case).examples // batch(case), 1)


def _train_memory(case: Case, held: int = 0) -> int:
    """About: of the training, with what it keeps for each parameter, or of making its file; `held` are batches."""
    of = network(case)
    written = (held + epoch(case)) * batch(case) * (prod(of.example) + 1) * (2 if of.tokens else 1)
    return max(of.memory(of.copies, batch(case), case["device"]), 2 * written)


def _train_computes(case: Case, times: int) -> float:
    """Core seconds (0: a GPU's) of the file, the first epoch, samples, and steps up to that whose loss is compared."""
    steps = max(epoch(case) + times, int(case["steps"]))
    return 1.0 + START + steps * network(case).step(batch(case)) if case["device"] == "cpu" else 0.0


def _train_refuses(case: Case) -> str | None:
    source = SOURCES[case["data"]]
    if source.takes(network(case)):
        return None
    fitting = [name for name, other in NETWORKS.items() if source.takes(other)]
    return f"its examples have another shape; use data=made-up, or network={' or '.join(fitting)}"


def _train_argv(case: Case, times: int) -> Sequence[str]:
    return started(
        "dl.train", network=case["network"], device=case["device"], batch=batch(case), steps=case["steps"],
        threads=threads_of(case["threads"]), loaders=case["loaders"], times=times,
    )  # fmt: skip


TRAIN = Program(
    name="train", suite="dl", title="training",
    summary="train a network by torch: seconds a batch, tokens a second, and the first epoch with what it loads",
    measures=(
        _Steps("batch", lambda case: 1, "batches", shown="time"),
        Measure("first", epoch, "batches", shown="time", once=True),
    ),
    argv=_train_argv, parse=times, verify=lambda case, output: int(json.loads(output)["nonfinite"]),
    repeatable=loss, notes=notes, files=True,
    prepare=lambda case: (SideCommand(started(
        "dl.datasets", network=case["network"], data=case["data"], examples=epoch(case) * batch(case)
    )),),
    before=lambda case: (cached(case["cache"], FILE),),
    refuses=_train_refuses, memory=_train_memory, computes=_train_computes,
    takes_turns=lambda case: case["loaders"] == 0, slices=slices,  # processes that load go on while others measure
    software=(Torch(),), alternatives=Alternatives("data", SOURCES),
    axes=(
        NETWORK,
        BATCH,
        parameter("epoch", 4, "batches of an epoch; 0: those of the network's data set", least=0, most=1 << 20),
        parameter("steps", 4, "the step whose loss must come out equal", least=1, most=1 << 20),
        DATA,
        parameter("loaders", 0, "processes that load batches; 0: the one that trains", least=0, most=64, kind="how"),
        _threads(ALL_CORES, "threads of torch; 0: as many as cores"),
        DEVICE,
        parameter("cache", "cold", "of the file, before the first epoch", among=("cold", "warm"), kind="how"),
    ),
)  # fmt: skip


# time_to_train -------------------------------------------------------------------------------------------------------

#: Batches that are held out.
HELD = 4


def _target_refuses(case: Case) -> str | None:
    """A loss that no training on made-up words reaches; what `train` refuses."""
    of = network(case)
    if of.tokens and case["data"] == "made-up" and case["target"] <= (least := entropy(of.classes)):
        return f"no loss on made-up words is below their entropy, {least:.2f}; use a higher target, or data=ptb"
    return _train_refuses(case)


def _target_computes(case: Case, times: int) -> float:
    """Core seconds at most (0: a GPU's): every step, and a third of one for each batch of an evaluation."""
    steps = case["steps"] * (1 + HELD / 3 / case["every"])
    return 1.0 + START + steps * network(case).step(batch(case)) if case["device"] == "cpu" else 0.0


TIME_TO_TRAIN = Program(
    name="time_to_train", suite="dl", title="time to train",
    summary="train a network by torch until the loss of held-out examples is as low as a target: seconds",
    measures=(Measure("train", lambda case: 1, "trainings", shown="time", once=True),),
    argv=lambda case, times: started("dl.time_to_train", threads=threads_of(case["threads"]), **{
        name: case[name] for name in ("network", "device", "batch", "target", "steps", "every")
    }),
    parse=times, verify=TRAIN.verify, notes=notes,
    repeatable=lambda case, output: {**loss(case, output), "steps": json.loads(output)["steps"]}, files=True,
    prepare=lambda case: (SideCommand(started(
        "dl.datasets", network=case["network"], data=case["data"], examples=epoch(case) * batch(case),
        held=HELD * batch(case),
    )),),
    refuses=_target_refuses, memory=lambda case: _train_memory(case, HELD), computes=_target_computes,
    software=(Torch(),), alternatives=Alternatives("data", SOURCES),
    axes=(
        _network("gpt-tiny"), BATCH,
        parameter("target", 7.0, "loss of held-out examples that ends a training (nats)", least=1e-3, most=1e3),
        parameter("steps", 200, "after which a training that has not reached its target fails", least=1, most=1 << 30),
        parameter("every", 10, "steps from one evaluation to the next", least=1, most=1 << 20),
        parameter("epoch", 0, "batches of an epoch; 0: those of the network's data set", least=0, most=1 << 20),
        DATA, _threads(ALL_CORES, "threads of torch; 0: as many as cores"), DEVICE,
    ),
)  # fmt: skip


# ddp -----------------------------------------------------------------------------------------------------------------

#: Steps of each training before the first sample; all-reduces alone in steps, about.
_BEFORE, _REDUCED = 3, 0.3


def _ddp_computes(case: Case, times: int) -> float:
    """Core seconds of all ranks (0: of GPUs): of each sample a step, one without its all-reduces, and these alone."""
    ranks, steps = int(case["ranks"]), 2 * (_BEFORE + times) + _REDUCED * times
    return ranks * (START + steps * network(case).step(batch(case))) if case["device"] == "cpu" else 0.0


DDP = Program(
    name="ddp", suite="dl", title="data-parallel training",
    summary="a training step on all ranks by torch's DistributedDataParallel, and what of it is communication",
    measures=tuple(kind(name, lambda case: 1, "steps", shown="time") for name, kind in (
        ("step", _Steps), ("compute", Measure), ("communication", Measure),
    )),
    argv=lambda case, times: started("dl.ddp", **{
        name: case[name] for name in ("network", "batch", "bucket", "device", "threads")
    }, times=times),
    parse=times, repeatable=loss, notes=notes,
    # ranks with other parameters than rank 0 after the steps, and losses that are no finite numbers
    verify=lambda case, output: sum(int(json.loads(output)[name]) for name in ("apart", "nonfinite")),
    messages=lambda case, output: [int(size) for size in json.loads(output)["messages"]],
    # of a parameter in two trainings their copies and places in buckets; and what is reduced
    memory=lambda case: int(case["ranks"]) * network(case).memory(
        2 * (network(case).copies + 1) + 1, batch(case), case["device"]
    ),
    computes=_ddp_computes, distributed=True, takes_turns=lambda case: True, slices=slices,
    software=(Torch(),),
    axes=(
        NETWORK,
        parameter("batch", 0, "examples of each rank in a step; 0: the network's default", least=0, most=1 << 20),
        parameter("bucket", 0, "MiB of a bucket of gradients; 0: torch's choice", least=0, most=1 << 14, kind="how"),
        _threads(ALL_CORES, "threads of torch; 0: as many as a rank has cores for itself"),
        parameter("device", "cpu", "where it is trained: cpu (gloo), cuda (NCCL)", among=("cpu", "cuda"), kind="how"),
    ),
)  # fmt: skip


# parameter_server ----------------------------------------------------------------------------------------------------

#: Core seconds in which a worker makes its images, and of a step in a worker and in each server.
_IMAGES, _STEP, _SERVED = 0.5, 1e-3, 1.1e-3

#: Data sets of images of 28 x 28 pixels in ten classes.
IMAGE_SETS = {name: source for name, source in SOURCES.items() if source.takes(NETWORKS["fcn5"])}


def _servers_verify(case: Case, output: str) -> int:
    """Steps that no worker took, or one took too many; gradients that a server did not apply, or applied twice."""
    result, steps = json.loads(output), case["steps"]
    return sum(abs(number - steps) for number in (sum(result["steps"]), *result["applied"]))


def _servers_figures(case: Case, output: str) -> Mapping[str, float]:
    """Accuracy and its curve; with servers also the steps of each worker, and the bytes of weights of each server."""
    result = json.loads(output)
    figures = {"accuracy": result["accuracy"]}
    for step, ns, accuracy in result["curve"]:
        figures |= {f"accuracy at step {step}": accuracy, f"seconds at step {step}": ns * 1e-9}
    if result["bytes"]:
        figures |= {f"steps of worker {number}": steps for number, steps in enumerate(result["steps"])}
        figures |= {f"bytes of server {number}": held for number, held in enumerate(result["bytes"])}
    return figures


def _servers_computes(case: Case, times: int) -> float:
    """Core seconds of all ranks: each begins, a worker makes its images, and each server changes weights every step."""
    servers, ranks = int(case["servers"]), int(case["ranks"])
    return ranks * START + (ranks - servers) * _IMAGES + int(case["steps"]) * (_STEP + _SERVED * servers)


def _servers_refuses(case: Case) -> str | None:
    servers, ranks = case["servers"], case["ranks"]
    if servers >= ranks:
        return f"servers={servers} leave no worker among {counted(ranks, 'rank')}; start {servers + 1} or more ranks"
    if ranks > 1 and not servers:
        return f"servers=0 is one process alone, and there are {ranks} ranks; use servers=1"
    return None


PARAMETER_SERVER = Program(
    name="parameter_server", suite="dl", title="training with parameter servers",
    summary="steps of asynchronous workers whose weights parameter servers hold, or (servers=0) of one process",
    measures=(Measure("steps", lambda case: case["steps"], "steps", shown="time"),),
    argv=lambda case, times: started("dl.parameter_server", **{
        name: case[name] for name in ("servers", "shard", "steps", "data", "seed", "threads")
    }),
    parse=lambda output: {"steps": [ns * 1e-9 for ns in json.loads(output)["ns"]]},
    verify=_servers_verify, figures=_servers_figures,
    # with several workers the loss depends on which of them is first
    repeatable=lambda case, output: loss(case, output) if len(json.loads(output)["steps"]) == 1 else {},
    notes=lambda output: (f"accuracy on images held out of: {json.loads(output)['data']}",),
    computes=_servers_computes, software=(Torch(),), alternatives=Alternatives("data", IMAGE_SETS),
    # of a worker that makes its images: 60,000 of 784 pixels, at most five times at once
    refuses=_servers_refuses, memory=lambda case: (case["ranks"] - case["servers"]) * 5 * 60_000 * 784,
    repeated=True, distributed=True, servers="servers",
    axes=(
        parameter("steps", 10_000, "of all workers together", least=1, most=100_000_000),
        parameter("servers", 0, "ranks that hold the weights; 0: one process alone", least=0, most=4, kind="how"),
        parameter("shard", "variable", "a server holds whole variables in turn, or an even part of all weights",
                  among=("variable", "even"), kind="how"),
        parameter("data", "made-up", f"what is learned, made-up images or real ones: {', '.join(IMAGE_SETS)}",
                  among=tuple(IMAGE_SETS)),
        parameter("seed", 1, "of data, weights and batches", least=0, most=1 << 62),
        _threads(1, "threads of each rank; 0: as many as it has cores for itself"),
    ),
)  # fmt: skip

#: By name.
WORKLOADS = {program.name: program for program in (DDP, PARAMETER_SERVER, TIME_TO_TRAIN, TRAIN)}
