"""hpcg: an xhpcg that is there, its summary (stored: version 3.1 of a small problem), and what is said without one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.made_programs import PLAN, replace_benchmark, run_row

from collbench import workloads
from collbench.errors import PlanError
from collbench.report.styles import library_names
from collbench.run.expand import program_cases
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.workloads.host import hpcg

STORED = (Path(__file__).parents[1] / "data" / "outputs" / "hpcg-3.1.txt").read_text(encoding="utf-8")
#: The same of an execution that took no time.
QUICK = STORED.replace("Total=3.59648", "Total=0")
SMALL = {"name": "hpcg", "n": 16, "seconds": 1}
FINAL = "Final Summary::HPCG result is"


def case_of(**values: Any) -> Case:
    (case,) = program_cases(Plan(benchmarks=({**SMALL, **values},)), 1)
    return case.case


def program(folder: Path, lines: str) -> None:
    """An xhpcg of our own."""
    path = folder / "xhpcg"
    path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)


def measured(monkeypatch: pytest.MonkeyPatch, folder: Path, summary: str, iters: int = 1) -> Record:
    """What a run gives whose xhpcg writes this summary, as the real one names it, and its log."""
    (folder / "summary").write_text(summary, encoding="utf-8")
    program(folder, f'echo "$@" >> {folder}/asked; ls >> {folder}/seen; pwd > {folder}/where; : > hpcg1.txt; '
                    f"cp {folder}/summary HPCG-Benchmark_3.1_$(date +%N).txt; echo printed")  # fmt: skip
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    plan = msgspec.structs.replace(replace_benchmark(PLAN, SMALL), iters=iters, warmup=0)
    ((record, _),) = run_row(monkeypatch, workloads.get("hpcg"), plan)
    return record


def test_a_rating_is_the_time_of_a_billion_flop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = measured(monkeypatch, tmp_path, QUICK)
    assert record.status == "ok" and record.seconds is not None and record.work is not None
    assert record.seconds.p50 == pytest.approx(1 / 0.0186018)
    assert (record.work.amount, record.work.unit, record.work.shown) == (1e9, "flop", "rate")
    assert record.check is not None and record.check.figures == {"residual": 7.32865e-42}
    assert record.notes[-1] == "HPCG 3.1, reference version, 1 process of 2 threads"
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "--nx=16 --ny=16 --nz=16 --rt=1\n"


def test_the_summary_of_an_execution_before_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every execution is in the same folder, which is gone afterwards."""
    record = measured(monkeypatch, tmp_path, QUICK, iters=3)
    assert record.samples is not None and record.samples.n == 3
    assert (tmp_path / "seen").read_text(encoding="utf-8").split() == ["hpcg1.txt"] * 2
    where = Path((tmp_path / "where").read_text(encoding="utf-8").strip())
    assert where != Path.cwd() and not where.exists()
    assert record.transport is None


def test_a_summary_of_more_seconds_than_the_execution_took_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert measured(monkeypatch, tmp_path, STORED).status == "failed"


def test_an_optimised_version_is_noted() -> None:
    text = "\n".join(line for line in STORED.splitlines() if "Reference version" not in line)
    assert hpcg.notes(text) == ("HPCG 3.1, optimised version, 1 process of 2 threads",)


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lambda text: re.sub(rf"^{FINAL} .*$", f"{FINAL}=INVALID.", text, flags=re.M), 1),
        (lambda text: text.replace("Spectral Convergence Tests::Result=PASSED",
                                   "Spectral Convergence Tests::Result=FAILED"), 1),
        (lambda text: text.replace("epsilon::Result=PASSED", "epsilon::Result=FAILED"), 1),
        (lambda text: text.replace("Iteration Count Information::Result=PASSED",
                                   "Iteration Count Information::Result=FAILED"), 1),
        (lambda text: text.replace("Reproducibility Information::Result=PASSED",
                                   "Reproducibility Information::Result=FAILED"), 1),
        (lambda text: text.replace("::Result=PASSED", "::Result=FAILED").replace("VALID with a", "INVALID with a")
         + f"{FINAL}=INVALID.\n", 5),
        (lambda text: text.replace("Local Domain Dimensions::nx=16", "Local Domain Dimensions::nx=104"), 1),
    ],
)  # fmt: skip
def test_a_spoilt_result_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoil: Callable[[str], str], wrong: int
) -> None:
    spoilt = spoil(STORED)
    assert spoilt != STORED
    record = measured(monkeypatch, tmp_path, spoilt)
    assert (record.status, record.check and record.check.wrong) == ("failed", wrong)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: "", "0 tests in the summary, not 4"),
        (lambda text: text[: text.index("Reproducibility Information::Result")], "3 tests in the summary, not 4"),
        (lambda text: text[: text.index("Final Summary=")], "no 'Final Summary::HPCG result is VALID"),
        (lambda text: re.sub(r"(rating of=\d+)\.", r"\1,", text), "could not convert string to float"),
        (lambda text: re.sub(r"rating of=.*", "rating of=0", text), "ZeroDivisionError"),
        (lambda text: re.sub(r"rating of=.*", "rating of=nan", text), "hpcg printed nan s"),
        (lambda text: text.replace("::", ": ").replace("=", ": "), "0 tests in the summary, not 4"),
    ],
)
def test_a_damaged_summary_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Callable[[str], str], reason: str
) -> None:
    """Nothing, cut off twice, a decimal comma, a rating of zero or none, the YAML of version 3.0."""
    record = measured(monkeypatch, tmp_path, damage(STORED))
    assert record.status == "failed" and reason in str(record.reason)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("exit 1", "sh ended with exit code 1"),
        ("echo 'cannot allocate' >&2; exit 3", "sh ended with exit code 3: cannot allocate"),
        ("exit 0", "sh ended with exit code 1: cat: 'HPCG-Benchmark*.txt': No such file or directory"),
    ],
)
def test_an_xhpcg_that_fails_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, reason: str
) -> None:
    program(tmp_path, lines)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    plan = msgspec.structs.replace(replace_benchmark(PLAN, SMALL), iters=1, warmup=0)
    ((record, _),) = run_row(monkeypatch, workloads.get("hpcg"), plan)
    assert (record.status, record.reason) == ("failed", reason)


def test_without_one_every_way_to_have_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    reason = workloads.missing("hpcg")
    assert reason is not None and reason.startswith(
        "xhpcg was not found; put one into PATH, in the image or on the host"
    )
    for way in ("containers/site/hpcg.tar.gz", "--build-arg HPCG_SHA256=", "--build-arg HPCG_URL="):
        assert way in reason


def test_it_is_not_started_for_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, f": > {tmp_path}/started")
    monkeypatch.setenv("PATH", str(tmp_path))
    (library,) = workloads.get("hpcg").libraries()
    assert (library.name, library.version, library.path) == ("xhpcg", "", str(tmp_path / "xhpcg"))
    assert not (tmp_path / "started").exists()


def test_a_version_that_is_not_known_leaves_no_blank() -> None:
    manifest: Any = SimpleNamespace(libraries=(Library(name="xhpcg", version=""), Library(name="HPL", version="2.0")))
    assert library_names(manifest) == "xhpcg, HPL 2.0"


def test_memory_grows_with_the_cube_and_odd_sides_are_refused() -> None:
    (case,) = program_cases(Plan(benchmarks=({"name": "hpcg", "n": 192},)), 1)
    assert 5.06e9 < case.memory < 5.3e9
    with pytest.raises(PlanError, match="n=20: three coarser grids need a multiple of 8"):
        case_of(n=20)
    with pytest.raises(PlanError, match="must be at least 16"):
        case_of(n=8)
