"""The software of every cell: what each image holds on each engine, and how the host's environment differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from collbench import backends
from collbench.errors import PlanError
from collbench.launch import engines, starters
from collbench.launch.cells import LaunchCell, backends_of, communicates
from collbench.launch.engines.spec import Look, Session, Stack
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.probe import Contents
from collbench.launch.starters.starter import PROCESS
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Host, Image, Library


@dataclass(frozen=True)
class Stacks:
    """By engine and image what to start; and what the manifest says of images, environments and their differences.

    `hosts` are the machines that ranks run on; none: the driver's.
    """

    start: dict[tuple[str, str], Stack]
    images: tuple[Image, ...]
    environments: tuple[Image, ...]
    differences: tuple[str, ...]
    hosts: tuple[Host, ...] = ()

    def of(self, cell: LaunchCell) -> Stack:
        return self.start[cell.engine, cell.image]


def look_at(expanded: ExpandedPlan, sessions: Mapping[str, Session]) -> Stacks:
    """Ask every engine of a plan what the images hold there; the host last, which needs the same of an environment.

    Raises:
        ImageMissing: an image is not there, or does not hold this collbench and what its ranks need.
        EngineError: the engine cannot give what every launch needs.
        PlanError: a backend is missing; no environment of the same MPI stands beside an image.
    """
    plan, vendors, remarks = expanded.plan, dict[str, str](), list[str]()
    by_engine: dict[str, dict[str, Look]] = {}
    beneath: dict[str, Mapping[str, str]] = {}
    hosts: list[Host] = []
    for name in sorted(sessions, key=lambda name: name == engines.HOST):
        looks = sessions[name].look(plan, expanded.placements_on(name), vendors)
        by_engine[name], beneath[name] = dict(looks.by_image), looks.beneath
        remarks += looks.remarks
        hosts += looks.hosts
        for image, look in looks.by_image.items():
            refuse_missing(plan, image, look)
            vendors.setdefault(image, look.contents.vendor)
    start = {
        (engine, image): replace(stack_of(plan, image, look), beneath=beneath[engine])
        for engine, by_image in by_engine.items()
        for image, look in by_image.items()
    }
    host = by_engine.pop(engines.HOST, {})
    inside = [(image, look) for by_image in by_engine.values() for image, look in by_image.items()]
    differences = [
        f"{image}: apart from the container, host and image differ: {line}"
        for image, look in inside
        if image in host
        for line in differences_of(host[image].contents, look.contents, communicate=communicates(plan))
    ]
    images = tuple(_image(image, look) for image, look in inside)
    environments = tuple(_image(image, look) for image, look in host.items())
    return Stacks(start, images, environments, (*differences, *remarks), tuple(hosts))


def stack_of(plan: LaunchPlan, image: str, look: Look) -> Stack:
    """What a cell runs, of what was seen of its image. Programs of one rank need no library.

    Raises:
        ImageMissing: it holds no library that can be started.
    """
    starter = starters.get(look.contents.vendor, image) if communicates(plan) else PROCESS
    nccl = any("nccl" in backend for backend in backends_of(plan, image))
    return Stack(starter, look.reference, look.refused, nccl, look.grants)


def _image(name: str, look: Look) -> Image:
    contents = look.contents
    return Image(
        name=name, id=look.id, digests=look.digests, labels=look.labels, python=contents.python,
        libraries=contents.libraries, packages=contents.packages,
    )  # fmt: skip


def refuse_missing(plan: LaunchPlan, name: str, look: Look) -> None:
    """Whether an image (or environment) has every backend that the plan wants of it; with `skip`, at least one.

    Raises:
        PlanError: a backend cannot be used in it; or a benchmark cannot, and the plan does not say `skip`.
    """
    wanted, contents = backends_of(plan, name), look.contents
    for benchmark, why in contents.missing_benchmarks.items():
        if plan.unusable == "refuse":
            raise PlanError(f'{look.title}: benchmark {benchmark}: {why}. Or set unusable = "skip".')
    if plan.unusable == "skip" and any(contents.lacks(backend) is None for backend in wanted):
        return
    for backend in wanted:
        if (reason := contents.lacks(backend)) is not None:
            usable = [own.name for own in backends.every() if contents.lacks(own.name) is None and not own.simulated]
            advice = f"It has {', '.join(usable) or 'none'}: set image_backends = {{ {name} = [...] }}, or backends."
            if backends.get(backend).device == "gpu" and contents.cuda is None and look.id is not None:
                advice = f"Build it for GPUs: collbench image build {name} --cuda 12 (or 13). {advice}"
            raise PlanError(f"{look.title}: backend {backend}: {reason}. {advice}")


def differences_of(host: Contents, image: Contents, communicate: bool = True) -> list[str]:
    """Where the host's environment and the image differ in anything but the container.

    Where ranks do not `communicate`, what they would need for that makes no difference.
    """
    differences = _version_differs("Python", host.python, image.python)
    if host.native != image.native:
        differences.append(f"the native loop is missing {'in the image' if host.native else 'on the host'}")
    host_libraries, image_libraries = (
        {(one.name, one.used_by): one for one in contents.libraries if communicate or one.used_by}
        for contents in (host, image)
    )
    for key in host_libraries | image_libraries:
        name = key[0]
        absent = Library(name=name, version="")
        ours, theirs = host_libraries.get(key, absent), image_libraries.get(key, absent)
        differences += _version_differs(name, ours.version, theirs.version)
        if ours.version == theirs.version and ours.sha256 != theirs.sha256:
            differences.append(f"{name} {ours.version}: two builds, {ours.sha256} and {theirs.sha256}")
    packages = {*host.packages, *image.packages} - {"torch"} if communicate else ()  # torch is among the libraries
    for package in sorted(packages):
        differences += _version_differs(package, host.packages.get(package), image.packages.get(package))
    return differences


def _version_differs(name: str, host: str | None, image: str | None) -> list[str]:
    return [] if host == image else [f"{name} {host or 'missing'} on the host, {image or 'missing'} in the image"]
