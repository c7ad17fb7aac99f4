"""From a topology to slots, and from slots to boxes: which processors, memory nodes and GPUs each container gets."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.errors import PlanError
from collbench.launch.cells import Cell
from collbench.launch.placement import groups_of
from collbench.launch.topology import Core, Topology
from collbench.run.facts import format_cores


@dataclass(frozen=True)
class Slot:
    """What one rank gets: processors, all on one memory node where possible, and no GPU or one."""

    cores: tuple[int, ...]
    nodes: tuple[int, ...]
    gpu: str | None = None


@dataclass(frozen=True)
class Box:
    """One container (or the host): its ranks with their slots, in the same order."""

    name: str
    ranks: tuple[int, ...]
    slots: tuple[Slot, ...]

    @property
    def cores(self) -> str:
        """All its processors, in the kernel's list format."""
        return format_cores({core for slot in self.slots for core in slot.cores})

    @property
    def nodes(self) -> str:
        """All its memory nodes."""
        return format_cores({node for slot in self.slots for node in slot.nodes})


@dataclass(frozen=True)
class Placement:
    """Where every rank of a world sits. `crowded`: some share processors, because the plan allows it."""

    boxes: tuple[Box, ...]
    crowded: bool = False

    @property
    def slots(self) -> tuple[Slot, ...]:
        """By rank."""
        by_rank = {rank: slot for box in self.boxes for rank, slot in zip(box.ranks, box.slots, strict=True)}
        return tuple(by_rank[rank] for rank in sorted(by_rank))


def place(topology: Topology, cell: Cell, cores_per_rank: int = 1, oversubscribe: bool = False) -> Placement:
    """Boxes for a cell on a machine without GPUs, or with processors only.

    Raises:
        PlanError: more processors are asked for than there are, and the plan does not say `oversubscribe`.
    """
    wanted, there = cell.ranks * cores_per_rank, len(topology.cores)
    if wanted > there and not oversubscribe:
        raise PlanError(
            f"{cell.ranks} ranks with {cores_per_rank} cores each want {wanted} cores, and this machine offers "
            f"{there}. Lower ranks or cores_per_rank, or say oversubscribe = true (times are the scheduler's then)."
        )
    ordered = topology.in_order
    cores = tuple(ordered[i % there] for i in range(wanted))
    slots = [_slot(cores[r * cores_per_rank : (r + 1) * cores_per_rank]) for r in range(cell.ranks)]
    if cell.affinity == "far":
        slots = [Slot(slot.cores, _far(topology, slot)) for slot in slots]
    groups = groups_of(cell.policy, cell.ranks)
    boxes = tuple(Box(f"c{i}", ranks, tuple(slots[rank] for rank in ranks)) for i, ranks in enumerate(groups))
    return Placement(boxes, crowded=wanted > there)


def _slot(cores: tuple[Core, ...]) -> Slot:
    return Slot(tuple(sorted({c.number for c in cores})), tuple(sorted({c.node for c in cores})))


def _far(topology: Topology, slot: Slot) -> tuple[int, ...]:
    """The nodes that the slot is not on: its memory is to come from there."""
    others = tuple(sorted({core.node for core in topology.cores} - set(slot.nodes)))
    if not others:
        raise PlanError("affinity far: this machine has one memory node; there is no far. Leave it out.")
    return others
