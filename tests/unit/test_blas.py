"""linpack and dgemm: what their programs compute and check, what they print, and the libraries that they use."""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.made_programs import PLAN, printing, replace_benchmark, run_row

from collbench import workloads
from collbench.bindings.spec import WorldSettings
from collbench.launch.engines import host
from collbench.run.cases import program_cases
from collbench.run.experiment import plan_experiment, programs_do_not_fit
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.workloads import software
from collbench.workloads.host import blas, dense
from collbench.workloads.protocol import Unusable

OUTPUTS = Path(__file__).parents[1] / "data" / "outputs"
LIBRARIES = ("openblas", "mkl", "system")
NAMES = ("linpack", "dgemm")

#: A command line.
DGEMM = ["x", "dgemm", "--n", "5", "--threads", "8", "--times", "1", "--blas", "system"]


def stored(name: str, library: str = "openblas") -> str:
    return (OUTPUTS / f"{name}-{library}.json").read_text(encoding="utf-8")


def case_of(name: str, **values: Any) -> Case:
    (case,) = program_cases(Plan(benchmarks=({"name": name, "n": 200, **values},)), 1)
    return case.case


def flags(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"n": 50, "lda": 0, "times": 3, **values})


# Programs ------------------------------------------------------------------------------------------------------------


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


class Once(Plain):
    """Computes the first product only."""

    def multiply(self, a: Any, b: Any, c: Any) -> None:
        if not self.shapes:
            super().multiply(a, b, c)
        self.shapes.append(c.shape)


def last(value: float) -> Callable[[Any], None]:
    """Spoil the last element."""

    def spoil(result: Any) -> None:
        result.flat[-1] += value

    return spoil


@pytest.mark.parametrize("name", NAMES)
def test_right_results_are_right_and_each_spoilt_one_is_counted(name: str) -> None:
    def wrong(library: Any) -> int:
        return workloads.get(name).verify(case_of(name, n=50), json.dumps(dense.RUNS[name](library, flags())))

    assert wrong(Plain()) == 0
    for spoil in (last(1e-9), last(float("nan")), lambda result: result.fill(0.0)):
        assert wrong(Plain(spoil)) == 3
    if name == "dgemm":
        assert wrong(Once()) == 2, "a product that was not computed is no older one"


def test_the_residual_is_that_of_hpl() -> None:
    """Of an error in one element of the solution, by hand."""
    columns, x = np.diag([2.0, 4.0]), np.array([1.0, 1.0])
    assert dense.residual(columns, x, np.array([2.0, 4.0])) == 0.0
    assert dense.residual(columns, x, np.array([2.0, 3.0])) == pytest.approx(1 / (dense.EPS * (4 + 3) * 2))
    many = np.random.default_rng(1).random((3 * dense.ROWS + 1,) * 2)
    ones = np.ones(len(many))
    assert np.allclose(dense.magnitudes_times(-many, ones), many.sum(axis=1))


def test_every_sample_is_another_system_and_has_the_leading_dimension() -> None:
    library: Any = Plain()
    result = dense.linpack(library, flags(n=10, lda=12))
    assert library.shapes == [(10, 12)] * 3
    assert len(set(result["figures"])) == len(result["ns"]) == 3


def test_the_threads_that_a_library_uses_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dense, "opened", lambda name: SimpleNamespace(threads=lambda asked: 1, described=dict))
    monkeypatch.setattr(sys, "argv", DGEMM)
    monkeypatch.setitem(dense.RUNS, "dgemm", lambda library, flags: {"ns": [1]})
    dense.main()
    assert json.loads(capsys.readouterr().out) == {"ns": [1], "n": 5, "threads": 1, "asked": 8}


# Libraries -----------------------------------------------------------------------------------------------------------


