"""Packages of the extra `analysis`, imported when they are needed; where one is missing, how to install it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from collbench.errors import RequestError


def needed(module: str, package: str, what: str) -> Any:
    """The module of that name, which belongs to `package` and is needed for `what`.

    Raises:
        RequestError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        wanted = f"{what} needs {package}, which is not installed. Install it: pip install 'collbench[analysis]'"
        raise RequestError(f"{wanted} ({error})") from error


def stats() -> Any:
    return needed("scipy.stats", "SciPy", "compare")


def ndtr() -> Any:
    """The normal distribution function."""
    return needed("scipy.special", "SciPy", "compare").ndtr


def optimize() -> Any:
    return needed("scipy.optimize", "SciPy", "model")
