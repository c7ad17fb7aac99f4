"""What `launch` would refuse, skip or ignore of a plan on this machine, as far as that is known before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collbench.errors import PlanError, suggestion
from collbench.launch import engines, launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import Looks
from collbench.launch.expansion import ExpandedPlan, at_once, refuse_too_large
from collbench.launch.folders import refuse_unusable_folder
from collbench.launch.placement import Placement
from collbench.launch.shipped import dockerfiles
from collbench.launch.stacks import Missing, StackKey, looked_at_together, refuse_missing
from collbench.schema.plan import Plan, named_sides

#: Sides of a plan that are looked at together; `(None,)` where it has none.
Sides = tuple[str | None, ...]


@dataclass(frozen=True)
class Preview:
    """A line for each: memory and folders that are lacking, and what the host lacks of the plan or of a side.

    What images hold only their engine knows; of an image that nobody has heard of here the name is doubted. `missing`
    are the benchmarks that the host lacks.
    """

    lines: tuple[str, ...]
    missing: Missing


def preview_of(expanded: ExpandedPlan) -> Preview:
    """Look at this machine, and at the environments of the host that a plan and its sides name."""
    plan, lines = expanded.plan, list[str]()
    missing: dict[StackKey, Mapping[str, str]] = {}

    @contextlib.contextmanager
    def refusing(sides: Sides = (None,)) -> Iterator[None]:
        try:
            with named_sides(sides):
                yield
        except PlanError as error:
            lines.append(f"collbench launch would refuse this plan here: {error}")

    lines += _unknown_images(plan)
    with refusing():
        refuse_too_large(plan, expanded.cases)
    with refusing():
        refuse_unusable_folder(expanded.cells, plan.storage_folder)
    for sides in looked_at_together(plan):
        looks, of_sides = Looks({}), plan.of_sides(sides)
        with refusing(sides):
            looks = _look_at_host(expanded, sides)
        for image, look in looks.by_image.items():
            missing |= {(engines.HOST, image, side): look.contents.missing_benchmarks for side in sides}
            if plan.unusable == "skip":
                lines += [f"collbench launch would skip {benchmark} on the host, beside the image {image}: {why}"
                          for benchmark, why in look.contents.missing_benchmarks.items()]  # fmt: skip
            with refusing(sides):
                refuse_missing(of_sides, image, look)
    return Preview(tuple(lines), missing)


def _unknown_images(plan: Plan) -> Iterator[str]:
    """A name without a tag or a slash that none of the images of this collbench has may be one of the user's own."""
    known = tuple(dockerfiles())
    for image in dict.fromkeys(image for side in plan.sides or (None,) for image in plan.of_sides((side,)).images):
        if known and image not in known and not {"/", ":"} & set(image):
            hint = suggestion(image, known)
            names = [name for name, side in plan.sides.items() if image in side.images.values()]
            of_side = f"side {', '.join(names)}: " if names and image not in plan.images else ""
            yield f"{of_side}image {image}: none that comes with collbench; it must be one of your own. {hint}"


def _look_at_host(expanded: ExpandedPlan, sides: Sides) -> Looks:
    """The environments that the host uses for some sides.

    Ranks that communicate need the library of their image, which the engine knows. Where there is one, only the
    environments that the plan names are looked at, of images whose names say the library.
    """
    plan, cells = expanded.plan.of_sides(sides), [cell for cell in expanded.cells if cell.side in sides]
    asks_engine = bool(plan.collectives) and any(cell.engine != engines.HOST for cell in cells)

    def known(cell: LaunchCell) -> bool:
        return cell.image in plan.environments and any(vendor in cell.image for vendor in launchers.names())

    host: dict[LaunchCell, Placement] = {
        cell: placement for cell, placement in expanded.placements_on(engines.HOST).items()
        if cell.side in sides and (not asks_engine or known(cell))
    }  # fmt: skip
    return engines.get(engines.HOST).connect(plan, lambda: None).look(plan, host, {}) if host else Looks({})


def ignored_keys(expanded: ExpandedPlan) -> tuple[str, ...]:
    """A line for each; of a key only where its value is not the default."""
    return (*expanded.left_out, *_without_effect(expanded), *_listed_twice(expanded.plan))


def indistinct_sides(plan: Plan) -> Iterator[str]:
    """A line on a side that is alone, and on each group of sides that are equal: a self-test alone asks for these."""
    if len(plan.sides) == 1:
        yield f"sides: {next(iter(plan.sides))} is the only one, so nothing is compared by side"
    groups: list[tuple[Plan, list[str]]] = []
    for name in plan.sides:
        of_side = plan.of_sides((name,))
        alike = next((names for known, names in groups if known == of_side), None)
        if alike is None:
            groups.append((of_side, [name]))
        else:
            alike.append(name)
    for _, names in groups:
        if len(names) > 1:
            yield f"sides: {', '.join(names)} are equal, so a difference between them is a false positive"


def _without_effect(expanded: ExpandedPlan) -> Iterator[str]:
    plan, usual = expanded.plan, Plan(images=expanded.plan.images)
    in_containers = {cell.engine != engines.HOST for cell in expanded.cells}
    reasons = {
        "isolation": "" if True in in_containers else "no policy has containers",
        "seccomp": "" if True in in_containers else "no policy has containers",
        "environments": "" if False in in_containers else "every policy has containers",
        "storage": "" if any(cell.storage for cell in expanded.cells) else "no benchmark works in files",
    }
    reasons["folder"] = reasons["storage"]
    if plan.collectives and all(isinstance(one, int) for one in at_once(expanded).values()):
        reasons["budget"] = "duets have slices of fixed length"
    for key, why in reasons.items():
        if why and getattr(plan, key) != getattr(usual, key):
            yield f"{key}: has no effect, because {why}"


def _listed_twice(plan: Plan) -> Iterator[str]:
    lists: list[tuple[str, Any]] = [(key, getattr(plan, key)) for key in plan.__struct_fields__]
    for benchmark in plan.benchmarks:
        if isinstance(benchmark, dict):
            lists += [(f"benchmark {benchmark.get('name')}: {key}", values) for key, values in benchmark.items()]
    for key, values in lists:
        if isinstance(values, tuple | list):
            repeated = [value for index, value in enumerate(values) if value in values[:index]]
            yield from dict.fromkeys(f"{key}: {value!r} is listed twice, and measured once" for value in repeated)
