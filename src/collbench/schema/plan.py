"""A plan: which cases to measure, and how. A TOML file or the flags of a command: both become this."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from collbench.errors import PlanError, UnitError
from collbench.schema.axes import Driver, Staging, ThreadLevel
from collbench.spelling import suggestion
from collbench.units import parse_duration, parse_size

#: A sweep of more sizes than this is a slip of the keyboard.
MOST_SIZES = 10_000


#: A time-out or a budget longer than eleven days is a slip of the keyboard too (s).
LONGEST = 1e6

#: Operations of a burst are issued before the first is waited for.
MOST_BURST = 1000

#: Every sample of a case is held by its rank until the case is done.
MOST_SAMPLES = 10_000_000


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep from `min` to `max` bytes: times `factor`, or plus `step` bytes when that is given."""

    min: str | int = "8"
    max: str | int = "4M"
    factor: int = 2
    step: str | int | None = None

    def expand(self) -> tuple[int, ...]:
        """The sizes in bytes, ascending.

        Raises:
            PlanError: min above max; a factor below 2, a step below 1 or far too many steps where more than one size
                is asked for.
            UnitError: a size that cannot be read.
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
        found = [low]
        while (following := found[-1] * self.factor or 1 if step is None else found[-1] + step) <= high:
            found.append(following)
        return tuple(found)


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every combination of the lists is one case. There are `collectives`, or `workloads` (programs), or both.

    `sizes` are 8 B to 4 MiB for collectives where the plan says nothing, and each program's own for that. `axes` gives
    values to axes that are a program's own.
    `gate` auto is `roundtime` where all ranks share a clock and each has a core, else `barrier`.
    `iters` fixes the number of samples; without it a time `budget` per case decides, within `floor` and `cap` samples.
    With cadence `streaming` a sample is `burst` operations back to back. What only some backends have: `staging`,
    `algorithms` and `protocols` (values of NCCL_ALGO and NCCL_PROTO; "" leaves it to the library), `registered`
    buffers, and `cudagraph`, how often a captured graph is launched (0: no graph). `share_gpu` allows several ranks on
    one GPU, for tests of function. `unusable` says what becomes of a backend that cannot be used here, where others
    can: `refuse` the plan, or `skip` its cases with the reason.
    """

    title: str = ""
    collectives: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    axes: dict[str, tuple[str | int | float | bool, ...]] = {}
    backends: tuple[str, ...] = ()
    drivers: tuple[Driver, ...] = ("native",)
    thread_level: ThreadLevel = "single"
    dtypes: tuple[str, ...] = ("float32",)
    ops: tuple[str, ...] = ("sum",)
    roots: tuple[int, ...] = (0,)
    sizes: Sizes | tuple[str | int, ...] | None = None
    in_place: tuple[bool, ...] = (False,)
    gate: str = "auto"
    cadence: str = "isolated"
    warmup: int = 5
    check: int = 1
    iters: int | None = None
    budget: str | float = "0.25s"
    floor: int = 20
    cap: int = 10_000
    timeout: str | float = "300s"
    burst: int = 20
    staging: tuple[Staging, ...] = ("pinned",)
    algorithms: tuple[str, ...] = ("",)
    protocols: tuple[str, ...] = ("",)
    registered: tuple[bool, ...] = (False,)
    cudagraph: int = 0
    share_gpu: bool = False
    unusable: Literal["refuse", "skip"] = "refuse"

    def sizes_in_bytes(self) -> tuple[int, ...]:
        """The sizes of the sweep.

        Raises:
            PlanError, UnitError: as `Sizes.expand`.
        """
        sizes = Sizes() if self.sizes is None else self.sizes
        if isinstance(sizes, Sizes):
            return sizes.expand()
        return tuple(parse_size(size) for size in sizes)

    @property
    def budget_seconds(self) -> float:
        """Time budget of one case in seconds."""
        return parse_duration(self.budget, "budget")

    @property
    def timeout_seconds(self) -> float:
        """Longest time without progress in seconds."""
        return parse_duration(self.timeout, "timeout")


