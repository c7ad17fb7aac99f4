"""What lay under the files of programs: sides whose files were on two devices are not compared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collbench.analysis.observations import Cell
from collbench.analysis.pair import Pair
from collbench.errors import RequestError

#: The name of `--ignore`: records have it as their transport.
NAME = "transport"

#: The device of a record's transport: `overlay on ext4 (vda)`.
_DEVICE = re.compile(r"\(([^()]+)\)")


def refuse_other_device(pairs: Iterable[Pair], ignored: frozenset[str]) -> None:
    """Raise where the files of both sides were on known devices, which differ.

    Raises:
        RequestError: they do, and nobody said to ignore it.
    """
    if NAME in ignored:
        return
    apart = dict.fromkeys(
        f"storage of {pair.base_name} lay on {_named(pair.base)}, that of {pair.other_name} on {_named(pair.other)}"
        for pair in pairs
        if (base := _devices(pair.base)) and (other := _devices(pair.other)) and base != other
    )
    if apart:
        listed = "".join(f"\n  {line}" for line in apart)
        raise RequestError(
            f"Two devices would be compared:{listed}\n"
            f"Measure both on one device (folder = ... in the plan). To compare anyway: --ignore {NAME}"
        )


def _devices(cell: Cell) -> set[str]:
    """The devices of a program's files; empty where they are in memory, or nothing tells."""
    if cell.case["backend"]:
        return set()
    return {match[1] for text in cell.transports if (match := _DEVICE.search(text))}


def _named(cell: Cell) -> str:
    return " and ".join(sorted(cell.transports))
