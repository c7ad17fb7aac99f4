"""A plan: which cases to measure, how, and, where it has images, in which worlds a launch measures them.

docs/plans.md describes every key. Every combination of the lists of a launch is one cell. Each of its worlds gets a
plan of its own (`Plan.of_world`).
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from collbench.errors import BackendUnavailable, PlanError, UnitError, suggestion
from collbench.schema.axes import AXES, FIRST, Sizes, image_name, plan_keys_of, sizes_in_bytes, within
from collbench.schema.case import ALIGNMENTS, CADENCES, Case
from collbench.schema.command import with_commands
from collbench.schema.files import TOO_DEEP, read_toml, refuse_irregular
from collbench.schema.manifest import Until
from collbench.schema.world import SliceRule
from collbench.units import as_typed, parse_duration

_EXPECTED = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}

_QUOTED = 40  # characters of a value that a message quotes


def mistake_in(document: dict[str, Any], kind: type[msgspec.Struct], prefix: str = "") -> str | None:
    """The first value that a plan of this kind cannot have on its key; None: there is none."""
    mistakes = (_mistake(prefix + field.name, document[field.name], field.type, field.default)
                for field in msgspec.structs.fields(kind) if field.name in document)  # fmt: skip
    return next((mistake for mistake in mistakes if mistake is not None), None)


def _mistake(key: str, value: Any, of: Any, usual: Any = None) -> str | None:
    if _fits(value, of):
        return None
    several = get_origin(of) in (Union, UnionType)
    kinds = tuple(kind for kind in get_args(of) if kind is not NoneType) if several else (of,)
    inside = _inside(key, value, kinds)
    if inside is not None:
        return inside
    if isinstance(value, str) and all(get_origin(kind) is Literal for kind in kinds):
        return f"{key} {_quoted(value)}: choose one of {', '.join(get_args(kinds[0]))}"
    expected = " or ".join(_expected(kind, value, usual) for kind in kinds if kind is not int or float not in kinds)
    return f"{key}: expected {expected}, not {_noun(value)}{_quoted(value)}"


def _fits(value: Any, of: Any) -> bool:
    try:
        msgspec.convert(value, of)
    except msgspec.ValidationError:
        return False
    return True


def _inside(key: str, value: Any, kinds: tuple[Any, ...]) -> str | None:
    """The first mistake in an element of a list or a table, where the key takes one."""
    mistakes: list[str | None] = []
    for kind in kinds:
        if isinstance(value, list) and get_origin(kind) is tuple:
            mistakes += [_mistake(key, element, get_args(kind)[0]) for element in value]
        elif isinstance(value, dict) and get_origin(kind) is dict:
            mistakes += [_mistake(f"{key}.{name}", element, get_args(kind)[1]) for name, element in value.items()]
        elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            mistakes.append(mistake_in(value, kind, f"{key}."))
    return next((mistake for mistake in mistakes if mistake is not None), None)


def _expected(kind: Any, value: Any, usual: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(json.dumps, get_args(kind)))
    if get_origin(kind) is tuple:
        example = [value] if _fits(value, get_args(kind)[0]) else list(usual) if isinstance(usual, tuple) else []
        return f"a list such as {json.dumps(example)}" if example else "a list"
    return _EXPECTED.get(kind, "a table")


def _noun(value: Any) -> str:
    if isinstance(value, str):
        return "the string "
    return "the number " if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _quoted(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    text = json.dumps(value, default=str)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} ..."


LONGEST = 1e6  # a time-out or a budget longer than eleven days is a typing error (s)

#: Operations of a burst, which are issued before the first is waited for, and samples of a case, which its rank holds
#: until it is done; by default a case has at most `USUAL_CAP`.
MOST_BURST, MOST_SAMPLES, USUAL_CAP = 1000, 10_000_000, 10_000

Parameter = str | int | float | bool  # a value of a parameter of a benchmark

#: A benchmark by its name, or a table of its `name` and values of its parameters.
Benchmark = str | dict[str, Parameter | tuple[Parameter, ...]]


class Subject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is measured."""

    title: str = ""
    collectives: tuple[str, ...] = ()
    benchmarks: tuple[Benchmark, ...] = ()


