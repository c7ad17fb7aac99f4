"""The two sides of a comparison: what each image holds, which environment stands beside it, and how they differ."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

import collbench
from collbench import backends
from collbench.errors import ImageMissing, PlanError
from collbench.launch import host, starters
from collbench.launch.abilities import (
    allowed_calls,
    allows_memlock,
    ask,
    knows_cdi,
    refuse_unseen_folder,
    refuse_without_gpus,
    seals_networks,
)
from collbench.launch.cells import backends_of
from collbench.launch.engine import Engine
from collbench.launch.image_store import Resolved, inspect, resolve
from collbench.launch.placing import Placement
from collbench.launch.probe import Contents
from collbench.launch.rank_environment import Stack
from collbench.launch.settings import gpu_requests
from collbench.launch.stopping import StopCheck
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Image

#: Where `collbench image build` and the Dockerfiles put an image that is named without a slash or a colon.
REPOSITORY = "collbench"


@dataclass(frozen=True)
class Stacks:
    """By image: what to start, and what the manifest says of both sides and their differences."""

    start: dict[str, Stack]
    images: tuple[Image, ...]
    environments: tuple[Image, ...]
    differences: tuple[str, ...]


def reference_of(image: str) -> str:
    """`openmpi` as `collbench/openmpi`; a reference as it is."""
    return image if "/" in image or ":" in image else f"{REPOSITORY}/{image}"


def look_at(plan: LaunchPlan, engine: Engine | None, check: StopCheck, placements: Collection[Placement]) -> Stacks:
    """Ask every image and every environment of a plan what it holds. `engine` is None where all cells are on the host.

    `placements` are those of all its cells; `check` raises when we are to stop.

    Raises:
        ImageMissing: an image is not there, or does not hold an MPI and this collbench.
        EngineError: the engine cannot give what every launch needs.
        PlanError: no environment of the same MPI stands beside an image.
    """
    gpus = max((placement.gpus for placement in placements), key=len, default=())
    images = {name: None if engine is None else find(engine, name) for name in plan.images}
    first = images[plan.images[0]]
    cdi = engine is not None and bool(gpus) and knows_cdi(engine.describe())
    if engine is not None and first is not None:
        refuse_unseen_folder(engine, first, plan.inner())
        if gpus:
            refuse_without_gpus(engine, first, gpus, cdi)
    requests = gpu_requests(gpus, cdi) if engine is not None else []
    looks = []
    for name, image in images.items():
        check()
        looks.append(_look(plan, engine, name, image, check, requests, placements))
    differences = [line for look in looks for line in look.differences]
    memlock = sealed = True
    if engine is not None and first is not None:
        memlock = set(plan.isolation) == {"strict"} or allows_memlock(engine, first)
        sealed = seals_networks(engine)
    if not memlock:
        differences.append("the engine cannot grant unlimited memlock, so the step limits goes without (ulimit -l)")
    if not sealed:
        differences.append("the engine cannot keep the host's address off a network: ranks reach what listens there")
    return Stacks(
        {look.name: replace(look.side, memlock=memlock, sealed=sealed, cdi=cdi) for look in looks},
        tuple(look.image for look in looks if look.image is not None),
        tuple(look.environment for look in looks if look.environment is not None),
        tuple(differences),
    )


@dataclass(frozen=True)
class _Look:
    """What was found of one image of a plan, and of the environment beside it."""

    name: str
    side: Stack
    image: Image | None
    environment: Image | None
    differences: tuple[str, ...]


def _look(
    plan: LaunchPlan, engine: Engine | None, name: str, image: Resolved | None, check: StopCheck, requests: list[Any],
    placements: Collection[Placement],
) -> _Look:  # fmt: skip
    on_host = any(not placement.in_containers for placement in placements)
    inside = None if engine is None or image is None else contents_of(engine, image, requests=requests)
    beside, where = _beside(plan, name, inside) if on_host else (None, None)
    known = inside or beside
    assert known is not None
    _refuse_missing(plan, name, inside, f"image {name}")
    _refuse_missing(plan, name, beside, f"the environment beside {name} ({where})")
    check()
    starter, refused = starters.get(known.vendor, name), frozenset[str]()
    shared = any(placement.shares_containers for placement in placements)
    if engine is not None and image is not None and shared and starter.attach:
        refused = starter.attach - allowed_calls(engine, image)
    differences = () if inside is None or beside is None else differences_of(beside, inside)
    return _Look(
        name,
        Stack(
            starter,
            name if image is None else image.id,
            where,
            refused=refused,
            nccl=any("nccl" in one for one in backends_of(plan, name)),
        ),
        None if engine is None or image is None or inside is None else _image(name, inside, inspect(engine, image.id)),
        None if beside is None else _image(name, beside),
        tuple(f"{name} differs besides the container: {line}" for line in differences),
    )


def find(engine: Engine, name: str) -> Resolved:
    """The image that a plan names; raises `ImageMissing`, with how to get it, where it is not on the engine."""
    try:
        return resolve(engine, reference_of(name))
    except ImageMissing as error:
        hint = "Pull it, or build it." if "/" in name or ":" in name else f"Build it: collbench image build {name}"
        raise ImageMissing(f"{error} {hint}") from error


def contents_of(engine: Engine, image: Resolved, build: bool = False, requests: list[Any] | None = None) -> Contents:
    """What an image says of itself, from inside; with `build`, how its MPI was built too.

    `requests` are the engine's device requests: without a GPU, backends that need one are missing.

    Raises:
        ImageMissing: it cannot say.
    """
    argv = ("python", "-m", "collbench.launch.probe", *(("--build",) if build else ()))
    code, said = ask(engine, image, argv, **({"device_requests": requests} if requests else {}))
    try:
        found = msgspec.json.decode(said.strip().splitlines()[-1] if said.strip() else "", type=Contents)
    except msgspec.DecodeError as error:
        last = said.strip().splitlines()[-1][:200] if said.strip() else f"exit code {code}"
        raise ImageMissing(f"image {image.name}: does not hold collbench ({last}).") from error
    if found.collbench != collbench.__version__:
        held = f"image {image.name}: holds collbench {found.collbench}, this is {collbench.__version__}."
        raise ImageMissing(f"{held} Build it again: collbench image build {image.name.removeprefix(f'{REPOSITORY}/')}")
    return found


def _refuse_missing(plan: LaunchPlan, name: str, known: Contents | None, where: str) -> None:
    """Every backend that a plan wants of an image must be in it, and on the host's side too; one, where it may skip."""
    wanted = backends_of(plan, name)
    if known is None or (plan.unusable == "skip" and not set(wanted) <= set(known.missing)):
        return
    for backend in wanted:
        if backend in known.missing:
            there = [one for one in backends.names() if one not in known.missing and not backends.get(one).simulated]
            has = f"It has {', '.join(there) or 'none'}: say image_backends = {{ {name} = [...] }}, or backends."
            if backends.get(backend).device == "gpu" and known.cuda is None and where.startswith("image"):
                has = f"Build it for GPUs: collbench image build {name} --cuda 12 (or 13). {has}"
            raise PlanError(f"{where}: backend {backend}: {known.missing[backend]}. {has}")


