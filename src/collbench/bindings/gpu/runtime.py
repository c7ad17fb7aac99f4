"""From a world of ranks to their GPUs: what each sees, who gets which, and the device opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from collbench.bindings.agreement import first_rank
from collbench.bindings.gpu import cupy_device
from collbench.bindings.gpu.assignment import Seat, Seating, assign
from collbench.bindings.gpu.device import Device
from collbench.bindings.gpu.nccl_library import Nccl, cupy_nccl
from collbench.bindings.spec import Options, World, allgather
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable, CollbenchError, RequestError, Unsupported
from collbench.machine.facts import machine_id

Result = TypeVar("Result")

#: What a manifest says of backends on GPUs.
CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
CUPY_PACKAGES = ("cupy-cuda12x", "cupy-cuda13x")


class Runtime(Protocol):
    """The package through which this process uses GPUs."""

    def missing(self) -> str | None:
        """Why it finds no GPU; None when it does."""

    def visible(self) -> tuple[str, ...]:
        """UUIDs of the GPUs that this process may use, in CUDA's order."""

    def open(self, uuid: str) -> Device:
        """The GPU of that UUID, made current."""

    def nccl(self) -> Nccl:
        """The NCCL of this process."""


class CupyRuntime:
    """CuPy, and the NCCL that it was made for."""

    def missing(self) -> str | None:
        return cupy_device.missing()

    def visible(self) -> tuple[str, ...]:
        return cupy_device.visible()

    def open(self, uuid: str) -> Device:
        return cupy_device.CupyDevice(uuid)

    def nccl(self) -> Nccl:
        return cupy_nccl()


@dataclass(frozen=True)
class AssignedGpu:
    """The GPU of this rank (its UUID; None: it needs none), and those of all ranks."""

    gpu: str | None
    seating: Seating
    shared: bool

    def refuse(self, row: Collective) -> None:
        """Raises `Unsupported`, on all ranks, where a row needs a GPU on every rank and some have none."""
        if not row.has_server and self.seating.refused is not None:
            raise Unsupported(self.seating.refused)


def take_seats(
    backend: str, world: World, options: Options, why: str | None, visible: Callable[[], tuple[str, ...]]
) -> AssignedGpu:
    """Agree on who uses which GPU. `why` this rank sees none, or the UUIDs that it sees. Collective.

    Raises:
        BackendUnavailable: as `assign`, on all ranks.
    """
    plan = options.places or ()
    planned = plan[world.rank].gpu if world.rank < len(plan) else None
    seat = Seat(os.uname().nodename, machine_id(), () if why else visible(), planned, why)
    seats = tuple(allgather(world, seat))
    try:
        seating = assign(seats, options.roles, options.share_gpu)
    except RequestError as error:
        raise BackendUnavailable(f"backend {backend}: {error}") from error
    used = [(seat.kernel_id, uuid) for seat, uuid in zip(seats, seating.gpus, strict=True) if uuid is not None]
    return AssignedGpu(seating.gpus[world.rank], seating, len(set(used)) < len(used))


def on_all(world: World, backend: str, action: Callable[[], Result]) -> Result:
    """The result of an action on this rank; a failure on one rank is raised on all of them. Collective.

    Raises:
        BackendUnavailable: it failed on a rank; the message says on which, and why.
    """
    results: list[Result] = []
    reason = None
    try:
        results.append(action())
    except (CollbenchError, RuntimeError, MemoryError, OSError, ImportError) as error:
        reason = str(error) or type(error).__name__
    first = first_rank(world, reason is not None)
    if first is not None:
        raise BackendUnavailable(f"backend {backend}: rank {first}: {world.tell(reason, first)}")
    return results[0]


def agree(world: World, backend: str, what: str, version: str) -> None:
    """Raises `BackendUnavailable` on all ranks unless all have the same version of `what`. Collective."""
    versions = allgather(world, version)
    other = next((rank for rank, theirs in enumerate(versions) if theirs != versions[0]), None)
    if other is not None:
        raise BackendUnavailable(
            f"backend {backend}: {what} differs: rank 0 has {versions[0]}, rank {other} has {versions[other]}. "
            "Start all ranks in the same environment."
        )
