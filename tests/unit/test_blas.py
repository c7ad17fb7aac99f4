"""linpack and dgemm: what their programs compute and check, what they print, and the libraries that they use."""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.made_programs import PLAN, replace_benchmark, run_row

from collbench import workloads
from collbench.bindings.spec import WorldSettings
from collbench.errors import PlanError
from collbench.launch.engines import host
from collbench.run.expand import program_cases
from collbench.run.experiment import plan_experiment, programs_do_not_fit
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.workloads import software
from collbench.workloads.host import blas as blas_program
from collbench.workloads.host import dense
from collbench.workloads.protocol import Unusable

OUTPUTS = Path(__file__).parents[1] / "data" / "outputs"

#: Any function of a file that is loaded.
PYTHON = ctypes.pythonapi.Py_GetVersion

LIBRARIES = ("openblas", "mkl", "system")
NAMES = ("linpack", "dgemm")


def stored(name: str, blas: str = "openblas") -> str:
    return (OUTPUTS / f"{name}-{blas}.json").read_text(encoding="utf-8")


def case_of(name: str, **values: Any) -> Case:
    (case,) = program_cases(Plan(benchmarks=({"name": name, "n": 200, **values},)), 1)
    return case.case


def flags(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"n": 50, "lda": 0, "times": 3, **values})


class Plain:
    """A library in NumPy, and how it spoils its results."""

    def __init__(self, spoil: Callable[[Any], None] = lambda result: None) -> None:
        self.spoil, self.shapes = spoil, list[tuple[int, ...]]()

    def solve(self, matrix: Any, vector: Any) -> None:
        self.shapes.append(matrix.shape)
        n = len(vector)
        vector[:] = np.linalg.solve(matrix[:, :n].T.copy(), vector)
        matrix[:] = 7.0
        self.spoil(vector)

    def multiply(self, a: Any, b: Any, c: Any) -> None:
        np.matmul(a, b, out=c)
        self.spoil(c)

    def threads(self, asked: int) -> int:
        return asked

    def described(self) -> dict[str, str]:
        return {"name": "NumPy", "version": "", "path": "", "kernel": ""}


def last(value: float) -> Callable[[Any], None]:
    """Spoil the last element."""

    def spoil(result: Any) -> None:
        result.flat[-1] += value

    return spoil


#: A command line.
DGEMM = ["x", "dgemm", "--n", "5", "--threads", "8", "--times", "1", "--blas", "system"]


# Programs ------------------------------------------------------------------------------------------------------------


def judged(program: Any, name: str, blas: Plain, **values: Any) -> int:
    """How many results the benchmark counts as wrong."""
    return workloads.get(name).verify(case_of(name, n=50), json.dumps(program(blas, flags(**values))))


@pytest.mark.parametrize(("program", "name"), [(dense.linpack, "linpack"), (dense.dgemm, "dgemm")])
def test_right_results_are_right_and_each_spoilt_one_is_counted(program: Any, name: str) -> None:
    assert judged(program, name, Plain()) == 0
    assert judged(program, name, Plain(last(1e-9))) == 3
    assert judged(program, name, Plain(last(float("nan")))) == 3
    assert judged(program, name, Plain(lambda result: result.fill(0.0))) == 3


def test_a_product_that_was_not_computed_is_no_older_one() -> None:
    class Once(Plain):
        def multiply(self, a: Any, b: Any, c: Any) -> None:
            if not self.shapes:
                super().multiply(a, b, c)
            self.shapes.append(c.shape)

    assert judged(dense.dgemm, "dgemm", Once()) == 2


def test_the_residual_is_that_of_hpl() -> None:
    """Of an error in one element of the solution, by hand."""
    columns, x = np.diag([2.0, 4.0]), np.array([1.0, 1.0])
    assert dense.residual(columns, x, np.array([2.0, 4.0])) == 0.0
    assert dense.residual(columns, x, np.array([2.0, 3.0])) == pytest.approx(1 / (dense.EPS * (4 + 3) * 2))
    many = np.random.default_rng(1).random((3 * dense.ROWS + 1,) * 2)
    ones = np.ones(len(many))
    assert np.allclose(dense.magnitudes_times(-many, ones), many.sum(axis=1))


def test_every_sample_is_another_system_and_has_the_leading_dimension() -> None:
    blas = Plain()
    result = dense.linpack(blas, flags(n=10, lda=12))
    assert blas.shapes == [(10, 12)] * 3
    assert len(set(result["figures"])) == len(result["ns"]) == 3


# Libraries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["openblas", "system", pytest.param("mkl", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_real_libraries_give_right_results(name: str, library: str) -> None:
    if (reason := blas_program.library_of(library).missing()) is not None:
        pytest.skip(reason)
    program, case = workloads.get(name), case_of(name, blas=library, n=130, threads=1)
    argv = program.argv(case, 2)
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout
    assert (program.verify(case, output), len(program.parse(output)[program.measures[0].name])) == (0, 2)
    assert json.loads(output)["threads"] == 1


