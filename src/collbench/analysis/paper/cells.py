"""A run in the terms of Choi et al. 2021: operation, policy, library, number of GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collbench.analysis.environment import software
from collbench.analysis.observations import Cell, Observed
from collbench.schema.axes import step_order
from collbench.schema.case import Case

LIBRARIES = ("Open MPI", "MPICH", "CUDA-aware Open MPI", "NCCL")
PARAMETER_SERVER = ("ps_bcast", "ps_gather")
OPERATIONS = (*PARAMETER_SERVER, "allreduce")


@dataclass(frozen=True, order=True)
class At:
    """A cell of the paper's experiment."""

    operation: str
    policy: str
    library: str
    gpus: int

    @property
    def name(self) -> str:
        """`single MPICH`."""
        return f"{self.policy} {self.library}"

    def moved(self, policy: str) -> At:
        return replace(self, policy=policy)


@dataclass(frozen=True)
class PaperCells:
    """What a run has of the paper's cells, at one size asked for (bytes) and one step of isolation."""

    places: dict[At, Cell]
    size: int
    step: str | None
    in_blocks: bool

    @property
    def each(self) -> str:
        """What the numbers of `At` count: GPUs, or without any the workers."""
        return "worker" if all(cell.case["backend"] == "mpi" for cell in self.places.values()) else "GPU"

    def gpus(self, operation: str, policy: str, library: str) -> set[int]:
        """The numbers of GPUs (without: of workers) that a library was measured with."""
        return {at.gpus for at in self.places if (at.operation, at.policy, at.library) == (operation, policy, library)}


def steps(observed: Observed) -> list[str]:
    """The steps of isolation that the run has, the most isolated first: Docker's default, if it was measured."""
    names = {case.where.isolation for case in observed.cells if case.where.isolation is not None}
    return sorted(names, key=lambda step: -step_order(step))


def paper_cells(observed: Observed, step: str | None) -> PaperCells:
    """The cells of policies `single` and `multi` at a step, at the largest size, native where it was measured."""
    chosen = [cell for cell in observed.cells.values() if _belongs(cell, step)]
    largest = max((cell.case["size"] for cell in chosen), default=0)
    places: dict[At, Cell] = {}
    for cell in sorted(chosen, key=lambda cell: (cell.case["driver"] != "native", cell.case["staging"] != "pinned")):
        name = library_of(observed, cell.case)
        if name is None or cell.case["size"] != largest:
            continue
        gpus = cell.case.where.ranks - (cell.case.workload in PARAMETER_SERVER)
        at = At(cell.case.workload, cell.case.where.policy, name, gpus)
        places.setdefault(at, cell)
        if name.startswith("NCCL ("):
            places.setdefault(replace(at, library="NCCL"), cell)
    return PaperCells(places, largest, step, observed.interleaved)


def _belongs(cell: Cell, step: str | None) -> bool:
    case, where = cell.case, cell.case.where
    measured = bool(cell.medians) and min(cell.medians) > 0
    asked_for = case.workload in OPERATIONS and case["op"] in (None, "sum")
    placed = where.policy in ("single", "multi") and where.isolation == step and where.affinity == "near"
    return measured and asked_for and placed


def library_of(observed: Observed, case: Case) -> str | None:
    """The paper's name for the library of a case; None where the paper has none."""
    names = software(observed.manifests[0], case.where.image, case.where.on_host)["library"]
    mpi = next((name for name in ("Open MPI", "MPICH") if name in names), None)
    if case["backend"] in ("mpi", "mpi-staged"):
        return mpi
    if case["backend"] == "mpi-cuda" and mpi == "Open MPI":
        return "CUDA-aware Open MPI"
    if case["backend"] == "nccl":
        return "NCCL" if mpi is None else f"NCCL ({mpi})"
    return None
