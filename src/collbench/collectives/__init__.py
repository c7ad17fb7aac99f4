"""The collectives: a file `NAME.py` in this package defines `ROW`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from collbench.errors import PlanError, suggestion
from collbench.registry import defined, modules_of

if TYPE_CHECKING:
    from collbench.collectives.row import Collective

_NOT_ROWS = {"row", "dialects"}

#: Other names, in lower case without `_` and `-`.
_ALIASES = {"broadcast": "bcast", "reducescatterblock": "reduce_scatter", "ring": "sendrecv"}


@cache
def names() -> tuple[str, ...]:
    """Every collective, in alphabetical order, without importing any."""
    return modules_of(__path__, _NOT_ROWS)


def find(spelling: str) -> str | None:
    """The name that is meant by `all-reduce`, `All_Reduce` or `broadcast`; None if there is none."""
    letters = _letters(spelling)
    return next((name for name in names() if _letters(name) == letters), _ALIASES.get(letters))


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def get(spelling: str) -> Collective:
    """The row of a collective.

    Raises:
        PlanError: no such collective; the message names the nearest.
    """
    if (name := find(spelling)) is None:
        raise PlanError(f"collective {spelling!r}: unknown. {suggestion(spelling, names())}")
    row: Collective = defined(__name__, name, "ROW")
    return row
