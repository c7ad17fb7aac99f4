"""The places that a launcher planned for ranks: applied, and compared with the real ones."""

from __future__ import annotations

import os
from collections.abc import Mapping

from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, format_cores, parse_cores
from collbench.run import shape
from collbench.schema import place
from collbench.schema.place import planned


def bind(environ: Mapping[str, str] = os.environ) -> None:
    """Restrict this process to the cores planned for its rank, on the host and in containers, under any MPI.

    Raises:
        WorldMismatch: this rank may not use them.
    """
    if (of_world := place.shape(environ)) is not None:
        shape.bind(of_world, environ)
        return
    places = planned(environ)
    rank = launcher.detect(environ).rank
    if places is None or rank >= len(places):
        return
    try:
        os.sched_setaffinity(0, parse_cores(places[rank].cores))
    except (OSError, ValueError) as error:
        usable = format_cores(os.sched_getaffinity(0))
        raise WorldMismatch(f"rank {rank} was to run on cores {places[rank].cores}, and may use {usable}.") from error


def difference(ranks: tuple[RankFacts, ...], environ: Mapping[str, str] = os.environ) -> str | None:
    """How the world differs from the plan: in size, or in a rank's container, cores or GPU. None where it does not."""
    if (of_world := place.shape(environ)) is not None:
        return shape.compared(of_world, ranks)
    places = planned(environ)
    if places is None:
        return None
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