def with_axes(subject: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same with a key for each axis that a plan can vary in any world; where ranks are is a launch plan's."""
    keys = []
    for name, plan_key in plan_keys_of("what", "how").items():
        of = plan_key.of or AXES[name].of
        keys.append((plan_key.key, GenericAlias(tuple, (of, ...)) if plan_key.many else of, plan_key.default))
    return msgspec.defstruct("AxisKeys", keys, bases=(subject,), frozen=True, kw_only=True, forbid_unknown_fields=True)


if TYPE_CHECKING:
    AxisKeys = Subject
else:
    AxisKeys = with_axes(Subject)


Affinity = Literal["near", "far", "unpinned"]

MOST_LAUNCHES = 1000

#: Engines of clusters, each with a table of its name in a site file: a cluster may be known to both.
CLUSTERS = ("slurm", "k8s")


LEAST_DECIDING = 6  # with fewer launches than these no comparison is decided
MOST_RANKS = 256

#: More ways to start a world than these are a typing error; more starts take days.
MOST_CELLS, MOST_STARTS = 5_000, 100_000

#: What the environment of a process may have as a name.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: The keys whose every combination is a cell.
PLACES = tuple(plan_key.key for plan_key in plan_keys_of("where").values())


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


class Chosen(NamedTuple):
    """Which cases of a plan are executed, by their keys. None are `measured`: all are."""

    measured: frozenset[str] = frozenset()
    brief: frozenset[str] = frozenset()

    def measures(self, identities: Iterable[Case]) -> bool:
        """Whether a case has records; of several it has all or none."""
        return not self.measured or any(identity.key in self.measured for identity in identities)

    def executes(self, identities: Iterable[Case]) -> bool:
        keys = {identity.key for identity in identities}
        return not self.measured or bool(keys & self.measured or keys & self.brief)


class WorldKeys(AxisKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that every plan may have: what is measured, and how.

    The keys of axes are those of the table (`schema.axes`), and are read as `plan["drivers"]`.
    """

    align: str = "auto"
    cadence: str = "isolated"
    warmup: int = 5
    check: int = 1
    iters: int | None = None
    budget: str | float = "0.25s"
    floor: int = 20
    cap: int = USUAL_CAP
    timeout: str | float = "300s"
    burst: int = 20
    share_gpu: bool = False
    folder: str = ""
    unusable: Literal["refuse", "skip"] = "refuse"


class Plan(WorldKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every combination of the lists is one case. There are `collectives`, or `benchmarks` (programs), or both.

    With `images` it is a plan for launches: each world measures what `of_world` gives, and the keys here say how many
    worlds there are, and where.

    `only` and `brief` are keys (`Case.key`) of cases, in plans that a launch writes for its worlds alone: `only` those
    are measured, of all that the plan has. Collectives among them whose keys are in `brief` are executed with one
    sample and have no record. All other cases stay part of the plan, so that ranks meet, take their places and check
    their memory as ever, and those that are executed keep their order.
    """

    images: tuple[str, ...] = ()
    policies: tuple[str, ...] = ("host", "single", "multi")
    isolation: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    servers: tuple[int, ...] = (1,)
    spare: Literal["idle", "chief"] = "idle"
    affinity: tuple[Affinity, ...] = ("near",)
    gpus: tuple[str, ...] = (FIRST,)
    cores: tuple[str, ...] = (FIRST,)
    storage: tuple[str, ...] = ("overlay",)
    seccomp: tuple[Literal["default", "unconfined"], ...] = ("default",)
    hosts: tuple[int, ...] = (1,)
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
    only: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()

    if TYPE_CHECKING:  # the keys of axes are known when the table has been read

        def __init__(self, **keys: Any) -> None: ...

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name_of(benchmark) for benchmark in self.benchmarks))

    @property
    def budget_seconds(self) -> float:
        return parse_duration(self.budget, "budget")

    @property
    def timeout_seconds(self) -> float:
        return parse_duration(self.timeout, "timeout")

    @property
    def slices(self) -> SliceRule:
        """A long budget has more rounds. On GPUs more is discarded: another process was the last to use it."""
        usual = SliceRule()
        rounds = max(usual.rounds, round(self.budget_seconds / usual.seconds))
        return SliceRule(rounds=rounds, discard_seconds=0.05 if self.device == "gpu" else usual.discard_seconds)

    @property
    def storage_folder(self) -> str:
        return self.folder or "/var/tmp"  # noqa: S108 - a folder in it

    def image_of(self, side: str | None, image: str) -> str:
        """The image that stands for one of the plan's on a side."""
        return image if side is None else self.sides[side].images.get(image, image)

    def of_sides(self, names: Sequence[str | None]) -> Plan:
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

    def of_world(self, only: Collection[Case] = (), brief: Collection[Case] = ()) -> Plan:
        """What one world measures: these cases, or all. Cases are as the world records them, without their place."""
        keys = {name: getattr(self, name) for name in WORLD_KEYS}
        return Plan(**keys, only=_keys(only), brief=_keys(brief))

    @property
    def document(self) -> dict[str, Any]:
        """Its keys and values as a file or a manifest holds them: those of a launch where it is one."""
        keys = WORLD_KEYS + LAUNCH_KEYS if self.images else WORLD_KEYS
        if self.only or self.brief:
            keys += WRITTEN_KEYS
        values = {key: msgspec.to_builtins(getattr(self, key)) for key in keys}
        return {**values, "folder": self.storage_folder} if self.images else values

    @property
    def chosen(self) -> Chosen:
        """Which cases are executed: all, unless a launch wrote the plan for some."""
        return Chosen(frozenset(self.only), frozenset(self.brief))


