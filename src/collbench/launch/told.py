"""What the ranks of a cell are told by their environment, and what a reader of its numbers must be told."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.backends.parts.places import VARIABLE, Place
from collbench.launch.cells import Cell
from collbench.launch.isolation import in_force
from collbench.launch.placing import Placement
from collbench.launch.starters.starter import Starter
from collbench.run import facts
from collbench.run.facts import format_cores
from collbench.units import format_bytes


@dataclass(frozen=True)
class Side:
    """What a cell runs in: a reference that the engine knows, or an environment on the host; and its MPI's starter.

    `memlock`: the engine can grant unlimited locked memory. `refused`: calls that the library needs to read another
    rank's memory, and that the engine does not allow without SYS_PTRACE.
    `cdi`: it knows GPUs by their CDI names.
    """

    starter: Starter
    reference: str
    environment: Path | None
    memlock: bool = True
    refused: frozenset[str] = frozenset()
    cdi: bool = False


def places(cell: Cell, placement: Placement) -> tuple[Place, ...]:
    """What each rank is told of its place; container and cores it holds against what it finds."""
    by_rank: dict[int, str | None] = {rank: box.name for box in placement.boxes for rank in box.ranks}
    if cell.policy == "host":
        by_rank = dict.fromkeys(by_rank, facts.container())
    slots = placement.slots
    return tuple(
        Place(container=by_rank[rank], cores=format_cores(slot.cores), gpu=slot.gpu) for rank, slot in enumerate(slots)
    )


def refuses_cma(cell: Cell, side: Side) -> bool:
    """Whether ranks in one container may not read each other's memory, though they share it."""
    if cell.isolation is None or not side.refused or in_force(cell.isolation).shared_ipc:
        return False
    return any(len(group) > 1 for group in cell.groups)


def shares_hostname(cell: Cell) -> bool:
    """Whether several containers share a network namespace, and so a hostname."""
    alone = len(cell.groups) == 1
    return cell.isolation is not None and not alone and in_force(cell.isolation).shared_net


def notes(cell: Cell, side: Side, gpus: bool = False) -> tuple[str, ...]:
    """What a reader of this cell's numbers must know. `gpus`: the world has some."""
    said = []
    if refuses_cma(cell, side):
        calls = " and ".join(sorted(side.refused, reverse=True))
        said.append(f"{calls} refused at this step: {side.starter.vendor} copies twice")
        said += [
            f"{name}={value}, because it would abort otherwise" for name, value in side.starter.without_cma.items()
        ]
    if shares_hostname(cell):
        said += [
            f"{name}={value}, because it would hang otherwise" for name, value in side.starter.one_hostname.items()
        ]
    if gpus and cell.isolation is not None and in_force(cell.isolation).all_gpus and len(cell.groups) > 1:
        said.append("every container sees every GPU of this world: devices are not isolated at this step")
    return tuple(said)


def shm_shortage(cell: Cell, side: Side) -> str | None:
    """How much of /dev/shm the library takes, where a container of the cell has less: it dies without a word."""
    if cell.isolation is None:
        return None
    sharing = in_force(cell.isolation)
    ranks = cell.ranks if sharing.shared_ipc else max(map(len, cell.groups))
    wanted = ranks * side.starter.shm_per_rank
    if wanted <= sharing.shm_bytes:
        return None
    return (
        f"{ranks} ranks of {side.starter.vendor} take some {format_bytes(wanted)} of shared memory, and /dev/shm at "
        f"the step {cell.isolation} has {format_bytes(sharing.shm_bytes)}. Use the step limits, or fewer ranks a "
        "container"
    )


def on_host(told: dict[str, str]) -> dict[str, str]:
    """What of it holds on the host: the home is the user's there, and as root Open MPI wants to be told twice."""
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    return {name: value for name, value in told.items() if name != "HOME"} | root


def variables(cell: Cell, placement: Placement, side: Side) -> dict[str, str]:
    """The environment that every rank shares."""
    planned = msgspec.json.encode(places(cell, placement)).decode()
    more = dict(side.starter.without_cma) if refuses_cma(cell, side) else {}
    if shares_hostname(cell):
        more |= side.starter.one_hostname
    return {VARIABLE: planned, "OMP_NUM_THREADS": "1", "HOME": "/tmp", **side.starter.environment, **more}  # noqa: S108
