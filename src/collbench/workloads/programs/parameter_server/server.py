"""A parameter server: applies every gradient as it comes, and answers with its weights."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from collbench.workloads.programs.parameter_server.network import Adam, Share, initial, length

#: What a worker asks for, the first word of a request: weights; weights after this gradient; nothing, it has ended.
PULL, PUSH, END = 0, 1, 2

#: What a server answers, the first word before the weights: whether the worker is to take another step.
STOP, GO = 0, 1


class Server:
    """A share of the weights and Adam's state of them. `applied` gradients, the last one `ns` after the start."""

    def __init__(self, share: Share, seed: int) -> None:
        whole = initial(seed)
        self._request, self._answer = torch.zeros(1 + length(share)), torch.zeros(1 + length(share))
        self.weights = self._answer[1:]
        self.weights.copy_(torch.cat([whole[part] for part in share]))
        self._adam = Adam(self.weights, self._request[1:])
        self.applied = self.ns = 0

    def serve(self, workers: int, steps: int) -> None:
        """Answer until every worker has ended. Workers ask the first server whether there is another of the `steps`."""
        began, begun = time.perf_counter_ns(), 0
        while workers:
            worker = dist.recv(self._request)
            asked = int(self._request[0])
            if asked == END:
                workers -= 1
                continue
            if asked == PUSH:
                self._adam.step()
                self.applied += 1
                self.ns = time.perf_counter_ns() - began
            self._answer[0] = GO if begun < steps else STOP
            begun += 1
            dist.send(self._answer, worker)