def _beside(plan: LaunchPlan, name: str, inside: Contents | None) -> tuple[Contents, Path]:
    where = host.find_environment(name, plan.environments.get(name))
    wanted = _vendor_in(name) if inside is None else inside.vendor
    found = host.probe(where, wanted)
    if found.vendor != wanted:
        raise PlanError(
            f"policy host: image {name} stands for {wanted}, and the environment {where} holds "
            f"{found.vendor or 'no library that can be started'}. Name one that holds the same: "
            f'environments = {{ {name} = "PATH" }}; or make one (python3 -m venv .venvs/{name} && '
            f".venvs/{name}/bin/pip install 'collbench[{wanted}]', in a clone '.[{wanted}]'); or leave host out."
        )
    return found, where


def _vendor_in(name: str) -> str:
    """Which library an image stands for where no engine is asked: its name has to say it."""
    found = [vendor for vendor in starters.names() if vendor in name]
    if not found:
        raise PlanError(
            f"image {name!r}: no container is asked for, so its name must say which library the host is to use: "
            f"{', '.join(starters.names())}."
        )
    return found[0]


def _image(name: str, found: Contents, known: dict[str, Any] | None = None) -> Image:
    known = known or {}
    labels = (known.get("Config") or {}).get("Labels") or {}
    return Image(
        name=name,
        id=known.get("Id"),
        digests=tuple(known.get("RepoDigests") or ()),
        labels={key: str(value) for key, value in labels.items() if key.startswith("collbench.")},
        python=found.python,
        libraries=found.libraries,
        packages=found.packages,
    )


def differences_of(beside: Contents, inside: Contents) -> list[str]:
    """Where the host's environment and the image differ in anything but the container."""
    found = []
    if beside.python != inside.python:
        found.append(f"Python {beside.python} on the host, {inside.python} in the image")
    if beside.native != inside.native:
        found.append(f"the native loop is missing {'in the image' if beside.native else 'on the host'}")
    theirs = {library.name: library for library in inside.libraries}
    for out in beside.libraries:
        within = theirs.pop(out.name, None)
        if within is None:
            found.append(f"{out.name} {out.version} on the host, missing in the image")
        elif out.version != within.version:
            found.append(f"{out.name} {out.version} on the host, {within.version} in the image")
        elif out.sha256 != within.sha256:
            found.append(f"{out.name} {out.version}: two builds, {out.sha256} and {within.sha256}")
    found += [f"{library.name} missing on the host, {library.version} in the image" for library in theirs.values()]
    for package in sorted(set(beside.packages) | set(inside.packages)):
        there, here = beside.packages.get(package), inside.packages.get(package)
        if there != here and package != "torch":
            found.append(f"{package} {there or 'missing'} on the host, {here or 'missing'} in the image")
    return found
