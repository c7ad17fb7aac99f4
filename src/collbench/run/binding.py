"""The places that a launcher planned for ranks: applied, and compared with the real ones."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence

from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, format_cores, parse_cores
from collbench.run import shape
from collbench.schema import world
from collbench.schema.world import Place


def bind(places: Sequence[Place] | None = None, environ: MutableMapping[str, str] = os.environ) -> None:
    """Restrict this process to the cores planned for its rank, on the host and in containers, under any MPI.

    Programs that it starts find the GPU planned for it in their environment. `places` are by rank; None: the
    environment has a shape, or nothing was planned.

    Raises:
        WorldMismatch: this rank may not use them.
    """
    if places is None:
        if of_world := world.shapes(environ):
            shape.bind(of_world, environ)
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
        of_world = world.shapes(environ)
        return shape.compared(of_world, ranks) if of_world else None
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
