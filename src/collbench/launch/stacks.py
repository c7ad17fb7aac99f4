"""The software of every cell: what images and environments hold, asked of them where they run.

And what `launch` would refuse, skip or ignore of a plan on this machine, as far as that is known before it.

On a cluster every node is asked, because an environment or an image may be missing, or another one, on any of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from collbench import backends, workloads
from collbench.errors import EngineError, ImageMissing, LaunchFailed, PlanError, RequestError, suggestion
from collbench.launch import engines, expansion, launchers
from collbench.launch.cells import Launch, LaunchCell, backends_of, communicates
from collbench.launch.engines.spec import LaunchSession, Look, Looks, Stack, cleaned
from collbench.launch.expansion import ExpandedPlan, library_of, notes, places, user_of, world_of
from collbench.launch.folders import folders, refuse_unusable_folder
from collbench.launch.launchers import PROCESS, Argv
from collbench.launch.overrides import PRELOAD, overrides_of
from collbench.launch.probe import Contents
from collbench.launch.waiting import Log, StopCheck, whole_words
from collbench.machine import facts
from collbench.machine.facts import sha256_of
from collbench.machine.launcher import THREADS
from collbench.registry import dockerfiles
from collbench.run.cases import unused_parameters
from collbench.schema.manifest import Allocation, Host, Image, Library
from collbench.schema.plan import Plan, Side, check_launch_plan, named_sides
from collbench.schema.record import stem_of
from collbench.units import counted

#: Engine, image and side.
StackKey = tuple[str, str, str | None]

#: Why benchmarks cannot be measured somewhere, by their use (`workloads.uses`).
Missing = Mapping[StackKey, Mapping[str, str]]


@dataclass(frozen=True)
class Stacks:
    """By engine, image and side what to start; what the manifest says of images, environments and their differences.

    `hosts` are the machines that ranks run on; none: the driver's. `allocation` is what a resource manager gave.
    """

    start: dict[StackKey, Stack]
    images: tuple[Image, ...]
    environments: tuple[Image, ...]
    differences: tuple[str, ...]
    hosts: tuple[Host, ...] = ()
    allocation: Allocation | None = None
    missing: Missing = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the ranks of every image and environment find, with equal values."""
        first, *others = [image.environment or {} for image in (*self.images, *self.environments)] or [{}]
        return {name: value for name, value in first.items() if all(of.get(name) == value for of in others)}

    def of(self, cell: LaunchCell) -> Stack:
        return self.start[cell.engine, cell.image, cell.side]


