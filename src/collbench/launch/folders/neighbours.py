"""Other launches on this machine that take the same cores."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from collbench.launch.folders.signature import opened, signed
from collbench.launch.placing import Placement
from collbench.machine.facts import format_cores, parse_cores

#: A list of cores as the kernel writes it; the file may hold something else.
_LIST = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*", re.ASCII)

#: The file in a launch's temporary folder with the cores of its ranks, and the most that is read of it (bytes).
CORES, LONGEST = "cores", 4096


def disturbances(placements: Iterable[Placement]) -> list[str]:
    """A line for each living launch, in a temporary folder that we see, that shares cores with these placements."""
    ours = {core for placement in placements for slot in placement.slots for core in slot.cores}
    lines = []
    for folder, _, locked in signed():
        with contextlib.suppress(OSError, ValueError):  # it ended, or may not be read
            with opened(folder / CORES) as file:
                listed = file.read(LONGEST).strip()
            shared = ours & parse_cores(listed) if _LIST.fullmatch(listed) else set()
            if locked and shared:
                cores = f"core{'s' if len(shared) > 1 else ''} {format_cores(shared)}"
                lines.append(f"another launch runs on {cores} ({folder}): the two disturb each other's measurements")
    return lines
