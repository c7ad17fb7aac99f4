"""The places that were planned for ranks: taken by each rank, and compared with the real ones by all.

A launcher plans places, one for each rank. Where a resource manager starts the ranks, a shape of its hosts is planned.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import islice

from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, format_cores, parse_cores, thread_siblings
from collbench.schema import world
from collbench.schema.world import Place, Shape
from collbench.units import counted

#: Ranks of a world, each with its number.
Numbered = Sequence[tuple[int, RankFacts]]


def bind(places: Sequence[Place] | None = None, environ: MutableMapping[str, str] = os.environ) -> None:
    """Restrict this process to the cores planned for its rank, on the host and in containers, under any MPI.

    Programs that it starts find the GPU planned for it in their environment. `places` are by rank; None: the
    environment has a shape, or nothing was planned.

    Raises:
        WorldMismatch: this rank may not use them.
    """
    if places is None:
        if shapes := world.shapes(environ):
            bind_to_shape(shapes, environ)
        return
    rank = launcher.detect(environ).rank
    if rank >= len(places):
        return
    try:
        os.sched_setaffinity(0, parse_cores(places[rank].cores))
    except (OSError, ValueError) as error:
        usable = format_cores(os.sched_getaffinity(0))
        raise WorldMismatch(f"rank {rank} was to run on cores {places[rank].cores}, and may use {usable}.") from error
    environ[world.GPU] = places[rank].gpu or ""


def difference(
    ranks: tuple[RankFacts, ...], places: Sequence[Place] | None = None, environ: Mapping[str, str] = os.environ
) -> str | None:
    """How the world differs from the plan: in size, or in a rank's container, cores or GPU. None where it does not."""
    if places is None:
        shapes = world.shapes(environ)
        return shape_difference(shapes, ranks) if shapes else None
    if len(places) != len(ranks):
        return f"{len(places)} ranks were planned and {len(ranks)} met"
    for number, (at, rank) in enumerate(zip(places, ranks, strict=True)):
        if at.container != rank.container:
            expected, actual = at.container or "no container", rank.container or "no container"
            return f"rank {number} was planned in {expected}, and is in {actual}"
        if parse_cores(at.cores) != rank.cores:
            return f"rank {number} was planned on cores {at.cores}, and may use {rank.binding}"
        if rank.gpu not in (None, at.gpu):
            return f"rank {number} was planned on GPU {at.gpu or '(none)'}, and uses {rank.gpu}"
    return None


def bind_to_shape(shapes: Sequence[Shape], environ: Mapping[str, str] = os.environ) -> None:
    """Restrict this process to as many cores as planned: a part of its own where it may use those of other ranks too.

    `shapes` are as `schema.world.shapes` returns them.

    Raises:
        WorldMismatch: it may use fewer; or the resource manager and its PMI disagree on its rank.
    """
    us = launcher.detect(environ)
    if (differs := launcher.contradiction(environ)) is not None:
        raise WorldMismatch(differs)
    planned, rank, usable = shapes[0], us.rank, os.sched_getaffinity(0)
    for planned in shapes:  # of a rank too many the last, until all compare their number
        if rank < planned.ranks:
            break
        rank -= planned.ranks
    if len(usable) < planned.cores:
        raise WorldMismatch(
            f"rank {us.rank} was to have {counted(planned.cores, 'core')}, and may use {format_cores(usable)}."
        )
    together = planned.boxes if isinstance(planned.boxes, int) else planned.each
    sharing = together if len(usable) >= together * planned.cores else 1
    first = us.local_rank * planned.cores if sharing > 1 else 0
    if planned.crowded:
        first = us.local_rank * planned.cores % len(usable)
    threads = {cpu: thread_siblings(cpu) for cpu in usable}
    first_threads = {min(usable.intersection(of_core)) for of_core in threads.values()}
    ordered = sorted(usable, key=lambda cpu: (threads[cpu], cpu))
    if len(first_threads) >= sharing * planned.cores:  # one hardware thread of each core before the others
        ordered = [*sorted(first_threads), *sorted(usable - first_threads)]
    os.sched_setaffinity(0, [ordered[(first + i) % len(ordered)] for i in range(planned.cores)])


