"""`python -m collbench.workloads.programs.ddp --network NAME --batch B --bucket M --device D --threads T --times K`.

A rank of a data-parallel training; the variables of torch.distributed say which. Prints JSON: `ns`, by measure the
times of K samples; `messages`, bytes of the all-reduces of a step in their order; `loss`, that of rank 0 after `STEPS`
steps; `nonfinite`, how many losses are no finite numbers, of that one and the last; `apart`, how many ranks have other
parameters than rank 0 at the end; and `notes`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from collbench.workloads.networks import NETWORKS
from collbench.workloads.programs.ending import SKIPPED, Unusable, end, lacking_memory
from collbench.workloads.programs.in_turns import sampled_in_turns
from collbench.workloads.programs.replica import Replica, World

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
    taken = sampled_in_turns(lambda times: sampled(doing, times, world), flags.times, world)
    if taken is None:
        taken = sampled(doing, flags.times, world)
    return {
        "ns": taken, "messages": silent.messages, "loss": loss, "notes": [f"{world.about}, batches of {batch}"],
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
