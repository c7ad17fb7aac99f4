"""A case: the identity of one cell of an experiment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, get_args

import msgspec

from collbench.errors import RunReadError
from collbench.schema.axes import AXES, FIRST, Axis, Value, axis_of
from collbench.schema.files import RankCount, ShortText
from collbench.units import format_size

Alignment = Literal["roundtime", "barrier", "none"]
Cadence = Literal["isolated", "streaming"]
SampleClock = Literal["common", "synced", "local"]

ALIGNMENTS: tuple[Alignment, ...] = get_args(Alignment)
CADENCES: tuple[Cadence, ...] = get_args(Cadence)

_Text = Annotated[str, msgspec.Meta(max_length=512)]
_Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Settings = dict[ShortText, _Text | _Whole | float | bool | None]

MOST_SETTINGS = 64  # most settings that a case may have

_NAMED_PLACES = ("engine", "policy", "affinity", "gpus", "cores", "seccomp")
_NEUTRAL_PLACES = tuple((name, str(AXES[name].neutral)) for name in _NAMED_PLACES)


class Where(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a case runs: what its ranks are started in, and how they are distributed (docs/record.md).

    On the host `image` is the one that the host's environment is compared with, and `isolation` is None.
    """

    ranks: RankCount = 1
    engine: ShortText = "host"
    image: ShortText | None = None
    policy: ShortText = "host"
    isolation: ShortText | None = None
    affinity: ShortText = "near"
    gpus: ShortText = FIRST
    cores: ShortText = FIRST
    storage: ShortText | None = None
    seccomp: ShortText = "default"
    hosts: RankCount = 1
    side: ShortText | None = None

    def __post_init__(self) -> None:
        for name, neutral in _NEUTRAL_PLACES:  # msgspec leaves out what is the default itself, not what equals it
            if getattr(self, name) == neutral:
                msgspec.structs.force_setattr(self, name, neutral)

    @property
    def on_host(self) -> bool:
        return self.engine == "host" or self.policy == "host"

    @property
    def text(self) -> str:
        """`single strict`, `host`, `multi strict far gpus close`, `multi strict seccomp unconfined`."""
        return self.text_beside(self)

    def text_beside(self, other: Where) -> str:
        """`text` without the GPUs, the cores and the filter of system calls that the other place does not share."""
        words = [self.policy, self.isolation, None if self.affinity == "near" else self.affinity]
        for name in ("gpus", "cores", "seccomp"):
            value = getattr(self, name)
            words += [f"{name} {value}"] if value != AXES[name].neutral and value == getattr(other, name) else []
        return " ".join(word for word in words if word)


