"""hpl: which program is started and with what, and what is made of its report; a stored one of hpcc 1.5.0."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_programs import PLAN, printing, replace_benchmark, run_row

from collbench import workloads
from collbench.run.expand import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.workloads.host import blas, hpl

STORED = (Path(__file__).parents[1] / "data" / "outputs" / "hpcc-1.5.0.txt").read_text(encoding="utf-8")

#: Where hpcc tells HPL's result, and its summary; an xhpl prints the first.
HPL_SECTION = STORED[STORED.index("Begin of HPL section.") : STORED.index("End of HPL section.")]
OF_XHPL = STORED.partition("\n")[0] + "\n" + HPL_SECTION.partition("\n")[2]

#: One of the three residuals of HPL 1.
OF_HPL_1 = "||Ax-b||_oo / ( eps * ||A||_1  * N        ) =        0.1 ...... PASSED"

N = {"name": "hpl", "n": 1000}


def case_of(**values: Any) -> Case:
    (case,) = program_cases(Plan(benchmarks=({**N, **values},)), 1)
    return case.case


def measured(monkeypatch: pytest.MonkeyPatch, text: str, **values: Any) -> Record:
    """What a report gives, through the harness, which takes less time to print it than the solution took."""
    row = replace(workloads.get("hpl"), argv=printing(text), software=(), lacks=lambda *_: None, elapsed=lambda *_: 0.0)
    plan = msgspec.structs.replace(replace_benchmark(PLAN, {**N, **values}), iters=1, warmup=0)
    ((record, _),) = run_row(monkeypatch, row, plan)
    return record


# Reports -------------------------------------------------------------------------------------------------------------


def test_the_time_of_hpcc_is_that_of_its_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    (seconds,) = re.findall(r"^HPL_time=(.*)$", STORED, re.M)
    record = measured(monkeypatch, STORED)
    assert record.status == "ok" and record.seconds is not None and record.work is not None
    assert record.seconds.p50 == pytest.approx(float(seconds))
    assert (record.work.unit, record.work.shown) == ("flop", "rate")
    assert record.work.amount == pytest.approx(2 / 3 * 1e9 + 1.5e6)
    assert record.check is not None and 0 < record.check.figures["residual"] < 0.1
    assert record.notes[-1] == "HPL 2.0 of /usr/bin/hpcc with OpenBLAS 0.3.21, kernel Cooperlake"


def test_the_time_of_xhpl_is_that_of_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints the time in hundredths of seconds, here 0.01 or 0.02, and the rate with four digits."""
    (seconds,) = re.findall(r"^HPL_time=(.*)$", STORED, re.M)
    record = measured(monkeypatch, OF_XHPL)
    assert record.seconds is not None and record.seconds.p50 == pytest.approx(float(seconds), rel=1e-3)


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lambda text: text.replace("...... PASSED", "...... FAILED"), 1),
        (lambda text: re.sub(r"(\*N\)= +)\S+", r"\g<1>16.1", text), 1),
        (lambda text: re.sub(r"(\*N\)= +)\S+", r"\g<1>nan", text), 1),
        (lambda text: re.sub(r"(\*N\)= +)\S+( \.+) PASSED", r"\g<1>1e9\2 FAILED", text), 1),
        (lambda text: re.sub(r"^(WR\S+ +)1000", r"\g<1>1001", text, flags=re.M), 1),
        (lambda text: re.sub(r"^(WR\S+ +1000 +)192", r"\g<1>80", text, flags=re.M), 1),
    ],
)
@pytest.mark.parametrize("report", [STORED, OF_XHPL])
def test_a_spoilt_result_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, report: str, spoil: Callable[[str], str], wrong: int
) -> None:
    spoilt = spoil(report)
    assert spoilt != report
    record = measured(monkeypatch, spoilt)
    assert (record.status, record.check and record.check.wrong) == ("failed", wrong)


@pytest.mark.parametrize("name", ["p", "q"])
def test_another_grid_than_asked_for_is_wrong(name: str) -> None:
    assert hpl.wrong(case_of(), STORED) == 0
    assert hpl.wrong(case_of(**{name: 2}), STORED) == 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: "", "0 scaled residuals of HPL 2"),
        (lambda text: text[: text.index("||Ax-b||_oo/(")], "0 scaled residuals of HPL 2"),
        (lambda text: text + HPL_SECTION, "2 scaled residuals of HPL 2"),
        (lambda text: re.sub(r"\|\|Ax-b\|\|_oo/.*", OF_HPL_1, text), "0 scaled residuals of HPL 2"),
        (lambda text: re.sub(r"(\*N\)= +\d+)\.", r"\1,", text), "could not convert string to float"),
        (lambda text: re.sub(r"^WR11.*$", "", text, flags=re.M), "0 lines of results"),
        (lambda text: text.partition("\n")[2], "JSONDecodeError"),
    ],
)  # fmt: skip
def test_a_damaged_report_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[str], str], reason: str
) -> None:
    """Nothing, cut off, two results, a report of HPL 1, a decimal comma, no time, no first line."""
    record = measured(monkeypatch, damage(OF_XHPL))
    assert record.status == "failed"
    assert str(record.reason).startswith("cannot read the output of hpl (") and reason in str(record.reason)


def test_a_time_of_zero_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(monkeypatch, re.sub(r"^HPL_time=.*$", "HPL_time=0", STORED, flags=re.M))
    assert (record.status, record.reason) == ("failed", "hpl printed 0.0 s as a time of solve")


