"""Conclusions of papers with several links, patterns, and cells that are only shown, on runs that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_papers import conv, copy, gemm, gpu_launch, judged, rnn, write
from tests.unit.made_runs import Entry, made_record, write_run

from collbench.analysis.papers import Selector, kinds_of
from collbench.analysis.results import joined
from collbench.analysis.runs import observe
from collbench.report.paper import beside, paper
from collbench.schema.case import Case, case_of
from collbench.schema.record import ResultCheck

GRU, LSTM = "gru_h512_n32_t1", "lstm_h512_n16_t25"
PAPER = "siddaramanna2018"

#: What a record of a program does not have.
ALONE: dict[str, Any] = {"driver": None, "gate": None, "cadence": None}


def test_most_counts_the_problems_of_the_paper(tmp_path: Path) -> None:
    """Of 160 products 81 decide, however few a run has; of the passes of a convolution most."""
    passes = [*conv(1.0), *conv(1.0, measure="backward_data"), *conv(1.3, measure="backward_weights")]
    most = judged(PAPER, write(tmp_path / "most", [*gemm(1.01), *gemm(1.3, 79, skipped=81), *passes]))[1]
    assert most.verdict == "holds here"
    counts = [(one.support, one.against, one.total, one.needed) for one in most.parts]
    assert counts == [(81, 79, 160, 81), (46, 0, 90, 46)]
    one = judged(PAPER, write(tmp_path / "one", [*gemm(1.0, 1), *conv(1.0)]))[1]
    assert [part.verdict for part in one.parts] == ["unclear", "holds here"]


def test_a_chain_without_a_link_has_no_verdict(tmp_path: Path) -> None:
    """On a processor nothing is launched; what its layers did is shown beside."""
    found = judged(PAPER, write(tmp_path / "cpu", [*rnn("gru", 1.0, number=1), *rnn("lstm", 1.0, number=1)]))[3]
    assert found.verdict == "not measured"
    assert [[one.workload for one in part.absent] for part in found.parts] == [["deepbench_rnn"], ["gpu_launch"]]
    assert sorted((one.sides[0].case["problem"][:3], one.verdict) for one in found.evidence) == [
        ("gru", None), ("lst", None)]  # fmt: skip
    gpu = judged(PAPER, write(tmp_path / "gpu", [*rnn("gru", 1.1, "cuda"), gpu_launch("issue", 1.3)]))[3]
    assert (gpu.verdict, [part.verdict for part in gpu.parts]) == ("unclear", ["holds here", "unclear"])
    assert gpu.parts[1].missing == {"measure": ("issue_wait",)}
    link = judged(PAPER, write(tmp_path / "link", rnn("gru", 1.1, "cuda")))[3]
    assert (link.verdict, [part.verdict for part in link.parts]) == ("not measured", ["holds here", "not measured"])


def test_the_number_of_kernels_stands_beside_the_cell(tmp_path: Path) -> None:
    host = case_of("deepbench_rnn", {"problem": LSTM, "image": "torch", "measure": "forward"})
    inside = host.having(engine="docker", policy="multi", isolation="strict")
    check = ResultCheck(wrong=0, figures={"relative error": 1e-7, "kernels": 4500.0})
    more: dict[Case, list[Entry]] = {
        case: [made_record(case, launch, 0.1, check=check, **ALONE) for launch in range(10)] for case in (host, inside)
    }
    observed = write(tmp_path / "run", gemm(1.0, 1), more=more)
    (one,) = judged(PAPER, observed)[2].evidence
    assert one.figures == {"kernels": 4500.0}
    shown = beside([observed], paper(PAPER))
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    assert "deepbench_rnn, 4,500 kernels" in [row[1] for row in cells.rows]


def test_near_and_far_are_compared_in_containers_alone(tmp_path: Path) -> None:
    """How far the host loses is not asked; it stands beside the container that is near."""
    planted = [copy(measure, ratio, affinity) for measure in ("h2d", "d2h", "d2d")
               for affinity, ratio in (("near", 1.0), ("far", 2.0))]  # fmt: skip
    observed = write(tmp_path / "run", planted)
    near, far = kinds_of([observed], paper(PAPER))
    assert (near.place, far.place) == ("multi strict", "multi strict far")
    assert (len(near.far), len(near.beside_host), far.far) == (3, 3, ())
    found = judged(PAPER, observed)[4]
    pairs = [(one.comparison.pair, one.ratio) for one in found.evidence if one.comparison]
    shown = [(pair.base_name, pair.other_name, round(ratio.value, 1) if ratio else None) for pair, ratio in pairs]
    assert shown == [("near", "far", 2.0)] * 2 + [("host", "multi strict", 1.0)] * 2


def test_without_a_program_both_near_and_far_nothing_is_compared_by_affinity(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [copy("h2d", 1.0), gpu_launch("issue", 1.0)])
    other = write(tmp_path / "far", [("gpu_launch", {"measure": "issue_wait", "affinity": "far"}, 1.0)])
    observed.cells.update(other.cells)
    assert all(one.far == () for one in kinds_of([observed], paper(PAPER)))


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
    assert Selector(workload="deepbench_rnn", values=values).takes(case) is taken


def test_figures_of_the_check_survive_several_launches_and_runs(tmp_path: Path) -> None:
    case = case_of("deepbench_rnn", {"problem": GRU, "image": "torch", "measure": "forward"})
    records = [
        made_record(case, launch, 0.1, check=ResultCheck(wrong=0, figures={"kernels": 10.0 + launch}), **ALONE)
        for launch in range(2)
    ]
    first = observe(write_run(tmp_path / "run", {case: records})).cells
    assert first[case].figures == {"kernels": 11.0}
    other = msgspec.structs.replace(records[0], check=None)
    second = observe(write_run(tmp_path / "other", {case: [other]})).cells
    assert joined([(second, 0), (first, 1)])[case].figures == {"kernels": 11.0}
