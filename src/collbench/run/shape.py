"""The shape of a world that a resource manager started: each rank takes its cores, and all compare with the plan."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice

from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, format_cores, thread_siblings
from collbench.schema.world import Shape
from collbench.units import counted

#: Ranks of a world, each with its number.
Numbered = Sequence[tuple[int, RankFacts]]


def bind(shapes: Sequence[Shape], environ: Mapping[str, str] = os.environ) -> None:
    """Restrict this process to as many cores as planned: a part of its own where it may use those of other ranks too.

    `shapes` are as `schema.world.shapes` returns them.

    Raises:
        WorldMismatch: it may use fewer; or the resource manager and its PMI disagree on its rank.
    """
    us = launcher.detect(environ)
    if (differs := launcher.contradiction(environ)) is not None:
        raise WorldMismatch(differs)
    planned, usable = _of_rank(us.rank, shapes), os.sched_getaffinity(0)
    if len(usable) < planned.cores:
        raise WorldMismatch(
            f"rank {us.rank} was to have {counted(planned.cores, 'core')}, and may use {format_cores(usable)}."
        )
    together = planned.boxes if isinstance(planned.boxes, int) else planned.each
    sharing = together if len(usable) >= together * planned.cores else 1
    first = us.local_rank * planned.cores if sharing > 1 else 0
    if planned.crowded:
        first = us.local_rank * planned.cores % len(usable)
    ordered = _in_order(usable, sharing * planned.cores)
    os.sched_setaffinity(0, [ordered[(first + i) % len(ordered)] for i in range(planned.cores)])


def _in_order(usable: set[int], needed: int) -> list[int]:
    """One hardware thread of each core before the others, where so many are enough; else core by core."""
    threads = {cpu: thread_siblings(cpu) for cpu in usable}
    first = {min(usable.intersection(of_core)) for of_core in threads.values()}
    if len(first) >= needed:
        return [*sorted(first), *sorted(usable - first)]
    return sorted(usable, key=lambda cpu: (threads[cpu], cpu))


def _of_rank(rank: int, shapes: Sequence[Shape]) -> Shape:
    """The shape of its hosts; of a rank too many the last, until all compare their number."""
    for shape in shapes:
        if rank < shape.ranks:
            return shape
        rank -= shape.ranks
    return shapes[-1]


def compared(shapes: Sequence[Shape], ranks: Sequence[RankFacts]) -> str | None:
    """The first difference between shapes and where the ranks of a world are, in words; None: there is none.

    Time and memory grow with the ranks, not with their square.
    """
    planned = sum(shape.ranks for shape in shapes)
    if len(ranks) != planned:
        return f"{counted(planned, 'rank')} were planned, and {len(ranks)} met"
    numbered, parts = iter(enumerate(ranks)), []
    for shape in shapes:
        part = tuple(islice(numbered, shape.ranks))
        who = "the ranks" if len(shapes) == 1 else f"ranks {part[0][0]} to {part[-1][0]}"
        if (differs := _in_part(shape, part, who)) is not None:
            return differs
        parts.append(part)
    return _gpus(ranks) or _apart(parts)


def _in_part(planned: Shape, ranks: Numbered, who: str) -> str | None:
    hosts = Counter(_machine(rank) for _, rank in ranks)
    if len(hosts) != planned.hosts:
        names = ", ".join(sorted(name for name, _ in hosts)[:4])
        return f"{counted(planned.hosts, 'host')} were planned, and {who} are on {len(hosts)} ({names})"
    for (name, _), number in hosts.items():
        if number != planned.each:
            return f"{counted(planned.each, 'rank')} were planned on each host, and {name} has {number}"
    return _cores(planned, ranks) or _containers(planned, ranks)


def _apart(parts: Sequence[Numbered]) -> str | None:
    """Ranks of different parts share no host."""
    owner: dict[tuple[str, str], tuple[int, int]] = {}
    for part, ranks in enumerate(parts):
        for number, rank in ranks:
            other, whose = owner.setdefault(_machine(rank), (number, part))
            if whose != part:
                return f"ranks {other} and {number} were planned on different hosts, and both are on {rank.host}"
    return None


def _machine(rank: RankFacts) -> tuple[str, str]:
    """Its name, and what tells two of one name apart."""
    return rank.host, rank.kernel_id


def _cores(planned: Shape, ranks: Numbered) -> str | None:
    owner: dict[tuple[tuple[str, str], int], int] = {}
    for number, rank in ranks:
        if len(rank.cores) != planned.cores:
            return f"rank {number} was to have {counted(planned.cores, 'core')}, and may use {rank.binding}"
        if planned.crowded:
            continue
        for core in sorted(rank.physical):
            other = owner.setdefault((_machine(rank), core), number)
            if other != number:
                return shared_core(other, number, core, rank)
    return None


def shared_core(one: int, other: int, core: int, facts: RankFacts) -> str:
    """`ranks 0 and 1 share core 0 (threads 0, 1) of c01`; `facts` are of either rank."""
    threads = facts.threads_of(core)
    which = f" (threads {', '.join(map(str, threads))})" if len(threads) > 1 else ""
    return f"ranks {one} and {other} share core {core}{which} of {facts.host}"


def _gpus(ranks: Sequence[RankFacts]) -> str | None:
    owner: dict[str, int] = {}
    for number, rank in enumerate(ranks):
        if rank.gpu is not None and owner.setdefault(rank.gpu, number) != number:
            return f"ranks {owner[rank.gpu]} and {number} share GPU {rank.gpu}"
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
        found = {files for _, files in members}
        if len(found) != -(-len(members) // together):
            those = f"ranks {members[0][0]} to {members[-1][0]} of a host"
            return f"{those} were planned {was}, and are in {counted(len(found), 'mount namespace')}"
    return None