def look_at(expanded: ExpandedPlan, sessions: Mapping[str, LaunchSession]) -> Stacks:
    """Ask every engine of a plan what the images hold there; the host last, which needs the same of an environment.

    Raises:
        ImageMissing: an image is not there, or does not hold this collbench and what its ranks need.
        EngineError: the engine cannot give what every launch needs.
        PlanError: a backend is missing, an environment of the same MPI beside an image, or the same priority of ranks.
    """
    start: dict[StackKey, Stack] = {}
    missing: dict[StackKey, Mapping[str, str]] = {}
    inside: dict[tuple[str | None, str], tuple[Contents, Image]] = {}
    bare: dict[tuple[str | None, str], tuple[Contents, Image]] = {}
    remarks, hosts = list[str](), list[Host]()
    watched = tuple(stem_of(path) for side in expanded.plan.sides.values() for path in (*side.libraries, *side.preload))
    allocation = None
    for sides in looked_at_together(expanded.plan):
        plan, vendors = expanded.plan.of_sides(sides), dict[str, str]()
        names = {(side, expanded.plan.image_of(side, image)): image for side in sides for image in expanded.plan.images}
        for engine in sorted(sessions, key=lambda name: name == engines.HOST):
            placements = {
                cell: placement for cell, placement in expanded.placements_on(engine).items() if cell.side in sides
            }
            with named_sides((None,) if engine == engines.HOST else sides):  # the host says which of them
                looks = sessions[engine].look(plan, placements, vendors)
            remarks += looks.remarks
            hosts += looks.hosts
            allocation = allocation or looks.allocation
            within, beside = (looks.by_image, looks.environments) if engine != engines.HOST else ({}, looks.by_image)
            for image, look in (*beside.items(), *within.items()):
                with named_sides([side for side, used in names if used == image]):
                    refuse_missing(plan, image, look)
                vendors.setdefault(image, look.contents.vendor)
            variables = {**looks.variables, **plan.variables}
            replaced = {THREADS, *([PRELOAD] if plan.preload else [])}  # by every launch itself
            files = {path: sha256_of_given(path) for path in (*plan.libraries, *plan.preload)}
            for (side, image), name in names.items():
                for seen, known in ((within, inside), (beside, bare)):
                    if (look_ := seen.get(image)) is not None:
                        known[side, name] = look_.contents, _image(look_, name, side, files, replaced, variables)
                        stack = stack_of(plan, image, look_, watched)
                        start[engine, image, side] = replace(stack, storage_devices=looks.storage_devices)
                        missing[engine, image, side] = look_.contents.missing_benchmarks
    differences = list[str]()
    for side, name in (key for key in inside if key in bare):
        (here, environment), (there, image_) = bare[side, name], inside[side, name]
        refuse_other_priority(name, here.priority, there.priority)
        lines = differences_of(here, there, communicate=communicates(expanded.plan))
        ours, theirs = environment.environment or {}, image_.environment or {}  # a user's shell or an image sets them
        for variable in sorted({*ours, *theirs}):
            lines += _differs(variable, ours.get(variable), theirs.get(variable))
        head = f"{f'{side}: ' if side else ''}{name}: apart from the container, host and image differ: "
        differences += [f"{head}{line}" for line in lines]
    images, environments = tuple(image for _, image in inside.values()), tuple(image for _, image in bare.values())
    texts = tuple(dict.fromkeys((*differences, *remarks)))
    return Stacks(start, images, environments, texts, tuple(hosts), allocation, missing)


def looked_at_together(plan: Plan) -> list[tuple[str | None, ...]]:
    """Groups of sides that differ in images alone: an engine that waits for nodes is asked once for all of a group."""
    groups: dict[str, tuple[str | None, ...]] = {}
    for name in plan.sides or (None,):
        key = repr(msgspec.structs.replace(plan.sides[name] if name else Side(), images={}))
        groups[key] = (*groups.get(key, ()), name)
    return list(groups.values())


