"""The facts of all ranks, which rank 0 alone needs: it describes the world and decides for all."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from collbench.bindings.agreement import gathered_once
from collbench.bindings.spec import World
from collbench.machine.facts import RankFacts, machine_id
from collbench.schema.record import Confinement


class Parts(NamedTuple):
    """The facts of a rank, in parts that many ranks have in common, and `own`: the container and the GPU."""

    host: tuple[str, str, str]
    confinement: Confinement
    namespaces: tuple[tuple[str, int], ...]
    cores: tuple[frozenset[int], tuple[tuple[int, ...], ...]]
    own: tuple[str | None, str | None]


def parts_of(facts: RankFacts) -> Parts:
    """The namespaces apart from the rest of the confinement, which containers may have in common."""
    return Parts(
        host=(facts.host, facts.kernel_id, facts.clock_id),
        confinement=msgspec.structs.replace(facts.confinement, namespaces={}),
        namespaces=tuple(facts.confinement.namespaces.items()),
        cores=(facts.cores, facts.siblings),
        own=(facts.container, facts.gpu),
    )


def facts_of_all(world: World, facts: RankFacts) -> tuple[RankFacts, ...]:
    """The facts of all ranks, by rank, on rank 0; empty elsewhere. Collective.

    What ranks have in common is sent by one of them.
    """
    *common, own = parts_of(facts)
    gathered = [*(gathered_once(world, part) for part in common), world.gather(own)]
    return tuple(map(_joined, *gathered)) if world.rank == 0 else ()  # type: ignore[arg-type]


def ranks_here(world: World, ranks: tuple[RankFacts, ...]) -> int:
    """How many ranks there are on this machine; `ranks` are known on rank 0. Collective."""
    numbers: dict[str, int] = world.bcast(dict(Counter(rank.kernel_id for rank in ranks)))
    return numbers.get(machine_id(), world.size)  # simulated ranks are on no machine


def _joined(
    host: tuple[str, str, str], confinement: Confinement, namespaces: tuple[tuple[str, int], ...],
    cores: tuple[frozenset[int], tuple[tuple[int, ...], ...]], own: tuple[str | None, str | None],
) -> RankFacts:  # fmt: skip
    container, gpu = own
    confined = msgspec.structs.replace(confinement, namespaces=dict(namespaces))
    return RankFacts(*host, cores[0], container, confined, gpu, cores[1])
