"""Times near the resolution of what a program prints have a note."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.made_programs import printing, row_with, run_row

from collbench import workloads
from collbench.workloads.program import Measure


@pytest.mark.parametrize(("seconds", "coarse"), [(9.9e-3, True), (1e-2, False)])
def test_a_time_of_few_steps_has_a_note(monkeypatch: pytest.MonkeyPatch, seconds: float, coarse: bool) -> None:
    measures = (Measure("total", lambda case: 1, "events", step=1e-4), Measure("exact", lambda case: 1, "events"))
    row = replace(row_with(printing("")), measures=measures, verify=lambda case, output: 0, notes=lambda output: (),
                  elapsed=lambda *_: 0.0,
                  parse=lambda output: {"total": [seconds] * 4, "exact": [1e-9] * 4})  # fmt: skip
    (total, _), (exact, _) = run_row(monkeypatch, row)
    note = ("it prints times in steps of 100 us, of which total takes fewer than 100: differences of 1 % cannot be seen"
            "; make an execution longer")  # fmt: skip
    assert (note in total.notes) == coarse
    assert note not in exact.notes and total.status == exact.status == "ok"


def test_sysbench_prints_tenths_of_milliseconds() -> None:
    rows = [workloads.get(name) for name in workloads.names() if name.startswith("sysbench_")]
    assert len(rows) == 4
    assert {measure.step for row in rows for measure in row.measures} == {1e-4}
