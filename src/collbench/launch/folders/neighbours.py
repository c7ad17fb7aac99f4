"""Other launches on this machine that take the same cores."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from collbench.launch.folders.signature import opened, signed
from collbench.launch.placing import Placement
from collbench.machine.facts import format_cores, parse_cores

#: A list of cores as the kernel writes it; what else a file of somebody's may hold is none.
_LIST = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*", re.ASCII)

#: The file in a launch's temporary folder with the cores of its ranks, and as much as is read of it (bytes).
CORES, LONGEST = "cores", 4096


def beside(placements: Iterable[Placement]) -> list[str]:
    """A line for each living launch, in a temporary folder that we see, that shares cores with these placements."""
    ours = {core for placement in placements for slot in placement.slots for core in slot.cores}
    found = []
    for folder, _, locked in signed():
        with contextlib.suppress(OSError, ValueError):  # it ended, or is nobody's we know
            with opened(folder / CORES) as file:
                said = file.read(LONGEST).strip()
            shared = ours & parse_cores(said) if _LIST.fullmatch(said) else set()
            if locked and shared:
                taken = f"core{'s' if len(shared) > 1 else ''} {format_cores(shared)}"
                found.append(
                    f"another launch runs on {taken} ({folder}): it disturbs what is measured here, and this it"
                )
    return found
