"""SciPy, imported when something is compared, and asked for in one sentence where it is missing."""

from __future__ import annotations

from typing import Any

from collbench.errors import RequestError


def stats() -> Any:
    """`scipy.stats`.

    Raises:
        RequestError: SciPy is not installed.
    """
    try:
        from scipy import stats as module
    except ImportError as error:
        raise RequestError(f"{_WANTED} ({error})") from error
    return module


def optimize() -> Any:
    """`scipy.optimize`.

    Raises:
        RequestError: SciPy is not installed.
    """
    try:
        from scipy import optimize as module
    except ImportError as error:
        raise RequestError(f"{_WANTED} ({error})") from error
    return module


_WANTED = "comparing needs SciPy, which is not installed. Install it: pip install 'collbench[analysis]'"
