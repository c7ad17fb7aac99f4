"""A launch plan: a plan, and where its ranks are to sit. Every combination of the placing lists is one cell."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from collbench.errors import PlanError
from collbench.schema.axes import choices_of, image_name
from collbench.schema.manifest import Until
from collbench.schema.plan import Plan, check_values, named_in_errors, plan_from, read_document, refuse_unknown
from collbench.schema.turns import SliceRule

Affinity = Literal["near", "far"]
Seccomp = Literal["default", "unconfined"]

MOST_LAUNCHES = 1000

#: With fewer launches than these no comparison is decided.
LEAST_DECIDING = 6
MOST_RANKS = 256

#: More ways to start a world than these are a typing error; more starts take days.
MOST_CELLS, MOST_STARTS = 5_000, 100_000

#: What the environment of a process may have as a name.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: The keys whose every combination is a cell.
PLACES = tuple(choice.key for choice in choices_of("where").values())


class Side(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one side of an experiment has in place of what the plan says.

    `images` and `environments` are by the plan's name of an image. `variables` come after the plan's, `libraries` and
    `preload` before them.
    """

    images: dict[str, str] = {}
    environments: dict[str, str] = {}
    variables: dict[str, str] = {}
    libraries: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()


class LaunchPlan(Plan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each world measures is the `Plan` in it; how many worlds, and where, stands here.

    `images` are names in `containers/` or references as Docker spells them, `policies` names of files in
    `launch/placement.py` or of other packages, known to the launcher alone. `environments` maps an image to the Python
    environment that the host side uses beside it, `image_backends` to the backends that are measured with it.
    `ranks` are sizes of the world, or else `workers` are: then parameter-server collectives run in worlds with one
    rank more, rank 0, which is the server and gets no GPU; and trainings with as many more as `servers` says.
    `how` is `duet` where worlds on the same cores are to live at once and measure in turns, as far as they can.
    `until` is `decided` where cells are launched until their comparisons are decided, at most `launches` times.
    `spare` are the processors that no rank gets: `idle`, or those of the `chief` too, the first worker.
    `cores_per_rank` counts logical processors; `share` divides those that are there (the default with GPUs, whose
    libraries have threads of their own; without, it is 1).
    `storage` is what lies under the files of programs that work in files, and `folder` where the host keeps its
    counterpart, and that of a container's bind. `seccomp` is the filter of system calls in containers.
    `engine` starts the containers; the steps in `isolation` are those of its ladder, whose first is the default.
    `docker_host` is the address of an engine that speaks Docker's API, and empty for DOCKER_HOST or its usual socket.
    `hosts` are numbers of machines over which the ranks of a world are spread evenly, by an engine that has several
    (of several, servers have the first to themselves);
    `site` is the file that describes them.
    `variables` are set for every rank; `libraries` and `preload` are library files that ranks find before others, by
    LD_LIBRARY_PATH and LD_PRELOAD. `paper` is the one whose conclusions the plan is to decide; empty: none. `sides` are
    launched alternately, each with its overrides.
    """

    images: tuple[str, ...]
    policies: tuple[str, ...] = ("host", "single", "multi")
    isolation: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    servers: tuple[int, ...] = (1,)
    spare: Literal["idle", "chief"] = "idle"
    affinity: tuple[Affinity, ...] = ("near",)
    storage: tuple[str, ...] = ("overlay",)
    seccomp: tuple[Seccomp, ...] = ("default",)
    hosts: tuple[int, ...] = (1,)
    folder: str = "/var/tmp"  # noqa: S108 - a folder in it
    launches: int = 8
    until: Until = "launches"
    how: Literal["duet", "blocks"] = "duet"
    seed: int = 1
    device: Literal["cpu", "gpu"] = "cpu"
    cores_per_rank: int | Literal["share"] | None = None
    oversubscribe: bool = False
    engine: str = "docker"
    docker_host: str = ""
    site: str = ""
    environments: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    image_backends: dict[str, tuple[str, ...]] = {}  # noqa: RUF012
    variables: dict[str, str] = {}  # noqa: RUF012
    libraries: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    paper: str = ""
    sides: dict[str, Side] = {}  # noqa: RUF012

    if TYPE_CHECKING:  # the keys of axes are known when the table has been read

        def __init__(self, **keys: Any) -> None: ...

    @property
    def slices(self) -> SliceRule:
        """How long worlds measure in their turns."""
        return SliceRule()

    def image_of(self, side: str | None, image: str) -> str:
        """The image that stands for one of the plan's on a side."""
        return image if side is None else self.sides[side].images.get(image, image)

    def of_sides(self, names: Sequence[str | None]) -> LaunchPlan:
        """The plan without sides that has the overrides of these in place; they differ in images alone."""
        if None in names:
            return self
        side = self.sides[str(names[0])]
        environments: dict[str, str] = {}
        for name in names:
            both = {**self.environments, **self.sides[str(name)].environments}
            environments |= {self.image_of(name, image): path for image, path in both.items()}
        return msgspec.structs.replace(
            self, sides={}, environments=environments,
            images=tuple(dict.fromkeys(self.image_of(name, image) for name in names for image in self.images)),
            image_backends={self.image_of(name, image): backends
                            for name in names for image, backends in self.image_backends.items()},
            variables={**self.variables, **side.variables},
            libraries=(*side.libraries, *self.libraries), preload=(*side.preload, *self.preload),
        )  # fmt: skip

    def inner(self) -> Plan:
        """What one world measures."""
        return Plan(**{name: getattr(self, name) for name in Plan.__struct_fields__})


def load_launch_plan(path: Path, asked: str = "") -> LaunchPlan:
    """Read a TOML launch plan. `asked` is how the user named it.

    Raises:
        PlanError: as `read_document` and `plan_from`; no images; a name that is none, or a number out of range.
    """
    document = read_document(path)
    if "images" not in document:
        _refuse_without_images(document, path, asked or str(path))
    if isinstance(sides := document.get("sides"), dict):
        for name, side in sides.items():
            if isinstance(side, dict):
                refuse_unknown(side, Side, f"{path}, side {name}")
    plan = plan_from(document, LaunchPlan, path)
    with named_in_errors(path):
        return check_launch_plan(plan)


def _refuse_without_images(document: dict[str, Any], path: Path, asked: str) -> None:
    """A plan for `collbench run`, or one that lacks them; a key that neither knows is refused elsewhere."""
    if set(document) <= set(Plan.__struct_fields__) and document:
        raise PlanError(f"plan {path}: is a plan for one world (a launch plan has images). Use: collbench run {asked}")
    if set(document) <= set(LaunchPlan.__struct_fields__):
        raise PlanError(f'plan {path}: lacks images; a launch plan names them, such as images = ["openmpi"].')


def check_launch_plan(plan: LaunchPlan) -> LaunchPlan:
    """The plan itself, when its names and numbers make sense.

    Raises:
        PlanError: the first that does not, with what would.
    """
    check_values(plan)
    for name in (None, *plan.sides):
        with named_sides((name,)):
            _check_images(plan, plan.sides.get(name or "", Side()))
            _check_variables(plan.of_sides((name,)))
    _check_workers(plan)
    numbers = [("launches", plan.launches, MOST_LAUNCHES)]
    if isinstance(plan.cores_per_rank, int):
        numbers.append(("cores_per_rank", plan.cores_per_rank, MOST_RANKS))
    numbers += [("ranks", ranks, MOST_RANKS) for ranks in plan.ranks]
    numbers += [("workers", workers, MOST_RANKS - 1) for workers in plan.workers]
    numbers += [("servers", servers, MOST_RANKS - 1) for servers in plan.servers if servers]
    numbers += [("hosts", hosts, MOST_RANKS) for hosts in plan.hosts]
    for name, value, most in numbers:
        if not 1 <= value <= most:
            raise PlanError(f"{name} {value}: must be from 1 to {most}.")
    if plan.until == "decided" and plan.launches < LEAST_DECIDING:
        raise PlanError(
            f'launches {plan.launches}: with until = "decided" it is the most, and fewer than {LEAST_DECIDING} decide '
            "nothing. Ask for more, such as launches = 20."
        )
    _check_cells(plan)
    return plan


def _check_cells(plan: LaunchPlan) -> None:
    """Before they are listed, which would take memory for each."""
    worlds = len(set(plan.ranks)) or len(set(plan.workers)) * len(set(plan.servers)) or 1
    cells = worlds * math.prod(len(set(getattr(plan, key))) or 1 for key in PLACES if key != "ranks")
    for what, number, most in (("cells", cells, MOST_CELLS), ("starts", cells * plan.launches, MOST_STARTS)):
        if number > most:
            raise PlanError(
                f"{', '.join(PLACES[:-1])} and {PLACES[-1]} make up to {number:,} {what}, and a plan has at most "
                f"{most:,}. Measure in several runs."
            )


def _check_workers(plan: LaunchPlan) -> None:
    if plan.workers and plan.ranks:
        raise PlanError("ranks and workers: both say how large the worlds are; give one of them.")
    if plan.workers and plan["roots"] != (0,):
        raise PlanError(f"roots {list(plan['roots'])}: with workers the server is rank 0, and so is every root.")
    if plan.servers != (1,) and not plan.workers:
        raise PlanError("servers: counts the servers of worlds with workers; give workers = [1, 2], say.")


def _check_variables(plan: LaunchPlan) -> None:
    for name, value in plan.variables.items():
        if _VARIABLE.fullmatch(name) is None or "\0" in value:
            raise PlanError(f"variables: {name!r}: a name has letters, digits and _, and a value no NUL.")
    for key in ("libraries", "preload"):
        for path in getattr(plan, key):
            if not path.startswith("/") or ":" in path or ".so" not in Path(path).name:
                raise PlanError(f"{key}: {path!r}: name a library by its whole path, such as /opt/lib/libmpi.so.40.")


def _check_images(plan: LaunchPlan, side: Side) -> None:
    tables: dict[str, dict[str, Any]] = {
        "environments": plan.environments | side.environments,
        "image_backends": plan.image_backends,
        "images": side.images,
    }
    for key, by_image in tables.items():
        for unknown in sorted(set(by_image) - set(plan.images)):
            raise PlanError(f"{key}: {unknown!r} is none of the images {', '.join(plan.images)}.")
    for image in side.images.values():
        image_name("images", image)


@contextlib.contextmanager
def named_sides(names: Sequence[str | None]) -> Iterator[None]:
    """A context in which a refusal names the sides that it is of; `(None,)`: the plan has none.

    Raises:
        PlanError: instead of another one.
    """
    try:
        yield
    except PlanError as error:
        if None in names:
            raise
        raise PlanError(f"side {', '.join(map(str, names))}: {error}") from error
