"""A policy: which ranks share a container."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collbench.launch.slots import Slot
from collbench.machine.topology import Topology

#: The ranks of each container, container by container.
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Policy:
    """A way to put ranks into containers. Pure: it is asked before anything is started.

    `groups(ranks, k, topology)`: `ranks` are the slots of the ranks, by rank (processors, memory nodes, GPU); `k` is
    the number that the plan gives (`packed:4`), 0 where the policy does not take one; `topology` is the machine. The
    result are the ranks of each container: every rank from 0 on, in order, because an MPI numbers its ranks container
    by container. It may raise PlanError where the policy does not fit.

    `takes_number`: it is spelled NAME:K. `in_containers` is False for the host. `server_apart`: every parameter server
    has a container of its own, and `groups` is asked about the workers alone. `note(groups, topology)` is what a reader
    of the plan and of the records must know of these groups; may be empty.
    """

    name: str
    summary: str
    groups: Callable[[Sequence[Slot], int, Topology], Groups]
    takes_number: bool = False
    in_containers: bool = True
    server_apart: bool = False
    note: Callable[[Groups, Topology], str] = lambda groups, topology: ""

    @property
    def spelling(self) -> str:
        """As a plan names it: `single`, `packed:K`."""
        return f"{self.name}:K" if self.takes_number else self.name
