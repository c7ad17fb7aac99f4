"""Everything that may vary from case to case, declared once.

A case holds its values by these names. The keys of a plan, the flags of commands, the loops over a plan, factors of
`compare` and `advise`, headings, CSV columns and the values that stand for nothing are read from this table. A workload
may have axes that are not in it: its file declares them, and a reader of its records shows them by name and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import msgspec

from collbench.errors import PlanError, suggestion
from collbench.units import parse_size


class CollectiveAxes(Protocol):
    """What a collective says about axes (`collectives.row.Collective`)."""

    @property
    def name(self) -> str: ...
    @property
    def reduces(self) -> bool: ...
    @property
    def rooted(self) -> bool: ...
    @property
    def moves_data(self) -> bool: ...
    @property
    def has_in_place(self) -> bool: ...
    @property
    def has_server(self) -> bool: ...


class BackendAxes(Protocol):
    """What a backend says about axes (`bindings.spec.Backend`)."""

    name: str
    axes: frozenset[str]
    ops: tuple[Any, ...]

    def dtypes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Flag:
    """The option of a command. `words` are what it takes, each with what it puts into the plan; without, it is free.

    `commas`: several values, with commas between. `alone` is the word that the flag means without one. `default` is
    said in the help where it is not simply the plan's.
    """

    spelled: tuple[str, ...]
    help: str
    metavar: str | None = None
    words: Mapping[str, Any] = field(default_factory=dict)
    commas: bool = False
    alone: str | None = None
    default: str = ""


@dataclass(frozen=True)
class BackendSupport:
    """A collective on a backend, on so many ranks. `operations` are those of a burst; one in cadence isolated."""

    row: CollectiveAxes
    backend: BackendAxes
    ranks: int
    operations: int = 1

    def has(self, axis: str, plan_key: PlanKey) -> bool:
        """Whether there are values on an axis; `server staging` is one for collectives with a parameter server."""
        axes = self.backend.axes
        named = axis in axes or (self.row.has_server and f"server {axis}" in axes)
        return plan_key.row(self.row) and (named or not plan_key.optional)


@dataclass(frozen=True)
class PlanKey:
    """What a plan and a command know of an axis.

    `key` is the plan's, `default` what it has where nobody asks: a tuple if the key holds a list. `of` is the type of a
    value in a plan where it is narrower than the axis's own. `check` raises for a value that no case can have.
    A case has values on the axis if its collective does (`row`), and if its backend names it in `axes`, where only some
    have it (`optional`). `values` makes the values of the cases from those asked for; a name of `groups` stands for
    several of a workload's own. `nested` is the place among the loops over a plan: the lowest is the outermost, equal
    ones stand in the order of the table.
    """

    key: str
    default: Any = ()
    flag: Flag | None = None
    of: Any = None
    row: Callable[[CollectiveAxes], bool] = lambda row: True
    optional: bool = False
    values: Callable[[Any, BackendSupport], tuple[Any, ...]] = lambda requested, support: (
        requested if isinstance(requested, tuple) else (requested,)
    )
    groups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    check: Callable[[str, Any], None] = lambda key, value: None
    nested: int = 0

    @property
    def many(self) -> bool:
        return isinstance(self.default, tuple)

    def read(self, typed: Any) -> Any:
        flag = self.flag
        if flag is None or typed is None:
            return self.default
        if flag.words:
            return flag.words[typed]
        if flag.commas:
            return tuple(typed.split(","))
        return (typed,) if self.many else typed

    @property
    def typed(self) -> Any:
        """The default as one would type it; None where there is none, or it depends."""
        if self.flag is None or self.flag.default:
            return None
        if self.flag.words:
            return next(word for word, value in self.flag.words.items() if value == self.default)
        return self.default[0] if self.many else self.default


def one_of(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The words of a flag that takes one name for a list of one."""
    return {name: (name,) for name in names}