@lru_cache(maxsize=1 << 12)  # a hundred thousand cases have few sets of axes
def _axes(what: tuple[str, ...], how: tuple[str, ...], where: Where) -> tuple[Axis, ...]:
    axes = [axis_of(name) for name in what if name not in AXES]
    axes += [axis_of(name, "how") for name in how if name not in AXES]
    placed = {name for name in Where.__struct_fields__ if name in AXES and getattr(where, name) != AXES[name].neutral}
    return (*axes, *(axis for name, axis in AXES.items() if name in placed or name in what or name in how))


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """What was requested. What was really used (the driver after a fallback, say) is in the record.

    `what` and `how` hold the values of axes (`schema.axes`) that are not neutral. The requested size is `what["size"]`;
    the bytes that move after rounding to whole blocks are `Record.work.amount`.
    """

    workload: ShortText
    what: Settings = {}
    how: Settings = {}
    where: Where = Where()

    def __post_init__(self) -> None:
        for settings in (self.what, self.how):
            if len(settings) > MOST_SETTINGS:
                raise ValueError(f"{len(settings)} settings; a case has at most {MOST_SETTINGS}")
            if settings and not all(settings.values()):  # every neutral value is null, false, 0 or empty
                for name in [name for name, value in settings.items() if _is_neutral(name, value)]:
                    del settings[name]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.workload, frozenset(self.what.items()), frozenset(self.how.items()), self.where))

    def __getitem__(self, axis: str) -> Any:
        """The value on an axis or of `workload`; the neutral one where the case has none."""
        for settings in (self.what, self.how):
            if axis in settings:
                return settings[axis]
        if axis == "workload" or axis in Where.__struct_fields__:
            return self.workload if axis == "workload" else getattr(self.where, axis)
        return AXES[axis].neutral if axis in AXES else None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes with a value that is not neutral: the workload's own ones, then those of the table."""
        return _axes(tuple(self.what), tuple(self.how), self.where)

    def having(self, **values: Value) -> Case:
        """The case with other values on these axes; `workload` may be one of them."""
        what, how, where = dict(self.what), dict(self.how), dict[str, Any]()
        workload = values.pop("workload", self.workload)
        for name, value in values.items():
            kind = AXES[name].kind if name in AXES else "how" if name in how else "what"
            settings = {"what": what, "how": how, "where": where}[kind]
            if kind != "where" and _is_neutral(name, value):
                settings.pop(name, None)
            else:
                settings[name] = value
        place = msgspec.structs.replace(self.where, **where) if where else self.where
        return Case(workload=str(workload), what=what, how=how, where=place)

    def without(self, axes: Collection[str]) -> Case:
        """The case with neutral values on these axes: equal for cases that differ in them alone."""
        neutral: dict[str, Value] = {name: AXES[name].neutral for name in axes if name in AXES}
        if "workload" in axes:
            neutral["workload"] = ""
        case = self.having(**neutral)
        for settings in (case.what, case.how):
            for name in set(settings) & set(axes):
                del settings[name]
        return case

    @property
    def short(self) -> str:
        """`allreduce 1K`, `linpack`: the workload, with the size where it has one."""
        return f"{self.workload} {format_size(self['size'])}" if "size" in self.what else self.workload

    @property
    def key(self) -> str:
        """Twelve hex digits that name the case, stable across machines and versions of Python."""
        import hashlib

        fields = {name: value for name, value in msgspec.to_builtins(self).items() if value}
        canonical = msgspec.json.encode(fields, order="sorted")
        return hashlib.blake2b(canonical, digest_size=6).hexdigest()


def _is_neutral(name: str, value: Value) -> bool:
    """Whether a case leaves the value out. A size of 0 is a request."""
    return value is None or value is False or (name in AXES and name != "size" and value == AXES[name].neutral)


def case_of(workload: str, values: Mapping[str, Value]) -> Case:
    return Case(workload=workload).having(**values)


def names_in(cases: Collection[Case]) -> Iterator[str]:
    """`workload` and every axis with a value in one of these cases: those of the table first, in its order."""
    used = {name for case in cases for name in (*case.what, *case.how)}
    yield "workload"
    yield from (name for name in AXES if name in used or name in Where.__struct_fields__)
    yield from sorted(used - AXES.keys())


def own_axes(cases: Collection[Case]) -> tuple[str, ...]:
    """Those of `names_in` that a workload declares itself."""
    return tuple(name for name in names_in(cases) if name not in AXES and name != "workload")


def refuse_odd(case: Case, what: str) -> None:
    """Refuse a case with values that do not belong on their axes. Raises RunReadError: `what` names the place."""
    for settings, kind in ((case.what, "what"), (case.how, "how")):
        for name, value in settings.items():
            axis = AXES.get(name)
            if axis is not None and axis.kind != kind:
                raise RunReadError(f"{what}: {name} is in `{kind}`; it belongs in `{axis.kind}`.")
            if axis is not None and type(value) is not axis.of:  # True is an int, and no size
                raise RunReadError(f"{what}: {name} {value!r} is of the wrong type; expected {axis.of.__name__}.")
    root, size = case.what.get("root"), case.what.get("size", 0)
    if isinstance(root, int) and not 0 <= root < case.where.ranks:
        raise RunReadError(f"{what}: root {root} does not exist; there are {case.where.ranks} ranks.")
    if isinstance(size, int) and size < 0:
        raise RunReadError(f"{what}: negative size {size}.")
