"""Comparisons of benchmarks that use one library or another, as a parameter says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.made_runs import experiment, image, spread, write_run

from collbench.analysis.environment import facts
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import across, within
from collbench.analysis.runs import Observed, observe
from collbench.errors import RequestError
from collbench.schema.axes import Value
from collbench.schema.case import Case, Where
from collbench.schema.manifest import Library

TIMES = spread(1.0)
NOTHING = frozenset[str]()


def case_of(blas: str, workload: str = "linpack") -> Case:
    what: dict[str, Value] = {"n": 100, "size": 1024}
    return Case(workload=workload, what=what, how={"blas": blas, "driver": "native"}, where=Where(ranks=1))


def library(name: str, version: str, *users: str, kernel: str | None = None) -> Library:
    return Library(name=name, version=version, sha256=version * 64, used_by=users, kernel=kernel)


def run(path: Path, mkl: str, *cases: Case) -> Observed:
    libraries = (
        library("OpenBLAS", "3", "linpack blas=openblas", kernel="Prescott"),
        library("MKL", mkl, "linpack blas=mkl", "dgemm blas=mkl"),
        library("HPL", "2", "hpl"),
    )
    return observe(write_run(path, dict.fromkeys(cases, TIMES), libraries=libraries))


def test_a_case_has_the_libraries_that_it_uses(tmp_path: Path) -> None:
    cases = (case_of("openblas"), case_of("mkl"), case_of("mkl", "dgemm"), case_of("mkl", "hpl"))
    found = run(tmp_path / "run", "1", *cases)
    assert [facts(found, [case])["library"] for case in cases] == ["OpenBLAS 3 (Prescott)", "MKL 1", "MKL 1", "HPL 2"]


def test_libraries_may_differ_where_they_are_what_is_compared(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "1", case_of("openblas"), case_of("mkl"))
    (pair,) = within(found, find_factor("blas", own=("blas",)), NOTHING)
    assert {pair.base_name, pair.other_name} == {"openblas", "mkl"}


def test_only_the_cases_whose_library_differs_are_refused(tmp_path: Path) -> None:
    base, other = (run(tmp_path / version, version, case_of("openblas")) for version in ("1", "2"))
    assert len(across(base, other, None, NOTHING)) == 1
    base, other = (run(tmp_path / f"mkl{version}", version, case_of("mkl")) for version in ("1", "2"))
    with pytest.raises(RequestError, match="MKL 1 against MKL 2"):
        across(base, other, None, NOTHING)


def test_nccl_counts_for_what_communicates_through_it(tmp_path: Path) -> None:
    """An environment may hold it beside the library of another backend."""
    libraries = (library("torch (gloo)", "2"), library("NCCL", "3"))
    cases = [
        Case(workload="allreduce", how={"backend": backend, "driver": "python"})
        for backend in ("torch-gloo", "torch-nccl")
    ]
    found = observe(write_run(tmp_path / "run", dict.fromkeys(cases, TIMES), libraries=libraries))
    assert [facts(found, [case])["library"] for case in cases] == ["torch (gloo) 2", "torch (gloo) 2, NCCL 3"]


def test_places_of_files_say_nothing_between_host_and_image(tmp_path: Path) -> None:
    """Without a hash it is not known whether they are the same."""
    sides = [image("torch", libraries=(Library(name="torch (gloo)", version="2", path=path),)) for path in ("/a", "/b")]
    where = Where(image="torch", engine="docker", policy="multi", isolation="strict")
    cases = [Case(workload="allreduce", how={"backend": "torch-gloo", "driver": "python"}, where=place)
             for place in (where, Where(image="torch"))]  # fmt: skip
    made = experiment((), images=(sides[0],), environments=(sides[1],))
    found = observe(write_run(tmp_path / "run", dict.fromkeys(cases, TIMES), experiment=made))
    assert [facts(found, [case])["library-file"] for case in cases] == ["", ""]
