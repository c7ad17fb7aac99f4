"""Workloads that are programs: the `WORKLOAD` of a file `GROUP/NAME.py` here, or one of a family's `WORKLOADS`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from collbench.errors import PlanError, RequestError, suggestion
from collbench.registry import defined, modules_of
from collbench.schema.plan import name_of

if TYPE_CHECKING:
    from collbench.schema.case import Case
    from collbench.schema.manifest import Library
    from collbench.workloads.program import Program

#: Packages with workloads. Each tells its `FAMILIES`, files whose `WORKLOADS` has several by name, and its `HELPERS`,
#: files without any.
GROUPS = ("dl", "gpu", "host")


@cache
def _modules() -> Mapping[str, tuple[str, str]]:
    """By the name of a workload, in alphabetical order, its group and the module in it. Imports no workload."""
    found: dict[str, tuple[str, str]] = {}
    for group in GROUPS:
        package: Any = import_module(f"{__name__}.{group}")
        for name in modules_of(package.__path__, {*package.HELPERS, *package.FAMILIES}):
            found[name] = group, name
        for module, members in package.FAMILIES.items():
            found |= dict.fromkeys(members, (group, module))
    return MappingProxyType(dict(sorted(found.items())))


def names() -> tuple[str, ...]:
    return tuple(_modules())


def get(name: str) -> Program:
    """A workload, whether it can run here or not.

    Raises:
        PlanError: no such workload, and the message names the most similar one; or its file is broken.
    """
    if name not in _modules():
        raise PlanError(f"benchmark {name!r}: unknown. {suggestion(name, names())}")
    group, module = _modules()[name]
    try:
        if module == name:
            program: Program = defined(f"{__name__}.{group}", module, "WORKLOAD")
        else:
            program = defined(f"{__name__}.{group}", module, "WORKLOADS")[name]
    except RequestError as error:
        raise PlanError(f"benchmark {name!r}: {error}") from error
    return program


def uses(benchmarks: Iterable[str | dict[str, Any]]) -> tuple[str, ...]:
    """The workloads of a plan, each once; one that uses this or that software with its choice: `linpack blas=mkl`."""
    found: dict[str, None] = {}
    for benchmark in benchmarks:
        name = name_of(benchmark)
        alternatives = get(name).alternatives
        if alternatives is None:
            found[name] = None
        else:
            found |= dict.fromkeys(alternatives.use(name, value) for value in alternatives.chosen(benchmark))
    return tuple(found)


def use_of(case: Case) -> str:
    """The use that a case is of."""
    return get(case.workload).use(case)


def _choice(use: str) -> tuple[str, str]:
    """Name and choice of a use: `linpack` and `mkl`."""
    name, _, setting = use.partition(" ")
    return name, setting.partition("=")[2]


def missing(use: str) -> str | None:
    """Why a workload cannot run here, by its name or one of its `uses`; None: it can."""
    name, choice = _choice(use)
    try:
        return get(name).missing(choice)
    except PlanError as error:
        return str(error)


def libraries(uses: Iterable[str]) -> tuple[Library, ...]:
    """What these uses of workloads start or load, each once, with the uses."""
    users: dict[Library, list[str]] = {}
    for use in uses:
        name, choice = _choice(use)
        for library in get(name).libraries(choice):
            users.setdefault(library, []).append(use)
    return tuple(msgspec.structs.replace(library, used_by=tuple(used_by)) for library, used_by in users.items())


def suites() -> dict[str, tuple[str, ...]]:
    """Workloads by the suite that they are measured with, without those that are broken."""
    by_suite: dict[str, list[str]] = {}
    for name in names():
        try:
            suite = get(name).suite
        except RequestError:  # `get` says why to those who ask for it
            continue
        if suite:
            by_suite.setdefault(suite, []).append(name)
    return {suite: tuple(members) for suite, members in sorted(by_suite.items())}
