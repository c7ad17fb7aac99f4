"""The facts of all ranks, which rank 0 alone needs: it describes the world and decides for all."""

from __future__ import annotations

import msgspec

from collbench.bindings.spec import World
from collbench.machine.facts import RankFacts
from collbench.run.agreement import gathered_once


def facts_of_all(world: World, own: RankFacts) -> tuple[RankFacts, ...]:
    """The facts of all ranks, by rank, on rank 0; empty elsewhere. Collective.

    What ranks of a machine, or of all machines, have in common is sent by one of them.
    """
    hosts = gathered_once(world, (own.host, own.kernel_id, own.clock_id))
    confinements = gathered_once(world, msgspec.structs.replace(own.confinement, namespaces={}))
    cores = gathered_once(world, own.cores)
    rest = world.gather((own.container, own.gpu, tuple(own.confinement.namespaces.items())))
    if hosts is None or confinements is None or cores is None or rest is None:
        return ()
    return tuple(
        RankFacts(*host, usable, container, msgspec.structs.replace(confined, namespaces=dict(spaces)), gpu)
        for host, confined, usable, (container, gpu, spaces) in zip(hosts, confinements, cores, rest, strict=True)
    )
