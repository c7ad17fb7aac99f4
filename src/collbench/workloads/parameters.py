"""Parameters of benchmarks: axes of their own, with a default and a range."""

from __future__ import annotations

import os
from typing import Any

from collbench.errors import PlanError
from collbench.schema.axes import Axis, Kind
from collbench.schema.choices import Choice

#: The value of a parameter that counts threads: as many as the process has cores.
ALL_CORES = 0


def threads_of(asked: int) -> int:
    """So many threads; for `ALL_CORES` as many as this process may use cores."""
    return asked or len(os.sched_getaffinity(0))


def parameter(
    name: str, default: int | str, means: str, *, least: int | None = None, most: int | None = None,
    among: tuple[str, ...] = (), kind: Kind = "what",
) -> Axis:  # fmt: skip
    """An axis of a benchmark; its values have the type of the default.

    A number lies from `least` to `most`, a word is `among` those named.
    """

    def check(key: str, value: Any) -> None:
        if among and value not in among:
            raise PlanError(f"{key} {value!r}: choose one of {', '.join(among)}.")
        if least is not None and value < least:
            raise PlanError(f"{key} {value}: must be at least {least}.")
        if most is not None and value > most:
            raise PlanError(f"{key} {value}: at most {most:,}.")

    def words(value: Any) -> str:
        return "" if value is None else f"{name.replace('_', ' ')} {value}"

    return Axis(name, kind, means, default, of=type(default), words=words, choice=Choice(name, (default,), check=check))
