"""The environment variables of a cell's ranks, and what a reader of its numbers must know."""

from __future__ import annotations

from collections.abc import Iterator

from collbench.launch import engines
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import Sharing, Stack, step_of
from collbench.launch.placement import Placement
from collbench.machine import facts
from collbench.machine.facts import format_cores
from collbench.schema.world import Place
from collbench.units import format_bytes


def places(cell: LaunchCell, placement: Placement) -> tuple[Place, ...]:
    """The place of each rank, to be compared with what it finds; none where the engine starts ranks where it likes."""
    engine = engines.get(cell.engine)
    if engine.starts_ranks:
        return ()
    containers = {
        rank: box.name if engine.makes_containers else facts.container()
        for box in placement.boxes
        for rank in box.ranks
    }
    return tuple(
        Place(container=containers[rank], cores=format_cores(slot.cores), gpu=slot.gpu)
        for rank, slot in enumerate(placement.slots)
    )


def sharing_of(cell: LaunchCell) -> Sharing:
    """What the boxes of a cell share; everything where they isolate nothing."""
    if cell.isolation is None:
        return Sharing()
    return step_of(engines.get(cell.engine).ladder, cell.isolation).sharing


def refuses_cma(cell: LaunchCell, placement: Placement, stack: Stack) -> bool:
    """Whether ranks in one container may not read each other's memory."""
    return bool(stack.refused) and not sharing_of(cell).ipc and placement.shares_boxes


def shares_hostname(cell: LaunchCell, placement: Placement) -> bool:
    """Whether several containers share a network namespace, and so a hostname."""
    if engines.get(cell.engine).starts_ranks:  # its nodes have names, and their containers are one node to the library
        return False
    return len(placement.boxes) > 1 and sharing_of(cell).net


#: Where each container has shared memory of its own, beside the /dev/shm that it shares with others.
SHM_FOLDER = "/collbench/shm"


def needs_shm_folder(cell: LaunchCell, placement: Placement, stack: Stack) -> bool:
    """Whether ranks in different containers would give the same name to files in the /dev/shm that they share."""
    return bool(stack.launcher.shm_folder) and shares_hostname(cell, placement) and placement.shares_boxes


#: Bytes of /dev/shm that NCCL (2.7 to 2.30) takes for a connection through host memory, in each of its channels:
#: buffers of its three protocols at their default sizes (init.cc, transport/shm.cc), as its messages name them.
NCCL_CONNECTION = 9637888


def hides_peers(cell: LaunchCell, placement: Placement, stack: Stack) -> bool:
    """Whether NCCL takes several containers for one machine though none sees the GPUs of another.

    It connects GPUs of one hostname and one /dev/shm directly where links allow it; a process that does not see the
    other GPU cannot open its memory (CUDA error 101, NCCL issue 1647). Without peers NCCL goes through shared memory.
    Containers with hostnames of their own it connects by sockets anyway.
    """
    hidden = len(placement.gpus) > 1 and not sharing_of(cell).all_gpus
    return hidden and stack.nccl and shares_hostname(cell, placement)


def notes(cell: LaunchCell, placement: Placement, stack: Stack) -> tuple[str, ...]:
    """What a reader of this cell's numbers must know."""
    workarounds = [
        f"{name}={value}, because {reason}"
        for name, value, reason in _workarounds(cell, placement, stack)
        if name not in stack.overrides.variables  # that of the plan is in force
    ]
    if refuses_cma(cell, placement, stack):
        calls = " and ".join(sorted(stack.refused, reverse=True))
        workarounds.insert(0, f"{calls} refused at this step: {stack.launcher.vendor} copies twice")
    if sharing_of(cell).all_gpus and placement.gpus and len(placement.boxes) > 1:
        workarounds.append("every container sees every GPU of this world: devices are not isolated at this step")
    return (*filter(None, (placement.note,)), *workarounds)


def _workarounds(cell: LaunchCell, placement: Placement, stack: Stack) -> Iterator[tuple[str, str, str]]:
    """Variables without which the library fails in such containers: name, value, and why it is set."""
    if refuses_cma(cell, placement, stack):
        yield from ((*variable, "it would abort otherwise") for variable in stack.launcher.without_cma.items())
    if shares_hostname(cell, placement):
        yield from ((*variable, "it would hang otherwise") for variable in stack.launcher.one_hostname.items())
    if shares_hostname(cell, placement) and sharing_of(cell).host:
        yield from ((*variable, "it would hang otherwise") for variable in stack.launcher.host_network.items())
    if needs_shm_folder(cell, placement, stack):
        yield stack.launcher.shm_folder, SHM_FOLDER, "containers would overwrite each other's shared memory otherwise"
    if hides_peers(cell, placement, stack):
        yield "NCCL_P2P_DISABLE", "1", "NCCL would take the containers for one machine and fail to reach hidden GPUs"


def nccl_shortage(cell: LaunchCell, placement: Placement, stack: Stack, output: str) -> str | None:
    """What helps where NCCL failed on a system call, by its output, in a container with GPUs and a small /dev/shm."""
    if not stack.nccl or len(placement.gpus) < 2 or "system error" not in output.lower():  # ncclSystemError
        return None
    size, larger = sharing_of(cell).shm_bytes, _step_with_more(cell)
    if size is None or larger is None or not placement.shares_boxes:
        return None
    return (
        f"where GPUs are connected through host memory NCCL takes {format_bytes(NCCL_CONNECTION)} of /dev/shm for each "
        f"connection and channel, and the step {cell.isolation} has {format_bytes(size)}. Use the step {larger}"
    )


def _step_with_more(cell: LaunchCell) -> str | None:
    """The first step of the cell's engine whose boxes have a larger /dev/shm of their own, if there is one."""
    size = sharing_of(cell).shm_bytes
    if size is None:
        return None
    ladder = engines.get(cell.engine).ladder
    sizes = {step.name: step.sharing.shm_bytes for step in ladder if not step.sharing.host}
    return next((name for name, larger in sizes.items() if larger is None or larger > size), None)


def shm_shortage(cell: LaunchCell, placement: Placement, stack: Stack) -> str | None:
    """Where a container of the cell has less /dev/shm than the library needs, which then ends without a message."""
    sharing = sharing_of(cell)
    ranks = cell.ranks if sharing.ipc else max(len(box.ranks) for box in placement.boxes)
    needed = ranks * stack.launcher.shm_per_rank
    if sharing.shm_bytes is None or needed <= sharing.shm_bytes:
        return None
    larger = _step_with_more(cell)
    return (
        f"{ranks} ranks of {stack.launcher.vendor} need about {format_bytes(needed)} of shared memory, and /dev/shm at "
        f"the step {cell.isolation} has {format_bytes(sharing.shm_bytes)}. "
        f"Use {f'the step {larger}, or ' if larger else ''}fewer ranks per container"
    )


#: What ranks of every engine are given, where its site says nothing else.
OF_EVERY_RANK = {"OMP_NUM_THREADS": "1"}


def variables(cell: LaunchCell, placement: Placement, stack: Stack) -> dict[str, str]:
    """The environment that every rank shares."""
    workarounds = {name: value for name, value, _ in _workarounds(cell, placement, stack)}
    return {**OF_EVERY_RANK, **stack.launcher.environment, **workarounds, **stack.overrides.variables}
