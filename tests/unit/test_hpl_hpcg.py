"""hpl and hpcg: which program is started, and what is made of a report; stored ones of hpcc 1.5.0 and HPCG 3.1."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.made_programs import PLAN, printing, replace_benchmark, run_row, script

from collbench import workloads
from collbench.report.styles import library_names
from collbench.run.cases import program_cases
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.workloads.host import blas, hpcg, hpl
from collbench.workloads.program import Program

OUTPUTS = Path(__file__).parents[1] / "data" / "outputs"

Change = Callable[[str], str]


def case_of(name: str, **values: Any) -> Case:
    (case,) = program_cases(Plan(benchmarks=({**TABLES[name], **values},)), 1)
    return case.case


def recorded(monkeypatch: pytest.MonkeyPatch, row: Program, iters: int = 1) -> Record:
    plan = msgspec.structs.replace(replace_benchmark(PLAN, TABLES[row.name]), iters=iters, warmup=0)
    ((record, _),) = run_row(monkeypatch, row, plan)
    return record


#: What a test asks of each benchmark.
TABLES: dict[str, dict[str, Any]] = {
    "hpl": {"name": "hpl", "n": 1000}, "hpcg": {"name": "hpcg", "n": 16, "seconds": 1},
}  # fmt: skip


# hpl: reports --------------------------------------------------------------------------------------------------------

HPCC = (OUTPUTS / "hpcc-1.5.0.txt").read_text(encoding="utf-8")

#: Where hpcc tells HPL's result, and its summary; an xhpl prints the first.
HPL_SECTION = HPCC[HPCC.index("Begin of HPL section.") : HPCC.index("End of HPL section.")]
XHPL = HPCC.partition("\n")[0] + "\n" + HPL_SECTION.partition("\n")[2]

#: One of the three residuals of HPL 1.
OF_HPL_1 = "||Ax-b||_oo / ( eps * ||A||_1  * N        ) =        0.1 ...... PASSED"

(SECONDS,) = map(float, re.findall(r"^HPL_time=(.*)$", HPCC, re.MULTILINE))


def of_hpl(monkeypatch: pytest.MonkeyPatch, text: str) -> Record:
    """What a report gives, through the harness, which takes less time to print it than the solution took."""
    row = replace(workloads.get("hpl"), argv=printing(text), software=(), lacks=lambda *_: None, elapsed=lambda *_: 0.0)
    return recorded(monkeypatch, row)


def test_the_time_of_hpcc_is_that_of_its_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    record = of_hpl(monkeypatch, HPCC)
    assert record.status == "ok" and record.seconds is not None and record.work is not None
    assert record.seconds.p50 == pytest.approx(SECONDS)
    assert (record.work.unit, record.work.shown) == ("flop", "rate")
    assert record.work.amount == pytest.approx(2 / 3 * 1e9 + 1.5e6)
    assert record.check is not None and 0 < record.check.figures["residual"] < 0.1
    assert record.notes[-1] == "HPL 2.0 of /usr/bin/hpcc with OpenBLAS 0.3.21, kernel Cooperlake"


def test_the_time_of_xhpl_is_that_of_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints the time in hundredths of seconds, here 0.01 or 0.02, and the rate with four digits."""
    record = of_hpl(monkeypatch, XHPL)
    assert record.seconds is not None and record.seconds.p50 == pytest.approx(SECONDS, rel=1e-3)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("...... PASSED", "...... FAILED"),
        lambda text: re.sub(r"(\*N\)= +)\S+", r"\g<1>16.1", text),
        lambda text: re.sub(r"(\*N\)= +)\S+", r"\g<1>nan", text),
        lambda text: re.sub(r"(\*N\)= +)\S+( \.+) PASSED", r"\g<1>1e9\2 FAILED", text),
        lambda text: re.sub(r"^(WR\S+ +)1000", r"\g<1>1001", text, flags=re.M),
        lambda text: re.sub(r"^(WR\S+ +1000 +)192", r"\g<1>80", text, flags=re.M),
    ],
)
@pytest.mark.parametrize("report", [HPCC, XHPL], ids=["hpcc", "xhpl"])
def test_a_spoilt_result_of_hpl_fails_the_case(monkeypatch: pytest.MonkeyPatch, report: str, spoil: Change) -> None:
    spoilt = spoil(report)
    assert spoilt != report
    record = of_hpl(monkeypatch, spoilt)
    assert (record.status, record.check and record.check.wrong) == ("failed", 1)