def sha256_of_given(path: str) -> str:
    """Of a library file that a plan names, or PlanError: it cannot be read."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}.") from error


def stack_of(plan: Plan, image: str, look: Look, watched: Sequence[str] = ()) -> Stack:
    """What a cell runs, of what was seen of its image; ranks tell which of the `watched` libraries they loaded.

    Programs of one rank need no library. Raises ImageMissing: it holds none that can be started.
    """
    launcher = PROCESS
    if communicates(plan):
        version = next((library.version for library in look.contents.libraries), "")
        launcher = launchers.get(look.contents.vendor, image, version)
    nccl = any("nccl" in backend for backend in backends_of(plan, image))
    overrides = overrides_of(plan, look.library_path, watched)
    return Stack(launcher, look.reference, look.refused, nccl, look.grants, overrides=overrides)


def _image(
    look: Look, name: str, side: str | None, files: dict[str, str], replaced: Set[str], variables: Mapping[str, str]
) -> Image:  # fmt: skip
    """What the manifest says of it. `files` and `variables` are of site and plan; a launch has `replaced` variables."""
    contents = look.contents
    of_image = {variable: value for variable, value in contents.environment.items() if variable not in replaced}
    return Image(
        name=name, side=side, files=files, id=look.id, digests=look.digests, labels=look.labels, python=contents.python,
        libraries=contents.libraries, packages=contents.packages, sources=contents.sources,
        environment=facts.environment(backends.variables(), {**of_image, **variables}),
    )  # fmt: skip


def refuse_missing(plan: Plan, name: str, look: Look) -> None:
    """Whether an image or environment has every backend that the plan wants; with `skip` one, and not every benchmark.

    Raises PlanError.
    """
    wanted, contents = backends_of(plan, name), look.contents
    for benchmark, why in contents.missing_benchmarks.items():
        if plan.unusable == "refuse":
            raise PlanError(f'{look.title}: benchmark {benchmark}: {why}. Or set unusable = "skip".')
    if plan.unusable == "skip" and any(contents.lacks(backend) is None for backend in wanted):
        return
    for backend in wanted:
        if (reason := contents.lacks(backend)) is not None:
            usable = [has.name for has in backends.every() if contents.lacks(has.name) is None and not has.simulated]
            advice = f'It has {", ".join(usable) or "none"}: set image_backends = {{ "{name}" = [...] }}, or backends.'
            if backends.get(backend).device == "gpu" and contents.cuda is None and look.id is not None:
                advice = f"Build it for GPUs: collbench image build {name} --cuda 12 (or 13). {advice}"
            raise PlanError(f"{look.title}: backend {backend}: {reason}. {advice}")


def refuse_other_priority(name: str, host: str, image: str) -> None:
    """Ranks on the host inherit the launcher's priority, those in containers the engine's; PlanError: they differ."""
    if host != image:
        raise PlanError(f"image {name}: ranks on the host have the priority {host}, those in containers {image}. Start "
                        "collbench launch with the engine's priority (nice, chrt, ionice), or leave one side "
                        "out.")  # fmt: skip


def differences_of(host: Contents, image: Contents, communicate: bool = True) -> list[str]:
    """Where the host's environment and the image differ, but for the container and what ranks need to `communicate`."""
    differences = _differs("Python", host.python, image.python)
    if host.native != image.native:
        differences.append(f"the native loop is missing {'in the image' if host.native else 'on the host'}")
    host_libraries, image_libraries = (
        {(library.name, library.used_by): library for library in contents.libraries if communicate or library.used_by}
        for contents in (host, image)
    )
    for key in host_libraries | image_libraries:
        name, absent = key[0], Library(name=key[0], version="")
        ours, theirs = host_libraries.get(key, absent), image_libraries.get(key, absent)
        differences += _differs(name, ours.version, theirs.version)
        if ours.version == theirs.version and ours.sha256 != theirs.sha256:
            build = f"{name} {ours.version}".rstrip()
            differences.append(f"{build}: two builds, {ours.sha256} and {theirs.sha256}")
        if key in host_libraries and key in image_libraries:
            differences += _differs(f"kernel of {name}", ours.kernel, theirs.kernel)
            if ours.version == theirs.version:
                of_host, of_image = (dict(setting.split("=", 1) for setting in has.settings) for has in (ours, theirs))
                for setting in of_host | of_image:
                    differences += _differs(f"setting {setting}", of_host.get(setting), of_image.get(setting))
    packages = {*host.packages, *image.packages} - {"torch"} if communicate else ()  # torch is among the libraries
    for package in sorted(packages):
        differences += _differs(package, host.packages.get(package), image.packages.get(package))
    return differences


def _differs(name: str, host: str | None, image: str | None) -> list[str]:
    return [] if host == image else [f"{name} {host or 'missing'} on the host, {image or 'missing'} in the image"]


#: Most letters of what came instead of an answer, most causes in a message, and most nodes that are named for each.
_QUOTED, _CAUSES, _NAMED = 200, 3, 3


def probe_of(python: str, image: str, libraries: Mapping[str, str], plan: Plan) -> Argv:
    """The command that prints what an image holds. `libraries` are the site's, by image."""
    torch = ("--torch",) if library_of(image, libraries, plan) == "torch" else ()
    return (python, "-m", "collbench.launch.probe", *torch, *workloads.uses(plan.benchmarks))