#: The keys of what is measured and how, those of worlds and places, and those that no user's plan has.
WORLD_KEYS = WorldKeys.__struct_fields__
WRITTEN_KEYS = ("only", "brief")
LAUNCH_KEYS = tuple(key for key in Plan.__struct_fields__ if key not in WORLD_KEYS + WRITTEN_KEYS)


def _keys(cases: Collection[Case]) -> tuple[str, ...]:
    return tuple(sorted(case.key for case in cases))


def name_of(benchmark: str | dict[str, Any]) -> str:
    return benchmark if isinstance(benchmark, str) else str(benchmark.get("name", ""))


def check_plan(plan: Plan) -> Plan:
    """The plan itself, when its numbers make sense.

    Raises PlanError, UnitError: the first that does not, with what would.
    """
    check_values(plan)
    _check_numbers(plan)
    for name, choices in (("align", ("auto", *ALIGNMENTS)), ("cadence", CADENCES)):
        if getattr(plan, name) not in choices:
            raise PlanError(f"{name} {getattr(plan, name)!r}: choose one of {', '.join(choices)}.")
    if not plan.collectives and not plan.benchmarks:
        raise PlanError("collectives: the list is empty, and so is benchmarks; nothing would be measured.")
    if not plan.collectives and plan["sizes"] is not None:
        raise PlanError("sizes: those of collectives, and there are none. Write size in the table of a benchmark.")
    for benchmark in plan.benchmarks:
        if not name_of(benchmark):
            raise PlanError(f'benchmarks: {benchmark!r} has no name. Write name = "stream", say.')
    for name, seconds in (("budget", plan.budget_seconds), ("timeout", plan.timeout_seconds)):
        if not 0 < seconds <= LONGEST:
            value = as_typed(getattr(plan, name))
            raise PlanError(f"{name} {value}: must be longer than 0 s, and at most {LONGEST:g} s.")
    sizes_in_bytes(plan["sizes"])
    return plan


def check_values(plan: Plan) -> None:
    """Raise for a list that is empty, and for a value that no case can have on its axis.

    Raises PlanError: with what would be right.
    """
    usual = {field.name: field.default for field in msgspec.structs.fields(plan)}
    for plan_key in plan_keys_of("what", "how", "where").values():
        key, values = plan_key.key, plan[plan_key.key]
        if values == () and usual[key] != ():
            raise PlanError(f"{key}: the list is empty; nothing would be measured.")
        for value in values if plan_key.many else (values,):
            plan_key.check(key, value)


