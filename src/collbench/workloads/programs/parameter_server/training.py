"""The training on one rank: alone, or as a server or a worker of a world; and what all ranks found."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from collbench.workloads.programs.parameter_server.adam import Adam
from collbench.workloads.programs.parameter_server.examples import Examples, examples
from collbench.workloads.programs.parameter_server.lifelines import Lifelines, fail, let_go
from collbench.workloads.programs.parameter_server.network import Network
from collbench.workloads.programs.parameter_server.server import Server
from collbench.workloads.programs.parameter_server.sharding import length, shares
from collbench.workloads.programs.parameter_server.worker import Worker, put

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
