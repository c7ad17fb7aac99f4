"""The training on one rank: alone, or as a server or a worker of a world; and what all ranks found."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from collbench.workloads.programs.parameter_server.network import (
    Adam,
    Examples,
    Network,
    Share,
    examples,
    initial,
    length,
    shares,
)

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


#: Messages of lifelines; those of the training have tag 0.
_TAG = 1

#: A training may take that long. It is ended by whoever started it.
_LONGEST = timedelta(days=7)


class Lifelines:
    """For each of these ranks a message that comes when it has done its part, or never."""

    def __init__(self, ranks: Sequence[int], lost: Callable[[int, Exception], None]) -> None:
        self._lost = lost
        waits = [(rank, dist.irecv(torch.zeros(1), rank, tag=_TAG)) for rank in ranks]
        self._threads = [threading.Thread(target=self._hold, args=wait, daemon=True) for wait in waits]
        for thread in self._threads:
            thread.start()

    def _hold(self, rank: int, message: dist.Work) -> None:
        try:
            message.wait(_LONGEST)
        except RuntimeError as error:
            self._lost(rank, error)

    def end(self) -> None:
        """When all of them have done their part."""
        for thread in self._threads:
            thread.join()


def let_go(servers: int) -> None:
    """Say that this rank has done its part."""
    for server in range(servers):
        dist.send(torch.zeros(1), server, tag=_TAG)


def fail(reason: str) -> NoReturn:
    """End this process at once, whatever its other threads wait for; the last line on standard error is the reason."""
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    os._exit(1)


#: How long a rank waits for another one: until all have started, and then for each message.
PATIENCE = timedelta(minutes=10)

#: The place in gloo's source, before its messages.
_PLACE = re.compile(r"^\[[^]]*\]\s*")


def alone(data: str, seed: int, steps: int) -> dict[str, Any]:
    """One process that trains without servers."""
    given, network = examples(data, seed), Network(seed)
    optimizer, batches = Adam(network.weights, network.gradient), given.batches(seed)
    network.learn(*next(given.batches(seed)))
    began = time.perf_counter_ns()
    for _ in range(steps):
        network.learn(*next(batches))
        optimizer.step()
    taken = time.perf_counter_ns() - began
    return {"ns": [taken], "steps": [steps], "applied": [], "bytes": [], **_judged(network, given)}


@dataclass(frozen=True)
class World:
    """One rank among all, of which the first are the servers."""

    rank: int
    servers: int
    workers: int

    def name(self, rank: int) -> str:
        """`worker 0 (rank 1)`."""
        role, number = ("server", rank) if rank < self.servers else ("worker", rank - self.servers)
        return f"{role} {number} (rank {rank})"


def together(data: str, seed: int, steps: int, servers: int, shard: str) -> dict[str, Any]:
    """A rank of the world that torchrun's environment variables name. Every rank returns the same."""
    dist.init_process_group("gloo", init_method="env://", timeout=PATIENCE)
    world = World(dist.get_rank(), servers, dist.get_world_size() - servers)
    try:
        mine = _serve(world, seed, steps, shard) if world.rank < servers else _work(world, data, seed, shard)
        found: list[Any] = [None] * (servers + world.workers)
        dist.all_gather_object(found, mine)
        dist.destroy_process_group()
    except RuntimeError as error:  # gloo's
        fail(f"{world.name(world.rank)} lost another rank: {_reason(error)}")
    held, trained = found[:servers], found[servers:]
    return {
        "ns": [max(one["ns"] for one in held)],
        "steps": [one["steps"] for one in trained],
        **{name: [one[name] for one in held] for name in ("applied", "bytes")},
        **{name: trained[0][name] for name in ("accuracy", "loss", "data")},
    }


def _serve(world: World, seed: int, steps: int, shard: str) -> dict[str, Any]:
    share = shares(world.servers, shard)[world.rank]
    server, first_worker = Server(share, seed), world.servers

    def lost(rank: int, error: Exception) -> None:
        fail(f"{world.name(world.rank)}: {world.name(rank)} ended before its last step: {_reason(error)}")

    lifelines = Lifelines(range(first_worker, first_worker + world.workers), lost)
    dist.barrier()
    server.serve(world.workers, steps)
    lifelines.end()
    dist.send(server.weights, first_worker)
    return {"applied": server.applied, "ns": server.ns, "bytes": server.weights.nbytes}


def _work(world: World, data: str, seed: int, shard: str) -> dict[str, Any]:
    shared, given = shares(world.servers, shard), examples(data, seed)
    worker = Worker(shared, given, seed, world.rank - world.servers)
    dist.barrier()
    worker.train()
    let_go(world.servers)
    found = {"steps": worker.steps}
    if world.rank > world.servers:
        return found
    for server, share in enumerate(shared):
        held = torch.zeros(length(share))
        dist.recv(held, server)
        put(held, share, worker.network.weights)
    return found | _judged(worker.network, given)


def _judged(network: Network, given: Examples) -> dict[str, Any]:
    """What the trained network is worth, on what it was not trained with."""
    accuracy, loss = network.judge(*given.held_out())
    return {"accuracy": accuracy, "loss": loss, "data": given.label}


def _reason(error: Exception) -> str:
    return _PLACE.sub("", str(error).partition("\n")[0])