def contents_in(lines: Sequence[str], title: str, image: str, libraries: Mapping[str, str], plan: Plan) -> Contents:
    """What the last answer says; ImageMissing: there is none, or of another collbench or library than it stands for."""
    for line in reversed(lines):
        try:
            contents = msgspec.json.decode(line, type=Contents)
        except msgspec.DecodeError:
            continue
        if contents.another is not None:
            raise ImageMissing(f"{title}: {contents.another}. Make it again with this collbench.")
        expected = library_of(image, libraries, plan)
        if communicates(plan) and contents.vendor != expected:
            raise ImageMissing(
                f"{title}: stands for {expected}, and holds {contents.vendor or 'no MPI'}; the launcher starts "
                f'{", ".join(launchers.names())}. Say in the site file which it is: libraries = {{ "{image}" = ... }}'
            )
        return contents
    last = next((line for line in reversed(lines) if line.strip()), "nothing was printed")
    why = f"does not say what it holds ({whole_words(last, _QUOTED)})"
    raise ImageMissing(f"{title}: {why}. Name one that holds collbench in the site file.")


def contents_on(
    answers: Mapping[str, Sequence[str]], title: str, image: str, libraries: Mapping[str, str], plan: Plan
) -> Contents:
    """What all nodes say alike; ImageMissing: as `contents_in`, or nodes differ, with the first nodes of each cause."""
    by_node: dict[str, Contents] = {}
    causes: dict[str, list[str]] = {}
    for node, lines in answers.items():
        try:
            by_node[node] = contents_in(lines, title, image, libraries, plan)
        except ImageMissing as error:
            causes.setdefault(str(error).removeprefix(f"{title}: "), []).append(node)
    if causes := causes or _differences(by_node):
        first = [f"{nodes_of(nodes, len(answers))}: {cause}" for cause, nodes in list(causes.items())[:_CAUSES]]
        raise ImageMissing(f"{title}: {' '.join(first)}")
    return next(iter(by_node.values()))


def _differences(by_node: Mapping[str, Contents]) -> dict[str, list[str]]:
    """Nodes that hold something else than most, by the first thing in which they differ; empty: all are alike."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for node, contents in by_node.items():
        alike.setdefault(tuple(contents.identity.items()), []).append(node)
    (most, usual), *others = sorted(alike.items(), key=lambda group: -len(group[1]))
    causes: dict[str, list[str]] = {}
    for theirs, nodes in ((dict(other), nodes) for other, nodes in others):
        ours = dict(most)
        name = next(name for name in ours | theirs if ours.get(name) != theirs.get(name))
        there, here = theirs.get(name, "missing"), f"{ours.get(name, 'missing')} on {nodes_of(usual, len(by_node))}"
        causes.setdefault(f"{name} is {there}, and {here}. Install the same on every node.", []).extend(nodes)
    return causes


def nodes_of(nodes: Sequence[str], all_nodes: int) -> str:
    """`every node`, `node c02`, or `8 nodes (c02, c03, c04, ...)`."""
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    named = [*nodes[:_NAMED], *["..."] * (len(nodes) > _NAMED)]
    return "every node" if len(nodes) == all_nodes else f"{len(nodes)} nodes ({', '.join(named)})"


#: Longest wait for the command (s), the interval of looking whether it ended (s), and ranks that have containers.
LIMIT, LOOK, RANKS = 120.0, 0.25, 2


@dataclass(frozen=True)
class ExaminedStack:
    """What the command printed in the first container, its exit code, and what the launcher would set by itself."""

    lines: tuple[str, ...]
    code: int
    title: str
    notes: tuple[str, ...]


def examine(expanded: ExpandedPlan, session: LaunchSession, argv: Argv, check: StopCheck) -> ExaminedStack:
    """Make the containers of the plan's first cell, run the command in the first, remove them; or CollbenchError."""
    cell = expanded.cells[0]
    with cleaned(session.close):
        looks = session.look(expanded.plan, expanded.placements_on(cell.engine), {})
        stack, placement = stack_of(expanded.plan, cell.image, looks.by_image[cell.image]), expanded.placements[cell]
        without = () if placement.shares_boxes else ("--without", "cma")  # a lone rank reads no other's memory there
        with folders(expanded.plan.of_world(), user_of(cell), places=places(cell, placement)) as at:
            world = world_of(Launch(cell, 0, 0), stack, placement, session.run, at)
            log = Log()
            with session.open(world) as opened:
                host = opened.hosts[0][0]
                running = opened.execute(host, (*argv, *without), {}, log)
                until = time.monotonic() + LIMIT
                while (code := running.code) is None:
                    check()
                    if time.monotonic() > until:
                        raise EngineError(f"container {host}: {argv[0]} did not end within {LIMIT:g} s.")
                    time.sleep(LOOK)
    if code not in (0, 1, 2):  # of doctor: nothing failed, a check failed, an unknown check was named
        last = "; ".join(log.tail()[-1:]) or "without output"
        raise LaunchFailed(f"image {cell.image}: {argv[0]} in a container ended with exit code {code}: {last}")
    title = f"{cell.image}, {cell.policy}, {cell.isolation}: the first of {counted(len(placement.boxes), 'container')}"
    return ExaminedStack(log.lines, code, title, (*notes(cell, placement, stack), *looks.remarks))


