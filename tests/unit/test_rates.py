"""What people know by a rate is shown by it, and is compared by its time as everything else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_runs import experiment, image, library, made_record, write_run

from collbench.report.numbers import rate, rate_scale, rate_unit
from collbench.schema.case import Case, case_of
from collbench.schema.record import Record, Unit, Work

HOST = case_of("stream", {"measure": "triad", "size": 1_000_000, "image": "openmpi"})
INSIDE = HOST.having(engine="docker", policy="single", isolation="strict")


def measured(case: Case, launch: int, seconds: float, work: Work | None = None) -> Record:
    known = work or Work(amount=3_000_000, shown="rate")
    return made_record(case, launch, seconds, work=known, driver=None, gate=None, cadence=None, clock="local",
                       in_place=None, transport=None)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The host at 3 GB/s, the container at 2; the host has a library more, which programs do not use."""
    cells: dict[Case, Any] = {
        HOST: [measured(HOST, launch, 1e-3 * (1 + launch / 1e4)) for launch in range(8)],
        INSIDE: [measured(INSIDE, launch, 1.5e-3 * (1 + launch / 1e4)) for launch in range(8)],
    }
    with_nccl = (image(libraries=(library(), library("NCCL", "2.29"))),)
    write_run(tmp_path / "run", cells, experiment=experiment(["openmpi"], environments=with_nccl, launches=8))
    return tmp_path / "run"


def test_units() -> None:
    assert rate(Work(amount=3e9), 1.5) == 2.0
    for unit, text in (("bytes", "2.000"), ("flop", "2.000"), ("requests", "2000000000")):
        found: Unit = unit  # type: ignore[assignment]
        assert rate_scale([]).text(Work(amount=3e9, unit=found), 1.5).split()[0] == text
    assert rate_scale([]).text(Work(amount=1), 0.0) == "- GB/s"
    assert rate_unit([Work(amount=1)]) == ""
    assert rate_unit([Work(amount=0), Work(amount=1, unit="requests", shown="rate")]) == "IOPS"


@pytest.mark.slow
def test_tables_of_launches_and_comparisons_show_the_rate(collbench: Any, run: Path) -> None:
    shown = collbench("show", run)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("stream triad, openmpi, 8 launches\n")
    assert "rate" in shown.stdout and "(GB/s)" in shown.stdout
    host, inside = (line.split() for line in shown.stdout.splitlines() if line.startswith("1000000 "))
    assert ("2.999" in host, "1.999" in inside) == (True, True)
    compared = collbench("compare", run, "--by", "policy", "--all")
    assert (compared.returncode, compared.stderr) == (0, "")
    assert "\n\nstream triad, openmpi, single strict vs host (docker)\n" in compared.stdout
    assert "(GB/s)" in compared.stdout and "2.999" in compared.stdout and "1.999" in compared.stdout
    assert "slower" in compared.stdout and "+50.0" in compared.stdout
    assert "Diff%" not in compared.stdout
    advised = collbench("advise", run)
    assert "take host" in advised.stdout


@pytest.mark.slow
def test_guidelines_are_of_collectives(collbench: Any, tmp_path: Path) -> None:
    """A larger size may well be quicker for a program: nothing says that it must not."""
    smaller = HOST.having(size=1000)
    cells: dict[Case, Any] = {
        case: [measured(case, launch, 1e-3) for launch in range(7)] for case in (HOST, smaller, INSIDE)
    }
    write_run(tmp_path / "run", cells)
    advised = collbench("advise", tmp_path / "run", "--why")
    assert advised.returncode == 0, advised.stderr
    assert "guideline" not in advised.stdout


@pytest.mark.slow
def test_times_have_no_column_of_rates(collbench: Any, tmp_path: Path) -> None:
    work = Work(amount=1, unit="launches")
    cells: dict[Case, Any] = {
        case: [measured(case, launch, 1e-3, work) for launch in range(7)] for case in (HOST, INSIDE)
    }
    write_run(tmp_path / "run", cells, libraries=(library(),))
    for command in (("show",), ("compare", "--by", "policy", "--all")):
        told = collbench(command[0], tmp_path / "run", *command[1:])
        assert told.returncode == 0, told.stderr
        assert "rate" not in told.stdout.replace("separate", "")
