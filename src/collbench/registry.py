"""What is found by being here: modules of a package, each of which defines one thing under one name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Container, Iterable
from typing import Any


def modules_of(path: Iterable[str], others: Container[str] = (), packages: bool = False) -> tuple[str, ...]:
    """Names of the modules in a package's `__path__`, in alphabetical order, without importing any.

    `others` are what the modules have in common, and no entries; nor is what begins with an underscore. `packages`:
    an entry may be a package too.
    """
    found = (one.name for one in pkgutil.iter_modules(path) if packages or not one.ispkg)
    return tuple(sorted(name for name in found if name not in others and not name.startswith("_")))


def defined(package: str, module: str, name: str) -> Any:
    """What a module of the package defines under that name."""
    return getattr(importlib.import_module(f"{package}.{module}"), name)