def expanded_for(image: str, policy: str, step: str, engine: str, docker_host: str = "") -> ExpandedPlan:
    """A plan of one cell: two ranks in containers of an image, or PlanError: no such policy, step or engine."""
    plan = Plan(collectives=("allreduce",), images=(image,), policies=(policy,), isolation=(step,), engine=engine,
                docker_host=docker_host, ranks=(RANKS,), oversubscribe=True)  # fmt: skip
    expanded = expansion.expand(check_launch_plan(plan))
    if expanded.cells[0].isolation is None:
        raise RequestError(f"doctor --image: policy {policy} has no container; remove --image.")
    return expanded


# Before a launch: what would be refused, skipped or ignored -----------------------------------------------------------


def preview_of(expanded: ExpandedPlan) -> tuple[tuple[str, ...], Missing]:
    """Look at this machine, and at the environments of the host that a plan and its sides name.

    Lines on memory and folders that are lacking, and on what the host lacks of the plan or a side; and the benchmarks
    that it lacks. What images hold only their engine knows; of one that nobody has heard of here the name is doubted.
    """
    plan, lines = expanded.plan, list[str]()
    missing: dict[StackKey, Mapping[str, str]] = {}

    @contextlib.contextmanager
    def refusing(sides: Sequence[str | None] = (None,)) -> Iterator[None]:
        try:
            with named_sides(sides):
                yield
        except PlanError as error:
            lines.append(f"collbench launch would refuse this plan here: {error}")

    lines += _unknown_images(plan)
    with refusing():
        expansion.refuse_too_large(plan, expanded.cases)
    with refusing():
        refuse_unusable_folder(expanded.cells, plan.storage_folder)
    for sides in looked_at_together(plan):
        looks, of_sides = Looks({}), plan.of_sides(sides)
        with refusing():
            looks = _look_at_host(expanded, sides)
        for image, look in looks.by_image.items():
            missing |= {(engines.HOST, image, side): look.contents.missing_benchmarks for side in sides}
            if plan.unusable == "skip":
                lines += [f"collbench launch would skip {benchmark} on the host, beside the image {image}: {why}"
                          for benchmark, why in look.contents.missing_benchmarks.items()]  # fmt: skip
            of_image = {cell.side: None for cell in expanded.cells if cell.image == image and cell.side in sides}
            with refusing([*of_image]):
                refuse_missing(of_sides, image, look)
    return tuple(lines), missing


