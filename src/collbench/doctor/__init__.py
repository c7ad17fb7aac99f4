"""What would spoil a measurement on this machine: checks by `@check`, in processors.py, gpus.py and mpi.py.

`clusters.py` has the checks of a cluster, from where jobs are submitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from collbench.errors import RequestError, suggestion

if TYPE_CHECKING:
    from collbench.bindings.spec import Backend
    from collbench.doctor.frame import Check, Finding, Machine

_MODULES = ("gpus", "mpi", "processors")


def checks() -> dict[str, Check]:
    """Every check by its name, in alphabetical order."""
    from collbench.doctor.frame import CHECKS

    for module in _MODULES:
        import_module(f"{__name__}.{module}")
    return dict(sorted(CHECKS.items()))


def examine(machine: Machine, without: tuple[str, ...] = ()) -> Iterator[tuple[str, Finding]]:
    """Every check's name and finding, one after the other. A check that raises becomes a finding `unknown`.

    Raises:
        RequestError: there is no check of a name in `without`.
    """
    from collbench.doctor.frame import Finding, Problem

    known = checks()
    for name in without:
        if name not in known:
            raise RequestError(f"doctor --without {name}: no such check. {suggestion(name, tuple(known))}")
    for name, run in known.items():
        if name in without:
            continue
        try:
            finding = run(machine)
        except Exception as error:
            problem = Problem(
                "unknown",
                cause=f"{type(error).__name__}: {error}".strip().rstrip(":"),
                effect="not known: what this check looks at may spoil a measurement, or not",
                fix='python -c "from collbench.doctor import checks; from collbench.doctor.frame import here; '
                f"checks()['{name}'](here())\" shows where it failed",
            )
            finding = Finding("the check itself failed", (problem,))
        yield name, finding


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
    from collbench.machine import nvml

    on_gpu, libraries, reason = backend.device == "gpu", tuple[str, ...](), missing(backend.name)
    if reason is None and on_gpu and not nvml.gpus()[0]:  # of several ranks others may have one
        reason = "no NVIDIA GPU on this machine"
    try:
        if reason is None:
            libraries = tuple(f"{library.name} {library.version}" for library in backend.libraries())
    except Exception as error:  # some libraries are missed only when they are loaded
        reason = f"{type(error).__name__}: {error}"
    return BackendHere(backend.name, libraries, reason, on_gpu)
