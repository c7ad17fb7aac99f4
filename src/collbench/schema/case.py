"""A case: one cell of an experiment, and nothing but its identity."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import msgspec

from collbench.errors import RunReadError
from collbench.schema.axes import AXES, Axis, Value, axis_of
from collbench.schema.bounds import Name, RankCount

Gate = Literal["roundtime", "barrier", "none"]
Cadence = Literal["isolated", "streaming"]

GATES: tuple[Gate, ...] = get_args(Gate)
CADENCES: tuple[Cadence, ...] = get_args(Cadence)

_Text = Annotated[str, msgspec.Meta(max_length=512)]
_Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Settings = dict[Name, _Text | _Whole | float | bool | None]

#: No case has so many settings.
MOST_SETTINGS = 64


_NEUTRAL_PLACES = tuple((name, str(AXES[name].neutral)) for name in ("engine", "policy", "affinity"))


class Where(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The place of a case: what its ranks were started in, and how they were spread.

    On the host `image` is the one that the environment there stands beside, and there is no step of `isolation`.
    `affinity` is `far` where memory is on another node than the cores.
    """

    ranks: RankCount = 1
    engine: Name = "host"
    image: Name | None = None
    policy: Name = "host"
    isolation: Name | None = None
    affinity: Name = "near"

    def __post_init__(self) -> None:
        for name, neutral in _NEUTRAL_PLACES:  # msgspec leaves out what is the default itself, not what equals it
            if getattr(self, name) == neutral:
                msgspec.structs.force_setattr(self, name, neutral)

    @property
    def on_host(self) -> bool:
        """Whether no container is around the ranks."""
        return self.engine == "host"

    @property
    def text(self) -> str:
        """`single strict`, `host`, `multi strict far`."""
        words = (self.policy, self.isolation, None if self.affinity == "near" else self.affinity)
        return " ".join(word for word in words if word)


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """What is asked for. What was really used (the driver after a fall-back, say) stands in the record.

    `what` and `how` hold the values of axes (`schema.axes`) that say something; neutral ones are left out. The size
    asked for is `what["size"]`; the bytes that move after rounding to whole blocks are `Record.work.amount`.
    """

    workload: Name
    what: Settings = {}
    how: Settings = {}
    where: Where = Where()

    def __post_init__(self) -> None:
        for settings in (self.what, self.how):
            if len(settings) > MOST_SETTINGS:
                raise ValueError(f"{len(settings)} settings; a case has at most {MOST_SETTINGS}")
            if not all(settings.values()):  # what says nothing is null, false, 0 or empty
                for name in [name for name, value in settings.items() if _says_nothing(name, value)]:
                    del settings[name]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.workload, frozenset(self.what.items()), frozenset(self.how.items()), self.where))

    def __getitem__(self, axis: str) -> Any:
        """The value on an axis, `workload` among them; the neutral one where the case has none."""
        for settings in (self.what, self.how):
            if axis in settings:
                return settings[axis]
        if axis == "workload" or axis in Where.__struct_fields__:
            return self.workload if axis == "workload" else getattr(self.where, axis)
        return AXES[axis].neutral if axis in AXES else None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Those on which the case has a value of its own, in the order of the table."""
        own = [axis_of(name) for name in self.what if name not in AXES]
        own += [axis_of(name, "how") for name in self.how if name not in AXES]
        return (*own, *(axis for axis in AXES.values() if self[axis.name] != axis.neutral))

    def having(self, **values: Value) -> Case:
        """The case with other values on some axes; `workload` among them."""
        what, how, where = dict(self.what), dict(self.how), dict[str, Any]()
        workload = values.pop("workload", self.workload)
        for name, value in values.items():
            kind = AXES[name].kind if name in AXES else "how" if name in how else "what"
            if kind == "where":
                where[name] = value
            elif _says_nothing(name, value):
                (what if kind == "what" else how).pop(name, None)
            else:
                (what if kind == "what" else how)[name] = value
        place = msgspec.structs.replace(self.where, **where) if where else self.where
        return Case(workload=str(workload), what=what, how=how, where=place)

    def without(self, axes: Collection[str]) -> Case:
        """The case with nothing on these axes: what cases have in common that differ in them alone."""
        dropped = {name: axis_of(name).neutral for name in axes if name in AXES or name == "workload"}
        found = self.having(**dropped | ({"workload": ""} if "workload" in dropped else {}))
        for settings in (found.what, found.how):
            for name in set(settings) & set(axes):
                del settings[name]
        return found

    @property
    def key(self) -> str:
        """Twelve hex digits that name the case, stable across machines and versions of Python."""
        import hashlib

        said = {name: value for name, value in msgspec.to_builtins(self).items() if value}
        canonical = msgspec.json.encode(said, order="sorted")
        return hashlib.blake2b(canonical, digest_size=6).hexdigest()


def _says_nothing(name: str, value: Value) -> bool:
    """A value that is left out. A size of 0 is one that was asked for."""
    return value is None or value is False or (name in AXES and name != "size" and value == AXES[name].neutral)


def case_of(workload: str, values: Mapping[str, Value]) -> Case:
    """A case from values on the axes of the table, in any order."""
    return Case(workload=workload).having(**values)


def names_in(cases: Collection[Case]) -> Iterator[str]:
    """Every axis on which one of these cases says something: those of the table first, in its order."""
    found = {name for case in cases for name in (*case.what, *case.how)}
    yield "workload"
    yield from (name for name in AXES if name in found or name in Where.__struct_fields__)
    yield from sorted(found - AXES.keys())


def own_axes(cases: Collection[Case]) -> tuple[str, ...]:
    """Those of `names_in` that are a workload's own."""
    return tuple(name for name in names_in(cases) if name not in AXES and name != "workload")


def refuse_odd(case: Case, what: str) -> None:
    """Raise for a case whose values are of another kind than their axes.

    Raises:
        RunReadError: `what` names the place.
    """
    for settings, kind in ((case.what, "what"), (case.how, "how")):
        for name, value in settings.items():
            axis = AXES.get(name)
            if axis is not None and axis.kind != kind:
                raise RunReadError(f"{what}: {name} stands in `{kind}`, and belongs in `{axis.kind}`.")
            if axis is not None and type(value) is not axis.of:  # True is an int, and no size
                raise RunReadError(f"{what}: {name} {value!r} is of another kind than it should be.")
    root, size = case.what.get("root"), case.what.get("size", 0)
    if isinstance(root, int) and not 0 <= root < case.where.ranks:
        raise RunReadError(f"{what}: root {root} of {case.where.ranks} ranks.")
    if isinstance(size, int) and size < 0:
        raise RunReadError(f"{what}: a size of {size} bytes.")
