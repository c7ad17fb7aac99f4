"""Of sides that were not measured alternately the machine may be what differs: the first sentence says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import library, made_case, spread, write_run
from tests.unit.made_suite import CPU, write_suite

from collbench.analysis.own_sides import by_suite
from collbench.analysis.runs import observe
from collbench.report.page.programs import sentences


@pytest.mark.parametrize(
    ("factors", "verdicts"),
    [
        ((1.5, 1.2, 0.5), ["slower", "slower", "faster"]),
        ((1.0, 1.0, 0.5), ["same", "same", "faster"]),
        ((1.0, 1.0, 1.0), ["same"] * 3),
    ],
)
def test_a_comparison_of_two_runs(
    compare: Collbench, tmp_path: Path, factors: tuple[float, ...], verdicts: list[str]
) -> None:
    """The answer says so, whatever it is, and a note below."""
    cases = [made_case(size=8 << number) for number in range(3)]
    one = write_run(tmp_path / "a", {case: spread(1e-5, share=0.001) for case in cases})
    other = write_run(
        tmp_path / "b", {case: spread(1e-5 * by, share=0.001) for case, by in zip(cases, factors, strict=True)}
    )
    found = json.loads(compare(one, other, "--style", "json").out)["comparisons"]
    assert [(cell["verdict"], cell["blocks"]) for cell in found] == [(verdict, False) for verdict in verdicts]
    assert " ".join(compare(one, other).out.split()).count("not measured alternately") == 2
    assert "alternately" not in compare(one, other, "--in-blocks").out


def test_advice_from_two_runs_has_the_condition_that_of_one_has_not(here: Collbench, tmp_path: Path) -> None:
    case = made_case(image=None)
    runs = [write_run(tmp_path / name, {case: spread(time)}, libraries=(library(name, "5.0"),))
            for name, time in (("MPICH", 2e-5), ("Open MPI", 1e-5))]  # fmt: skip
    assert "not measured alternately" in here("advise", *runs, "--ignore", "launcher").out
    assert "alternately" not in here("advise", *runs, "--in-blocks", "--ignore", "launcher").out


def test_a_suite_in_a_report(tmp_path: Path) -> None:
    run = observe(write_suite(tmp_path / "run", CPU, slower={"dgemm": 1.06}))
    suites = {made.case.workload: "cpu" for made in CPU}
    for interleaved in (True, False):
        (line,) = sentences(by_suite(replace(run, interleaved=interleaved), "policy", suites, 0.02), 0.02)
        assert ("not measured alternately" in line) is not interleaved