def test_another_grid_than_asked_for_is_wrong() -> None:
    assert hpl.wrong(case_of("hpl"), HPCC) == 0
    assert [hpl.wrong(case_of("hpl", **{name: 2}), HPCC) for name in "pq"] == [1, 1]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda text: "", "(ValueError: 0 scaled residuals"),
        (lambda text: text[: text.index("||Ax-b||_oo/(")], " 0 scaled residuals"),
        (lambda text: text + HPL_SECTION, " 2 scaled residuals"),
        (lambda text: re.sub(r"\|\|Ax-b\|\|_oo/.*", OF_HPL_1, text), " 0 scaled residuals"),
        (lambda text: re.sub(r"(\*N\)= +\d+)\.", r"\1,", text), "(ValueError: "),
        (lambda text: re.sub(r"^WR11.*$", "", text, flags=re.M), " 0 lines"),
        (lambda text: text.partition("\n")[2], "(JSONDecodeError: "),
    ],
)  # fmt: skip
def test_a_damaged_report_of_hpl_fails_the_case(monkeypatch: pytest.MonkeyPatch, damage: Change, named: str) -> None:
    """Nothing, cut off, two results, a report of HPL 1, a decimal comma, no time, no first line."""
    record = of_hpl(monkeypatch, damage(XHPL))
    assert record.status == "failed"
    assert " hpl (" in str(record.reason) and named in str(record.reason)


def test_a_time_of_zero_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    record = of_hpl(monkeypatch, re.sub(r"^HPL_time=.*$", "HPL_time=0", HPCC, flags=re.M))
    assert record.status == "failed" and re.search(r"\b0\.0 s\b.* solve$", str(record.reason))


@pytest.mark.parametrize(
    ("library", "named"),
    [
        (None, ()),
        ({"name": "reference BLAS", "version": "", "kernel": "", "path": "/y/libblas.so"},
         ("/y/libblas.so", "OpenBLAS", "libopenblas0-pthread")),
        ({"name": "MKL", "version": "", "kernel": "", "path": "/y/libmkl_rt.so"}, ("with MKL",)),
    ],
)  # fmt: skip
def test_the_blas_is_noted(library: dict[str, str] | None, named: tuple[str, ...]) -> None:
    text = json.dumps({"program": "/x/xhpl", "blas": library}) + "\n" + HPL_SECTION
    (note,) = hpl.notes(text.replace("Begin of HPL section.\n", ""))
    assert note.startswith("HPL 2.0 of /x/xhpl") and all(name in note for name in named)
    assert (" with " in note) == (library is not None)


# hpl: programs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in."""
    where = tmp_path / "here"
    where.mkdir()
    monkeypatch.chdir(where)
    return where


def test_xhpl_reads_its_input_and_prints_its_result(tmp_path: Path, here: Path) -> None:
    lines = [line.split() for line in hpl.run(script(tmp_path, "xhpl", "cat HPL.dat"), 700, 64, 1, 1).splitlines()]
    assert (len(lines), lines[3][0], lines[5], lines[7]) == (31, "6", ["700", "Ns"], ["64", "NBs"])
    assert [words[0] for words in lines[10:13]] == ["1", "1", "16.0"]


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
    assert re.fullmatch(rf"2 .* mpirun.* {re.escape(program)} .*\n", capsys.readouterr().err)


def test_more_processes_than_cores_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3, 5})
    assert hpl.lacks(case_of("hpl", p=1, q=3), Path()) is None
    assert re.findall(r"\d+", str(hpl.lacks(case_of("hpl", p=2, q=2), Path()))) == ["4", "3"]