def test_the_leading_dimension_is_the_librarys() -> None:
    """With the order in its place dgesv would take the padding for a part of the matrix."""
    if (reason := blas_program.library_of("openblas").missing()) is not None:
        pytest.skip(reason)
    case = case_of("linpack", n=100, lda=133)
    argv = workloads.get("linpack").argv(case, 1)
    assert argv[-2:] == ("--lda", "133")
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout
    assert workloads.get("linpack").verify(case, output) == 0


def test_a_matrix_that_cannot_be_solved_is_an_error() -> None:
    if (reason := blas_program.library_of("openblas").missing()) is not None:
        pytest.skip(reason)
    with pytest.raises(ArithmeticError, match="dgesv returned info 1"):
        blas_program.opened("openblas").solve(np.zeros((3, 3)), np.ones(3))


def test_the_threads_that_a_library_uses_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dense, "opened", lambda name: SimpleNamespace(threads=lambda asked: 1, described=dict))
    monkeypatch.setattr(sys, "argv", DGEMM)
    monkeypatch.setitem(dense.RUNS, "dgemm", lambda blas, flags: {"ns": [1]})
    dense.main()
    assert json.loads(capsys.readouterr().out) == {"ns": [1], "n": 5, "threads": 1, "asked": 8}


def test_a_library_that_cannot_be_used_skips_the_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(blas_program, "SYSTEM", ("libnowhere.so.0",))
    monkeypatch.setattr(sys, "argv", DGEMM)
    monkeypatch.setitem(dense.RUNS, "dgemm", lambda blas, flags: pytest.fail("was run"))
    with pytest.raises(SystemExit) as ended:
        dense.main()
    assert ended.value.code == 77
    assert capsys.readouterr().err.startswith("there is no libnowhere.so.0; on Debian and Ubuntu: ")


def test_the_kernel_of_mkl_stands_in_its_own_words() -> None:
    text = (OUTPUTS / "blas-mkl.txt").read_text(encoding="utf-8")
    assert blas_program.read(text) == Library(
        name="MKL", version="2024.2", path="/usr/lib/libtorch_cpu.so", kernel="Intel(R) Architecture processors"
    )
    plain = '{"name": "OpenBLAS", "version": "0.3.21", "kernel": "Prescott", "path": "/usr/lib/x.so"}\n'
    assert blas_program.read(plain).kernel == "Prescott"


@pytest.mark.parametrize("output", ["", "{}", "Core: Prescott", '{"name": "OpenBLAS", "vers'])
def test_a_library_that_says_something_else_is_missing(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    argv = (sys.executable, "-c", f"print({output!r})")
    monkeypatch.setattr(blas_program, "started", lambda *words: argv)
    software.describe.cache_clear()
    try:
        assert str(blas_program.library_of("openblas").missing()).startswith("BLAS openblas: ")
        assert blas_program.library_of("openblas").library() is None
    finally:
        software.describe.cache_clear()


@pytest.mark.parametrize(
    ("name", "package", "reason"),
    [
        ("openblas", "scipy_openblas32", "scipy-openblas32 is not installed; pip install scipy-openblas32"),
        ("mkl", "torch", "torch, which contains MKL, is not installed; pip install torch"),
    ],
)
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, name: str, package: str, reason: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None if wanted == package else pytest.fail(wanted))
    with pytest.raises(Unusable) as caught:
        blas_program.opened(name)
    assert str(caught.value) == reason


def test_no_library_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_program, "SYSTEM", ("libnowhere.so.0", "libnone.so.3"))
    with pytest.raises(Unusable, match=r"no libnowhere.so.0 and no libnone.so.3; on Debian and Ubuntu"):
        blas_program.opened("system")


def made(monkeypatch: pytest.MonkeyPatch, **missing: str | None) -> None:
    """Libraries of which some are missing."""
    found = {name: missing.get(name) or Library(name=name, version="1") for name in LIBRARIES}
    monkeypatch.setattr(software, "describe", lambda asked: found[asked.name.removeprefix("BLAS ")])


def test_only_the_cases_whose_library_is_missing_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch, mkl="no torch")
    row = workloads.get("linpack")
    assert (row.missing(), row.missing("openblas"), row.missing("mkl")) == (None, None, "no torch")
    ((record, _),) = run_row(monkeypatch, row, replace_benchmark(PLAN, {"name": "linpack", "blas": "mkl"}))
    assert (record.status, record.reason) == ("skipped", "no torch")
    made(monkeypatch, openblas="no wheel", mkl="no torch", system="no package")
    assert row.missing() == "no wheel"


