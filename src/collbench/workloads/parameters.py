"""Parameters of benchmarks: axes of their own, with a default and a range."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from collbench.errors import PlanError
from collbench.machine.facts import own_cores
from collbench.schema.axes import Axis, Kind
from collbench.schema.choices import Choice
from collbench.spelling import nearest, nearest_and_all, suggestion

#: The value of a parameter that counts threads: as many as the process has cores.
ALL_CORES = 0

#: Words of a parameter that a message lists; of more it names the most similar one.
MOST_LISTED = 24


def threads_of(asked: int) -> int:
    """So many threads; for `ALL_CORES` as many as this process may use cores."""
    return asked or len(own_cores())


def threads_of_rank(asked: int, environ: Mapping[str, str] = os.environ) -> int:
    """So many threads; for `ALL_CORES` as many as OMP_NUM_THREADS says, its part of the cores that ranks share."""
    return asked or int(environ.get("OMP_NUM_THREADS") or threads_of(asked))


def parameter(
    name: str, default: int | str, means: str, *, least: int | None = None, most: int | None = None,
    among: tuple[str, ...] = (), groups: Mapping[str, tuple[str, ...]] | None = None, kind: Kind = "what",
) -> Axis:  # fmt: skip
    """An axis of a benchmark; its values have the type of the default.

    A number lies from `least` to `most`, a word is `among` those named; the name of one of the `groups` stands for all
    its words.
    """

    def check(key: str, value: Any) -> None:
        if among and value not in among:
            raise PlanError(f"{key} {value!r}: {_advice(str(value), among, tuple(groups or ()))}")
        if least is not None and value < least:
            raise PlanError(f"{key} {value}: must be at least {least}.")
        if most is not None and value > most:
            raise PlanError(f"{key} {value}: at most {most:,}.")

    def words(value: Any) -> str:
        return "" if value is None else f"{name.replace('_', ' ')} {value}"

    choice = Choice(name, (default,), check=check, groups=groups or {})
    return Axis(name, kind, means, default, of=type(default), words=words, choice=choice)


def _advice(value: str, among: tuple[str, ...], groups: tuple[str, ...]) -> str:
    """The most similar word, and all of them where they are few."""
    known = (*groups, *among)
    if len(known) > MOST_LISTED:
        return suggestion(value, known)
    return nearest_and_all(value, known) if nearest(value, known) else f"choose one of {', '.join(known)}."
