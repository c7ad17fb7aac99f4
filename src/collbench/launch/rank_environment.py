"""What the ranks of a cell are told by their environment, and what a reader of its numbers must be told."""

from __future__ import annotations

import msgspec

from collbench.launch import engines
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.ladder import Sharing, step_of
from collbench.launch.engines.spec import Stack
from collbench.launch.placing import Placement
from collbench.machine.facts import format_cores
from collbench.schema.place import VARIABLE, Place
from collbench.units import format_bytes


def places(cell: LaunchCell, placement: Placement) -> tuple[Place, ...]:
    """What each rank is told of its place; container and cores it holds against what it finds."""
    engine = engines.get(cell.engine)
    by_rank = {rank: engine.container(box.name) for box in placement.boxes for rank in box.ranks}
    slots = placement.slots
    return tuple(
        Place(container=by_rank[rank], cores=format_cores(slot.cores), gpu=slot.gpu) for rank, slot in enumerate(slots)
    )


def sharing_of(cell: LaunchCell) -> Sharing:
    """What the boxes of a cell share; everything where they isolate nothing."""
    if cell.isolation is None:
        return Sharing()
    return step_of(engines.get(cell.engine).ladder, cell.isolation).sharing


def refuses_cma(cell: LaunchCell, placement: Placement, side: Stack) -> bool:
    """Whether ranks in one container may not read each other's memory, though they share it."""
    if not side.refused or sharing_of(cell).ipc:
        return False
    return placement.shares_boxes


def shares_hostname(cell: LaunchCell, placement: Placement) -> bool:
    """Whether several containers share a network namespace, and so a hostname."""
    return len(placement.boxes) > 1 and sharing_of(cell).net


#: Containers of one hostname and one /dev/shm are one machine to NCCL, whose GPUs it connects directly where their
#: links allow it; a process that does not see the other GPU cannot open its memory (CUDA error 101, NCCL issue 1647).
#: Without it, NCCL goes through shared memory. Containers with hostnames of their own it connects by sockets anyway.
HIDDEN_PEERS = {"NCCL_P2P_DISABLE": "1"}

#: What NCCL (2.7 to 2.30) takes of /dev/shm for a connection through host memory, in each of its channels: buffers of
#: its three protocols at their default sizes (init.cc, transport/shm.cc), as its messages name them: 9637888 bytes.
NCCL_CONNECTION = 9637888


def hides_peers(cell: LaunchCell, placement: Placement, side: Stack) -> bool:
    """Whether NCCL takes several containers for one machine though none sees the GPUs of another."""
    hidden = len(placement.gpus) > 1 and not sharing_of(cell).all_gpus
    return hidden and side.nccl and shares_hostname(cell, placement)


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
    if sharing_of(cell).all_gpus and placement.gpus and len(placement.boxes) > 1:
        said.append("every container sees every GPU of this world: devices are not isolated at this step")
    return tuple(said)


def nccl_shortage(cell: LaunchCell, placement: Placement, side: Stack, said: str) -> str | None:
    """What helps where NCCL failed on a system call (`said`) in a container with two GPUs and a small /dev/shm."""
    if not side.nccl or len(placement.gpus) < 2 or "system error" not in said.lower():  # ncclSystemError
        return None
    held, larger = sharing_of(cell).shm_bytes, _step_with_more(cell)
    if held is None or larger is None or not placement.shares_boxes:
        return None
    return (
        f"where GPUs are connected through host memory NCCL takes {format_bytes(NCCL_CONNECTION)} of /dev/shm for each "
        f"connection and channel, and the step {cell.isolation} has {format_bytes(held)}. Use the step {larger}"
    )


def _step_with_more(cell: LaunchCell) -> str | None:
    """The first step of the cell's engine with a larger /dev/shm than the cell's, if there is one."""
    held = sharing_of(cell).shm_bytes
    steps = engines.get(cell.engine).ladder
    sizes = {step.name: step.sharing.shm_bytes for step in steps}
    return next((name for name, size in sizes.items() if held is not None and (size is None or size > held)), None)


def shm_shortage(cell: LaunchCell, placement: Placement, side: Stack) -> str | None:
    """How much of /dev/shm the library takes, where a container of the cell has less: it dies without a word."""
    sharing = sharing_of(cell)
    ranks = cell.ranks if sharing.ipc else max(len(box.ranks) for box in placement.boxes)
    wanted = ranks * side.starter.shm_per_rank
    if sharing.shm_bytes is None or wanted <= sharing.shm_bytes:
        return None
    larger = _step_with_more(cell)
    return (
        f"{ranks} ranks of {side.starter.vendor} take some {format_bytes(wanted)} of shared memory, and /dev/shm at "
        f"the step {cell.isolation} has {format_bytes(sharing.shm_bytes)}. "
        f"Use {f'the step {larger}, or ' if larger else ''}fewer ranks a container"
    )


def variables(cell: LaunchCell, placement: Placement, side: Stack) -> dict[str, str]:
    """The environment that every rank shares."""
    planned = msgspec.json.encode(places(cell, placement)).decode()
    more = dict(side.starter.without_cma) if refuses_cma(cell, placement, side) else {}
    if shares_hostname(cell, placement):
        more |= side.starter.one_hostname
    if hides_peers(cell, placement, side):
        more |= HIDDEN_PEERS
    return {VARIABLE: planned, "OMP_NUM_THREADS": "1", **side.starter.environment, **more}
