"""The place that a launcher planned for each rank, as it passes it to the ranks in their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

import msgspec

from collbench.errors import WorldMismatch

#: Set by `collbench launch` on every rank: JSON, one `Place` for each rank.
VARIABLE = "COLLBENCH_PLACEMENT"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Container (None: the host), cores (`0-3,8`) and GPU (its UUID; None: no GPU) of one rank."""

    container: str | None
    cores: str
    gpu: str | None = None


def planned(environ: Mapping[str, str] = os.environ) -> tuple[Place, ...] | None:
    """The planned place of each rank, by rank; None where no launcher planned any.

    Raises:
        WorldMismatch: the variable does not hold what a launcher writes.
    """
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[Place, ...])
    except msgspec.DecodeError as error:
        raise WorldMismatch(f"{VARIABLE}: {error}. collbench launch sets this variable; unset it.") from error


#: Set in place of COLLBENCH_PLACEMENT where a resource manager chooses machines and cores: JSON, one `Shape`.
SHAPE = "COLLBENCH_SHAPE"

#: Which ranks share a container: none is in one, those of a host do, every rank has its own, or so many share one.
Boxes = Literal["none", "host", "rank"] | int

#: The machine that a rank is on, where its hostname is that of a pod.
HOST = "COLLBENCH_HOST"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A world whose machines and cores are not known beforehand: `each` ranks with `cores` on each of `hosts`.

    `crowded`: ranks may share cores.
    """

    hosts: int
    each: int
    cores: int
    boxes: Boxes = "none"
    crowded: bool = False


def shape(environ: Mapping[str, str] = os.environ) -> Shape | None:
    """The planned shape; None where no launcher planned one.

    Raises:
        WorldMismatch: the variable does not hold what a launcher writes.
    """
    text = environ.get(SHAPE)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Shape)
    except msgspec.DecodeError as error:
        raise WorldMismatch(f"{SHAPE}: {error}. collbench launch sets this variable; unset it.") from error
