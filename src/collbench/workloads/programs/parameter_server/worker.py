"""A worker: computes gradients with the weights that it has, and sends them to the servers, waiting for no other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from collbench.workloads.programs.parameter_server.examples import Examples
from collbench.workloads.programs.parameter_server.network import Network
from collbench.workloads.programs.parameter_server.server import END, GO, PULL, PUSH
from collbench.workloads.programs.parameter_server.sharding import Share, length


class Worker:
    """The servers are the first ranks, one for each share. `steps` are those that this worker has taken."""

    def __init__(self, shares: Sequence[Share], examples: Examples, seed: int, number: int) -> None:
        self._shares, self.network, self.steps = shares, Network(seed), 0
        self._requests = [torch.zeros(1 + length(share)) for share in shares]
        self._answers = [torch.zeros(1 + length(share)) for share in shares]
        self._batches = examples.batches(seed + number)
        self.network.learn(*next(examples.batches(seed)))  # what only the first time does, such as starting threads

    def train(self) -> None:
        """As many steps as the first server lets this worker take."""
        more = self._ask(PULL)
        while more:
            self.network.learn(*next(self._batches))
            more = self._ask(PUSH)
            self.steps += 1
        for server, request in enumerate(self._requests):
            request[0] = END
            dist.send(request, server)

    def _ask(self, what: int) -> bool:
        """Send the gradient to every server and take its weights. Returns whether there is another step."""
        pending = [dist.irecv(answer, server) for server, answer in enumerate(self._answers)]
        for server, (request, share) in enumerate(zip(self._requests, self._shares, strict=True)):
            request[0] = what
            torch.cat([self.network.gradient[part] for part in share], out=request[1:])
            pending.append(dist.isend(request, server))
        for work in pending:
            assert work is not None  # as it is on a rank outside the group
            work.wait()
        for answer, share in zip(self._answers, self._shares, strict=True):
            put(answer[1:], share, self.network.weights)
        return int(self._answers[0][0]) == GO


def put(held: torch.Tensor, share: Share, weights: torch.Tensor) -> None:
    """What a server holds, to its places among all weights."""
    with torch.no_grad():
        for part, values in zip(share, torch.split(held, [length((part,)) for part in share]), strict=True):
            weights[part] = values
