"""Workloads that are programs: one file each, found by being here. A file `NAME.py` defines `WORKLOAD`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from collbench.errors import RequestError
from collbench.registry import defined, modules_of
from collbench.spelling import suggestion

if TYPE_CHECKING:
    from collbench.workloads.program import Program

_NOT_ROWS = {"program", "case"}


@cache
def names() -> tuple[str, ...]:
    """Every workload, in alphabetical order, without importing any."""
    return modules_of(__path__, _NOT_ROWS)


def get(name: str) -> Program:
    """The row of a workload, whether it can run here or not.

    Raises:
        RequestError: no such workload; the message names the nearest.
    """
    if name not in names():
        raise RequestError(f"workload {name!r}: unknown. {suggestion(name, names())}")
    row: Program = defined(__name__, name, "WORKLOAD")
    return row
