"""What the ranks of a cell are told by their environment, and what a reader of its numbers must be told."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.launch.cells import LaunchCell
from collbench.launch.isolation import LARGE_SHM, in_force
from collbench.launch.placing import Placement
from collbench.launch.starters.starter import Starter
from collbench.machine import facts
from collbench.machine.facts import format_cores
from collbench.schema.place import VARIABLE, Place
from collbench.units import format_bytes


@dataclass(frozen=True)
class Stack:
    """What a cell runs in: an image by its id on the engine, or an environment on the host; and its MPI's starter.

    `memlock`: the engine can grant unlimited locked memory. `refused`: calls that the library needs to read another
    rank's memory, and that the engine does not allow without SYS_PTRACE. `sealed`: it can keep the host's address off a
    network. `cdi`: it knows GPUs by their CDI names. `nccl`: some of what is measured goes over NCCL.
    """

    starter: Starter
    image: str
    environment: Path | None
    memlock: bool = True
    sealed: bool = True
    refused: frozenset[str] = frozenset()
    cdi: bool = False
    nccl: bool = False


def places(cell: LaunchCell, placement: Placement) -> tuple[Place, ...]:
    """What each rank is told of its place; container and cores it holds against what it finds."""
    by_rank: dict[int, str | None] = {rank: box.name for box in placement.boxes for rank in box.ranks}
    if not placement.in_containers:
        by_rank = dict.fromkeys(by_rank, facts.container())
    slots = placement.slots
    return tuple(
        Place(container=by_rank[rank], cores=format_cores(slot.cores), gpu=slot.gpu) for rank, slot in enumerate(slots)
    )


def refuses_cma(cell: LaunchCell, placement: Placement, side: Stack) -> bool:
    """Whether ranks in one container may not read each other's memory, though they share it."""
    if cell.isolation is None or not side.refused or in_force(cell.isolation).shared_ipc:
        return False
    return placement.shares_containers


def shares_hostname(cell: LaunchCell, placement: Placement) -> bool:
    """Whether several containers share a network namespace, and so a hostname."""
    return cell.isolation is not None and placement.containers > 1 and in_force(cell.isolation).shared_net


#: Containers of one hostname and one /dev/shm are one machine to NCCL, whose GPUs it connects directly where their
#: links allow it; a process that does not see the other GPU cannot open its memory (CUDA error 101, NCCL issue 1647).
#: Without it, NCCL goes through shared memory. Containers with hostnames of their own it connects by sockets anyway.
HIDDEN_PEERS = {"NCCL_P2P_DISABLE": "1"}

#: What NCCL (2.7 to 2.30) takes of /dev/shm for a connection through host memory, in each of its channels: buffers of
#: its three protocols at their default sizes (init.cc, transport/shm.cc), as its messages name them: 9637888 bytes.
NCCL_CONNECTION = 9637888


def hides_peers(cell: LaunchCell, placement: Placement, side: Stack) -> bool:
    """Whether NCCL takes several containers for one machine though none sees the GPUs of another."""
    if cell.isolation is None or not shares_hostname(cell, placement):
        return False
    return side.nccl and len(placement.gpus) > 1 and not in_force(cell.isolation).all_gpus


def notes(cell: LaunchCell, placement: Placement, side: Stack) -> tuple[str, ...]:
    """What a reader of this cell's numbers must know."""
    said = [placement.note] if placement.note else []
    if refuses_cma(cell, placement, side):
        calls = " and ".join(sorted(side.refused, reverse=True))
        said.append(f"{calls} refused at this step: {side.starter.vendor} copies twice")
        said += [
            f"{name}={value}, because it would abort otherwise" for name, value in side.starter.without_cma.items()
        ]
    if shares_hostname(cell, placement):
        said += [
            f"{name}={value}, because it would hang otherwise" for name, value in side.starter.one_hostname.items()
        ]
    if hides_peers(cell, placement, side):
        said += [
            f"{name}={value}, because NCCL would take the containers for one machine and fail to reach hidden GPUs"
            for name, value in HIDDEN_PEERS.items()
        ]
    if cell.isolation is not None and in_force(cell.isolation).all_gpus and placement.gpus and placement.containers > 1:
        said.append("every container sees every GPU of this world: devices are not isolated at this step")
    return tuple(said)


def nccl_shortage(cell: LaunchCell, placement: Placement, side: Stack, said: str) -> str | None:
    """What helps where NCCL failed on a system call (`said`) in a container with two GPUs and Docker's /dev/shm."""
    if cell.isolation is None or not side.nccl or len(placement.gpus) < 2:
        return None
    if "system error" not in said.lower():  # ncclSystemError
        return None
    held = in_force(cell.isolation).shm_bytes
    if held >= LARGE_SHM or not placement.shares_containers:
        return None
    return (
        f"where GPUs are connected through host memory NCCL takes {format_bytes(NCCL_CONNECTION)} of /dev/shm for each "
        f"connection and channel, and the step {cell.isolation} has {format_bytes(held)}. Use the step limits"
    )


def shm_shortage(cell: LaunchCell, placement: Placement, side: Stack) -> str | None:
    """How much of /dev/shm the library takes, where a container of the cell has less: it dies without a word."""
    if cell.isolation is None:
        return None
    sharing = in_force(cell.isolation)
    ranks = cell.ranks if sharing.shared_ipc else max(len(box.ranks) for box in placement.boxes)
    wanted = ranks * side.starter.shm_per_rank
    if wanted <= sharing.shm_bytes:
        return None
    return (
        f"{ranks} ranks of {side.starter.vendor} take some {format_bytes(wanted)} of shared memory, and /dev/shm at "
        f"the step {cell.isolation} has {format_bytes(sharing.shm_bytes)}. Use the step limits, or fewer ranks a "
        "container"
    )


def on_host(told: dict[str, str], temporary: Path) -> dict[str, str]:
    """What of it holds on the host: the home is the user's there, and as root Open MPI wants to be told twice.

    What the library keeps while it runs (Open MPI's session folder stays when its daemon is killed) goes to a
    `temporary` folder, which is removed with the launch.
    """
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    return {name: value for name, value in told.items() if name != "HOME"} | root | {"TMPDIR": str(temporary)}


def variables(cell: LaunchCell, placement: Placement, side: Stack) -> dict[str, str]:
    """The environment that every rank shares."""
    planned = msgspec.json.encode(places(cell, placement)).decode()
    more = dict(side.starter.without_cma) if refuses_cma(cell, placement, side) else {}
    if shares_hostname(cell, placement):
        more |= side.starter.one_hostname
    if hides_peers(cell, placement, side):
        more |= HIDDEN_PEERS
    return {VARIABLE: planned, "OMP_NUM_THREADS": "1", "HOME": "/tmp", **side.starter.environment, **more}  # noqa: S108
