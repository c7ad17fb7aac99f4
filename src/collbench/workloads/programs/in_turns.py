"""Samples of a training whose world takes turns with others: it sleeps in pipes while another one measures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from collbench.machine.turn_pipes import TurnPipes
from collbench.schema.turns import VARIABLE, Report
from collbench.workloads.programs.replica import World

#: Takes so many samples of each measure, in ns.
Take = Callable[[int], Mapping[str, list[int]]]


def sampled_in_turns(take: Take, times: int, world: World) -> dict[str, list[int]] | None:
    """Nanoseconds of `times` samples of each measure, in slices as they are ordered; None: take them alone.

    Each slice begins with one sample that does not count.

    Raises:
        RuntimeError: the driver is gone.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return None
    pipes = TurnPipes(Path(folder), world.rank)
    taken: dict[str, list[int]] = {}
    report = Report(at="ready", samples=times)
    try:
        while True:
            asleep = float(_over_ranks([pipes.asleep], dist.ReduceOp.SUM, world)[0])
            pipes.report(msgspec.structs.replace(report, asleep=asleep, slept=pipes.slept))
            order = pipes.sleep()
            if order.act != "slice":
                return taken if order.act == "end" else None
            if order.anew:
                taken = {}
            take(1)
            new = take(order.operations)
            for name, samples in new.items():
                taken.setdefault(name, []).extend(samples)
            report = Report(at="slice", n=order.operations, measures=_slowest(new, world))
    except EOFError as error:
        raise RuntimeError("the driver of this launch is gone") from error
    finally:
        pipes.close()


def _slowest(samples: Mapping[str, list[int]], world: World) -> dict[str, float]:
    """By measure the mean over samples of the slowest rank's time (s)."""
    means = {}
    for name, own in samples.items():
        slowest = _over_ranks([float(one) for one in own], dist.ReduceOp.MAX, world)
        means[name] = float(slowest.mean()) * 1e-9
    return means


def _over_ranks(values: list[float], how: dist.ReduceOp.RedOpType, world: World) -> torch.Tensor:
    tensor = torch.tensor(values, dtype=torch.float64, device=world.device)
    dist.all_reduce(tensor, how)
    return tensor
