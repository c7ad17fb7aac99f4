"""What a launcher planned for each rank: taken from the environment, put into force, held against what came true."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from collbench.backends.parts import launcher
from collbench.errors import WorldMismatch
from collbench.run.facts import RankFacts, format_cores, parse_cores

#: Set by `collbench launch` on every rank: JSON, one `Place` for each rank.
VARIABLE = "COLLBENCH_PLACEMENT"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Container (None: the host), cores (`0-3,8`) and GPU (its UUID; None: no GPU) of one rank."""

    container: str | None
    cores: str
    gpu: str | None = None


def planned(environ: Mapping[str, str] = os.environ) -> tuple[Place, ...] | None:
    """Every rank's place by rank; None where no launcher planned them.

    Raises:
        WorldMismatch: the variable does not hold what a launcher writes.
    """
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[Place, ...])
    except msgspec.DecodeError as error:
        raise WorldMismatch(f"{VARIABLE}: {error}. It is set by collbench launch; unset it.") from error


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
    return None
