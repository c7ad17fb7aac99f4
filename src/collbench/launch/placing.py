"""Where the ranks of a cell are placed on a machine: slots, and boxes of ranks that share a container."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec

from collbench.errors import PlanError
from collbench.launch import placement
from collbench.launch.cells import LaunchCell
from collbench.launch.slots import BY_DEVICE, Slot, Wants
from collbench.machine.facts import format_cores
from collbench.machine.topology import Topology
from collbench.schema.plan import LaunchPlan
from collbench.units import counted


@dataclass(frozen=True)
class Box:
    """One container (or a host): its ranks with their slots, in the same order. `host` is its machine, from 0."""

    name: str
    ranks: tuple[int, ...]
    slots: tuple[Slot, ...]
    host: int = 0

    @property
    def cores(self) -> str:
        """All its processors, in the kernel's list format."""
        return format_cores({core for slot in self.slots for core in slot.cores})

    @property
    def nodes(self) -> str:
        """All its memory nodes, in the same format."""
        return format_cores({node for slot in self.slots for node in slot.nodes})

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of its ranks' GPUs."""
        return tuple(slot.gpu for slot in self.slots if slot.gpu is not None)


@dataclass(frozen=True)
class Placement:
    """Where every rank of a world is placed. `crowded`: some share a core, as its hardware threads or in turns.

    `load` are how many ranks are on how many cores, of the host where most share one. `idle` are processors of the
    machine that no rank gets. `note` is the policy's remark on it; may be empty. On
    each of several hosts processors have the same numbers.
    """

    boxes: tuple[Box, ...]
    crowded: bool = False
    idle: tuple[int, ...] = ()
    note: str = ""
    load: tuple[int, int] = (0, 0)

    @property
    def shares_boxes(self) -> bool:
        """Whether some box holds several ranks."""
        return any(len(box.ranks) > 1 for box in self.boxes)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Slots by rank."""
        by_rank = {rank: slot for box in self.boxes for rank, slot in zip(box.ranks, box.slots, strict=True)}
        return tuple(by_rank[rank] for rank in sorted(by_rank))

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(uuid for box in self.boxes for uuid in box.gpus)


def place(topology: Topology, cell: LaunchCell, plan: LaunchPlan) -> Placement:
    """Boxes for a cell of a plan on a machine, or on several that are alike; its step makes no difference.

    Raises:
        PlanError: more is asked for than there is, and the plan does not say `oversubscribe`; there is no such policy,
            or it does not fit; the ranks cannot be spread evenly.
    """
    if cell.hosts > 1:
        return _over_hosts(topology, cell, plan)
    policy, number = placement.find(cell.policy)
    cores = plan.cores_per_rank or ("share" if plan.device == "gpu" else 1)
    wants = Wants(cell.ranks, cell.servers, cores, cell.affinity == "far", plan.oversubscribe)
    without = _without_gpus(plan, topology)
    by_rank = BY_DEVICE["cpu" if without else plan.device](topology, wants)
    if plan.spare == "chief":
        by_rank = _with_spare(by_rank, cell.servers, topology)
    groups = placement.groups_of(policy, number, by_rank, topology, cell.servers)
    boxes = tuple(Box(f"c{i}", ranks, tuple(by_rank[rank] for rank in ranks)) for i, ranks in enumerate(groups))
    used = {core for slot in by_rank for core in slot.cores}
    on_core = Counter(core for slot in by_rank for core in topology.physical(slot.cores))
    idle = tuple(core.number for core in topology.in_order if core.number not in used)
    crowded = any(count > 1 for count in on_core.values())
    load = (len(by_rank), len(on_core))
    return Placement(boxes, crowded, idle, without or policy.note(groups, topology), load)


def _over_hosts(topology: Topology, cell: LaunchCell, plan: LaunchPlan) -> Placement:
    """As many ranks on each host, in the order of ranks; servers on the first, with as many cores as a worker has."""
    *servers, workers = cell.parts
    each, left = divmod(workers.ranks, workers.hosts)
    if left or not each:
        who, beside = ("worker", " beside that of the servers") if servers else ("rank", "")
        raise PlanError(
            f"{counted(workers.ranks, who)} cannot be spread evenly over {counted(workers.hosts, 'host')}{beside}. "
            "Take a multiple of it."
        )
    on_each = place(topology, replace(workers, hosts=1, ranks=each), plan)
    hosts = [on_each] * workers.hosts
    for part in servers:
        cores = min(len(slot.cores) for slot in on_each.slots)
        as_workers = msgspec.structs.replace(plan, device="cpu", cores_per_rank=cores)
        hosts.insert(0, place(topology, part, as_workers))
    fullest = max(hosts, key=lambda host: (host.crowded, Fraction(*host.load)))
    return replace(on_each, boxes=_numbered(hosts), crowded=fullest.crowded, load=fullest.load)


def _numbered(hosts: Iterable[Placement]) -> tuple[Box, ...]:
    """The boxes of all hosts, their ranks counted over all of them."""
    boxes: list[Box] = []
    for number, host in enumerate(hosts):
        first = sum(len(box.ranks) for box in boxes)
        boxes += [Box(f"h{number}{box.name}", tuple(first + rank for rank in box.ranks), box.slots, number)
                  for box in host.boxes]  # fmt: skip
    return tuple(boxes)


def _with_spare(by_rank: tuple[Slot, ...], chief: int, topology: Topology) -> tuple[Slot, ...]:
    """The slots with the processors of cores that no other rank has added to those of the chief, the first worker."""
    own = by_rank[chief]
    others = topology.physical({core for slot in by_rank if slot is not own for core in slot.cores})
    spare = [core for core in topology.in_order if core.physical not in others]
    larger = Slot(
        tuple(sorted({*own.cores, *(core.number for core in spare)})),
        tuple(sorted({*own.nodes, *(core.node for core in spare)})), own.gpu,
    )  # fmt: skip
    return (*by_rank[:chief], larger, *by_rank[chief + 1 :])


def _without_gpus(plan: LaunchPlan, topology: Topology) -> str:
    """A note where benchmarks of GPUs are planned on cores, because no GPU is there and they may be skipped."""
    if plan.device != "gpu" or topology.gpus or plan.collectives or plan.unusable != "skip":
        return ""
    reason = f" ({topology.no_gpus})" if topology.no_gpus else ""
    return f"{topology.name} offers no GPU{reason}: benchmarks that need one are skipped"
