"""The backends: one file each, found by being here. A file `NAME.py` in this package defines `BACKEND`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from collbench.errors import BackendUnavailable
from collbench.registry import defined, modules_of
from collbench.spelling import suggestion

if TYPE_CHECKING:
    from collbench.bindings.spec import Backend


@cache
def names() -> tuple[str, ...]:
    """Every backend's name, without importing any."""
    return tuple(sorted(name.replace("_", "-") for name in modules_of(__path__)))


def get(name: str) -> Backend:
    """The backend of that name, usable here or not.

    Raises:
        BackendUnavailable: no such backend; the message names the nearest.
    """
    if name not in names():
        raise BackendUnavailable(f"backend {name!r}: unknown. {suggestion(name, names())}")
    backend: Backend = defined(__name__, name.replace("-", "_"), "BACKEND")
    return backend


def usable(name: str) -> Backend:
    """The backend of that name, usable here.

    Raises:
        BackendUnavailable: unknown, or not usable; the message says why and what is.
    """
    backend = get(name)
    reason = backend.missing()
    if reason is not None:
        others = [other for other in names() if other != name and get(other).missing() is None]
        raise BackendUnavailable(
            f"backend {name}: {reason}. Usable here: {', '.join(others) or 'none'}. See: collbench doctor"
        )
    return backend
