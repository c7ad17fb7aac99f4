"""The result of a check: what it saw, and each problem with its cause, its effect on a measurement and its fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collbench.analysis.planning import Cost

Severity = Literal["unknown", "warn", "fail"]
Status = Literal["ok", "unknown", "warn", "fail"]

#: From harmless to worst. `warn`: a measurement works, and may mislead. `fail`: it does not work, or measures the wrong
#: thing.
STATUSES: tuple[Status, ...] = ("ok", "unknown", "warn", "fail")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `fix` begins with a command or flag that can be typed as it is."""

    severity: Severity
    cause: str
    effect: str
    fix: str


@dataclass(frozen=True)
class Finding:
    """What one check saw, in one line, and what is wrong with it. `cost`: launches that what it saw may cost."""

    seen: str
    problems: tuple[Problem, ...] = ()
    cost: Cost | None = None

    @property
    def status(self) -> Status:
        """That of the worst problem; `ok` where there is none."""
        return max((problem.severity for problem in self.problems), key=STATUSES.index, default="ok")


def found(seen: str, *problems: Problem | None) -> Finding:
    """A finding with those problems that are not None."""
    return Finding(seen, tuple(problem for problem in problems if problem is not None))