def need(library: str) -> None:
    if (reason := blas.library_of(library).missing()) is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("library", ["openblas", "system", pytest.param("mkl", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_real_libraries_give_right_results(name: str, library: str) -> None:
    need(library)
    program, case = workloads.get(name), case_of(name, blas=library, n=130, threads=1)
    output = subprocess.run(program.argv(case, 2), capture_output=True, text=True, check=True, timeout=300).stdout
    assert (program.verify(case, output), len(program.parse(output)[program.measures[0].name])) == (0, 2)
    assert json.loads(output)["threads"] == 1


def test_the_leading_dimension_is_the_librarys() -> None:
    """With the order in its place dgesv would take the padding for a part of the matrix."""
    need("openblas")
    program, case = workloads.get("linpack"), case_of("linpack", n=100, lda=133)
    argv = program.argv(case, 1)
    assert argv[-2:] == ("--lda", "133")
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout
    assert program.verify(case, output) == 0


def test_a_matrix_that_cannot_be_solved_is_an_error() -> None:
    need("openblas")
    with pytest.raises(ArithmeticError, match=r"dgesv .* 1"):
        blas.opened("openblas").solve(np.zeros((3, 3)), np.ones(3))


def test_a_library_that_cannot_be_used_skips_the_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(blas, "SYSTEM", ("libnowhere.so.0",))
    monkeypatch.setattr(sys, "argv", DGEMM)
    monkeypatch.setitem(dense.RUNS, "dgemm", lambda library, flags: pytest.fail("was run"))
    with pytest.raises(SystemExit) as ended:
        dense.main()
    assert ended.value.code == 77
    assert "libnowhere.so.0" in capsys.readouterr().err


def test_the_kernel_of_mkl_stands_in_its_own_words() -> None:
    text = (OUTPUTS / "blas-mkl.txt").read_text(encoding="utf-8")
    assert blas.read(text) == Library(
        name="MKL", version="2024.2", path="/usr/lib/libtorch_cpu.so", kernel="Intel(R) Architecture processors"
    )
    plain = '{"name": "OpenBLAS", "version": "0.3.21", "kernel": "Prescott", "path": "/usr/lib/x.so"}\n'
    assert blas.read(plain).kernel == "Prescott"


@pytest.fixture
def undescribed() -> Iterator[None]:
    """What is known of libraries is asked for anew, and forgotten."""
    software.describe.cache_clear()
    yield
    software.describe.cache_clear()


@pytest.mark.parametrize("output", ["", "{}", "Core: Prescott", '{"name": "OpenBLAS", "vers'])
def test_a_library_that_says_something_else_is_missing(
    monkeypatch: pytest.MonkeyPatch, undescribed: None, output: str
) -> None:
    monkeypatch.setattr(blas, "started", lambda *words: (sys.executable, "-c", f"print({output!r})"))
    assert str(blas.library_of("openblas").missing()).startswith("BLAS openblas: ")
    assert blas.library_of("openblas").library() is None


@pytest.mark.parametrize(
    ("library", "module", "named"),
    [
        ("openblas", "scipy_openblas32", r"pip install scipy-openblas32$"),
        ("mkl", "torch", r"^torch, .*pip install torch$"),
        ("system", "", r"libnowhere\.so\.0 .* libnone\.so\.3"),
    ],
)
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, library: str, module: str, named: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None if wanted == module else pytest.fail(wanted))
    monkeypatch.setattr(blas, "SYSTEM", ("libnowhere.so.0", "libnone.so.3"))
    with pytest.raises(Unusable, match=named):
        blas.opened(library)


@pytest.mark.parametrize("end", ["", "64_", "_64"])
def test_an_openblas_says_its_kernel_whatever_integers_it_has(end: str) -> None:
    """Symbols of one with 64-bit integers have an ending."""

    class Text:
        def __init__(self, text: bytes) -> None:
            self.text = text

        def __call__(self) -> bytes:
            return self.text

    library: Any = blas.FortranBlas.__new__(blas.FortranBlas)
    texts = {"openblas_get_config": b"OpenBLAS 0.3.21 DYNAMIC_ARCH", "openblas_get_corename": b"Zen"}
    symbols = {f"scipy_{name}{end}": Text(text) for name, text in texts.items()}
    dgemm = ctypes.pythonapi.Py_GetVersion  # any function of a file that is loaded
    library._library, library._prefix = SimpleNamespace(**symbols, **{f"scipy_dgemm_{end}": dgemm}), "scipy_"
    description = library.described()
    assert (description["name"], description["version"], description["kernel"]) == ("OpenBLAS", "0.3.21", "Zen")
    assert Path(description["path"]).exists()


# What runs and manifests have of them --------------------------------------------------------------------------------


def describing(monkeypatch: pytest.MonkeyPatch, **missing: str | None) -> None:
    """Libraries of which some are missing."""
    answers = {name: missing.get(name) or Library(name=name, version="1") for name in LIBRARIES}
    monkeypatch.setattr(software, "describe", lambda library: answers[library.name.removeprefix("BLAS ")])


def test_only_the_cases_whose_library_is_missing_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    describing(monkeypatch, mkl="no torch")
    row = workloads.get("linpack")
    assert (row.missing(), row.missing("openblas"), row.missing("mkl")) == (None, None, "no torch")
    ((record, _),) = run_row(monkeypatch, row, replace_benchmark(PLAN, {"name": "linpack", "blas": "mkl"}))
    assert (record.status, record.reason) == ("skipped", "no torch")
    describing(monkeypatch, openblas="no wheel", mkl="no torch", system="no package")
    assert row.missing() == "no wheel"


def test_a_manifest_has_the_libraries_that_the_cases_use(monkeypatch: pytest.MonkeyPatch) -> None:
    describing(monkeypatch)
    plan = Plan(benchmarks=("linpack", {"name": "dgemm", "blas": ("mkl", "system")}, {"name": "dgemm", "blas": "mkl"}))
    uses = workloads.uses(plan.benchmarks)
    assert uses == ("linpack blas=openblas", "dgemm blas=mkl", "dgemm blas=system")
    assert {library.name: library.used_by for library in workloads.libraries(uses)} == {
        "openblas": ("linpack blas=openblas",), "mkl": ("dgemm blas=mkl",), "system": ("dgemm blas=system",)
    }  # fmt: skip
    describing(monkeypatch, mkl="no torch")
    assert [workloads.missing(use) for use in uses] == [None, "no torch", None]
    assert workloads.uses(({"name": "linpack", "blas": "none such"}, "stream")) == ("stream",)


def test_a_run_has_the_libraries_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    describing(monkeypatch)
    plan = Plan(benchmarks=({"name": "linpack", "blas": "system"},))
    (alone,) = plan_experiment(plan, WorldSettings(), ()).backends
    assert [library.name for library in alone.libraries()] == ["system"]


def test_environments_are_asked_about_the_libraries_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[tuple[str, ...]] = []

    def probe(environment: Path, vendor: str = "", benchmarks: tuple[str, ...] = (), given: Any = None) -> Any:
        probed.append(benchmarks)
        return SimpleNamespace(vendor="openmpi")

    monkeypatch.setattr(host, "probe", probe)
    benchmarks: tuple[Any, ...] = ("stream", {"name": "linpack", "blas": ("mkl", "system")})
    for collectives in ((), ("allreduce",)):
        plan = Plan(benchmarks=benchmarks, collectives=collectives, images=("openmpi",))
        host.look_beside(plan, "openmpi", "openmpi")
    assert probed == [("stream", "linpack blas=mkl", "linpack blas=system")] * 2


def test_memory_is_not_asked_for_by_what_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = program_cases(Plan(benchmarks=({"name": "linpack", "n": 50_000, "blas": "mkl"},)), 1)
    assert cases[0].memory == 2 * 8 * 50_000**2
    monkeypatch.setattr("collbench.run.experiment.available_bytes", lambda: 1 << 30)
    describing(monkeypatch)
    assert programs_do_not_fit(cases) is not None
    describing(monkeypatch, mkl="no torch")
    assert programs_do_not_fit(cases) is None


# Output and cases ----------------------------------------------------------------------------------------------------

NOTES = {"openblas": "OpenBLAS 0.3.34.481.3, kernel SkylakeX", "mkl": "MKL 2024.2",
         "system": "OpenBLAS 0.3.21, kernel Cooperlake"}  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_stored_output_is_read(name: str, library: str) -> None:
    row, text = workloads.get(name), stored(name, library)
    case, document = case_of(name, blas=library), json.loads(text)
    assert row.verify(case, text) == 0
    assert row.parse(text) == {row.measures[0].name: [ns * 1e-9 for ns in document["ns"]]}
    assert list(row.figures(case, text).values()) == [max(document["figures"])]
    assert row.notes(text) == (f"{NOTES[library]}, 2 threads",)


def test_threads_that_it_does_not_use_are_told() -> None:
    text = stored("dgemm").replace('"threads": 2', '"threads": 1')
    assert ", 1 thread of the 2 " in workloads.get("dgemm").notes(text)[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [17.0, float("nan"), float("inf")])
def test_a_figure_that_is_too_large_or_none_fails_the_case(name: str, value: float) -> None:
    document = json.loads(stored(name))
    text = json.dumps(document | {"figures": [document["figures"][0], value, value]})
    assert workloads.get(name).verify(case_of(name), text) == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["", "cut", "no key", "old"])
def test_a_damaged_output_fails_the_case(monkeypatch: pytest.MonkeyPatch, name: str, damage: str) -> None:
    text = stored(name)
    text = {"": "", "cut": text[:60], "no key": text.replace('"ns"', '"us"'),
            "old": text.replace('"figures"', '"residuals"')}[damage]  # fmt: skip
    row = replace(workloads.get(name), argv=printing(text), alternatives=None)
    ((record, _),) = run_row(monkeypatch, row, replace_benchmark(PLAN, {"name": name, "n": 200}))
    assert record.status == "failed" and f" {name} (" in str(record.reason)


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
    assert case_of("linpack", lda=200, blas="mkl")["lda"] == 200
    (case,) = program_cases(Plan(benchmarks=({"name": "dgemm", "n": 1000},)), 1)
    assert (case.memory, workloads.get("dgemm").measures[0].work(case.case).amount) == (24_000_000, 2e9)
