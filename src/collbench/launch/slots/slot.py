"""A slot: what one rank gets of a machine; and what a world asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from collbench.errors import PlanError
from collbench.machine.topology import Core, Topology


@dataclass(frozen=True)
class Slot:
    """What one rank gets: processors, memory nodes, and no GPU or one (its UUID)."""

    cores: tuple[int, ...]
    nodes: tuple[int, ...]
    gpu: str | None = None


@dataclass(frozen=True)
class Wants:
    """What a world asks of a machine.

    The first `servers` ranks are parameter servers, which get no GPU. `cores`: processors for each rank, or `share`:
    all of them in equal parts. `far`: memory (and with GPUs, processors too) of another node.
    """

    ranks: int
    servers: int = 0
    cores: int | Literal["share"] = 1
    far: bool = False
    oversubscribe: bool = False


#: `slots(topology, wants)` -> one slot for each rank, in order. Raises PlanError where it does not fit.
Kind = Callable[[Topology, Wants], tuple[Slot, ...]]


def far_nodes(topology: Topology, near: Collection[int], who: str) -> tuple[int, ...]:
    """The memory nodes other than `near`, the nodes of `who`.

    Raises:
        PlanError: there is none.
    """
    others = tuple(node for node in topology.nodes if node not in near)
    if others:
        return others
    if len(topology.nodes) == 1:
        raise PlanError(f"affinity far: needs two memory nodes; {topology.name} has one. Leave it out.")
    raise PlanError(f"affinity far: {who} is near to every memory node of {topology.name}. Lower cores_per_rank.")


def slot_of(cores: tuple[Core, ...], gpu: str | None = None) -> Slot:
    """Processors with the memory of their own nodes."""
    return Slot(tuple(sorted({c.number for c in cores})), tuple(sorted({c.node for c in cores})), gpu)
