"""Which launches of a block live at once: those that measure alike on the same processors, as far as they can."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collbench import workloads
from collbench.bindings.operations import USABLE_SHARE, available_bytes
from collbench.collectives.case import CollectiveCase
from collbench.launch import engines
from collbench.launch.cells import Launch, LaunchCell, Part
from collbench.launch.expansion import ExpandedPlan, buffers
from collbench.schema.case import Case
from collbench.schema.record import Alone
from collbench.workloads.program import ProgramCase

#: Most worlds that live at once. Of more, each group has the reference among them.
MOST_WORLDS = 6


@dataclass(frozen=True)
class Group:
    """Launches that live at once, in the order in which they are started; of one, why it is `alone`.

    All others are compared by way of `reference`, if there is one; where it `repeats`, its records are known already,
    or come from another group.
    """

    launches: tuple[Launch, ...]
    alone: Alone | None = None
    reference: Launch | None = None
    repeats: bool = False


def groups_of(
    expanded: ExpandedPlan, launches: Sequence[Launch], refused: Mapping[object, Alone], free: int | None = None,
    left: Collection[Launch] | None = None,
) -> tuple[Group, ...]:  # fmt: skip
    """The launches of a block, in groups, in the order of their first launches.

    `refused` says of sets of processors with an image that their worlds cannot live at once, and why. `free` is memory
    in bytes; None: ask. Of a block that was interrupted, those that are `left` are in the groups that they were in.
    """
    remaining = frozenset(launches if left is None else left)
    together: dict[object, list[Launch]] = {}
    for launch in launches:
        alone = why_alone(expanded, launch.cell)
        together.setdefault(launch if alone else key_of(expanded, launch.cell), []).append(launch)
    found: list[Group] = []
    for key, whole in together.items():
        members = tuple(launch for launch in whole if launch in remaining)
        alone = why_alone(expanded, whole[0].cell) or refused.get(key) or _too_large(expanded, whole, free)
        if alone is None and len(whole) > MOST_WORLDS:
            found += _around_reference(expanded, whole, remaining)
            continue
        alone = alone or ("single" if len(members) == 1 else None)
        if alone is not None:
            found += [Group((launch,), alone) for launch in members]
        elif members:
            found.append(Group(members))
    return tuple(found)


def at_once(expanded: ExpandedPlan) -> dict[LaunchCell, Alone | int]:
    """Of each cell how many worlds live at once where its own does, in a block of all cells; or why it is alone."""
    first = [launch for launch in expanded.order if launch.number == 0]
    found: dict[LaunchCell, Alone | int] = {}
    for group in groups_of(expanded, first, {}):
        for launch in group.launches:
            found.setdefault(launch.cell, group.alone or len(group.launches))
    return {cell: found[cell] for cell in expanded.cells}


def key_of(expanded: ExpandedPlan, cell: LaunchCell) -> object:
    """Cells with the same can live at once: the plan's image, the world with its hosts, and each rank's processors."""
    cores = tuple(slot.cores for slot in expanded.placements[cell].slots)
    return cell.plan_image, cell.hosts, cell.ranks, cell.servers, cores


def why_alone(expanded: ExpandedPlan, cell: LaunchCell) -> Alone | None:
    """Why no other world can live beside one of this cell; None: one can."""
    placement, engine = expanded.placements[cell], engines.get(cell.engine)
    reasons: tuple[tuple[bool, Alone], ...] = (
        (expanded.plan.how == "blocks", "plan"),
        (not (engine.local or engine.overlaps), "engine"),
        (bool(placement.gpus) or expanded.plan.device == "gpu", "gpus"),
        (not all(map(_takes_turns, expanded.cases[cell])), "programs"),
        (placement.crowded, "oversubscribed"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _takes_turns(case: CollectiveCase | ProgramCase) -> bool:
    return isinstance(case, CollectiveCase) or workloads.get(case.case.workload).takes_turns


def _memory(case: CollectiveCase | ProgramCase) -> int:
    return case.memory if isinstance(case, ProgramCase) else buffers(case)


def _too_large(expanded: ExpandedPlan, members: Sequence[Launch], free: int | None) -> Alone | None:
    """Each world holds the buffers of the case that all of them measure; what other machines have is not known."""
    if not engines.get(members[0].cell.engine).local:
        return None
    free = available_bytes() if free is None else free
    largest = [max(map(_memory, expanded.cases[launch.cell])) for launch in members]
    needed = sum(sorted(largest)[-MOST_WORLDS:])
    return "memory" if free is not None and needed > free * USABLE_SHARE else None


def _around_reference(expanded: ExpandedPlan, members: Sequence[Launch], left: Collection[Launch]) -> Iterator[Group]:
    """Equally large groups that all have the first launch in the plan's order, which measures what the others do.

    Of members that are not `left`, only the reference is in a group.
    """
    positions = {cell: position for position, cell in enumerate(expanded.cells)}
    reference = min(members, key=lambda launch: positions[launch.cell])
    others = [launch for launch in members if launch is not reference]
    number = -(-len(others) // (MOST_WORLDS - 1))
    for turn in range(number):
        of_group = [launch for launch in others[turn::number] if launch in left]
        repeats = turn > 0 or reference not in left
        if not of_group:
            if not repeats:
                yield Group((reference,), "single", reference)
            continue
        # it is started where it stands among all, so that which world is started first is as random as without it
        started = [launch for launch in members if launch is reference or launch in of_group]
        repeated = _measuring(expanded, reference, of_group) if repeats else reference
        started = [repeated if launch is reference else launch for launch in started]
        yield Group(tuple(started), None, repeated, repeats)


def _measuring(expanded: ExpandedPlan, reference: Launch, others: Iterable[Launch]) -> Launch:
    """The reference, of which only what these launches measure is executed."""
    wanted: set[Case] = set()
    brief: set[Case] = set()
    for launch in others:
        part = launch.only or Part(expanded.expected[launch.cell])
        wanted |= part.measured
        brief |= part.brief
    own = expanded.expected[reference.cell]
    measured = frozenset(wanted & own)
    if measured == own:
        return replace(reference, only=None)
    return replace(reference, only=Part(measured, frozenset(brief & own) - measured))
