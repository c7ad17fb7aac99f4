"""Where a launcher planned the ranks to be: a file with the place of each rank, or a shape in their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from collbench.errors import RequestError, WorldMismatch
from collbench.schema.untrusted import refuse_irregular

#: Set by a rank for the programs that it starts: the GPU that was planned for it (its UUID; empty: none).
GPU = "COLLBENCH_GPU"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Container (None: the host), cores (`0-3,8`) and GPU (its UUID; None: no GPU) of one rank."""

    container: str | None
    cores: str
    gpu: str | None = None


def read_places(file: Path) -> tuple[Place, ...]:
    """The planned place of each rank, by rank. The file is JSON, one `Place` for each rank.

    Raises:
        RequestError: it cannot be read, or does not hold what a launcher writes.
    """
    try:
        refuse_irregular(file)
        return msgspec.json.decode(file.read_bytes(), type=tuple[Place, ...])
    except OSError as error:
        raise RequestError(f"placement {file}: {error.strerror}. collbench launch writes such files.") from error
    except msgspec.DecodeError as error:
        raise RequestError(f"placement {file}: {error}. collbench launch writes such files.") from error


#: Set where a resource manager chooses machines and cores, and no file says which: JSON, one `Shape`, or a list of them
#: where hosts differ: in the order of ranks, each with hosts of its own.
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

    @property
    def ranks(self) -> int:
        return self.hosts * self.each


def text_of(shapes: tuple[Shape, ...]) -> str:
    """What `shapes` reads."""
    return msgspec.json.encode(shapes if len(shapes) > 1 else shapes[0]).decode()


def shapes(environ: Mapping[str, str] = os.environ) -> tuple[Shape, ...]:
    """The planned shape, in the order of ranks one for all hosts that are alike; empty where no launcher planned one.

    Raises:
        WorldMismatch: the variable does not hold what a launcher writes.
    """
    text = environ.get(SHAPE)
    if not text:
        return ()
    try:
        found = msgspec.json.decode(text, type=Shape | tuple[Shape, ...])
    except msgspec.DecodeError as error:
        raise WorldMismatch(f"{SHAPE}: {error}. collbench launch sets this variable; unset it.") from error
    return (found,) if isinstance(found, Shape) else found
