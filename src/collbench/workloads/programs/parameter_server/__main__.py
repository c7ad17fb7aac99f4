"""`python -m collbench.workloads.programs.parameter_server --servers S --shard HOW --steps K ...`: train a network.

With servers it is one rank of a world, as torchrun's environment variables say; the first S ranks are servers, all
others are workers. Without servers it is one process alone. Every rank prints the same JSON: `ns`, from when all ranks
are ready until the last step is applied; `steps` of each worker; gradients `applied` by each server, and the `bytes` of
its weights; `accuracy` and mean `loss` on images that were held out, and `data`, which names them.
"""

from __future__ import annotations

import argparse
import json

import torch

from collbench.workloads._datasets import SOURCES, BadData
from collbench.workloads.program import threads_of_rank
from collbench.workloads.programs.parameter_server.training import alone, fail, together


def main() -> None:
    """Train as the flags say, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    for flag, means in (("--servers", "ranks that hold weights; 0: one process alone"), ("--steps", "of all workers"),
                        ("--seed", "of data, weights and batches"), ("--threads", "of each rank")):  # fmt: skip
        parser.add_argument(flag, type=int, required=True, help=means)
    parser.add_argument("--shard", choices=("variable", "even"), required=True, help="what each server holds")
    parser.add_argument("--data", choices=SOURCES, required=True, help="what is learned")
    flags = parser.parse_args()
    torch.set_num_threads(threads_of_rank(flags.threads))
    given = (flags.data, flags.seed, flags.steps)
    try:
        found = together(*given, flags.servers, flags.shard) if flags.servers else alone(*given)
    except (BadData, OSError) as error:
        fail(f"data={flags.data}: {error}")
    print(json.dumps(found))  # noqa: T201 - what it prints is its result


if __name__ == "__main__":
    main()
