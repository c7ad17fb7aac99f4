"""The folder of a gate, made up: two runs measured in turns, and the plan that says what they should hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.unit.made_runs import Entry, experiment, made_case, made_record, spread, write_run

from collbench.schema.case import Case
from collbench.schema.gate_plan import SIDES, GatePlan, Side, write_gate_plan
from collbench.schema.record import Record

SMALL, LARGE = (made_case(image="openmpi", size=size) for size in (64, 65536))

Medians = Mapping[Case, Sequence[Entry]]


def made_gate(
    folder: Path, base: Medians, other: Medians, planned: Sequence[Case] | None = None,
    sides: tuple[Side, Side] = (Side(), Side()), watched: tuple[str, ...] = (), launches: int = 10,
    manifests: tuple[dict[str, Any], dict[str, Any]] = ({}, {}), until: str = "launches",
) -> Path:  # fmt: skip
    """The folder, with the cells of the base planned where nothing else is."""
    cells = tuple((case, case) for case in (base if planned is None else planned))
    plan = GatePlan(plan="plan.toml", base=sides[0], other=sides[1], cells=cells, watched=watched)
    write_gate_plan(folder, plan)
    held = experiment(["openmpi"], launches=launches, until=until)
    for name, medians, fields in zip(SIDES, (base, other), manifests, strict=True):
        write_run(folder / name, medians, **{"experiment": held, **fields})
    return folder


def fine(factor: float = 1.0, launches: int = 10) -> Medians:
    """Two cells, measured well, this many times as long as usual."""
    return {SMALL: spread(1e-6 * factor, launches), LARGE: spread(1e-4 * factor, launches)}


def noisy(centre: float, launches: int = 10) -> list[Entry]:
    """Launches that tell nothing yet: up to 4 % off, in another order than `spread`."""
    return [*spread(centre, launches, 0.04)[::-1]]


def told(case: Case, times: Sequence[float], **fields: Any) -> list[Record]:
    """Records of launches with these medians, but for these fields."""
    return [msgspec.structs.replace(made_record(case, number, time), **fields) for number, time in enumerate(times)]
