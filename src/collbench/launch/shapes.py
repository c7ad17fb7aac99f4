"""Worlds whose machines and cores others choose: the shape that ranks are told, and the library of an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from collbench.errors import PlanError
from collbench.launch import starters
from collbench.launch.cells import LaunchCell, communicates
from collbench.launch.placing import Placement
from collbench.launch.starters.starter import PROCESS, Starter
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.place import Boxes, Shape


def each_of(cell: LaunchCell) -> int:
    """Ranks of a cell on each host."""
    return cell.ranks // cell.hosts


def parts_of(cell: LaunchCell, placement: Placement) -> tuple[tuple[LaunchCell, Placement], ...]:
    """The parts of a cell, each with the boxes of its hosts."""
    found, first = [], 0
    for part in cell.parts:
        boxes = tuple(box for box in placement.boxes if first <= box.host < first + part.hosts)
        found.append((part, replace(placement, boxes=boxes)))
        first += part.hosts
    return tuple(found)


def cores_of(placement: Placement) -> int:
    """Of each rank: the fewest, where they differ."""
    return min(len(slot.cores) for slot in placement.slots)


def shape_of(cell: LaunchCell, placement: Placement) -> Shape:
    """What ranks compare with what they find, of a cell whose hosts are alike."""
    shared = len(placement.boxes[0].ranks)
    boxes: Boxes = "rank" if cell.policy == "single" else "host" if shared == each_of(cell) else shared
    return Shape(
        hosts=cell.hosts, each=each_of(cell), cores=cores_of(placement),
        boxes="none" if cell.isolation is None else boxes, crowded=placement.crowded,
    )  # fmt: skip


def shapes_of(cell: LaunchCell, placement: Placement) -> tuple[Shape, ...]:
    """The same of every part of a cell."""
    return tuple(shape_of(part, placed) for part, placed in parts_of(cell, placement))


def library_of(image: str, libraries: Mapping[str, str], plan: LaunchPlan) -> str:
    """The library that an image stands for: as the site file says, or its name.

    Raises:
        PlanError: neither says it.
    """
    named = libraries.get(image) or next((name for name in starters.names() if name in image), "")
    if not named and communicates(plan):
        raise PlanError(f"image {image}: its name does not say which library it holds. Say it in the site file: "
                        f"libraries = {{ {image} = \"openmpi\" }} ({', '.join(starters.names())}).")  # fmt: skip
    return named


def starter_of(image: str, libraries: Mapping[str, str], plan: LaunchPlan) -> Starter:
    """How the ranks of an image are started, before it was seen."""
    return starters.get(library_of(image, libraries, plan), image) if communicates(plan) else PROCESS
