"""A plain training by torch: seconds a batch of a loop without anything in it but the steps.

    python bench/train_bare.py NETWORK BATCH WARMUP TIMES

Prints the seconds of a batch. It is started by train_overhead.py in an environment with collbench and torch; the
network is collbench's, the examples are random and in memory.
"""

from __future__ import annotations

import sys
import time

import torch

from collbench.workloads.dl.networks import NETWORKS

MOMENTUM = 0.9


def main() -> None:
    network, (batch, warmup, times) = NETWORKS[sys.argv[1]], map(int, sys.argv[2:])
    torch.manual_seed(0)
    module = network.build().train()
    optimizer = torch.optim.SGD(module.parameters(), lr=network.learning_rate, momentum=MOMENTUM)
    shape = (batch, *network.example)
    inputs = torch.randint(network.classes, shape) if network.tokens else torch.rand(shape)
    targets = torch.randint(network.classes, (batch, *network.targets))

    def steps(number: int) -> None:
        for _ in range(number):
            optimizer.zero_grad()
            network.loss(module, inputs, targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    steps(warmup)
    began = time.perf_counter()
    steps(times)
    print((time.perf_counter() - began) / times)


if __name__ == "__main__":
    main()
