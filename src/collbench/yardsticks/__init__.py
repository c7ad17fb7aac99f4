"""Yardsticks: what the cores of a machine are like now, each in one number that knows nothing of what is compared.

One file each, found by being here: a file `NAME.py` in this package defines `YARDSTICK`.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from collbench.registry import defined, modules_of
from collbench.schema.store import NoReading

#: A reading of one yardstick ends after so many seconds.
LIMIT = 1.0

#: Begin and end (ns) of what each core did: `_yardsticks.run`.
RunYardstick = Callable[[str, tuple[int, ...], int, int, float], tuple[tuple[int, int], ...]]

_REASONS: dict[int | None, NoReading] = {errno.EINVAL: "core_refused", errno.ETIMEDOUT: "late"}


@dataclass(frozen=True)
class Yardstick:
    """A row of readings. `read` takes the C function and the cores, ascending, and gives a value in `unit`.

    A change by more than the share `resolution` counts as one. `fewest` are the cores that it needs.

    `read` raises:
        OSError: EINVAL for a core that this process may not use, ETIMEDOUT after `LIMIT`, else what is lacking.
    """

    name: str
    unit: str
    resolution: float
    read: Callable[[RunYardstick, tuple[int, ...]], float]
    fewest: int = 1


@dataclass(frozen=True)
class Readings:
    """Values by yardstick, and why the first of them that is None is so; None: none is."""

    values: dict[str, float | None]
    reason: NoReading | None = None


@functools.cache
def names() -> tuple[str, ...]:
    """Every yardstick, in alphabetical order, without importing any."""
    return modules_of(__path__)


def get(name: str) -> Yardstick:
    """The yardstick of that name, which must be one of `names`."""
    yardstick: Yardstick = defined(__name__, name, "YARDSTICK")
    return yardstick


def resolutions() -> dict[str, float]:
    """By yardstick, the share by which it must change to have changed."""
    return {name: get(name).resolution for name in names()}


def native_run() -> RunYardstick | None:
    """The part in C; None where it could not be built."""
    try:
        from collbench.yardsticks import _yardsticks
    except ImportError:
        return None
    run: RunYardstick = _yardsticks.run  # type: ignore[assignment]
    return run


def take(cores: Iterable[int]) -> Readings:
    """Read every yardstick on these cores of this machine, one after the other; none: they are elsewhere.

    Takes some 20 ms where the cores are idle. The affinity of this process stays as it is.
    """
    wanted, run = tuple(sorted(set(cores))), native_run()
    values: dict[str, float | None] = dict.fromkeys(names())
    if not wanted or run is None:
        return Readings(values, "not_built" if wanted else "elsewhere")
    reasons: list[NoReading] = []
    for name in values:
        yardstick = get(name)
        if len(wanted) < yardstick.fewest:
            reasons.append("too_few_cores")
            continue
        try:
            values[name] = yardstick.read(run, wanted)
        except OSError as error:
            reasons.append(_REASONS.get(error.errno, "failed"))
    return Readings(values, reasons[0] if reasons else None)
