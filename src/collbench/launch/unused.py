"""Keys of a launch plan without effect, steps that its engine lacks, values that it lists twice: perhaps not meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collbench.launch import engines
from collbench.launch.expansion import ExpandedPlan
from collbench.schema.launch_plan import LaunchPlan


def unused(expanded: ExpandedPlan) -> tuple[str, ...]:
    """A line for each; of a key only where its value is not the default."""
    return (*expanded.left_out, *_without_effect(expanded), *_listed_twice(expanded.plan))


def indistinct_sides(plan: LaunchPlan) -> Iterator[str]:
    """A line on a side that is alone, and on each group of sides that are equal: a self-test alone asks for these."""
    if len(plan.sides) == 1:
        yield f"sides: {next(iter(plan.sides))} is the only one, so nothing is compared by side"
    groups: list[tuple[LaunchPlan, list[str]]] = []
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
    plan, usual = expanded.plan, LaunchPlan(images=expanded.plan.images)
    in_containers = {cell.engine != engines.HOST for cell in expanded.cells}
    reasons = {
        "isolation": "" if True in in_containers else "no policy has containers",
        "seccomp": "" if True in in_containers else "no policy has containers",
        "environments": "" if False in in_containers else "every policy has containers",
        "storage": "" if any(cell.storage for cell in expanded.cells) else "no benchmark works in files",
    }
    reasons["folder"] = reasons["storage"]
    for key, why in reasons.items():
        if why and getattr(plan, key) != getattr(usual, key):
            yield f"{key}: has no effect, because {why}"


def _listed_twice(plan: LaunchPlan) -> Iterator[str]:
    lists: list[tuple[str, Any]] = [(key, getattr(plan, key)) for key in plan.__struct_fields__]
    for benchmark in plan.benchmarks:
        if isinstance(benchmark, dict):
            lists += [(f"benchmark {benchmark.get('name')}: {key}", values) for key, values in benchmark.items()]
    for key, values in lists:
        if isinstance(values, tuple | list):
            repeated = [value for index, value in enumerate(values) if value in values[:index]]
            yield from dict.fromkeys(f"{key}: {value!r} is listed twice, and measured once" for value in repeated)