def _check_numbers(plan: Plan) -> None:
    for name, least in (("warmup", 0), ("check", 0), ("iters", 1), ("floor", 1), ("cap", 1), ("burst", 1)):
        if (value := getattr(plan, name)) is None:
            continue
        within(least, None)(name, value)
        if value > MOST_SAMPLES:
            raise PlanError(f"{name} {value}: at most {MOST_SAMPLES:,}; measure in several runs.")
    if plan.burst > MOST_BURST:
        raise PlanError(f"burst {plan.burst}: at most {MOST_BURST}.")
    if plan["cudagraph"] > 1 and plan.cadence != "streaming":
        several = f"cudagraph {plan['cudagraph']}: several launches a sample are not isolated"
        raise PlanError(f"{several}; use 1, or cadence streaming.")
    if plan.cap < plan.floor:
        if plan.cap == USUAL_CAP:
            raise PlanError(f"floor {plan.floor}: is above the usual cap of {plan.cap}; raise cap too.")
        raise PlanError(f"cap {plan.cap}: is below floor {plan.floor}; lower the floor too.")


@contextlib.contextmanager
def named_in_errors(path: Path | None) -> Iterator[None]:
    """Errors of a plan name its file, where there is one."""
    try:
        yield
    except (PlanError, UnitError, BackendUnavailable) as error:
        if path is None:
            raise
        kind = BackendUnavailable if isinstance(error, BackendUnavailable) else PlanError
        raise kind(f"plan {path}: {error}") from error


def load_plan(path: Path, named: str = "") -> Plan:
    """Read a plan for one world: TOML, or JSON that a launch wrote. `named` is how the user named it.

    Raises PlanError: as `read_document` and `plan_from`; it is a launch plan.
    """
    document = read_document(path)
    if "images" in document:
        raise PlanError(f"plan {path}: is a launch plan (it has images). Use: collbench launch {named or path}")
    return plan_from(document, WORLD_KEYS + (WRITTEN_KEYS if path.suffix == ".json" else ()), path)


def read_document(path: Path) -> dict[str, Any]:
    """What a plan's file holds: TOML, or JSON where it is named so. Raises PlanError: no such file, or not TOML."""
    if path.suffix != ".json":
        return read_toml(path, "plan")
    try:
        refuse_irregular(path)
        return msgspec.json.decode(path.read_text(encoding="utf-8-sig"), type=dict)
    except OSError as error:
        raise PlanError(f"plan {path}: {error.strerror}.") from error
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        why = TOO_DEEP if isinstance(error, RecursionError) else error
        raise PlanError(f"plan {path}: not JSON: {why}.") from error


def plan_from(document: dict[str, Any], keys: Sequence[str], path: Path) -> Plan:
    """The plan in a document, which may have these keys.

    Raises PlanError: an unknown key (with the nearest known one), a value of the wrong kind or out of range.
    """
    refuse_unknown(document, keys, str(path))
    if path.suffix != ".json":
        with named_in_errors(path):
            document = with_commands(document, path.parent)
    if isinstance(document.get("sizes"), dict):
        refuse_unknown(document["sizes"], Sizes.__struct_fields__, f"{path}, sizes")
    try:
        plan = msgspec.convert(document, Plan)
    except msgspec.ValidationError as error:
        raise PlanError(f"plan {path}: {mistake_in(document, Plan) or error}.") from error
    with named_in_errors(path):
        check_plan(plan)
    return plan


def refuse_unknown(document: dict[str, Any], known: Sequence[str], where: str) -> None:
    """Whether a table of a plan has other keys than these. Raises PlanError: the first, with the nearest known one."""
    for key in document:
        if key not in known:
            raise PlanError(f"plan {where}: unknown key {key!r}. {suggestion(key, known)}")


def load_launch_plan(path: Path, named: str = "") -> Plan:
    """Read a TOML launch plan. `named` is how the user named it.

    Raises PlanError: as `read_document` and `plan_from`; no images; a name that is none, or a number out of range.
    """
    document = read_document(path)
    if "images" not in document and document and set(document) <= set(WORLD_KEYS):
        use = f"Use: collbench run {named or path}"
        raise PlanError(f"plan {path}: is a plan for one world (a launch plan has images). {use}")
    if "images" not in document and set(document) <= {*WORLD_KEYS, *LAUNCH_KEYS}:  # other keys are refused below
        raise PlanError(f'plan {path}: lacks images; a launch plan names them, such as images = ["openmpi"].')
    if isinstance(sides := document.get("sides"), dict):
        for name, side in sides.items():
            if isinstance(side, dict):
                refuse_unknown(side, Side.__struct_fields__, f"{path}, side {name}")
    plan = plan_from(document, WORLD_KEYS + LAUNCH_KEYS, path)
    with named_in_errors(path):
        return check_launch_plan(plan)


