"""The folder of a gate, made up: a run with two sides, and the plan that says which cells it should hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.unit.made_runs import Entry, experiment, image, made_case, made_record, spread, write_run

from collbench.schema.case import Case
from collbench.schema.plan import Side
from collbench.schema.record import Record
from collbench.schema.store import SIDES, GatePlan, mark_finished, write_gate_plan

SMALL, LARGE = (made_case(image="openmpi", size=size) for size in (64, 65536))

Medians = Mapping[Case, Sequence[Entry]]


def made_gate(
    folder: Path, base: Medians, other: Medians, planned: Sequence[Case] | None = None,
    sides: tuple[Side, Side] = (Side(), Side()), launches: int = 10, until: str = "launches",
    software: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
) -> Path:  # fmt: skip
    """The folder, with the cells of the base planned where nothing else is.

    `software` are fields of the image, and of the environment beside it, on each side.
    """
    entries: dict[Case, list[Entry]] = {}
    for name, medians in zip(SIDES, (base, other), strict=True):
        entries |= {case.having(side=name): [on_side(one, name) for one in of] for case, of in medians.items()}
    of_sides = tuple(image("openmpi", **{"side": name} | fields) for name, fields in zip(SIDES, software, strict=True))
    held = msgspec.structs.replace(
        experiment(["openmpi"], launches=launches, until=until), images=of_sides, environments=of_sides
    )
    by_name = dict(zip(SIDES, sides, strict=True))
    write_run(folder, entries, experiment=held, plan={"sides": msgspec.to_builtins(by_name)})
    write_gate_plan(folder, GatePlan(plan="plan.toml", cells=tuple(base if planned is None else planned)))
    mark_finished(folder)
    return folder


def on_side(entry: Entry, name: str) -> Entry:
    """A record as one of a side; anything else as it is."""
    if not isinstance(entry, Record):
        return entry
    return msgspec.structs.replace(entry, case=entry.case.having(side=name))


def fine(factor: float = 1.0, launches: int = 10) -> Medians:
    """Two cells, measured well, this many times as long as usual."""
    return {SMALL: spread(1e-6 * factor, launches), LARGE: spread(1e-4 * factor, launches)}


def noisy(centre: float, launches: int = 10) -> list[Entry]:
    """Launches that tell nothing yet: up to 10 % off, in another order than `spread`."""
    return [*spread(centre, launches, 0.1)[::-1]]


def told(case: Case, times: Sequence[float], **fields: Any) -> list[Record]:
    """Records of launches with these medians, but for these fields."""
    return [msgspec.structs.replace(made_record(case, number, time), **fields) for number, time in enumerate(times)]
