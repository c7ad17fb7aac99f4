"""Checks of the machine: one file each, found by being here. A file `NAME.py` here defines `run(machine)`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.doctor.parts.finding import Finding, Problem
from collbench.errors import RequestError, suggestion
from collbench.machine import nvml
from collbench.registry import defined, modules_of

if TYPE_CHECKING:
    from collbench.bindings.spec import Backend
    from collbench.doctor.parts.processors import Machine


@functools.cache
def names() -> tuple[str, ...]:
    """Every check, in alphabetical order, without importing any."""
    return modules_of(__path__)


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
        finding: Finding = defined(__name__, name, "run")(machine)
        return finding
    except Exception as error:
        problem = Problem(
            "unknown",
            cause=f"{type(error).__name__}: {error}".strip().rstrip(":"),
            effect="not known: what this check looks at may spoil a measurement, or not",
            fix=f'python -c "from collbench.doctor import {name}; from collbench.doctor.parts.processors import here; '
            f'{name}.run(here())" shows where it failed',
        )
        return Finding("the check itself failed", (problem,))


@dataclass(frozen=True)
class BackendHere:
    """A backend that measures, with name and version of its libraries; `missing` says why it cannot be used here."""

    name: str
    libraries: tuple[str, ...] = ()
    missing: str | None = None
    needs_gpu: bool = False


def backends_here() -> tuple[BackendHere, ...]:
    """Every backend but those that simulate."""
    from collbench import backends

    return tuple(_backend_here(backend) for backend in backends.every() if not backend.simulated)


def _backend_here(backend: Backend) -> BackendHere:
    from collbench.backends import missing

    on_gpu, libraries, reason = backend.device == "gpu", tuple[str, ...](), missing(backend.name)
    if reason is None and on_gpu and not nvml.gpus()[0]:  # of several ranks others may have one
        reason = "no NVIDIA GPU on this machine"
    try:
        if reason is None:
            libraries = tuple(f"{library.name} {library.version}" for library in backend.libraries())
    except Exception as error:  # some libraries are missed only when they are loaded
        reason = f"{type(error).__name__}: {error}"
    return BackendHere(backend.name, libraries, reason, on_gpu)
