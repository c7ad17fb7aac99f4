"""Where a launcher planned the ranks to be: places, shapes, and how a policy is spelled."""

from __future__ import annotations

import os
import re
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


#: The least isolated policies (no container; one container for all ranks), and the most isolated (one for each rank).
_FIRST, _LAST = ("host", "multi"), ("single",)

#: A name, or a name with a number: `single`, `packed:4`.
_SPELLING = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}(?::[1-9][0-9]{0,3})?")


def is_spelling(policy: str) -> bool:
    """Whether a policy can be spelled so; whether it exists, the launcher knows."""
    return _SPELLING.fullmatch(policy) is not None


def name_and_number(policy: str) -> tuple[str, int]:
    """(`packed`, 4) of `packed:4`; 0 where there is no number."""
    name, _, text = policy.partition(":")
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return name, int(text) if is_number else 0


#: The result of `policy_order`: class of isolation, name, number.
PolicyOrder = tuple[int, str, int]


def policy_order(policy: str) -> PolicyOrder:
    """Sort key from the least isolated to the most: `host`, `multi`, all others, `single`.

    The others, among them those of other packages, are ordered by name, and the larger number comes first (more ranks
    share a container).
    """
    name, number = name_and_number(policy)
    if name in _FIRST:
        return (_FIRST.index(name), "", 0)
    return (len(_FIRST) + (name in _LAST), name, -number)
