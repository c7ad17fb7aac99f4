"""What is found by being there: one thing in each module of a package, and what other packages add by entry points."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from collbench.errors import RequestError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def modules_of(path: Iterable[str], others: Container[str] = (), packages: bool = False) -> tuple[str, ...]:
    """Names of the modules in a package's `__path__`, in alphabetical order, without importing any.

    `others` are what the modules have in common, and no entries; nor is what begins with an underscore. `packages`:
    an entry may be a package too.
    """
    names = (module.name for module in pkgutil.iter_modules(path) if packages or not module.ispkg)
    return tuple(sorted(name for name in names if name not in others and not name.startswith("_")))


def defined(package: str, module: str, name: str) -> Any:
    """What a module of the package defines under that name.

    Raises RequestError: the module cannot be imported, or does not define it.
    """
    try:
        return getattr(importlib.import_module(f"{package}.{module}"), name)
    except Exception as error:  # whatever a module raises that somebody else put there
        raise _unloadable(f"{package}.{module}", error) from error


def entry_points_of(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """By name, the entry points of a group, without importing any; more than one where packages disagree."""
    from importlib.metadata import entry_points  # the search takes longer than most of a start

    by_name: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=group):
        by_name.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: tuple(points.values()) for name, points in by_name.items()}


def loaded(points: tuple[EntryPoint, ...]) -> Any:
    """What the only one of these entry points names.

    Raises RequestError: there are several; or the module cannot be imported, or does not define it.
    """
    if len(points) > 1:
        values = ", ".join(point.value for point in points)
        raise RequestError(f"defined more than once: {values}. Uninstall all but one.")
    (point,) = points
    try:
        return point.load()
    except Exception as error:  # somebody else's module: whatever it raises
        raise _unloadable(point.value, error) from error


def _unloadable(what: str, error: Exception) -> RequestError:
    return RequestError(f"{what} cannot be loaded: {type(error).__name__}: {error}.")
