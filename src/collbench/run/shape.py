"""The shape of a world that a resource manager started: each rank takes its cores, and all compare with the plan."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.bindings.spec import World
from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import format_cores, machine_id
from collbench.schema.place import HOST, Shape, shape
from collbench.units import counted


@dataclass(frozen=True)
class Seat:
    """Where a rank is: its machine, the cores that it may use, its files (the mount namespace), and its GPU (UUID)."""

    host: str
    cores: frozenset[int]
    files: str
    gpu: str | None = None


def bind(planned: Shape, environ: Mapping[str, str] = os.environ) -> None:
    """Restrict this process to as many cores as planned: a part of its own where it may use those of other ranks too.

    Raises:
        WorldMismatch: it may use fewer; or the resource manager and its PMI disagree on its rank.
    """
    us = launcher.detect(environ)
    if (differs := launcher.contradiction(environ)) is not None:
        raise WorldMismatch(differs)
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < planned.cores:
        raise WorldMismatch(
            f"rank {us.rank} was to have {counted(planned.cores, 'core')}, and may use {format_cores(usable)}."
        )
    together = planned.boxes if isinstance(planned.boxes, int) else planned.each
    first = us.local_rank * planned.cores if len(usable) >= together * planned.cores else 0
    if planned.crowded:
        first = us.local_rank * planned.cores % len(usable)
    os.sched_setaffinity(0, [usable[(first + i) % len(usable)] for i in range(planned.cores)])


def difference(world: World, gpu: str | None = None) -> str | None:
    """How the world differs from the shape that was planned for it; None: it does not, or none was. Collective.

    `gpu` is the UUID of this rank's GPU.
    """
    planned = shape()
    seats = world.gather(seat(gpu))
    found: str | None = world.bcast(None if seats is None or planned is None else compared(planned, seats))
    return found


def seat(gpu: str | None = None) -> Seat:
    """Of this rank."""
    name = os.environ.get(HOST) or os.uname().nodename
    return Seat(f"{name} {machine_id()}", frozenset(os.sched_getaffinity(0)), _mounts(), gpu)


def _mounts() -> str:
    try:
        return str(Path("/proc/self/ns/mnt").readlink())
    except OSError:
        return ""


def compared(planned: Shape, seats: Sequence[Seat]) -> str | None:
    """The first difference between a shape and the seats of all ranks, in words.

    Time and memory grow with the ranks, not with their square.
    """
    if len(seats) != planned.hosts * planned.each:
        return f"{counted(planned.hosts * planned.each, 'rank')} were planned, and {len(seats)} met"
    ranks = Counter(seat.host for seat in seats)
    names = ", ".join(sorted(host.split()[0] for host in ranks)[:4])
    if len(ranks) != planned.hosts:
        return f"{counted(planned.hosts, 'host')} were planned, and the ranks are on {len(ranks)} ({names})"
    for host, number in ranks.items():
        if number != planned.each:
            return f"{counted(planned.each, 'rank')} were planned on each host, and {host.split()[0]} has {number}"
    return _cores(planned, seats) or _gpus(seats) or _containers(planned, seats)


def _cores(planned: Shape, seats: Sequence[Seat]) -> str | None:
    owner: dict[tuple[str, int], int] = {}
    for rank, seat in enumerate(seats):
        if len(seat.cores) != planned.cores:
            return f"rank {rank} was to have {counted(planned.cores, 'core')}, and may use {format_cores(seat.cores)}"
        if planned.crowded:
            continue
        for core in sorted(seat.cores):
            other = owner.setdefault((seat.host, core), rank)
            if other != rank:
                return f"ranks {other} and {rank} share core {core} of {seat.host.split()[0]}"
    return None


def _gpus(seats: Sequence[Seat]) -> str | None:
    owner: dict[str, int] = {}
    for rank, seat in enumerate(seats):
        if seat.gpu is not None and owner.setdefault(seat.gpu, rank) != rank:
            return f"ranks {owner[seat.gpu]} and {rank} share GPU {seat.gpu}"
    return None


def _containers(planned: Shape, seats: Sequence[Seat]) -> str | None:
    """By the mount namespaces, which every container has of its own."""
    by_host: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for rank, seat in enumerate(seats):
        by_host[seat.host].append((rank, seat.files))
    together = planned.boxes if isinstance(planned.boxes, int) else 1 if planned.boxes == "rank" else planned.each
    was = {1: "each in a container of its own", planned.each: "in one place"}.get(
        together, f"{together} to a container"
    )
    for ranks in by_host.values():
        found = {files for _, files in ranks}
        if len(found) != -(-len(ranks) // together):
            those = f"ranks {ranks[0][0]} to {ranks[-1][0]} of a host"
            return f"{those} were planned {was}, and are in {counted(len(found), 'mount namespace')}"
    return None
