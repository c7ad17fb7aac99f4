"""Registries by file: the modules of a package, each of which defines one entry under one name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Container, Iterable
from typing import Any


def modules_of(path: Iterable[str], others: Container[str] = (), packages: bool = False) -> tuple[str, ...]:
    """Names of the modules in a package's `__path__`, in alphabetical order, without importing any.

    Modules in `others` or with a leading underscore are not entries. `packages`: an entry may be a package.
    """
    names = (module.name for module in pkgutil.iter_modules(path) if packages or not module.ispkg)
    return tuple(sorted(name for name in names if name not in others and not name.startswith("_")))


def defined(package: str, module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{package}.{module}"), name)
