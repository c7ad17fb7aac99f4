"""What the sides of a comparison may differ in: each factor with its name, its order, and what it implies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from collbench.errors import RequestError, suggestion
from collbench.schema.axes import AXES, SOFTWARE, Axis, axis_of, policy_order, step_order
from collbench.schema.case import Case


@dataclass(frozen=True)
class Factor:
    """What may differ between the sides: `axes` of the case, and the facts of the environment that come with them.

    `label` names a side, `order` puts the base first, and `opposed` says whether two sides can be compared at all.
    `fewer`: of two runs, axes of which fewer may be enough to tell their cells apart, the least first.
    """

    name: str
    axes: tuple[str, ...]
    implied: frozenset[str]
    label: Callable[[Case], str]
    order: Callable[[Case], Any]
    opposed: Callable[[Case, Case], bool] = lambda base, other: True
    fewer: tuple[tuple[str, ...], ...] = ()

    def implies(self, fact: str) -> bool:
        """Whether a fact of the environment may differ with it; `env:*` among the implied ones is every variable."""
        return fact in self.implied or (fact.startswith("env:") and "env:*" in self.implied)

    def varies(self, cases: Iterable[Case]) -> bool:
        return len({tuple(case[axis] for axis in self.axes) for case in cases}) > 1


def _same_step(base: Case, other: Case) -> bool:
    """The host has no step; two policies in containers are compared at the same step of the same engine."""
    alike = _confined(base) == _confined(other)
    return base.where.affinity == other.where.affinity and (base.where.on_host or other.where.on_host or alike)


def _confined(case: Case) -> tuple[str | None, ...]:
    return (case.where.engine, case.where.isolation, case.where.seccomp)


def _same_place(base: Case, other: Case) -> bool:
    """Two engines are compared at the same policy and step; the host with all of them."""
    return base.where.on_host or other.where.on_host or base.where.text == other.where.text


def _of_axis(axis: Axis) -> Factor:
    return Factor(axis.spelled, (axis.name,), axis.implies, lambda case: axis.label(case[axis.name]),
                  lambda case: axis.order(case[axis.name]))  # fmt: skip


#: Factors that are more than one axis: a policy is named with its step and engine, an engine has its own steps.
_PLACES = (
    Factor("policy", ("policy", "isolation", "engine", "seccomp"), AXES["policy"].implies, lambda case: case.where.text,
           lambda case: (policy_order(case.where.policy), step_order(case.where.isolation), case.where.seccomp),
           _same_step),
    Factor("engine", ("engine", "policy", "isolation", "seccomp"), AXES["policy"].implies | {"engine", "job-options"},
           lambda case: case.where.text if case.where.on_host else f"{case.where.engine} {case.where.text}",
           lambda case: (not case.where.on_host, case.where.engine), _same_place,
           (("engine",), ("engine", "isolation", "seccomp"))),
)  # fmt: skip

#: Within one run: the sides of `policy`, whose libraries and programs are the question.
_LIBRARY = replace(_PLACES[0], name="library", implied=SOFTWARE)

#: Axes that are not factors: sizes are the rows of a table, and numbers of ranks are different questions.
_NO_FACTOR = frozenset({"size", "ranks"})

#: Facts that may differ with an axis of a workload, which may be the choice of a library.
_CHOSEN = frozenset({"library", "library-file"})

#: What `--by` takes within one run, the likeliest first.
FACTORS = {factor.name: factor for factor in _PLACES} | {
    axis.spelled: _of_axis(axis)
    for axis in sorted(AXES.values(), key=lambda axis: ("where", "how", "what").index(axis.kind))
    if axis.name not in _NO_FACTOR | {factor.name for factor in _PLACES}
}


def normalised(name: str) -> str:
    """`thread-level` for `Thread_Level`; the name of a variable, as in `env:NCCL_ALGO`, keeps its spelling."""
    return name if name.startswith("env:") else name.replace("_", "-").lower()


def of_fact(name: str) -> Factor:
    """A fact of the environment as the factor, with those that come with it."""
    implied = SOFTWARE | {"launcher"} if name in ("library", "library-file") else frozenset({name})
    return Factor(name, (), implied, lambda case: "", lambda case: 0)


def find_factor(name: str, more: Iterable[str] = (), own: Iterable[str] = ()) -> Factor:
    """The factor of that name; `own` are axes of workloads, `more` facts of the environments of two runs.

    Without `more`, within one run, `library` compares places that have their own software.

    Raises:
        RequestError: no such factor.
    """
    spelled = normalised(name)
    if spelled in FACTORS:
        return FACTORS[spelled]
    if spelled in (axis.replace("_", "-") for axis in own):
        factor = _of_axis(axis_of(spelled.replace("-", "_")))
        return replace(factor, implied=_CHOSEN)
    if spelled in more:
        return of_fact(spelled)
    if spelled == _LIBRARY.name:
        return _LIBRARY
    known = (*FACTORS, *own, *(more or (_LIBRARY.name,)))
    raise RequestError(f"--by {name!r}: unknown. {suggestion(spelled, known)}")
