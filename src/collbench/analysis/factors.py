"""What the sides of a comparison may differ in: each factor with its name, its order, and what comes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from collbench.analysis.ordering import place, policy_order, step_order
from collbench.errors import RequestError
from collbench.schema.case import Case
from collbench.spelling import suggestion


@dataclass(frozen=True)
class Factor:
    """What may differ between the sides: `fields` of the case, and the facts of the environment that come with them.

    `label` names a side, `order` puts the one that others are held against first, and `opposed` says whether two
    sides of one cell are a question at all.
    """

    name: str
    fields: tuple[str, ...]
    implied: frozenset[str]
    label: Callable[[Case], str]
    order: Callable[[Case], Any]
    opposed: Callable[[Case, Case], bool] = lambda base, other: True


_SOFTWARE = frozenset({"library", "library-file", "packages", "python", "image-id"})


def _same_step(base: Case, other: Case) -> bool:
    """The host has no step; two policies in containers are held against each other at one step, near with near."""
    alike = base.policy.partition("/")[2] == other.policy.partition("/")[2]
    hosts = base.policy.startswith("host") or other.policy.startswith("host")
    return alike and (hosts or base.isolation == other.isolation)


def _plain(name: str, implied: frozenset[str] = frozenset()) -> Factor:
    def label(case: Case) -> str:
        value = getattr(case, name)
        return "default" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return Factor(name.replace("_", "-"), (name,), implied, label, label)


#: What `--by` takes within one run.
FACTORS = {
    factor.name: factor
    for factor in (
        Factor("policy", ("policy", "isolation"), frozenset({"python", "packages", "image-id"}), place,
               lambda case: (policy_order(case.policy), step_order(case.isolation)), _same_step),
        Factor("isolation", ("isolation",), frozenset(), lambda case: case.isolation or "none",
               lambda case: step_order(case.isolation)),
        _plain("image", _SOFTWARE),
        _plain("backend", _SOFTWARE),
        _plain("driver"), _plain("thread_level", frozenset({"granted-thread-level"})), _plain("staging"),
        _plain("algorithm"), _plain("protocol"), _plain("registered"), _plain("graph"), _plain("in_place"),
        _plain("op"), _plain("dtype"), _plain("root"),
    )
}  # fmt: skip


def find_factor(name: str, more: Iterable[str] = ()) -> Factor:
    """The factor of that name; with `more`, a fact of the environment may be one.

    Raises:
        RequestError: no such factor.
    """
    spelled = name.replace("_", "-").lower()
    if spelled in FACTORS:
        return FACTORS[spelled]
    if spelled in more:
        implied = _SOFTWARE | {"launcher"} if spelled in ("library", "library-file") else frozenset({spelled})
        return Factor(spelled, (), implied, lambda case: "", lambda case: 0)
    known = (*FACTORS, *more)
    raise RequestError(f"--by {name!r}: unknown. {suggestion(spelled, known)}")
