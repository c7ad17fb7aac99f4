"""Cells of a launch plan and the order of their launches: pure, so that a plan can be shown before anything starts."""

from __future__ import annotations

import random
from dataclasses import dataclass

from collbench.launch.placement import groups_of
from collbench.schema.launch_plan import ISOLATIONS, Affinity, Isolation, LaunchPlan


@dataclass(frozen=True)
class Cell:
    """One way to start a world. `isolation` is None on the host. `image` names the MPI on the host too."""

    image: str
    policy: str
    isolation: Isolation | None
    ranks: int
    affinity: Affinity = "near"

    @property
    def title(self) -> str:
        """As it is shown: `openmpi single strict, 2 ranks`."""
        words = (self.image, self.policy, self.isolation, None if self.affinity == "near" else self.affinity)
        return f"{' '.join(word for word in words if word)}, {self.ranks} rank{'s' if self.ranks > 1 else ''}"


@dataclass(frozen=True)
class Launch:
    """One start of a cell: in the `number`-th block, as the `sequence`-th of the experiment, both from 0."""

    cell: Cell
    number: int
    sequence: int


def cells_of(plan: LaunchPlan) -> tuple[Cell, ...]:
    """Every combination, each once, in the plan's order."""
    found = [
        Cell(image, policy, step, ranks, affinity)
        for ranks in plan.ranks
        for image in plan.images
        for policy in plan.policies
        for affinity in plan.affinity
        for step in steps_of(policy, ranks, plan.isolation)
    ]
    return tuple(dict.fromkeys(found))


def steps_of(policy: str, ranks: int, asked: tuple[Isolation, ...]) -> tuple[Isolation | None, ...]:
    """The steps that differ for a policy: none on the host; a lone container has nobody to share namespaces with.

    What a step adds inside one container (limits, capabilities) it has up to `ipc`; a later one counts as that.
    """
    if policy == "host":
        return (None,)
    if len(groups_of(policy, ranks)) > 1:
        return asked
    last = ISOLATIONS.index("ipc")
    return tuple(dict.fromkeys(ISOLATIONS[min(ISOLATIONS.index(step), last)] for step in asked))


def order_of(plan: LaunchPlan) -> tuple[Launch, ...]:
    """Blocks that hold every cell once, each in a random order of its own that follows from the seed."""
    cells = cells_of(plan)
    found: list[Launch] = []
    for number in range(plan.launches):
        order = random.Random(f"{plan.seed}/{number}")  # noqa: S311 - an order, not a secret
        block = order.sample(cells, len(cells))
        found += [Launch(cell, number, position) for position, cell in enumerate(block, start=len(found))]
    return tuple(found)
