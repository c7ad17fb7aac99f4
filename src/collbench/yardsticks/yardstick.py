"""A yardstick: what the cores of a machine are like now, in one number that knows nothing of what is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: A reading of one yardstick ends after so many seconds.
LIMIT = 1.0

#: Begin and end (ns) of what each core did: `_yardsticks.run`.
Run = Callable[[str, tuple[int, ...], int, int, float], tuple[tuple[int, int], ...]]


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
    read: Callable[[Run, tuple[int, ...]], float]
    fewest: int = 1