def test_xhpl_comes_before_hpcc_and_neither_is_started_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = str(hpl.HPL.missing())
    assert all(name in missing for name in ("xhpl", "hpcc", "apt-get install hpcc"))
    assert hpl.HPL.library() is None and blas.BlasOf(hpl.HPL).library() is None
    started = tmp_path / "started"
    for name, version in (("hpcc", "2.0"), ("xhpl", "2.3")):
        path = script(tmp_path, name, f": > {started}  # HPLinpack {version}  --  High-Performance Linpack benchmark")
        library = hpl.HPL.library()
        assert library is not None and (library.name, library.version, library.path) == ("HPL", version, path)
        assert workloads.get("hpl").argv(case_of("hpl"), 1)[4] == name
    assert not started.exists()
    assert hpl.HPL.missing() is None


def test_the_blas_of_a_program_is_what_its_linker_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = {"libm.so.6": "/l/libm.so.6 (0x1)", "libblas.so.3": "/l/libblas.so.3 (0x2)",
                 "libc.so.6": "/l/libc.so.6 (0x3)"}  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    for where, linked in (("/l/libblas.so.3 (0x2)", "/l/libblas.so.3"), ("not found", None)):
        lines = (f"echo '\t{name} => {path}'" for name, path in (libraries | {"libblas.so.3": where}).items())
        script(tmp_path, "ldd", "\n".join(lines))
        assert blas.linked("/x/xhpl") == linked
    monkeypatch.setenv("PATH", "/nowhere")
    assert blas.linked("/x/xhpl") is None


@pytest.mark.parametrize(
    ("name", "program", "lines", "reason"),
    [
        ("hpl", "xhpl", 'echo "HPL ERROR: Need at least 4 processes"; exit 1', r" 1: HPL ERROR: .* 4 processes$"),
        ("hpcg", "xhpcg", "exit 1", r"^sh .* 1$"),
        ("hpcg", "xhpcg", "echo 'cannot allocate' >&2; exit 3", r"^sh .* 3: cannot allocate$"),
        ("hpcg", "xhpcg", "exit 0", r"^sh .* 1: cat: 'HPCG-Benchmark\*\.txt'"),
    ],
)
def test_a_program_that_fails_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, program: str, lines: str, reason: str
) -> None:
    script(tmp_path, program, lines)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    record = recorded(monkeypatch, workloads.get(name))
    assert record.status == "failed" and re.search(reason, str(record.reason))


# hpcg ----------------------------------------------------------------------------------------------------------------

HPCG = (OUTPUTS / "hpcg-3.1.txt").read_text(encoding="utf-8")
#: The same of an execution that took no time.
QUICK = HPCG.replace("Total=3.59648", "Total=0")
FINAL = "Final Summary::HPCG result is"


def of_hpcg(monkeypatch: pytest.MonkeyPatch, folder: Path, summary: str, iters: int = 1) -> Record:
    """What a run gives whose xhpcg writes this summary, as the real one names it, and its log."""
    (folder / "summary").write_text(summary, encoding="utf-8")
    script(folder, "xhpcg", f'echo "$@" >> {folder}/asked; ls >> {folder}/seen; pwd > {folder}/where; : > hpcg1.txt; '
                            f"cp {folder}/summary HPCG-Benchmark_3.1_$(date +%N).txt; echo printed")  # fmt: skip
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return recorded(monkeypatch, workloads.get("hpcg"), iters)


def test_a_rating_is_the_time_of_a_billion_flop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = of_hpcg(monkeypatch, tmp_path, QUICK)
    assert record.status == "ok" and record.seconds is not None and record.work is not None
    assert record.seconds.p50 == pytest.approx(1 / 0.0186018)
    assert (record.work.amount, record.work.unit, record.work.shown) == (1e9, "flop", "rate")
    assert record.check is not None and record.check.figures == {"residual": 7.32865e-42}
    assert record.notes[-1] == "HPCG 3.1, reference version, 1 process of 2 threads"
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "--nx=16 --ny=16 --nz=16 --rt=1\n"


