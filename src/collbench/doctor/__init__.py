"""Checks of the machine: one file each, found by being here. A file `NAME.py` in this package defines `CHECK`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from collbench.doctor.parts.finding import Finding, Problem
from collbench.errors import RequestError
from collbench.registry import defined, modules_of
from collbench.spelling import suggestion

if TYPE_CHECKING:
    from collbench.doctor.parts.finding import Check
    from collbench.doctor.parts.processors import Machine


@functools.cache
def names() -> tuple[str, ...]:
    """Every check, in alphabetical order, without importing any."""
    return modules_of(__path__)


def get(name: str) -> Check:
    """The check of that name, which must be one of `names`."""
    check: Check = defined(__name__, name, "CHECK")
    return check


def examine(machine: Machine, without: tuple[str, ...] = ()) -> Iterator[tuple[str, Finding]]:
    """Every check's name and finding, one after the other. A check that raises becomes a finding `unknown`.

    Raises:
        RequestError: there is no check of a name in `without`.
    """
    for name in without:
        if name not in names():
            raise RequestError(f"doctor --without {name}: no such check. {suggestion(name, names())}")
    for name in names():
        if name not in without:
            yield name, _run(name, machine)


def _run(name: str, machine: Machine) -> Finding:
    try:
        return get(name).run(machine)
    except Exception as error:
        problem = Problem(
            "unknown",
            cause=f"{type(error).__name__}: {error}".strip().rstrip(":"),
            effect="not known: what this check looks at may spoil a measurement, or not",
            fix='python -c "from collbench import doctor; from collbench.doctor.parts.processors import here; '
            f"doctor.get('{name}').run(here())\" shows where it failed",
        )
        return Finding("the check itself failed", (problem,))
