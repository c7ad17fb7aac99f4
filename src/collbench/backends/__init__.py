"""The backends. A file `NAME.py` in this package defines `BACKEND`.

Another package adds a backend by an entry point of the group `collbench.backends` that names such an object; the name
of the entry point is the backend's. The names of this package's backends cannot be taken: looking through all installed
packages takes longer than the rest of a start, and is done only for other names, or where all backends are asked.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from collbench.errors import BackendUnavailable, RequestError, suggestion
from collbench.registry import defined, entry_points_of, loaded, modules_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from collbench.bindings.spec import Backend

ENTRY_POINTS = "collbench.backends"  # the group of entry points by which other packages add backends


@cache
def _own() -> tuple[str, ...]:
    return tuple(name.replace("_", "-") for name in modules_of(__path__))


@cache
def _added() -> dict[str, tuple[EntryPoint, ...]]:
    return {name: points for name, points in entry_points_of(ENTRY_POINTS).items() if name not in _own()}


def names() -> tuple[str, ...]:
    """Every backend's name, without importing any."""
    return tuple(sorted((*_own(), *_added())))


def get(name: str) -> Backend:
    """The backend of that name, usable here or not.

    Raises BackendUnavailable: there is none, and the message names the nearest; or it is broken.
    """
    module = name.replace("-", "_")
    if name not in _own() and name not in _added():
        raise BackendUnavailable(f"backend {name!r}: unknown. {suggestion(name, names())}")
    try:
        backend: Backend = defined(__name__, module, "BACKEND") if name in _own() else loaded(_added()[name])
    except RequestError as error:
        raise BackendUnavailable(f"backend {name!r}: {error}") from error
    if (mistake := _mistake_in(backend, name)) is not None:
        source = f"{__name__}.{module}:BACKEND" if name in _own() else _added()[name][0].value
        raise BackendUnavailable(f"backend {name!r}: {source} is not a Backend of that name: {mistake}.")
    return backend


def _mistake_in(backend: Any, name: str) -> str | None:
    from collbench.bindings import spec

    members = (*spec.Backend.__annotations__, *vars(spec.Backend))
    lacking = [name for name in dict.fromkeys(members) if name[0] != "_" and not hasattr(backend, name)]
    if lacking:
        return f"it lacks {', '.join(lacking)}"
    if backend.name != name:
        return f"its name is {backend.name}"
    for names in (backend.variables, backend.packages):
        if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
            return "its variables and packages must be tuples of names"  # an empty prefix would record every variable
    return None


def every() -> tuple[Backend, ...]:
    """All backends, usable here or not, without those that are broken."""
    working = []
    for name in names():
        with suppress(BackendUnavailable):  # `get` says why to those who ask for it
            working.append(get(name))
    return tuple(working)


def missing(name: str) -> str | None:
    """Why the backend of that name cannot be used here; None when it can."""
    try:
        return get(name).missing()
    except BackendUnavailable as error:
        return str(error)
    except Exception as error:  # somebody else's backend: whatever it raises
        return f"{type(error).__name__}: {error}"


def usable(name: str) -> Backend:
    """The backend of that name, usable here.

    Raises BackendUnavailable: unknown, or not usable; the message says why and what is.
    """
    backend, reason = get(name), missing(name)
    if reason is not None:
        others = [other.name for other in every() if other.name != name and missing(other.name) is None]
        raise BackendUnavailable(
            f"backend {name}: {reason}. Usable here: {', '.join(others) or 'none'}. See: collbench doctor."
        )
    return backend


def variables() -> tuple[str, ...]:
    """Prefixes of the environment variables that matter to any backend."""
    return tuple(dict.fromkeys(prefix for backend in every() for prefix in backend.variables))


def packages() -> tuple[str, ...]:
    """Distributions whose versions matter to any backend."""
    return tuple(dict.fromkeys(package for backend in every() for package in backend.packages))