def shape_difference(shapes: Sequence[Shape], ranks: Sequence[RankFacts]) -> str | None:
    """The first difference between shapes and where the ranks of a world are, in words; None: there is none.

    Time and memory grow with the ranks, not with their square.
    """
    planned = sum(shape.ranks for shape in shapes)
    if len(ranks) != planned:
        return f"{counted(planned, 'rank')} were planned, and {len(ranks)} met"
    numbered, owner = iter(enumerate(ranks)), dict[tuple[str, str], tuple[int, int]]()
    shared: str | None = None
    for part, shape in enumerate(shapes):
        members = tuple(islice(numbered, shape.ranks))
        who = "the ranks" if len(shapes) == 1 else f"ranks {members[0][0]} to {members[-1][0]}"
        if differs := _hosts(shape, members, who) or _cores(shape, members) or _containers(shape, members):
            return differs
        for number, rank in members:
            other, whose = owner.setdefault(_machine(rank), (number, part))
            if whose != part and shared is None:
                shared = f"ranks {other} and {number} were planned on different hosts, and both are on {rank.host}"
    return _gpus(ranks) or shared


def _machine(rank: RankFacts) -> tuple[str, str]:
    """Its name, and what tells two of one name apart."""
    return rank.host, rank.kernel_id


def _hosts(planned: Shape, ranks: Numbered, who: str) -> str | None:
    hosts = Counter(_machine(rank) for _, rank in ranks)
    if len(hosts) != planned.hosts:
        names = ", ".join(sorted(name for name, _ in hosts)[:4])
        return f"{counted(planned.hosts, 'host')} were planned, and {who} are on {len(hosts)} ({names})"
    for (name, _), number in hosts.items():
        if number != planned.each:
            return f"{counted(planned.each, 'rank')} were planned on each host, and {name} has {number}"
    return None


def _cores(planned: Shape, ranks: Numbered) -> str | None:
    owner: dict[tuple[tuple[str, str], int], int] = {}
    for number, rank in ranks:
        if len(rank.cores) != planned.cores:
            return f"rank {number} was to have {counted(planned.cores, 'core')}, and may use {rank.binding}"
        for core in () if planned.crowded else sorted(rank.physical):
            other = owner.setdefault((_machine(rank), core), number)
            if other != number:
                return shared_core(other, number, core, rank)
    return None


def _containers(planned: Shape, ranks: Numbered) -> str | None:
    """By the mount namespaces, which every container has of its own."""
    by_host: dict[tuple[str, str], list[tuple[int, int | None]]] = defaultdict(list)
    for number, rank in ranks:
        by_host[_machine(rank)].append((number, rank.confinement.namespaces.get("mnt")))
    together = planned.boxes if isinstance(planned.boxes, int) else 1 if planned.boxes == "rank" else planned.each
    was = {1: "each in a container of its own", planned.each: "in one place"}.get(
        together, f"{together} to a container"
    )
    for members in by_host.values():
        namespaces = {files for _, files in members}
        if len(namespaces) != -(-len(members) // together):
            those = f"ranks {members[0][0]} to {members[-1][0]} of a host"
            return f"{those} were planned {was}, and are in {counted(len(namespaces), 'mount namespace')}"
    return None


def _gpus(ranks: Sequence[RankFacts]) -> str | None:
    owner: dict[str, int] = {}
    for number, rank in enumerate(ranks):
        if rank.gpu is not None and owner.setdefault(rank.gpu, number) != number:
            return f"ranks {owner[rank.gpu]} and {number} share GPU {rank.gpu}"
    return None


def shared_core(first: int, second: int, core: int, facts: RankFacts) -> str:
    """`ranks 0 and 1 share core 0 (threads 0, 1) of c01`; `facts` are of either rank."""
    threads = facts.threads_of(core)
    which = f" (threads {', '.join(map(str, threads))})" if len(threads) > 1 else ""
    return f"ranks {first} and {second} share core {core}{which} of {facts.host}"