def _unknown_images(plan: Plan) -> Iterator[str]:
    """A name without a tag or a slash that none of the images of this collbench has may be one of the user's own."""
    known = tuple(dockerfiles())
    for image in dict.fromkeys(image for side in plan.sides or (None,) for image in plan.of_sides((side,)).images):
        if known and image not in known and not {"/", ":"} & set(image):
            hint = suggestion(image, known)
            names = [name for name, side in plan.sides.items() if image in side.images.values()]
            of_side = f"side {', '.join(names)}: " if names and image not in plan.images else ""
            own = f"one of your own, as collbench image build NAME --as {image} makes it"
            yield f"{of_side}image {image}: none that comes with collbench; it must be {own}. {hint}"


def _look_at_host(expanded: ExpandedPlan, sides: tuple[str | None, ...]) -> Looks:
    """The environments that the host uses for some sides.

    Ranks that communicate need the library of their image, which the engine knows. Where there is one, only the
    environments that the plan names are looked at, of images whose names say the library.
    """
    plan, cells = expanded.plan.of_sides(sides), [cell for cell in expanded.cells if cell.side in sides]
    asks_engine = bool(plan.collectives) and any(cell.engine != engines.HOST for cell in cells)
    named = [image for image in plan.environments if any(vendor in image for vendor in launchers.names())]
    host = {cell: placement for cell, placement in expanded.placements_on(engines.HOST).items()
            if cell.side in sides and (not asks_engine or cell.image in named)}  # fmt: skip
    return engines.get(engines.HOST).connect(plan, lambda: None).look(plan, host, {}) if host else Looks({})


def ignored_keys(expanded: ExpandedPlan) -> tuple[str, ...]:
    """A line for each; of a key only where its value is not the default."""
    return (*expanded.left_out, *_without_effect(expanded), *_listed_twice(expanded.plan))


def indistinct_sides(plan: Plan) -> Iterator[str]:
    """A line on a side that is alone, and on each group of sides that are equal: a self-test alone asks for these."""
    if len(plan.sides) == 1:
        yield f"sides: {next(iter(plan.sides))} is the only one, so nothing is compared by side"
    of_sides = {name: plan.of_sides((name,)) for name in plan.sides}
    groups = (tuple(name for name in of_sides if of_sides[name] == of_side) for of_side in of_sides.values())
    for names in dict.fromkeys(groups):
        if len(names) > 1:
            yield f"sides: {', '.join(names)} are equal, so a difference between them is a false positive"


def _without_effect(expanded: ExpandedPlan) -> Iterator[str]:
    plan, usual = expanded.plan, Plan(images=expanded.plan.images)
    in_containers = {cell.engine != engines.HOST for cell in expanded.cells}
    without = "" if True in in_containers else "no policy has containers"
    not_in_files = "" if any(cell.storage for cell in expanded.cells) else "no benchmark works in files"
    reasons = {"isolation": without, "seccomp": without,
               "environments": "" if False in in_containers else "every policy has containers",
               "storage": not_in_files, "folder": not_in_files}  # fmt: skip
    for key, why in reasons.items():
        if why and getattr(plan, key) != getattr(usual, key):
            yield f"{key}: has no effect, because {why}"
    cases = (identity for cases in expanded.cases.values() for case in cases for identity in case.identities)
    for name, names in unused_parameters(plan, cases).items():
        yield f"benchmark {name}: {', '.join(names)} has no effect in any of its cases"


def _listed_twice(plan: Plan) -> Iterator[str]:
    lists: list[tuple[str, Any]] = [(key, getattr(plan, key)) for key in plan.__struct_fields__]
    for benchmark in plan.benchmarks:
        if isinstance(benchmark, dict):
            lists += [(f"benchmark {benchmark.get('name')}: {key}", values) for key, values in benchmark.items()]
    for key, values in lists:
        if isinstance(values, tuple | list):
            repeated = [value for index, value in enumerate(values) if value in values[:index]]
            yield from dict.fromkeys(f"{key}: {value!r} is listed twice, and measured once" for value in repeated)