def check_plan(plan: Plan) -> Plan:
    """The plan itself, when its numbers make sense.

    Raises:
        PlanError, UnitError: the first that does not, with what would.
    """
    _check_numbers(plan)
    for name, choices in (
        ("gate", ("auto", "roundtime", "barrier", "none")),
        ("cadence", ("isolated", "streaming")),
    ):
        if getattr(plan, name) not in choices:
            raise PlanError(f"{name} {getattr(plan, name)!r}: choose one of {', '.join(choices)}.")
    if not plan.collectives and not plan.workloads:
        raise PlanError("collectives: the list is empty, and so is workloads; nothing would be measured.")
    for name, values in (*((name, getattr(plan, name)) for name in _LISTS), *plan.axes.items()):
        if not values:
            raise PlanError(f"{name}: the list is empty; nothing would be measured.")
    for name, seconds in (("budget", plan.budget_seconds), ("timeout", plan.timeout_seconds)):
        if not 0 < seconds <= LONGEST:
            raise PlanError(f"{name} {getattr(plan, name)}: must be longer than 0 s, and at most {LONGEST:g} s.")
    if not plan.sizes_in_bytes():
        raise PlanError("sizes: the list is empty; nothing would be measured.")
    return plan


def _check_numbers(plan: Plan) -> None:
    for name, value, least in (
        ("warmup", plan.warmup, 0),
        ("check", plan.check, 0),
        ("iters", 1 if plan.iters is None else plan.iters, 1),
        ("floor", plan.floor, 1),
        ("cap", plan.cap, 1),
        ("burst", plan.burst, 1),
        ("cudagraph", plan.cudagraph, 0),
    ):
        if value < least:
            raise PlanError(f"{name} {value}: must be at least {least}.")
        if value > MOST_SAMPLES:
            raise PlanError(f"{name} {value}: at most {MOST_SAMPLES:,}; measure in several runs.")
    if plan.check > 1:
        raise PlanError(f"check {plan.check}: 0 or 1.")
    _check_names(plan)
    if plan.burst > MOST_BURST:
        raise PlanError(f"burst {plan.burst}: at most {MOST_BURST}.")
    if plan.cudagraph > 1 and plan.cadence != "streaming":
        raise PlanError(
            f"cudagraph {plan.cudagraph} (-G): several launches a sample are not isolated; use 1, or cadence streaming."
        )
    if plan.cap < plan.floor:
        raise PlanError(f"cap {plan.cap}: is below floor {plan.floor}; lower the floor too.")


_LISTS = ("drivers", "dtypes", "ops", "roots", "in_place", "staging", "algorithms", "protocols",
          "registered")  # fmt: skip


#: What NCCL knows (nccl.h and its manual, 2.30); case does not matter to it.
NCCL_NAMES = {
    "algorithms": ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"),
    "protocols": ("LL", "LL128", "Simple"),
}


def _check_names(plan: Plan) -> None:
    """Every word of NCCL_ALGO and NCCL_PROTO: one, several with commas, without some after `^`, each after `func:`."""
    for key, known in NCCL_NAMES.items():
        for value in getattr(plan, key):
            for word in re.split(r"[,;]", value):
                name = word.rpartition(":")[2].strip().removeprefix("^")
                if name and name.lower() not in (one.lower() for one in known):
                    raise PlanError(f"{key} {value!r}: NCCL has no {name}. {suggestion(name, known)}")


Kind = TypeVar("Kind", bound=Plan)


def load_plan(path: Path) -> Plan:
    """Read a TOML plan.

    Raises:
        PlanError: as `load_plan_of`.
    """
    return load_plan_of(Plan, path)


def load_plan_of(kind: type[Kind], path: Path) -> Kind:
    """Read a plan of a kind: TOML, or JSON where the file is named so.

    Raises:
        PlanError: no such file, not TOML, an unknown key (with the nearest known one), a value of the wrong kind.
    """
    import tomllib

    try:
        text = path.read_text(encoding="utf-8-sig")
        document = msgspec.json.decode(text, type=dict) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise PlanError(f"plan {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        language = "JSON" if path.suffix == ".json" else "TOML"
        raise PlanError(f"plan {path}: not {language}: {error}.") from error
    _refuse_unknown(document, kind, str(path))
    if isinstance(document.get("sizes"), dict):
        _refuse_unknown(document["sizes"], Sizes, f"{path}, sizes")
    try:
        plan = msgspec.convert(document, kind)
        check_plan(plan)
    except msgspec.ValidationError as error:
        raise PlanError(f"plan {path}: {error}.") from error
    except (PlanError, UnitError) as error:
        raise PlanError(f"plan {path}: {error}") from error
    return plan


def _refuse_unknown(document: dict[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    known = kind.__struct_fields__
    for key in document:
        if key not in known:
            hint = suggestion(key, known)
            raise PlanError(f"plan {where}: unknown key {key!r}. {hint}")
