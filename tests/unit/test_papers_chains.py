"""Conclusions of papers with several links, patterns, and cells that are only shown, on runs that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_papers import conv, copy, gemm, gpu_launch, programs, rnn, write
from tests.unit.made_runs import Entry, made_record, write_run

from collbench.analysis.observations import Observed, observe
from collbench.analysis.paper.judgement import Judgement
from collbench.analysis.paper.programs import Found, judge
from collbench.analysis.paper.reference import Selector
from collbench.analysis.paper.sides import sides
from collbench.report.paper import beside, paper
from collbench.schema.case import Case, case_of
from collbench.schema.record import ResultCheck

GRU, LSTM = "gru_h512_n32_t1", "lstm_h512_n16_t25"
PAPER = "siddaramanna2018"

#: What a record of a program does not have.
ALONE: dict[str, Any] = {"driver": None, "gate": None, "cadence": None}


def judged(observed: Observed) -> dict[int, Judgement[Found]]:
    published = programs(PAPER)
    return {one.number: one for one in judge(published, sides(observed, published.workloads)[0])}


def test_most_problems_decide_on_an_operation_and_how_many_is_said(tmp_path: Path) -> None:
    planted = [gemm(1.0, "a"), gemm(1.01, "b"), gemm(1.3, "c"), conv(1.0)]
    found = judged(write(tmp_path / "most", planted))[1]
    assert (found.finding, found.why) == (
        "confirmed", "2 of 2 cells support it; deepbench_gemm: 2 of 3 cells; deepbench_conv: 1 of 1 cell")  # fmt: skip
    assert [one.finding for one in found.evidence] == ["confirmed", "confirmed", "refuted", "confirmed"]
    half = judged(write(tmp_path / "half", [gemm(1.0, "a"), gemm(1.3, "b"), conv(1.0)]))[1]
    assert half.finding == "refuted"


def test_a_chain_without_a_link_says_which(tmp_path: Path) -> None:
    """On a processor nothing is launched; what its layers did is shown beside."""
    found = judged(write(tmp_path / "cpu", [rnn(GRU, 1.0), rnn(LSTM, 1.0)]))[3]
    assert (found.finding, found.why) == (
        "not measurable here",
        "not measured: deepbench_rnn problem gru_* device cuda, gpu_launch measure issue, "
        "gpu_launch measure issue_wait",
    )
    assert [(one.comparison.pair.base.case["problem"], one.finding) for one in found.evidence] == [
        (LSTM, None), (GRU, None)]  # fmt: skip
    gpu = judged(write(tmp_path / "gpu", [rnn(GRU, 1.1, "cuda"), gpu_launch("issue", 1.3)]))[3]
    assert (gpu.finding, gpu.why) == (
        "not measurable here",
        "2 of 3 cells support it; deepbench_rnn problem gru_* device cuda: 1 of 1 cell; "
        "not measured: gpu_launch measure issue_wait",
    )


def test_the_number_of_kernels_stands_beside_the_cell(tmp_path: Path) -> None:
    host = case_of("deepbench_rnn", {"problem": LSTM, "image": "torch", "measure": "forward"})
    inside = host.having(engine="docker", policy="multi", isolation="strict")
    check = ResultCheck(wrong=0, figures={"relative error": 1e-7, "kernels": 4500.0})
    more: dict[Case, list[Entry]] = {
        case: [made_record(case, launch, 0.1, check=check, **ALONE) for launch in range(10)] for case in (host, inside)
    }
    observed = write(tmp_path / "run", [gemm(1.0)], more=more)
    (one,) = judged(observed)[2].evidence
    assert one.figures == "4,500 kernels"
    _, tables = beside(observed, paper(PAPER))
    assert f"deepbench_rnn forward, problem {LSTM}, 4,500 kernels" in [row[1] for row in tables[0].rows]


def test_near_and_far_are_compared_in_containers_alone(tmp_path: Path) -> None:
    """How far the host loses is not asked; it stands beside the container that is near."""
    planted = [copy(measure, ratio, affinity) for measure in ("h2d", "d2h", "d2d")
               for affinity, ratio in (("near", 1.0), ("far", 2.0))]  # fmt: skip
    observed = write(tmp_path / "run", planted)
    near, far = sides(observed, ("gpu_copy",))
    assert (near.place, far.place) == ("multi strict", "multi strict far")
    assert (len(near.far), len(near.comparisons), far.far) == (3, 3, ())
    found = judged(observed)[4]
    pairs = [(one.comparison.pair, one.diff) for one in found.evidence]
    shown = [(pair.base_name, pair.other_name, round(diff.value) if diff else None) for pair, diff in pairs]
    assert shown == [("near", "far", 50)] * 2 + [("host", "multi strict", 0)] * 2


def test_without_a_program_both_near_and_far_nothing_is_compared_by_affinity(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [copy("h2d", 1.0), gpu_launch("issue", 1.0)])
    other = write(tmp_path / "far", [("gpu_launch", {"measure": "issue_wait", "affinity": "far"}, 1.0)])
    observed.cells.update(other.cells)
    assert all(one.far == () for one in sides(observed, ("gpu_copy", "gpu_launch")))


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ({"problem": "gru_*"}, True),
        ({"problem": "lstm_*"}, False),
        ({"problem": ("lstm_*", "gru_h512_*")}, True),
        ({"problem": "gru_*", "threads": 2}, True),
        ({"problem": "gru_*", "threads": "2"}, False),
        ({"device": "*"}, False),
    ],
)
def test_a_text_may_be_a_pattern(values: dict[str, Any], taken: bool) -> None:
    case = case_of("deepbench_rnn", {"problem": GRU, "threads": 2})
    assert Selector(workload="deepbench_rnn", shown="time", values=values).takes(case) is taken


def test_figures_of_the_check_survive_several_launches_and_runs(tmp_path: Path) -> None:
    case = case_of("deepbench_rnn", {"problem": GRU, "image": "torch", "measure": "forward"})
    records = [
        made_record(case, launch, 0.1, check=ResultCheck(wrong=0, figures={"kernels": 10.0 + launch}), **ALONE)
        for launch in range(2)
    ]
    (cell,) = observe(write_run(tmp_path / "run", {case: records})).cells.values()
    assert cell.figures == {"kernels": 11.0}
    other = msgspec.structs.replace(records[0], check=None)
    (second,) = observe(write_run(tmp_path / "other", {case: [other]})).cells.values()
    second.absorb(cell, 1)
    assert second.figures == {"kernels": 11.0}