MOST_SIZES = 10_000  # a sweep of more sizes than this is a typing error


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep from `min` to `max` bytes: times `factor`, or plus `step` bytes when that is given."""

    min: str | int = "8"
    max: str | int = "4M"
    factor: int = 2
    step: str | int | None = None

    def expand(self) -> tuple[int, ...]:
        """The sizes in bytes, ascending.

        Raises PlanError: min above max; a factor below 2, a step below 1 or far too many steps where more than one size
        is asked for; UnitError: a size that cannot be read.
        """
        low, high = parse_size(self.min), parse_size(self.max)
        if low > high:
            raise PlanError(f"sizes: min {self.min} is above max {self.max}. Swap them, or give one size as both.")
        if low == high:
            return (low,)
        step = None if self.step is None else parse_size(self.step)
        if step is not None and step < 1:
            raise PlanError("sizes: step must be at least 1 byte.")
        if step is None and self.factor < 2:
            raise PlanError(f"sizes: factor {self.factor} never reaches max. Use 2 or more, or a step in bytes.")
        if step is not None and (high - low) // step >= MOST_SIZES:
            raise PlanError(f"sizes: step {self.step} gives more than {MOST_SIZES} sizes. A larger one, or a factor?")
        sizes = [low]
        while (following := sizes[-1] * self.factor or 1 if step is None else sizes[-1] + step) <= high:
            sizes.append(following)
        return tuple(sizes)


def sizes_in_bytes(requested: Sizes | tuple[str | int, ...] | None) -> tuple[int, ...]:
    """The sizes that a plan asks for; 8 B to 4 MiB where it says nothing.

    Raises PlanError, UnitError: as `Sizes.expand`.
    """
    if requested is None or isinstance(requested, Sizes):
        return (requested or Sizes()).expand()
    return tuple(parse_size(size) for size in requested)


#: Item size in bytes of every dtype that exists anywhere in collbench.
DTYPES: dict[str, int] = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "fp8_e4m3": 1, "fp8_e5m2": 1,
}  # fmt: skip

#: What users of nccl-tests and C type instead.
DTYPE_ALIASES: dict[str, str] = {"half": "float16", "float": "float32", "double": "float64", "char": "int8",
                                 "f8e4m3": "fp8_e4m3", "f8e5m2": "fp8_e5m2"}  # fmt: skip


#: The least isolated policies (no container; one container for all ranks), and the most isolated (one for each rank).
_FIRST, _LAST = ("host", "multi"), ("single",)


#: How a policy is spelled, a name or a name with a number: `single`, `packed:4`. The launcher knows which exist.
POLICY = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}(?::[1-9][0-9]{0,3})?")


def name_and_number(policy: str) -> tuple[str, int]:
    """(`packed`, 4) of `packed:4`; 0 where there is no number."""
    name, _, text = policy.partition(":")
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return name, int(text) if is_number else 0


PolicyOrder = tuple[int, str, int]  # class of isolation, name, number


def policy_order(policy: str) -> PolicyOrder:
    """Sort key from the least isolated to the most: `host`, `multi`, all others, `single`.

    The others, among them those of other packages, are ordered by name, and the larger number comes first (more ranks
    share a container).
    """
    name, number = name_and_number(policy)
    if name in _FIRST:
        return (_FIRST.index(name), "", 0)
    return (len(_FIRST) + (name in _LAST), name, -number)


#: As Docker spells a reference: no blank, no quote, nothing that a shell would read.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+:[0-9]{1,5}/)?[a-z0-9]+(?:[._/-][a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)

_SIDE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)


def named(
    known: Iterable[str], everything: Callable[[BackendAxes], Iterable[str]], aliases: Mapping[str, str]
) -> Callable[[Any, BackendSupport], tuple[str, ...]]:
    """Values that are names, in any case of letters; `all` is whatever the backend has. `name_of` checked them."""
    proper = {name: name for name in known} | dict(aliases)

    def values(requested: Any, support: BackendSupport) -> tuple[str, ...]:
        words = map(str.lower, requested)
        each = (everything(support.backend) if word == "all" else (proper[word],) for word in words)
        return tuple(dict.fromkeys(name for names in each for name in names))

    return values


def name_of(axis: str, known: Iterable[str], every: bool = True) -> Callable[[str, Any], None]:
    """A check that a value is one of these names: with `every` in any case of letters, or `all`."""
    names = (*known, "all") if every else tuple(known)

    def check(key: str, value: Any) -> None:
        if (value.lower() if every else value) not in names:
            raise PlanError(f"{axis} {value!r}: unknown. {suggestion(value.lower(), names)}")

    return check


def roots(requested: Any, support: BackendSupport) -> tuple[int, ...]:
    for rank in requested:
        if not 0 <= rank < support.ranks:
            raise PlanError(f"root {rank}: there are {support.ranks} ranks, 0 to {support.ranks - 1}.")
    return tuple(requested)


def empty_is_none(requested: Any, support: BackendSupport) -> tuple[Any, ...]:
    """A plan says "" where it leaves the choice to the library."""
    return tuple(value or None for value in requested)


def places(requested: Any, support: BackendSupport) -> tuple[bool, ...]:
    """Without an in-place form there is one case: out of place, unless only in place was asked for (a skip then)."""
    return tuple(requested) if support.row.has_in_place else (False not in requested,)


def nccl_words(*known: str) -> Callable[[str, Any], None]:
    """A check of NCCL_ALGO or NCCL_PROTO: words between commas, `^` before those to exclude, `func:` before each."""
    lower = {name.lower() for name in known}

    def check(key: str, value: Any) -> None:
        for word in re.split(r"[,;]", value):
            name = word.rpartition(":")[2].strip().removeprefix("^")
            if name and name.lower() not in lower:
                raise PlanError(f"{key} {value!r}: NCCL has no {name}. {suggestion(name, known)}")

    return check


def within(least: float | None, most: float | None) -> Callable[[str, Any], None]:
    """A check of a number; None: it may be as small, or as large, as it likes."""

    def check(key: str, value: Any) -> None:
        if least is not None and value < least:
            raise PlanError(f"{key} {value}: must be at least {least}.")
        if most is not None and value > most:
            raise PlanError(f"{key} {value}: at most {most:,}.")

    return check


def matching(pattern: re.Pattern[str], refusal: str) -> Callable[[str, Any], None]:
    """A check of a name; the refusal holds `{key}` and `{value}`."""

    def check(key: str, value: Any) -> None:
        if pattern.fullmatch(value) is None:
            raise PlanError(refusal.format(key=key, value=repr(value)))

    return check


image_name = matching(_IMAGE, "image {value}: not a name of an image. Write openmpi, or site/name:tag.")


Value = str | int | float | bool | None
AxisKind = Literal["what", "how", "where"]

Driver = Literal["native", "python"]
ThreadLevel = Literal["single", "funneled", "serialized", "multiple"]
Staging = Literal["pageable", "pinned"]
Registration = Literal["none", "local", "symmetric"]
CtaPolicy = Literal["default", "efficiency", "zero"]
Op = Literal["sum", "prod", "min", "max", "avg"]

DRIVERS: tuple[Driver, ...] = get_args(Driver)
THREAD_LEVELS: tuple[ThreadLevel, ...] = get_args(ThreadLevel)
OPS: tuple[Op, ...] = get_args(Op)
STAGINGS: tuple[Staging, ...] = get_args(Staging)
REGISTRATIONS: tuple[Registration, ...] = get_args(Registration)
CTA_POLICIES: tuple[CtaPolicy, ...] = get_args(CtaPolicy)

#: Facts of the environment that come with a choice of software.
SOFTWARE = frozenset({"library", "library-file", "setting:*", "packages", "python", "image-id"})

#: Steps of isolation by name, from none to the most isolated. An engine's ladder has some of them (`launch.engines`).
STEPS = (None, "files", "visible", "net", "ipc", "limits", "strict")

#: What may lie under the files of a program: the writable layer of a container, a volume of the engine, a folder of the
#: host that is mounted, memory.
STORAGES = ("overlay", "volume", "bind", "tmpfs")

#: Booleans as labels, and what else they may be called.
YES, NO = "yes", "no"
SYNONYMS = {"true": YES, "false": NO}


def _label(value: Value) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return "default" if value is None else str(value)


def _order(value: Value) -> Any:
    """Numbers by value, before texts by the alphabet; nothing first."""
    number = isinstance(value, int | float)
    return (value is not None, not number, value if number else 0, "" if number or value is None else value)


@dataclass(frozen=True)
class Axis:
    """One thing that may vary.

    `kind`: `what` is measured, `how`, or `where`. `neutral` stands where it does not apply or is left to the library,
    and is not stored. Other values are `of` one type. `label` names a side of a comparison, `order` sorts them, and
    `words` says a value in the heading of a table (empty: nothing). `implies` are facts of the environment that may
    differ with it. `advised`: a reader may still choose it, so `advise` does. `column`: its name in CSV files.
    `plan_key` is how values are asked for in a plan and by a flag.
    """

    name: str
    kind: AxisKind
    means: str
    neutral: Value = None
    of: type = str
    label: Callable[[Value], str] = _label
    order: Callable[[Any], Any] = _order
    words: Callable[[Value], str] = lambda value: ""
    implies: frozenset[str] = frozenset()
    advised: bool = False
    column: str = ""
    plan_key: PlanKey | None = None

    @property
    def spelled(self) -> str:
        """As it is typed: `thread-level`."""
        return self.name.replace("_", "-")

    @property
    def heading(self) -> str:
        return self.column or self.name


def step_order(step: str | None) -> int:
    """Place of a step on the ladder; an unknown one stands last."""
    return STEPS.index(step) if step in STEPS else len(STEPS)


def _after(word: str) -> Callable[[Value], str]:
    return lambda value: f"{word}{_label(value)}" if value not in (None, "") else ""


def _or_none(value: Value) -> str:
    return str(value or "none")


#: What NCCL knows (nccl.h and its manual, 2.30); case does not matter to it.
NCCL_ALGO = nccl_words("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
NCCL_PROTO = nccl_words("LL", "LL128", "Simple")


def _order_of(*words: str) -> Callable[[Any], Any]:
    """Words in this order, and others after them."""
    return lambda value: (words.index(value), "") if value in words else (len(words), str(value))


#: Which GPUs or cores of a machine (`launch.selection`); or their numbers.
FIRST, CLOSE, SPREAD = "first", "close", "spread"

_NUMBER = r"(?:0|[1-9][0-9]{0,4})"
_CHOICE = matching(
    re.compile(rf"{FIRST}|{CLOSE}|{SPREAD}|(?!.*\b({_NUMBER}),(.*,)?\1\b){_NUMBER}(,{_NUMBER})*"),
    "{key}: {value}: write first, close, spread, or different numbers without spaces, as 0,3.",
)


#: Every axis that is not a workload's own, in the order of tables.
AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("measure", "what", "what a program was timed at", words=_after("")),
        Axis("op", "what", "the reduction", words=_after(""), plan_key=PlanKey(
            "ops", ("sum",), row=lambda row: row.reduces, nested=-1,
            values=named(OPS, lambda backend: backend.ops, {}), check=name_of("op", OPS),
            flag=Flag(("-o", "--op"), f"Reduction: {', '.join(OPS)}, or all.", "OP", commas=True))),
        Axis("dtype", "what", "the type of an element", "", words=_after(""), plan_key=PlanKey(
            "dtypes", ("float32",), row=lambda row: row.moves_data, nested=-2,
            values=named(DTYPES, lambda backend: backend.dtypes(), DTYPE_ALIASES),
            check=name_of("dtype", (*DTYPES, *DTYPE_ALIASES)),
            flag=Flag(("-d", "--datatype"), "int8 to uint64, float16, bfloat16, float32, float64 (or half, float, "
                      "double), fp8_e4m3, fp8_e5m2, or all.", "TYPE", commas=True))),
        Axis("root", "what", "the rank that sends, receives or serves", of=int, words=_after("root "), plan_key=PlanKey(
            "roots", (0,), row=lambda row: row.rooted, values=roots,
            flag=Flag(("-r", "--root"), "Root, or parameter server, where the collective has one.", "RANK"))),
        Axis("size", "what", "the size asked for, in bytes", 0, of=int, column="size_asked", plan_key=PlanKey(
            "sizes", None, of=Sizes | tuple[str | int, ...] | None, row=lambda row: row.moves_data, nested=1,
            values=lambda requested, support: sizes_in_bytes(requested))),
        Axis("backend", "how", "what moves the data", "", words=_after("backend "), implies=SOFTWARE, plan_key=PlanKey(
            "backends", (), values=lambda requested, support: (support.backend.name,),
            flag=Flag(("--backend",), "See `collbench list`.", "NAME",
                      default="mpi, on GPUs nccl; under torchrun torch-gloo, torch-nccl"))),
        Axis("driver", "how", "who makes the calls", "", words=_after("driver "), advised=True, column="driver_asked",
             plan_key=PlanKey(
                 "drivers", ("native",), of=Driver, nested=-3,
                 flag=Flag(("--driver",), "Whether the C loop or Python makes the call.", words=one_of(DRIVERS)))),
        Axis("thread_level", "how", "what MPI is initialised with", "", words=_after("thread level "),
             implies=frozenset({"granted-thread-level"}), advised=True, plan_key=PlanKey(
                 "thread_level", "single", of=ThreadLevel,
                 flag=Flag(("--thread-level",), "The thread level with which MPI is initialised.",
                           words={name: name for name in THREAD_LEVELS}))),
        Axis("staging", "how", "the host memory that device data passes through",
             words=lambda value: f"{value} host memory" if value else "", advised=True, plan_key=PlanKey(
                 "staging", ("pinned",), of=Staging, row=lambda row: row.moves_data, optional=True,
                 flag=Flag(("--staging",), "Host memory that device data passes through (mpi-staged, and the server's "
                           "leg of nccl).", words=one_of(STAGINGS) | {"both": STAGINGS}))),
        Axis("algorithm", "how", "what NCCL_ALGO is set to", words=_after("NCCL_ALGO="), advised=True,
             column="algorithm_asked", plan_key=PlanKey(
                 "algorithms", ("",), optional=True, values=empty_is_none, check=NCCL_ALGO,
                 flag=Flag(("--algorithm",), "nccl: what NCCL_ALGO is set to.", "NAME", default="left to NCCL"))),
        Axis("protocol", "how", "what NCCL_PROTO is set to", words=_after("NCCL_PROTO="), advised=True,
             column="protocol_asked", plan_key=PlanKey(
                 "protocols", ("",), optional=True, values=empty_is_none, check=NCCL_PROTO,
                 flag=Flag(("--protocol",), "nccl: what NCCL_PROTO is set to.", "NAME", default="left to NCCL"))),
        Axis("cta_policy", "how", "for what a communicator of NCCL is to use few thread blocks", "default",
             words=lambda value: "" if value == "default" else f"CTA policy {value}", advised=True, plan_key=PlanKey(
                 "cta_policies", ("default",), of=CtaPolicy, optional=True,
                 flag=Flag(("--cta-policy",), "nccl: thread blocks of a communicator: default, few (efficiency), or "
                           "none where the copy engines can do it (zero).", words=one_of(CTA_POLICIES)))),
        Axis("registration", "how", "how the communicator knows the buffers beforehand", "none",
             order=_order_of(*REGISTRATIONS),
             words=lambda value: "" if value == "none" else f"{value} registration", advised=True, plan_key=PlanKey(
                 "registration", ("none",), of=Registration, optional=True,
                 flag=Flag(("-R", "--registration", "--local_register"), "nccl: buffers that NCCL allocates, "
                           "registered locally (1) or as symmetric windows (2).", "0|1|2",
                           words={str(number): (name,) for number, name in enumerate(REGISTRATIONS)}))),
        Axis("graph", "how", "operations in a CUDA graph that is launched in place of calls", 0, of=int,
             words=lambda value: f"CUDA graph of {value}" if value else "", advised=True, plan_key=PlanKey(
                 "cudagraph", 0, row=lambda row: not row.has_server, optional=True,  # of one operation, or a burst
                 values=lambda graphs, support: (support.operations if graphs else 0,), check=within(0, 10_000_000),
                 flag=Flag(("-G", "--cudagraph"), "nccl: launch a captured CUDA graph N times a sample; 0: no graph.",
                           "N"))),
        Axis("in_place", "how", "the result takes the place of the input", False, of=bool, advised=True,
             words=lambda value: "in place" if value else "", plan_key=PlanKey(
                 "in_place", (False,), values=places, nested=1,
                 flag=Flag(("--in-place",), "Measure the in-place form.", alone="yes",
                           words={"yes": (True,), "no": (False,), "both": (False, True)},
                           default="no; both with --style nccl-tests"))),
        Axis("engine", "where", "what the ranks were started in", "host"),
        Axis("image", "where", "the image, on the host the environment beside it", implies=SOFTWARE, label=_or_none,
             plan_key=PlanKey("images", check=image_name)),
        Axis("side", "where", "what differs from the rest of the plan: image, variables, library files",
             implies=SOFTWARE | {"python", "packages", "image-id", "env:*"}, label=_or_none, advised=True,
             plan_key=PlanKey("sides", check=matching(
                 _SIDE, "{key}: {value}: a side is named by letters, digits, - and _, at most 32 of them."))),
        Axis("policy", "where", "how ranks are spread over containers", "host", order=policy_order, advised=True,
             implies=frozenset({"python", "packages", "image-id"}), plan_key=PlanKey("policies", check=matching(
                 POLICY, "policy {value}: not a name of a policy. Write single, or with a number packed:2."))),
        Axis("isolation", "where", "the step of the engine's ladder", label=_or_none, order=step_order, advised=True,
             plan_key=PlanKey("isolation")),
        Axis("affinity", "where", "cores of each rank with near memory, with far memory, or all", "near", advised=True,
             plan_key=PlanKey("affinity")),
        Axis("gpus", "where", "which GPUs of the machine", FIRST, order=_order_of(FIRST, CLOSE, SPREAD), advised=True,
             plan_key=PlanKey("gpus", check=_CHOICE)),
        Axis("cores", "where", "which cores of the machine", FIRST, order=_order_of(FIRST, CLOSE, SPREAD), advised=True,
             plan_key=PlanKey("cores", check=_CHOICE)),
        Axis("storage", "where", "what lies under the files that a program works in", label=_or_none,
             words=_after("on "), advised=True,
             plan_key=PlanKey("storage", check=name_of("storage", STORAGES, every=False))),
        Axis("seccomp", "where", "the filter of system calls in containers", "default", advised=True,
             plan_key=PlanKey("seccomp", check=name_of("seccomp", ("default", "unconfined"), every=False))),
        Axis("hosts", "where", "machines over which the ranks are spread evenly", 1, of=int, advised=True,
             implies=frozenset({"hosts", "host", "boot", "allocation"}),
             words=lambda value: f"on {value} hosts" if value not in (None, 1) else "", plan_key=PlanKey("hosts")),
        Axis("ranks", "where", "processes that take part", 1, of=int, plan_key=PlanKey("ranks")),
    )
}  # fmt: skip


def axis_of(name: str, kind: AxisKind = "what") -> Axis:
    """The axis of that name; one that is not in the table is a workload's own."""
    return AXES.get(name) or Axis(name, kind, "", words=_after(f"{name.replace('_', ' ')} "))


def plan_keys_of(*kinds: AxisKind) -> dict[str, PlanKey]:
    """How values are asked for on every axis of these kinds that a plan can vary, by the name of the axis."""
    return {axis.name: axis.plan_key for axis in AXES.values() if axis.plan_key is not None and axis.kind in kinds}