def check_launch_plan(plan: Plan) -> Plan:
    """The plan itself, when its names and numbers make sense.

    Raises PlanError: the first that does not, with what would.
    """
    check_values(plan)
    if not plan.images:
        raise PlanError("images: the list is empty; nothing would be measured.")
    for name in (None, *plan.sides):
        with named_sides((name,)):
            _check_images(plan, plan.sides.get(name or "", Side()))
            _check_variables(plan.of_sides((name,)))
    _check_workers(plan)
    for name, values, most in (
        ("launches", (plan.launches,), MOST_LAUNCHES),
        ("cores_per_rank", (plan.cores_per_rank,) if isinstance(plan.cores_per_rank, int) else (), MOST_RANKS),
        ("ranks", plan.ranks, MOST_RANKS),
        ("workers", plan.workers, MOST_RANKS - 1),
        ("servers", tuple(filter(None, plan.servers)), MOST_RANKS - 1),
        ("hosts", plan.hosts, MOST_RANKS),
    ):
        for value in values:
            if not 1 <= value <= most:
                raise PlanError(f"{name} {value}: must be from 1 to {most}.")
    if plan.until == "decided" and plan.launches < LEAST_DECIDING:
        raise PlanError(
            f'launches {plan.launches}: with until = "decided" it is the most, and fewer than {LEAST_DECIDING} decide '
            "nothing. Ask for more, such as launches = 20."
        )
    for key, device, other in (("gpus", "gpu", "cores"), ("cores", "cpu", "gpus")):
        if plan[key] != (FIRST,) and plan.device != device:
            raise PlanError(f'{key} {", ".join(plan[key])}: with device = "{plan.device}" write {other}.')
    _check_cells(plan)
    return plan


def _check_cells(plan: Plan) -> None:
    """Before they are listed, which would take memory for each."""
    worlds = len(set(plan.ranks)) or len(set(plan.workers)) * len(set(plan.servers)) or 1
    cells = worlds * math.prod(len(set(getattr(plan, key))) or 1 for key in PLACES if key != "ranks")
    for what, number, most in (("cells", cells, MOST_CELLS), ("starts", cells * plan.launches, MOST_STARTS)):
        if number > most:
            raise PlanError(
                f"{', '.join(PLACES[:-1])} and {PLACES[-1]} make up to {number:,} {what}, and a plan has at most "
                f"{most:,}. Measure in several runs."
            )


def _check_workers(plan: Plan) -> None:
    if plan.workers and plan.ranks:
        raise PlanError("ranks and workers: both say how large the worlds are; give one of them.")
    if plan.workers and plan["roots"] != (0,):
        raise PlanError(f"roots {list(plan['roots'])}: with workers the server is rank 0, and so is every root.")
    if plan.servers != (1,) and not plan.workers:
        raise PlanError("servers: counts the servers of worlds with workers; give workers = [1, 2], say.")


def _check_variables(plan: Plan) -> None:
    for name, value in plan.variables.items():
        if _VARIABLE.fullmatch(name) is None or "\0" in value:
            raise PlanError(f"variables: {name!r}: a name has letters, digits and _, and a value no NUL.")
    for key in ("libraries", "preload"):
        for path in getattr(plan, key):
            if not path.startswith("/") or ":" in path or ".so" not in Path(path).name:
                raise PlanError(f"{key}: {path!r}: name a library by its whole path, such as /opt/lib/libmpi.so.40.")


def _check_images(plan: Plan, side: Side) -> None:
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

    Raises PlanError: instead of another one.
    """
    try:
        yield
    except PlanError as error:
        if None in names:
            raise
        raise PlanError(f"side {', '.join(map(str, names))}: {error}") from error