@pytest.mark.parametrize(
    ("blas", "note"),
    [
        (None, "HPL 2.0 of /x/xhpl, whose BLAS is in the same file or not known"),
        ({"name": "reference BLAS", "version": "", "kernel": "", "path": "/y/libblas.so"},
         "HPL 2.0 of /x/xhpl with the reference BLAS /y/libblas.so, which is several times slower than OpenBLAS "
         "(on Debian and Ubuntu: apt-get install libopenblas0-pthread)"),
        ({"name": "MKL", "version": "", "kernel": "", "path": "/y/libmkl_rt.so"}, "HPL 2.0 of /x/xhpl with MKL"),
    ],
)  # fmt: skip
def test_the_blas_is_noted(blas: dict[str, str] | None, note: str) -> None:
    text = json.dumps({"program": "/x/xhpl", "blas": blas}) + "\n" + HPL_SECTION
    assert hpl.notes(text.replace("Begin of HPL section.\n", "")) == (note,)


# Programs ------------------------------------------------------------------------------------------------------------


def script(folder: Path, name: str, lines: str) -> str:
    """A program in the place of another."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in."""
    where = tmp_path / "here"
    where.mkdir()
    monkeypatch.chdir(where)
    return where


def test_xhpl_reads_its_input_and_prints_its_result(tmp_path: Path, here: Path) -> None:
    said = hpl.run(script(tmp_path, "xhpl", "cat HPL.dat"), 700, 64, 1, 1)
    lines = said.splitlines()
    assert (len(lines), lines[3].split()[0], lines[5].split(), lines[7].split()) == (
        31,
        "6",
        ["700", "Ns"],
        ["64", "NBs"],
    )
    assert [lines[10].split()[0], lines[11].split()[0], lines[12].split()[0]] == ["1", "1", "16.0"]


def test_hpcc_writes_a_report_and_appends_to_none(tmp_path: Path, here: Path) -> None:
    program = script(tmp_path, "hpcc", "sed -n 6p hpccinf.txt >> hpccoutf.txt; wc -l < hpccinf.txt >> hpccoutf.txt")
    for n in ("500", "600"):
        assert hpl.run(program, int(n), 64, 1, 1).split() == [n, "Ns", "36"]


def test_several_processes_have_the_mpirun_beside_and_a_thread_each(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    told = 'echo "with $@ $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $MKL_NUM_THREADS"'
    script(tmp_path / "other", "mpirun", "echo another")
    monkeypatch.setenv("PATH", str(tmp_path / "other"), prepend=":")
    program = script(tmp_path / "mpi", "xhpl", told)
    assert hpl.run(program, 100, 10, 1, 1) == "with  8  \n"
    assert hpl.run(program, 100, 10, 2, 2) == "another\n"
    script(tmp_path / "mpi", "mpirun", told)
    assert hpl.run(program, 100, 10, 2, 2) == f"with -n 4 {program} 1 1 1\n"


def test_without_mpirun_several_processes_are_skipped(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = script(tmp_path, "xhpl", "")
    monkeypatch.setenv("PATH", str(here))
    with pytest.raises(SystemExit) as ended:
        hpl.run(program, 100, 10, 1, 2)
    assert ended.value.code == 77
    assert capsys.readouterr().err == f"2 processes: there is no mpirun, neither beside {program} nor in PATH\n"


def test_a_program_that_fails_fails_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "xhpl", 'echo "HPL ERROR: Need at least 4 processes"; exit 1')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    plan = msgspec.structs.replace(replace_benchmark(PLAN, N), iters=1, warmup=0)
    ((record, _),) = run_row(monkeypatch, workloads.get("hpl"), plan)
    assert record.status == "failed"
    assert str(record.reason).endswith("ended with exit code 1: HPL ERROR: Need at least 4 processes")


def test_xhpl_comes_before_hpcc_and_neither_is_started_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hpl.HPL.missing() == ("there is no xhpl, and hpcc was not found; on Debian and Ubuntu: apt-get install hpcc")
    assert hpl.HPL.library() is None and blas.BlasOf(hpl.HPL).library() is None
    started = tmp_path / "started"
    for name, version in (("hpcc", "2.0"), ("xhpl", "2.3")):
        path = script(tmp_path, name, f": > {started}  # HPLinpack {version}  --  High-Performance Linpack benchmark")
        library = hpl.HPL.library()
        assert library is not None and (library.name, library.version, library.path) == ("HPL", version, path)
        assert workloads.get("hpl").argv(case_of(), 1)[4] == name
    assert not started.exists()
    assert hpl.HPL.missing() is None


def test_the_blas_of_a_program_is_what_its_linker_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "libm.so.6 => /l/libm.so.6 (0x1)",
        "libblas.so.3 => /l/libblas.so.3 (0x2)",
        "libc.so.6 => /l/libc.so.6 (0x3)",
    )
    script(tmp_path, "ldd", "\n".join(f"echo '\t{line}'" for line in lines))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert blas.linked("/x/xhpl") == "/l/libblas.so.3"
    script(tmp_path, "ldd", "echo '\tlibblas.so.3 => not found'; echo '\tlibm.so.6 => /l/libm.so.6 (0x1)'")
    assert blas.linked("/x/xhpl") is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert blas.linked("/x/xhpl") is None


def test_more_processes_than_cores_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3, 5})
    assert hpl.lacks(case_of(p=1, q=3), Path()) is None
    assert hpl.lacks(case_of(p=2, q=2), Path()) == "4 processes need as many cores, and there are 3"
