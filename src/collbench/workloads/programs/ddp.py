"""`python -m collbench.workloads.programs.ddp`: steps of data-parallel training, also in turns with other worlds.

A rank of a data-parallel training; the variables of torch.distributed say which. Prints JSON: `ns`, by measure the
times of K samples; `slices`, what was added on its cores while it measured in turns, else null; `messages`, bytes of
the all-reduces of a step in their order; `loss`, that of rank 0 after `STEPS` steps; `nonfinite`, how many losses are
no finite numbers, of that one and the last; `apart`, how many ranks have other parameters than rank 0 at the end; and
`notes`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from collbench.machine.driver_link import DriverLink
from collbench.machine.facts import ContentionMeter, Stretch
from collbench.schema.world import VARIABLE, Report
from collbench.workloads.networks import NETWORKS
from collbench.workloads.programs.ending import SKIPPED, Unusable, end, lacking_memory
from collbench.workloads.programs.replica import Replica, World

#: Takes so many samples of each measure, in ns.
Take = Callable[[int], Mapping[str, list[int]]]


def sampled_in_turns(take: Take, times: int, world: World) -> tuple[dict[str, list[int]], Stretch] | None:
    """Nanoseconds of `times` samples of each measure, in slices as they are ordered, and what was added in these.

    None: take them alone.

    Each slice begins with one sample that does not count.

    Raises:
        RuntimeError: the driver is gone.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return None
    link = DriverLink(Path(folder), world.rank)
    taken, meter = dict[str, list[int]](), ContentionMeter()
    report = Report(at="ready", samples=times)
    try:
        while True:
            asleep = float(_over_ranks([link.asleep], dist.ReduceOp.SUM, world)[0])
            link.report(msgspec.structs.replace(report, asleep=asleep, slept=link.slept))
            order = link.sleep()
            if order.act != "slice":
                return (taken, meter.passed) if order.act == "end" else None
            if order.anew:
                taken = {}
                meter.reset()
            take(1)
            meter.start()
            new = take(order.operations)
            meter.stop()
            for name, samples in new.items():
                taken.setdefault(name, []).extend(samples)
            report = Report(at="slice", n=order.operations, measures=_slowest(new, world))
    except EOFError as error:
        raise RuntimeError("the driver of this launch is gone") from error
    finally:
        link.close()


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


#: Steps before the first sample. After the first one DDP makes its buckets anew, in the order of the gradients.
STEPS = 3


def train(flags: argparse.Namespace, world: World) -> dict[str, Any]:
    """What is printed: the training, and a second one without all-reduces, sampled in turns."""
    network = NETWORKS[flags.network]
    batch = flags.batch or network.batch
    whole = Replica(network, batch, flags.bucket, world)
    silent = Replica(network, batch, flags.bucket, world, reduces=False)
    for _ in range(STEPS):
        whole.step()
        silent.step()
    loss = world.of_first(whole.loss)
    buffers = [torch.zeros(size // 4, device=world.device) for size in silent.messages]

    def reduce_alone() -> None:
        for buffer in buffers:
            dist.all_reduce(buffer)

    doing = {"step": whole.step, "compute": silent.step, "communication": reduce_alone}
    in_turns = sampled_in_turns(lambda times: sampled(doing, times, world), flags.times, world)
    taken, slices = in_turns or (sampled(doing, flags.times, world), None)
    return {
        "ns": taken, "slices": msgspec.to_builtins(slices), "messages": silent.messages, "loss": loss,
        "notes": [f"{world.about}, batches of {batch}"],
        "apart": world.apart(whole.parameters),
        "nonfinite": sum(not math.isfinite(value) for value in (loss, whole.loss)),
    }  # fmt: skip


def sampled(doing: Mapping[str, Callable[[], object]], times: int, world: World) -> dict[str, list[int]]:
    """Nanoseconds of `times` samples of each, which all ranks begin together; in turns, every second time backwards."""
    taken: dict[str, list[int]] = {name: [] for name in doing}
    order = list(doing)
    for _ in range(times):
        for name in order:
            dist.barrier()
            began = time.perf_counter_ns()
            doing[name]()
            world.wait()
            taken[name].append(time.perf_counter_ns() - began)
        order.reverse()
    return taken


def main() -> None:
    """Print the result; on an error a line that says what it was, without waiting for other ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True, choices=tuple(NETWORKS), help="what is trained")
    parser.add_argument("--device", required=True, choices=("cpu", "cuda"), help="where it computes")
    for flag, means in (("--batch", "examples of a rank; 0: the network's own"), ("--bucket", "MiB; 0: torch's choice"),
                        ("--threads", "threads of torch"), ("--times", "how many samples")):  # fmt: skip
        parser.add_argument(flag, type=int, required=True, help=means)
    flags = parser.parse_args()
    try:
        with World(flags.device, flags.threads) as world:
            result = train(flags, world)
    except Unusable as error:
        end(SKIPPED, str(error))
    except (MemoryError, RuntimeError) as error:  # of torch: no memory, a rank that is gone
        said = next(iter(str(error).splitlines()), repr(error))
        why = lacking_memory(error, f"{flags.network} with a batch of {flags.batch}") or said
        sys.stderr.write(f"rank {os.environ.get('RANK', '?')}: {why}\n")
        sys.stderr.flush()
        os._exit(1)  # its threads wait for other ranks
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
