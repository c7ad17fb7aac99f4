"""What images hold and what an engine can give to their containers: found out before a launch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from collbench import workloads
from collbench.errors import ImageMissing
from collbench.launch import starters
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.abilities import (
    allowed_calls,
    allows_memlock,
    ask,
    knows_cdi,
    refuse_unseen_folder,
    refuse_without_gpus,
    refuse_without_host,
    seals_networks,
    storage_root,
)
from collbench.launch.engines.docker.containers import Docker
from collbench.launch.engines.docker.host_config import gpu_requests, mounts_of
from collbench.launch.engines.docker.image_store import Resolved, inspect, resolve
from collbench.launch.engines.docker.ladder import STEPS
from collbench.launch.engines.docker.specs import CDI, MEMLOCK, SEALED
from collbench.launch.engines.docker.specs import given as mounted
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.given import LIBRARY_PATH, NOTHING_GIVEN, Given, given_by
from collbench.launch.placing import Placement
from collbench.launch.probe import Contents
from collbench.launch.rank_environment import sharing_of
from collbench.launch.storage import refuse_other_device
from collbench.machine.mounts import under
from collbench.schema.launch_plan import LaunchPlan

#: The repository of images that are named without a slash or a colon: those that `collbench image build` makes.
REPOSITORY = "collbench"

#: Remarks on what an engine does not grant, for readers of the numbers.
_NOT_GRANTED = {
    MEMLOCK: "the engine cannot grant unlimited memlock: the step limits does not include it (ulimit -l)",
    SEALED: "the engine cannot keep the host's address off a network: ranks reach what listens there",
}


def reference_of(image: str) -> str:
    """`openmpi` as `collbench/openmpi`; a reference as it is."""
    return image if "/" in image or ":" in image else f"{REPOSITORY}/{image}"


def look_at(engine: Docker, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement]) -> Looks:
    """What every image of these cells holds, and what the engine can give: as `Session.look` says.

    Raises:
        ImageMissing: an image is missing, or does not hold this collbench and what its ranks need.
        EngineError: the engine cannot give what every launch needs.
    """
    images = {name: find(engine, name) for name in dict.fromkeys(cell.image for cell in placements)}
    first = next(iter(images.values()))
    gpus = max((placement.gpus for placement in placements.values()), key=len, default=())
    cdi = bool(gpus) and (engine.service.only_cdi or knows_cdi(engine.describe()))
    refuse_unseen_folder(engine, first, plan.inner())
    if gpus:
        refuse_without_gpus(engine, first, gpus, cdi)
    if any(sharing_of(cell).host for cell in placements):
        refuse_without_host(engine, first)
    contents = {}
    for name, image in images.items():
        engine.check()
        contents[name] = contents_of(
            engine, image, requests=gpu_requests(gpus, cdi), benchmarks=workloads.uses(plan.benchmarks),
            given=given_by(plan, _library_path(engine, image)),
        )  # fmt: skip
    memlock = all(cell.isolation == STEPS[0] for cell in placements) or allows_memlock(engine, first)
    abilities = {MEMLOCK: memlock, SEALED: seals_networks(engine), CDI: cdi}
    grants = frozenset(name for name, granted in abilities.items() if granted)
    shared = any(placement.shares_boxes for placement in placements.values())
    looks = {}
    for name, image in images.items():
        engine.check()
        looks[name] = _look(engine, name, image, contents[name], shared, grants)
    remarks = tuple(remark for name, remark in _NOT_GRANTED.items() if name not in grants)
    return Looks(looks, remarks, beneath=_beneath(engine, plan, placements))


def _beneath(engine: Docker, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement]) -> dict[str, str]:
    """By storage, the device that it is on.

    Raises:
        EngineError: the host's counterpart would be on another.
    """
    if not any(cell.storage for cell in placements):
        return {}
    root = storage_root(engine.describe())
    if "host" in plan.policies:
        refuse_other_device(placements, plan.folder, root)
    here, there = (under(Path(folder)).text for folder in (plan.folder, root))
    return {"overlay": there, "volume": there, "bind": here}


def _look(engine: Docker, name: str, image: Resolved, contents: Contents, shared: bool, grants: frozenset[str]) -> Look:
    """What is known of an image. `shared`: ranks share a container, and may read each other's memory."""
    attach = starters.get(contents.vendor, name).attach if shared else frozenset()
    refused = attach - allowed_calls(engine, image) if attach else frozenset()
    known = inspect(engine, image.id)
    labels = (known.get("Config") or {}).get("Labels") or {}
    return Look(
        contents, image.id, f"image {name}", str(known["Id"]), tuple(known.get("RepoDigests") or ()),
        {key: str(value) for key, value in labels.items() if key.startswith("collbench.")}, refused, grants,
        _library_path(engine, image),
    )  # fmt: skip


def _library_path(engine: Docker, image: Resolved) -> str:
    """The LD_LIBRARY_PATH that an image sets."""
    variables = (inspect(engine, image.id).get("Config") or {}).get("Env") or ()
    start = f"{LIBRARY_PATH}="
    return next((str(one).removeprefix(start) for one in variables if str(one).startswith(start)), "")


def find(engine: Docker, name: str) -> Resolved:
    """The image that a plan names.

    Raises:
        ImageMissing: it is not on the engine; the message says how to get it.
    """
    try:
        return resolve(engine, reference_of(name))
    except ImageMissing as error:
        hint = "Pull it, or build it." if "/" in name or ":" in name else f"Build it: collbench image build {name}"
        raise ImageMissing(f"{error} {hint}") from error


def contents_of(
    engine: Docker, image: Resolved, build: bool = False, requests: list[Any] | None = None,
    benchmarks: tuple[str, ...] = (), given: Given = NOTHING_GIVEN,
) -> Contents:  # fmt: skip
    """What `collbench.launch.probe` prints in an image; with `build`, how its MPI was built too.

    `requests` are the engine's device requests: without a GPU, backends that need one are missing. `given` is what a
    plan sets for its ranks, and so for this.

    Raises:
        ImageMissing: it does not hold this collbench.
    """
    argv = ("python", "-m", "collbench.launch.probe", *(("--build",) if build else ()), *benchmarks)
    settings: dict[str, Any] = {"device_requests": requests} if requests else {}
    if given.mounts():
        settings["mounts"] = mounts_of(mounted(given))
    if variables := {**given.variables, **given.inside()}:
        settings["variables"] = variables
    code, output = ask(engine, image, argv, **settings)
    last = output.strip().rpartition("\n")[2]
    try:
        contents = msgspec.json.decode(last, type=Contents)
    except msgspec.DecodeError as error:
        cause = last[:200] or f"exit code {code}"
        raise ImageMissing(f"image {image.name}: does not hold collbench ({cause}).") from error
    if contents.another is not None:
        again = f"collbench image build {image.name.removeprefix(f'{REPOSITORY}/')}"
        raise ImageMissing(f"image {image.name}: {contents.another}. Build it again: {again}")
    return contents
