"""Packages of the extra `analysis`: imported when something asks for them, and asked for where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from collbench.errors import RequestError


def needed(module: str, package: str, what: str) -> Any:
    """The module of that name, which belongs to `package` and is needed for `what`.

    Raises:
        RequestError: it is not installed; how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        wanted = f"{what} needs {package}, which is not installed. Install it: pip install 'collbench[analysis]'"
        raise RequestError(f"{wanted} ({error})") from error


def stats() -> Any:
    """`scipy.stats`.

    Raises:
        RequestError: SciPy is not installed.
    """
    return needed("scipy.stats", "SciPy", "comparing")


def ndtr() -> Any:
    """`scipy.special.ndtr`, the normal distribution function.

    Raises:
        RequestError: SciPy is not installed.
    """
    return needed("scipy.special", "SciPy", "comparing").ndtr


def optimize() -> Any:
    """`scipy.optimize`.

    Raises:
        RequestError: SciPy is not installed.
    """
    return needed("scipy.optimize", "SciPy", "a model")
