"""From a world of ranks to their GPUs: what each sees, who gets which, and the device opened, in a world of MPI."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from collbench.bindings.gpu import cupy_device
from collbench.bindings.gpu.device import Device
from collbench.bindings.gpu.nccl import Nccl, cupy_nccl
from collbench.bindings.mpi import MpiBackend, MpiSession
from collbench.bindings.spec import Roles, World, WorldSettings, allgather, first_rank
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable, CollbenchError, RequestError, Unsupported
from collbench.machine import launcher
from collbench.machine.facts import machine_id
from collbench.schema.axes import ThreadLevel


@dataclass(frozen=True)
class VisibleGpus:
    """What a rank sees: its machine, the GPUs that it may use in CUDA's order, and the one that a launcher planned.

    `why`: the reason where it sees none.
    """

    host: str
    kernel_id: str
    visible: tuple[str, ...]
    planned: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class Assignment:
    """The GPU of every rank. `refused`: why cases in which every rank needs one cannot be measured."""

    gpus: tuple[str | None, ...]
    refused: str | None = None


def assign(views: tuple[VisibleGpus, ...], roles: Roles, share: bool) -> Assignment:
    """A GPU for every rank that needs one. A parameter server needs none where it is nothing else.

    Raises RequestError: a rank sees no GPU, or two would use the same one, and `share` does not allow it.
    """
    every_rank = frozenset(range(len(views)))
    workers = every_rank - roles.servers if len(roles.servers) == 1 else every_rank
    if not roles.all_work:
        try:
            return Assignment(_assigned(views, workers, share))
        except RequestError as error:
            if len(roles.servers) < 2:
                raise
            ranks = ", ".join(map(str, sorted(roles.servers)))
            raise RequestError(
                f"{error} Ranks {ranks} are the server in turn, so each needs a GPU as a worker; a run with one root "
                "(-r) needs one GPU less."
            ) from error
    try:
        return Assignment(_assigned(views, every_rank, share))
    except RequestError as error:
        if workers == every_rank or len(views) == 1:
            raise
        return Assignment(_assigned(views, workers, share), refused=str(error).rstrip("."))


def _assigned(views: tuple[VisibleGpus, ...], needing: frozenset[int], share: bool) -> tuple[str | None, ...]:
    gpus = tuple(_gpu_of(rank, views, needing) if rank in needing else None for rank in range(len(views)))
    uses = Counter((view.kernel_id, gpu) for view, gpu in zip(views, gpus, strict=True) if gpu is not None)
    shared = [place for place, ranks in uses.items() if ranks > 1]
    if shared and not share:
        machine, gpu = shared[0]
        users = [rank for rank, view in enumerate(views) if (view.kernel_id, gpus[rank]) == shared[0]]
        neighbours = [view for view in views if view.kernel_id == machine]
        visible = len({gpu for view in neighbours for gpu in view.visible})
        raise RequestError(
            f"ranks {' and '.join(map(str, users))} on {views[users[0]].host} would use one GPU ({gpu}): "
            f"{len(neighbours)} ranks and {visible} GPU{'s' if visible > 1 else ''}. "
            "Start fewer ranks; or, to test function and not to measure, add --share-gpu (share_gpu = true in a plan)."
        )
    return gpus


def _gpu_of(rank: int, views: tuple[VisibleGpus, ...], needing: frozenset[int]) -> str:
    view = views[rank]
    if view.planned is not None:
        if view.planned not in view.visible:
            visible = ", ".join(view.visible) or "none"
            raise RequestError(f"rank {rank} was planned on GPU {view.planned}, and sees {visible}.")
        return view.planned
    if not view.visible:
        why = view.why or "no CUDA device is visible"
        raise RequestError(f"rank {rank} on {view.host} has no GPU to use: {why}. See: collbench doctor.")
    before = [views[other] for other in range(rank) if other in needing]
    alike = [other for other in before if (other.kernel_id, other.visible) == (view.kernel_id, view.visible)]
    return view.visible[len(alike) % len(view.visible)]


Result = TypeVar("Result")

#: What a manifest says of backends on GPUs.
CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
CUPY_PACKAGES = ("cupy-cuda12x", "cupy-cuda13x")


class GpuRuntime:
    """The package through which this process uses GPUs: CuPy, and the NCCL that it was made for."""

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
    """The GPU of this rank (its UUID; None: it needs none), and whether two ranks share one. `refused`: see above."""

    gpu: str | None
    refused: str | None
    shared: bool

    def refuse(self, row: Collective) -> None:
        """Raises `Unsupported`, on all ranks, where a row needs a GPU on every rank and some have none."""
        if not row.has_server and self.refused is not None:
            raise Unsupported(self.refused)


def assign_gpus(
    backend: str, world: World, options: WorldSettings, why: str | None, visible: Callable[[], tuple[str, ...]]
) -> AssignedGpu:
    """Agree on who uses which GPU. `why` this rank sees none, or the UUIDs that it sees. Collective.

    Raises BackendUnavailable: as `assign`, on all ranks.
    """
    plan = options.places or ()
    planned = plan[world.rank].gpu if world.rank < len(plan) else None
    view = VisibleGpus(os.uname().nodename, machine_id(), () if why else visible(), planned, why)
    views = tuple(allgather(world, view))
    try:
        assignment = assign(views, options.roles, options.share_gpu)
    except RequestError as error:
        raise BackendUnavailable(f"backend {backend}: {error}") from error
    used = [(view.kernel_id, uuid) for view, uuid in zip(views, assignment.gpus, strict=True) if uuid is not None]
    return AssignedGpu(assignment.gpus[world.rank], assignment.refused, len(set(used)) < len(used))


def on_all(world: World, backend: str, action: Callable[[], Result]) -> Result:
    """The result of an action on this rank; a failure on one rank is raised on all of them. Collective.

    Raises BackendUnavailable: it failed on a rank; the message says on which, and why.
    """
    results: list[Result] = []
    reason = None
    try:
        results.append(action())
    except (CollbenchError, RuntimeError, MemoryError, OSError, ImportError) as error:
        reason = str(error) or type(error).__name__
    first = first_rank(world, reason is not None)
    if first is not None:
        raise BackendUnavailable(f"backend {backend}: rank {first}: {world.bcast_from(reason, first)}")
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


class DeviceMpiSession(MpiSession):
    """One rank of an MPI world, with a GPU or as parameter server without one."""

    def __init__(self, backend: DeviceMpiBackend, mpi: Any, level: ThreadLevel, options: WorldSettings) -> None:
        super().__init__(backend, mpi, level, options)
        self.runtime = runtime = backend.runtime
        self.assigned = assign_gpus(backend.name, self.world, options, runtime.missing(), runtime.visible)
        gpu, world = self.assigned.gpu, self.world
        self.device: Device | None = on_all(world, backend.name, lambda: None if gpu is None else runtime.open(gpu))
        self.gpu = None if self.device is None else self.device.facts


class DeviceMpiBackend(MpiBackend):
    """A backend over MPI that needs GPUs."""

    device: Literal["cpu", "gpu"] = "gpu"
    runtime: GpuRuntime = GpuRuntime()
    variables: tuple[str, ...] = (*MpiBackend.variables, *CUDA_VARIABLES)
    packages: tuple[str, ...] = (*MpiBackend.packages, *CUPY_PACKAGES)

    def missing(self) -> str | None:
        """As of MPI. A rank of a larger world may be a parameter server, which needs no GPU: `assign_gpus` knows."""
        return super().missing() or (self.runtime.missing() if launcher.detect().size == 1 else None)