def test_the_summary_of_an_execution_before_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every execution is in the same folder, which is gone afterwards."""
    record = of_hpcg(monkeypatch, tmp_path, QUICK, iters=3)
    assert record.samples is not None and record.samples.n == 3
    assert (tmp_path / "seen").read_text(encoding="utf-8").split() == ["hpcg1.txt"] * 2
    where = Path((tmp_path / "where").read_text(encoding="utf-8").strip())
    assert where != Path.cwd() and not where.exists()
    assert record.transport is None


def test_a_summary_of_more_seconds_than_the_execution_took_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert of_hpcg(monkeypatch, tmp_path, HPCG).status == "failed"


def test_an_optimised_version_is_noted() -> None:
    text = "\n".join(line for line in HPCG.splitlines() if "Reference version" not in line)
    assert hpcg.notes(text) == ("HPCG 3.1, optimised version, 1 process of 2 threads",)


def all_failed(text: str) -> str:
    text = text.replace("::Result=PASSED", "::Result=FAILED").replace("VALID with a", "INVALID with a")
    return f"{text}{FINAL}=INVALID.\n"


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lambda text: re.sub(rf"^{FINAL} .*$", f"{FINAL}=INVALID.", text, flags=re.M), 1),
        (lambda text: text.replace("Convergence Tests::Result=PASSED", "Convergence Tests::Result=FAILED"), 1),
        (lambda text: text.replace("epsilon::Result=PASSED", "epsilon::Result=FAILED"), 1),
        (lambda text: text.replace("Count Information::Result=PASSED", "Count Information::Result=FAILED"), 1),
        (lambda text: text.replace("bility Information::Result=PASSED", "bility Information::Result=FAILED"), 1),
        (all_failed, 5),
        (lambda text: text.replace("Local Domain Dimensions::nx=16", "Local Domain Dimensions::nx=104"), 1),
    ],
)
def test_a_spoilt_result_of_hpcg_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoil: Change, wrong: int
) -> None:
    spoilt = spoil(HPCG)
    assert spoilt != HPCG
    record = of_hpcg(monkeypatch, tmp_path, spoilt)
    assert (record.status, record.check and record.check.wrong) == ("failed", wrong)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda text: "", ": 0 tests "),
        (lambda text: text[: text.index("Reproducibility Information::Result")], ": 3 tests "),
        (lambda text: text[: text.index("Final Summary=")], FINAL),
        (lambda text: re.sub(r"(rating of=\d+)\.", r"\1,", text), "(ValueError: "),
        (lambda text: re.sub(r"rating of=.*", "rating of=0", text), "(ZeroDivisionError: "),
        (lambda text: re.sub(r"rating of=.*", "rating of=nan", text), " nan s"),
        (lambda text: text.replace("::", ": ").replace("=", ": "), ": 0 tests "),
    ],
)
def test_a_damaged_summary_of_hpcg_fails_the_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Change, named: str
) -> None:
    """Nothing, cut off twice, a decimal comma, a rating of zero or none, the YAML of version 3.0."""
    record = of_hpcg(monkeypatch, tmp_path, damage(HPCG))
    assert record.status == "failed" and named in str(record.reason)


def test_without_an_xhpcg_every_way_to_have_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    reason = str(workloads.missing("hpcg"))
    ways = ("PATH", "containers/site/hpcg.tar.gz", "--build-arg HPCG_SHA256=", "--build-arg HPCG_URL=")
    assert reason.startswith("xhpcg ") and all(way in reason for way in ways)


def test_xhpcg_is_not_started_for_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = script(tmp_path, "xhpcg", f": > {tmp_path}/started")
    monkeypatch.setenv("PATH", str(tmp_path))
    (library,) = workloads.get("hpcg").libraries()
    assert (library.name, library.version, library.path) == ("xhpcg", "", path)
    assert not (tmp_path / "started").exists()


def test_a_version_that_is_not_known_leaves_no_blank() -> None:
    manifest: Any = SimpleNamespace(libraries=(Library(name="xhpcg", version=""), Library(name="HPL", version="2.0")))
    assert library_names(manifest) == "xhpcg, HPL 2.0"


def test_memory_grows_with_the_cube() -> None:
    (case,) = program_cases(Plan(benchmarks=({"name": "hpcg", "n": 192},)), 1)
    assert 5.06e9 < case.memory < 5.3e9
