"""Packages of the extra `analysis`, imported when they are needed; where one is missing, how to install it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from collbench.errors import PackageMissing, to_install


def needed(module: str, package: str) -> Any:
    """The module of that name, which belongs to `package`.

    Raises:
        PackageMissing: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise PackageMissing(f"{package} is not installed: {to_install('analysis')} ({error})") from error


def stats() -> Any:
    return needed("scipy.stats", "SciPy")


def ndtr() -> Any:
    """The normal distribution function."""
    return needed("scipy.special", "SciPy").ndtr