def test_a_manifest_has_the_libraries_that_the_cases_use(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch)
    plan = Plan(benchmarks=("linpack", {"name": "dgemm", "blas": ("mkl", "system")}, {"name": "dgemm", "blas": "mkl"}))
    uses = workloads.uses(plan.benchmarks)
    assert uses == ("linpack blas=openblas", "dgemm blas=mkl", "dgemm blas=system")
    assert {library.name: library.used_by for library in workloads.libraries(uses)} == {
        "openblas": ("linpack blas=openblas",), "mkl": ("dgemm blas=mkl",), "system": ("dgemm blas=system",)
    }  # fmt: skip
    made(monkeypatch, mkl="no torch")
    assert [workloads.missing(use) for use in uses] == [None, "no torch", None]
    assert workloads.uses(({"name": "linpack", "blas": "none such"}, "stream")) == ("stream",)


def test_a_run_has_the_libraries_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch)
    plan = Plan(benchmarks=({"name": "linpack", "blas": "system"},))
    (alone,) = plan_experiment(plan, WorldSettings(), ()).backends
    assert [library.name for library in alone.libraries()] == ["system"]


def test_environments_are_asked_about_the_libraries_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def probe(environment: Path, vendor: str = "", benchmarks: tuple[str, ...] = (), given: Any = None) -> Any:
        asked.append(benchmarks)
        return SimpleNamespace(vendor="openmpi")

    monkeypatch.setattr(host, "probe", probe)
    benchmarks: tuple[Any, ...] = ("stream", {"name": "linpack", "blas": ("mkl", "system")})
    for collectives in ((), ("allreduce",)):
        plan = Plan(benchmarks=benchmarks, collectives=collectives, images=("openmpi",))
        host.look_beside(plan, "openmpi", "openmpi")
    assert asked == [("stream", "linpack blas=mkl", "linpack blas=system")] * 2


def test_memory_is_not_asked_for_by_what_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = program_cases(Plan(benchmarks=({"name": "linpack", "n": 50_000, "blas": "mkl"},)), 1)
    assert cases[0].memory == 2 * 8 * 50_000**2
    monkeypatch.setattr("collbench.run.experiment.available_bytes", lambda: 1 << 30)
    made(monkeypatch)
    assert programs_do_not_fit(cases) is not None
    made(monkeypatch, mkl="no torch")
    assert programs_do_not_fit(cases) is None


# Output --------------------------------------------------------------------------------------------------------------


def test_threads_that_it_does_not_use_are_told() -> None:
    text = stored("dgemm").replace('"threads": 2', '"threads": 1')
    assert workloads.get("dgemm").notes(text)[0].endswith(", 1 thread of the 2 asked for")


# Cases ---------------------------------------------------------------------------------------------------------------


def test_work_memory_and_command() -> None:
    (case,) = program_cases(Plan(benchmarks=({"name": "linpack", "n": 1000, "lda": 1008, "threads": 3},)), 1)
    row = workloads.get("linpack")
    assert (case.case.what, case.case.how) == ({"n": 1000, "lda": 1008}, {"threads": 3, "blas": "openblas"})
    assert row.measures[0].work(case.case).amount == pytest.approx(2 / 3 * 1e9 + 3 / 2 * 1e6)
    assert case.memory == 8 * 1000 * 1008
    assert tuple(row.argv(case.case, 5))[1:] == (
        "-m", "collbench.workloads.host.dense", "linpack", "--n", "1000", "--threads", "3", "--blas", "openblas",
        "--times", "5", "--lda", "1008",
    )  # fmt: skip
    (case,) = program_cases(Plan(benchmarks=({"name": "dgemm", "n": 1000},)), 1)
    assert (case.memory, workloads.get("dgemm").measures[0].work(case.case).amount) == (24_000_000, 2e9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lda": 199}, "the leading dimension must be at least n; use lda=0 or lda=200"),
        ({"lda": 208, "blas": "mkl"}, "mkl is called through torch, which has no leading dimension; use lda=0 or lda="),
        ({"blas": "atlas"}, "choose one of openblas, mkl, system"),
        ({"n": 0}, "n 0: must be at least 1"),
    ],
)
def test_cases_that_no_library_takes_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        case_of("linpack", **values)
    assert message in str(caught.value)
    assert case_of("linpack", lda=200, blas="mkl")["lda"] == 200


@pytest.mark.parametrize("end", ["", "64_", "_64"])
def test_an_openblas_says_its_kernel_whatever_integers_it_has(end: str) -> None:
    """Symbols of one with 64-bit integers have an ending."""

    class Text:
        def __init__(self, text: bytes) -> None:
            self.text = text

        def __call__(self) -> bytes:
            return self.text

    library: Any = blas_program.FortranBlas.__new__(blas_program.FortranBlas)
    texts = {"openblas_get_config": b"OpenBLAS 0.3.21 DYNAMIC_ARCH", "openblas_get_corename": b"Zen"}
    symbols = {f"scipy_{name}{end}": Text(text) for name, text in texts.items()}
    library._library, library._prefix = SimpleNamespace(**symbols, **{f"scipy_dgemm_{end}": PYTHON}), "scipy_"
    found = library.described()
    assert (found["name"], found["version"], found["kernel"]) == ("OpenBLAS", "0.3.21", "Zen")
    assert Path(found["path"]).exists()
