"""Workloads that are programs: the `WORKLOAD` of a file `GROUP/NAME.py` here, or one of a family's `WORKLOADS`.

Another package adds one by an entry point of the group `collbench.workloads` that names such an object; the name of the
entry point is the workload's. Names of workloads here cannot be taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from collbench.errors import PlanError, RequestError, suggestion
from collbench.registry import defined, entry_points_of, loaded, modules_of
from collbench.schema.plan import name_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from collbench.schema.case import Case
    from collbench.schema.manifest import Library
    from collbench.workloads.program import Program

#: Packages with workloads. Each tells its `FAMILIES`, files whose `WORKLOADS` has several by name, and its `HELPERS`,
#: files without any.
GROUPS = ("dl", "gpu", "host")

ENTRY_POINTS = "collbench.workloads"  # the group of entry points by which other packages add workloads


@cache
def _modules() -> Mapping[str, tuple[str, str]]:
    """By the name of a workload, in alphabetical order, its group and the module in it. Imports no workload."""
    modules: dict[str, tuple[str, str]] = {}
    for group in GROUPS:
        package: Any = import_module(f"{__name__}.{group}")
        alone = modules_of(package.__path__, {*package.HELPERS, *package.FAMILIES})
        modules |= {name: (group, name) for name in alone}
        modules |= {name: (group, family) for family, names in package.FAMILIES.items() for name in names}
    return MappingProxyType(dict(sorted(modules.items())))


@cache
def _added() -> dict[str, tuple[EntryPoint, ...]]:
    return {name: points for name, points in entry_points_of(ENTRY_POINTS).items() if name not in _modules()}


def names() -> tuple[str, ...]:
    return tuple(sorted((*_modules(), *_added())))


def get(name: str) -> Program:
    """A workload, whether it can run here or not. PlanError: there is none, or its file is broken."""
    if name not in _modules() and name not in _added():
        raise PlanError(f"benchmark {name!r}: unknown. {suggestion(name, names())}")
    try:
        if name not in _modules():
            return _of_package(name)
        group, module = _modules()[name]
        entry = defined(f"{__name__}.{group}", module, "WORKLOAD" if module == name else "WORKLOADS")
    except RequestError as error:
        raise PlanError(f"benchmark {name!r}: {error}") from error
    program: Program = entry if module == name else entry[name]
    return program


def _of_package(name: str) -> Program:
    from collbench.workloads.program import Program

    program = loaded(_added()[name])
    if not isinstance(program, Program) or program.name != name:
        raise RequestError(f"{_added()[name][0].value} is not a Program of that name.")
    return program


def uses(benchmarks: Iterable[str | dict[str, Any]]) -> tuple[str, ...]:
    """The workloads of a plan, each once; one that uses this or that software with its choice: `linpack blas=mkl`."""
    return tuple(dict.fromkeys(use for benchmark in benchmarks for use in get(name_of(benchmark)).uses(benchmark)))


def use_of(case: Case) -> str:
    """The use that a case is of."""
    return get(case.workload).use(case)


def _of_use(use: str) -> tuple[Program, str]:
    """Workload and choice of a use: `linpack` and `mkl`."""
    name, _, setting = use.partition(" ")
    return get(name), setting.partition("=")[2]


def missing(use: str) -> str | None:
    """Why a workload cannot run here, by its name or one of its `uses`; None: it can."""
    try:
        program, choice = _of_use(use)
        return program.missing(choice)
    except PlanError as error:
        return str(error)


def libraries(uses: Iterable[str]) -> tuple[Library, ...]:
    """What these uses of workloads start or load, each once, with the uses."""
    users: dict[Library, list[str]] = {}
    for use in uses:
        program, choice = _of_use(use)
        for library in program.libraries(choice):
            users.setdefault(library, []).append(use)
    return tuple(msgspec.structs.replace(library, used_by=tuple(used_by)) for library, used_by in users.items())


def suites() -> dict[str, tuple[str, ...]]:
    """Workloads by the suite that they are measured with, without those that are broken."""
    by_suite: dict[str, list[str]] = {}
    for name in names():
        with suppress(RequestError):  # `get` says why to those who ask for it
            by_suite.setdefault(get(name).suite, []).append(name)
    return {suite: tuple(members) for suite, members in sorted(by_suite.items()) if suite}
