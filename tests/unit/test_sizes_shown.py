"""What a row and a remark say of sizes: bytes that move, sizes asked for, and no column lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.made_runs import made_case, made_failure, made_record

from collbench.report import new_style
from collbench.report.caveats import of_records as cautions
from collbench.report.caveats import remarks
from collbench.schema.case import case_of
from collbench.schema.record import Work
from collbench.schema.store import read_run


@pytest.mark.parametrize(
    ("amount", "said"), [(1024, "these were measured: 1K"), (960, "these were measured: 1K (sizes asked for)")]
)
def test_a_remark_says_where_its_sizes_are_not_those_of_the_rows(amount: int, said: str) -> None:
    case = made_case(size=1024)
    record = made_record(case, 0, 1e-6, contended=True, work=Work(amount=amount, count=80, bus_factor=0.5))
    (line,) = cautions([record, made_record(case.having(size=8), 0, 1e-6)])
    assert line.endswith(said)


def test_a_table_shows_the_bytes_that_move(stored_run: Path) -> None:
    """And of a program the size asked for."""
    manifest = read_run(stored_run).manifest
    rounded = made_record(made_case(size=1000), 0, 1e-6, work=Work(amount=960, count=80, bus_factor=0.5))
    program = case_of("dgemm", {"size": 1000, "measure": "total"})
    other = made_record(program, 0, 1e-6, work=Work(amount=5e9, unit="flop", shown="rate"))
    heads = []
    for record in (rounded, other):
        style = new_style("table")
        style.begin(manifest)
        lines = (style.add(record) + style.end()).splitlines()
        heads.append((lines[2].split()[0], lines[5].split()[0]))
    assert heads == [("moved", "960"), ("size", "1000")]


def test_a_program_that_is_skipped_is_named_once_by_its_parameters_and_not_by_its_measures() -> None:
    cases = [case_of("fio", {"bs": bs, "measure": name}) for bs in (4096, 65536) for name in ("p99", "request")]
    rows = [made_failure(case, 0, "no O_DIRECT", "skipped") for case in cases[:2]]
    rows += [made_record(case, 0, 1e-3, contended=True) for case in cases[2:]]
    assert remarks(rows) == [
        "! skipped at bs 4096: no O_DIRECT",
        "* tasks waited for a CPU while these were measured: all",
    ]
    assert remarks([*rows[2:], made_record(cases[0], 0, 1e-3)]) == [
        "* tasks waited for a CPU while these were measured: bs 65536",
    ]


def test_a_row_of_nccl_tests_has_every_column_where_no_data_moves(printed: Callable[..., str]) -> None:
    """Its parsers split at spaces and count."""
    rows = [line.split() for line in printed("nccl-tests").splitlines() if line and not line.startswith("#")]
    assert {len(row) for row in rows} == {13}
