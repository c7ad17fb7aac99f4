"""What a launcher planned for each rank: taken from the environment, put into force, held against what came true."""

from __future__ import annotations

import os
from collections.abc import Mapping

from collbench.errors import WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, format_cores, parse_cores
from collbench.schema.place import planned


def bind(environ: Mapping[str, str] = os.environ) -> None:
    """Restrict this process to its rank's cores: the same on the host and in containers, whichever MPI starts it.

    Raises:
        WorldMismatch: this rank may not use them.
    """
    places = planned(environ)
    rank = launcher.detect(environ).rank
    if places is None or rank >= len(places):
        return
    try:
        os.sched_setaffinity(0, parse_cores(places[rank].cores))
    except (OSError, ValueError) as error:
        here = format_cores(os.sched_getaffinity(0))
        raise WorldMismatch(f"rank {rank} was to run on cores {places[rank].cores}, and may use {here}.") from error


def difference(ranks: tuple[RankFacts, ...], environ: Mapping[str, str] = os.environ) -> str | None:
    """Where the world is not the planned one: its size, a rank's container or its cores."""
    places = planned(environ)
    if places is None:
        return None
    if len(places) != len(ranks):
        return f"{len(places)} ranks were planned and {len(ranks)} met"
    for number, (place, found) in enumerate(zip(places, ranks, strict=True)):
        if place.container != found.container:
            return f"rank {number} was planned in {place.container or 'no container'}, and is in {found.container}"
        if parse_cores(place.cores) != found.cores:
            return f"rank {number} was planned on cores {place.cores}, and may use {found.binding}"
        if found.gpu not in (None, place.gpu):
            return f"rank {number} was planned on GPU {place.gpu or '(none)'}, and uses {found.gpu}"
    return None
