"""The software of every cell: what each image holds on each engine, and how the host's environment differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collbench import backends
from collbench.errors import PlanError
from collbench.launch import engines, starters
from collbench.launch.cells import LaunchCell, backends_of
from collbench.launch.engines.spec import Look, Session, Stack
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.probe import Contents
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Image


@dataclass(frozen=True)
class Stacks:
    """By engine and image what to start, and what the manifest says of images, environments and their differences."""

    start: dict[tuple[str, str], Stack]
    images: tuple[Image, ...]
    environments: tuple[Image, ...]
    differences: tuple[str, ...]

    def of(self, cell: LaunchCell) -> Stack:
        """What a cell runs."""
        return self.start[cell.engine, cell.image]


def look_at(expanded: ExpandedPlan, sessions: Mapping[str, Session]) -> Stacks:
    """Ask every engine of a plan what the images hold there; the host last, which needs the same of an environment.

    Raises:
        ImageMissing: an image is not there, or does not hold an MPI and this collbench.
        EngineError: the engine cannot give what every launch needs.
        PlanError: a backend is missing; no environment of the same MPI stands beside an image.
    """
    plan, vendors, remarks = expanded.plan, dict[str, str](), list[str]()
    looks: dict[str, dict[str, Look]] = {}
    for name in sorted(sessions, key=lambda name: name == engines.HOST):
        found = sessions[name].look(plan, expanded.placements_on(name), vendors)
        looks[name] = dict(found.by_image)
        remarks += found.remarks
        for image, look in found.by_image.items():
            refuse_missing(plan, image, look)
            vendors.setdefault(image, look.contents.vendor)
    start = {(name, image): stack_of(plan, image, look) for name in looks for image, look in looks[name].items()}
    beside = looks.pop(engines.HOST, {})
    differences = [
        f"{image} differs besides the container: {line}"
        for inside in looks.values()
        for image, look in inside.items()
        if image in beside
        for line in differences_of(beside[image].contents, look.contents)
    ]
    images = tuple(_image(image, look) for inside in looks.values() for image, look in inside.items())
    environments = tuple(_image(image, look) for image, look in beside.items())
    return Stacks(start, images, environments, (*differences, *remarks))


def stack_of(plan: LaunchPlan, image: str, look: Look) -> Stack:
    """What a cell runs, of what was seen of its image.

    Raises:
        ImageMissing: it holds no library that can be started.
    """
    starter = starters.get(look.contents.vendor, image)
    nccl = any("nccl" in one for one in backends_of(plan, image))
    return Stack(starter, look.reference, look.refused, nccl, look.grants)


def _image(name: str, look: Look) -> Image:
    held = look.contents
    return Image(
        name=name, id=look.id, digests=look.digests, labels=look.labels, python=held.python, libraries=held.libraries,
        packages=held.packages,
    )  # fmt: skip


def refuse_missing(plan: LaunchPlan, name: str, look: Look) -> None:
    """Every backend that a plan wants of an image must be in it, and on the host's side too; one, where it may skip."""
    wanted, known, where = backends_of(plan, name), look.contents, look.title
    if plan.unusable == "skip" and any(known.lacks(backend) is None for backend in wanted):
        return
    for backend in wanted:
        if (reason := known.lacks(backend)) is not None:
            usable = [one.name for one in backends.every() if known.lacks(one.name) is None and not one.simulated]
            has = f"It has {', '.join(usable) or 'none'}: say image_backends = {{ {name} = [...] }}, or backends."
            if backends.get(backend).device == "gpu" and known.cuda is None and look.id is not None:
                has = f"Build it for GPUs: collbench image build {name} --cuda 12 (or 13). {has}"
            raise PlanError(f"{where}: backend {backend}: {reason}. {has}")


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
