"""Conclusions of papers on host and container: each verdict, what decides it, and how it is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_papers import (
    DISK,
    RATE,
    Planted,
    conv,
    copy,
    dd,
    fathom,
    fileio,
    gemm,
    gpu_launch,
    ioping,
    judged,
    linpack,
    on_gpu,
    rnn,
    sysbench,
    training,
    write,
)
from tests.unit.made_runs import Entry, experiment, image, library, made_failure, made_record, with_facts

from collbench import collectives, workloads
from collbench.analysis.compare import Reason
from collbench.analysis.conclusions import JudgedConclusion, diff_percent, planned_conclusions
from collbench.analysis.papers import Item, Scalar, Selector, decode, kinds_of, matches
from collbench.analysis.results import joined
from collbench.cli.plan import of_paper, show_cells
from collbench.errors import RequestError, RunReadError
from collbench.launch.cells import worlds_of
from collbench.launch.expansion import expand
from collbench.launch.shipped import find_plan
from collbench.machine.topology import Core, Topology, TopologyGpu
from collbench.report.paper import beside, decidable, paper, papers, title_of
from collbench.schema.axes import AXES
from collbench.schema.case import Case, case_of
from collbench.schema.plan import load_launch_plan
from collbench.workloads import use_of
from collbench.workloads.dl.deepbench import Conv, Gemm, Rnn, problems

#: Problem sizes of the 2017 paper, which needs more than half of them.
SIZES = (2000, 5000, 10000, 15000, 18000, 20000, 22000, 25000)


#: Conclusion, what is planted, how much the ratio varies, the verdict.
CASES: list[tuple[str, int, list[Planted], float, str]] = [
    ("xu2017", 1, linpack(*SIZES, ratio=1.004), 0.001, "holds here"),
    ("xu2017", 1, linpack(*SIZES[:7], ratio=1.004), 0.001, "unclear"),
    ("xu2017", 1, linpack(*SIZES[:7], ratio=1.03), 0.001, "does not hold here"),
    ("xu2017", 1, linpack(*SIZES[:6], ratio=1.03) + linpack(25000), 0.001, "unclear"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.005)], 0.001, "holds here"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.005)], 0.02, "unclear"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.05)], 0.01, "does not hold here"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 0.95)], 0.01, "does not hold here"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.0), ("hpcg", {"n": 128}, 1.05)], 0.001, "does not hold here"),
    ("xu2017", 3, on_gpu(1.003), 0.001, "holds here"),
    ("xu2017", 3, on_gpu(1.003, number=14), 0.001, "unclear"),
    ("xu2017", 3, on_gpu(1.0, 1.02), 0.001, "does not hold here"),
    ("xu2017", 4, [dd(16, 0.95)], 0.01, "holds here"),
    ("xu2017", 4, [dd(16, 1.0)], 0.001, "does not hold here"),
    ("xu2017", 4, [dd(16, 0.99)], 0.02, "unclear"),
    ("xu2017", 5, [dd(8192, 1.03), dd(16384, 1.01)], 0.001, "holds here"),
    ("xu2017", 5, [dd(8192, 1.03)], 0.001, "unclear"),
    ("xu2017", 5, [dd(8192, 1.03), dd(16384, 0.97)], 0.001, "does not hold here"),
    ("xu2017", 5, [dd(8192, 1.03), dd(16384, 1.2)], 0.001, "does not hold here"),
    ("xu2017", 6, [ioping("cached", 1.2)], 0.001, "holds here"),
    ("xu2017", 6, [ioping("cached", 1.0)], 0.001, "does not hold here"),
    ("xu2017", 6, [ioping("cached", 1.02)], 0.2, "unclear"),
    ("xu2017", 7, [ioping("direct", 1 / 3.8), ioping("latency", 0.9)], 0.001, "holds here"),
    ("xu2017", 7, [ioping("direct", 1.002), ioping("latency", 0.9)], 0.001, "does not hold here"),
    ("xu2017", 7, [ioping("direct", 0.9), ioping("latency", 1.1)], 0.001, "does not hold here"),
    ("xu2017", 7, [ioping("direct", 0.9)], 0.001, "unclear"),
    ("xu2017", 7, [ioping("direct", 1.0), ioping("latency", 0.9)], 0.2, "unclear"),
    ("xu2017", 8, training("batch", 1.02, 0.97, 1.001), 0.001, "holds here"),
    ("xu2017", 8, training("batch", 1.02, 1.1, 1.1), 0.001, "does not hold here"),
    ("xu2017", 8, training("batch", 1.02, 1.001, 1.0), 0.2, "unclear"),
    ("xu2017", 9, training("first", 0.243, 0.306, 1.0, 1.0), 0.001, "holds here"),
    ("xu2017", 9, training("first", 0.5, 1.001), 0.001, "does not hold here"),
    ("xu2017", 9, training("first", 0.5), 0.001, "unclear"),
    ("zhao2018", 1, [sysbench("cpu", 1.013), sysbench("memory", 0.963, access="write")], 0.001, "holds here"),
    ("zhao2018", 1, [sysbench("cpu", 1.07), sysbench("memory", 0.963, access="write")], 0.001, "does not hold here"),
    ("zhao2018", 1, [sysbench("cpu", 1.013)], 0.001, "unclear"),
]  # fmt: skip
LITTLE = [sysbench("cpu", 1.013), sysbench("memory", 0.963, access="write")]
CASES += [
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.0384), fileio(1.11)], 0.001, "unclear"),  # as much as memory
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22), fileio(1.11)], 0.001, "holds here"),
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 0.8), fileio(0.9)], 0.001, "holds here"),  # affected is either way
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22), fileio(1.01)], 0.001, "does not hold here"),
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22), fileio(1.11)], 0.2, "unclear"),
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22)], 0.001, "unclear"),
    ("zhao2018", 2, [LITTLE[0], sysbench("threads", 1.22), fileio(1.11)], 0.001, "unclear"),
    ("zhao2018", 2, [LITTLE[0], sysbench("threads", 1.001), fileio(1.11)], 0.001, "does not hold here"),
]


def launches(ratio: float) -> list[Planted]:
    return [gpu_launch(measure, ratio) for measure in ("issue", "issue_wait")]


def copies(near: float, far: float) -> list[Planted]:
    """Of the container, near its GPU and far from it, in times of the host's."""
    return [copy(measure, ratio, affinity) for measure in ("h2d", "d2h")
            for affinity, ratio in (("near", near), ("far", far))]  # fmt: skip


def networks(*ratios: float) -> list[Planted]:
    return [fathom(name, ratio) for name, ratio in zip(("alexnet", "vgg", "residual"), ratios, strict=True)]


CASES += [
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(0.99)], 0.001, "holds here"),
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(1.05)], 0.001, "does not hold here"),
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(1.01)], 0.05, "unclear"),
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(1.0, 45)], 0.001, "unclear"),
    ("siddaramanna2018", 1, [*gemm(1.0, 1), *conv(1.0, 1)], 0.001, "unclear"),
    ("siddaramanna2018", 1, [*gemm(1.05, 79), *conv(1.0)], 0.001, "unclear"),
    ("siddaramanna2018", 1, gemm(1.05, 80), 0.001, "does not hold here"),
    ("siddaramanna2018", 2, [*rnn("vanilla", 1.0), *rnn("lstm", 1.01)], 0.001, "holds here"),
    ("siddaramanna2018", 2, [*rnn("vanilla", 1.0), *rnn("lstm", 1.04)], 0.001, "does not hold here"),
    ("siddaramanna2018", 2, [*rnn("vanilla", 1.0), *rnn("gru", 1.0)], 0.001, "unclear"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.1, "cuda"), *launches(1.3)], 0.001, "holds here"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.0, "cuda"), *launches(1.3)], 0.001, "does not hold here"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.1, "cuda"), *launches(1.0)], 0.001, "does not hold here"),
    ("siddaramanna2018", 3, rnn("gru", 1.0, "cuda"), 0.001, "does not hold here"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.02, "cuda"), *launches(1.3)], 0.01, "unclear"),
    ("siddaramanna2018", 3, rnn("gru", 1.1, "cuda"), 0.001, "not measured"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.1), *launches(1.3)], 0.001, "not measured"),
    ("siddaramanna2018", 4, copies(1.0, 1.6), 0.001, "holds here"),
    ("siddaramanna2018", 4, copies(1.0, 1.02), 0.001, "does not hold here"),
    ("siddaramanna2018", 4, copies(1.2, 1.6), 0.001, "does not hold here"),
    ("siddaramanna2018", 4, copies(1.0, 1.12), 0.05, "unclear"),
    ("siddaramanna2018", 4, [copy("h2d", 1.0)], 0.001, "not measured"),
    ("siddaramanna2018", 5, networks(1.0, 1.01, 0.99), 0.001, "holds here"),
    ("siddaramanna2018", 5, networks(1.0, 1.01, 1.1), 0.001, "does not hold here"),
    ("siddaramanna2018", 5, networks(1.0, 1.01, 1.0)[:2], 0.001, "unclear"),
]


@pytest.mark.parametrize(("reference", "number", "planted", "share", "verdict"), CASES)
def test_every_conclusion_comes_out_each_way(
    tmp_path: Path, reference: str, number: int, planted: list[Planted], share: float, verdict: str
) -> None:
    found = judged(reference, write(tmp_path / "run", planted, share))[number]
    assert found.verdict == verdict, found


def test_the_conclusions_that_can_be_decided_are_all_tested_each_way() -> None:
    decided = {(reference, number, verdict) for reference, number, _, _, verdict in CASES}
    for reference in papers():
        for one in paper(reference).conclusions:
            if all(part.than is None for part in one.parts):
                ways = {verdict for paper, number, verdict in decided if (paper, number) == (reference, one.number)}
                assert ways - {"not measured"} == {"holds here", "does not hold here", "unclear"}, (reference, one)


def test_a_first_epoch_says_nothing_about_batches(tmp_path: Path) -> None:
    found = judged("xu2017", write(tmp_path / "run", training("first", 1.0, 1.0, 1.0)))[8]
    assert (found.verdict, found.parts[0].total, found.evidence) == ("not measured", 4, ())
    assert found.parts[0].absent == (found.parts[0].part.of,)


def test_what_may_be_no_effect_at_all_is_not_affected_most(tmp_path: Path) -> None:
    planted = [*LITTLE, sysbench("threads", 1.0), fileio(1.11)]
    found = judged("zhao2018", write(tmp_path / "run", planted, {"sysbench_threads": 0.3}))[2]
    assert [part.verdict for part in found.parts] == ["unclear", "holds here"]


def test_what_others_are_compared_with_must_be_known(tmp_path: Path) -> None:
    planted = [LITTLE[0], sysbench("threads", 1.22), fileio(1.11)]
    found = judged("zhao2018", write(tmp_path / "run", planted))[2]
    assert [(part.verdict, part.evidence[0].reason) for part in found.parts] == [("unclear", "references")] * 2
    assert [one.workload for one in found.parts[0].absent] == ["sysbench_memory"]
    memory = case_of("sysbench_memory", {"access": "write", "image": "tools", "measure": "total"})
    inside = memory.having(engine="docker", policy="multi", isolation="strict")
    failed: dict[Case, list[Entry]] = {case: ["killed"] * 10 for case in (memory, inside)}
    found = judged("zhao2018", write(tmp_path / "failed", planted, more=failed))[2]
    assert found.verdict == "unclear"
    reasons = {one.sides[0].case.workload: one.reason for one in found.parts[0].evidence}
    assert (reasons["sysbench_threads"], reasons["sysbench_memory"]) == ("references", "not comparable")


def test_launches_on_several_devices_are_no_evidence(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [ioping("direct", 0.3)])
    elsewhere = with_facts(observed, transport="ext4 (vdb)")
    observed = replace(observed, cells=joined([(observed.cells, 0), (elsewhere.cells, 100)]))
    found = judged("xu2017", observed)[7]
    (one,) = found.evidence
    assert (one.reason, one.detail) == ("devices", ("ext4 (vda) and ext4 (vdb)",) * 2)


def test_two_kinds_of_container_without_the_host_are_no_evidence(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [dd(16, 0.9), dd(8192, 1.03), dd(16384, 1.03)])
    moved = {case.having(policy="single"): cell for case, cell in observed.cells.items()
             if case["count"] == 8192 and not case.where.on_host}  # fmt: skip
    single = joined([(moved, 0)])
    cells = {case: cell for case, cell in observed.cells.items() if not (case["count"] == 8192 and case.where.on_host)}
    without = replace(observed, cells=cells | single)
    assert [one.place for one in kinds_of([without], paper("xu2017"))] == ["multi strict"]
    (part,) = judged("xu2017", without)[5].parts
    assert (part.verdict, part.support, part.total, part.missing) == ("unclear", 1, 2, {"count": (8192,)})


def test_diff_is_that_of_the_quantity_that_the_paper_shows() -> None:
    assert [diff_percent(ratio, "time") for ratio in (1.25, 1.0, 2.0)] == [-25.0, 0.0, -100.0]
    assert [diff_percent(ratio, "rate") for ratio in (1.25, 1.0, 2.0)] == pytest.approx([20.0, 0.0, 50.0])


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.07, "holds here"), (1.0745, "holds here"), (1.0765, "does not hold here")]
)
def test_bounds_are_those_of_the_rate_where_the_paper_shows_one(tmp_path: Path, ratio: float, verdict: str) -> None:
    """7 % less of a rate are 7.53 % more time."""
    found = judged("xu2017", write(tmp_path / "run", [dd(8192, ratio), dd(16384, 1.03)], 1e-5))
    assert found[5].verdict == verdict


#: HPCG on the host and in Docker's default container.
HPCG = case_of("hpcg", {"n": 64, "image": "tools", "measure": "total"})
HPCG_INSIDE = HPCG.having(engine="docker", policy="multi", isolation="strict")


def launches_of(case: Case, factors: Sequence[float]) -> list[Entry]:
    """Launches that take so many times 0.1 s."""
    return [made_record(case, launch, 0.1 * factor, work=RATE, driver=None, gate=None, cadence=None)
            for launch, factor in enumerate(factors)]  # fmt: skip


def linpack_of(path: Path, ratios: dict[int, float], launches: int = 10) -> JudgedConclusion:
    """Each of these problem sizes on its own noise of 1 %."""
    rng = np.random.default_rng(7)
    more: dict[Case, list[Entry]] = {}
    for n, ratio in ratios.items():
        host = case_of("linpack", {"n": n, "lda": 0, "image": "tools", "measure": "solve"})
        inside = host.having(engine="docker", policy="multi", isolation="strict")
        for case, factor in ((host, 1.0), (inside, ratio)):
            more[case] = launches_of(case, (factor * np.exp(rng.normal(0, 0.01, launches))).tolist())
    return judged("xu2017", write(path, [], more=more))[1]


def test_the_cells_of_a_program_are_one_question(tmp_path: Path) -> None:
    """An interval that holds with those of 13 others is wider than one alone, and contradicts less easily."""
    alone = linpack_of(tmp_path / "one", {2000: 1.0225})
    among = linpack_of(tmp_path / "all", {2000: 1.0225, **dict.fromkeys(
        (5000, 10000, 15000, 18000, 20000, 22000, 25000, 26000, 27000, 30000, 35000, 40000, 45000), 1.0)})  # fmt: skip
    (own,), first = alone.evidence, among.evidence[0]
    assert own.ratio is not None and own.ratio.interval is not None
    assert first.ratio is not None and first.ratio.interval is not None
    assert (own.verdict, first.verdict) == ("does not hold here", "unclear")
    assert first.ratio.interval[0] < own.ratio.interval[0] < own.ratio.interval[1] < first.ratio.interval[1]
    assert first.comparison is not None and first.comparison.sizes == 14


@pytest.mark.parametrize(
    ("number", "planted", "verdict", "value"),
    [
        (1, [*linpack(2000, ratio=1.001), *linpack(5000, ratio=1.005), *linpack(10000, ratio=0.93)], "unclear", 1.005),
        (5, [dd(8192, 1.02), dd(16384, 1.06)], "holds here", 1.06),
        (5, [dd(8192, 1.15), dd(16384, 1.3)], "does not hold here", 1.3),
    ],
)
def test_what_decides_is_the_cell_that_agrees_least(
    tmp_path: Path, number: int, planted: list[Planted], verdict: str, value: float
) -> None:
    """Of those with the conclusion's verdict; of supporting ones where they are too few, and none is open."""
    found = judged("xu2017", write(tmp_path / "run", planted))[number]
    assert found.verdict == verdict and found.deciding is not None and found.deciding.ratio is not None
    assert found.deciding.ratio.value == pytest.approx(value, abs=0.001)


@pytest.mark.parametrize(("period", "verdict"), [(24, "unclear"), (3, "does not hold here")])
def test_launches_that_depend_on_each_other_decide_nothing(tmp_path: Path, period: int, verdict: str) -> None:
    """A wave over all launches, or one within every three: the interval excludes the bounds in both."""
    wave = 1.05 + 0.01 * np.sin(2 * np.pi * np.arange(24) / period)
    more = {HPCG: launches_of(HPCG, [1.0] * 24), HPCG_INSIDE: launches_of(HPCG_INSIDE, wave.tolist())}
    found = judged("xu2017", write(tmp_path / "run", [], more=more))[2]
    (one,) = found.evidence
    assert one.ratio is not None and one.ratio.interval is not None and one.ratio.interval[0] > 1.0102
    assert (found.verdict, one.reason) == (verdict, "launches" if verdict == "unclear" else "")


def test_few_launches_decide_nothing_and_say_what_they_lack(tmp_path: Path) -> None:
    found = judged("xu2017", write(tmp_path / "run", [("hpcg", {"n": 64}, 1.5)], launches=4))[2]
    assert (found.verdict, found.evidence[0].reason) == ("unclear", "launches")


@pytest.mark.parametrize(
    ("under", "said"),
    [
        ((DISK, "overlay on ext4 (vdb)"), (DISK, "ext4 (vdb)")),
        ((DISK, "overlay"), (DISK, "overlay")),
        (("overlay", "overlay"), ("overlay", "overlay")),
        (("tmpfs", DISK), ("tmpfs", DISK)),
        ((DISK, f"xfs (dm-0); the engine keeps it on {DISK}"), (DISK, f"xfs (dm-0); the engine keeps it on {DISK}")),
    ],
)
def test_files_on_two_devices_are_no_evidence(tmp_path: Path, under: tuple[str, str], said: tuple[str, str]) -> None:
    found = judged("xu2017", write(tmp_path / "run", [dd(16, 0.3)], under=under))[4]
    assert (found.verdict, found.evidence[0].reason) == ("not measured", "devices")
    assert found.evidence[0].detail == said


@pytest.mark.parametrize("under", [(DISK, DISK), (DISK, f"overlay on {DISK}"), ("tmpfs", "tmpfs")])
def test_files_on_one_device_are_evidence(tmp_path: Path, under: tuple[str, str]) -> None:
    assert judged("xu2017", write(tmp_path / "run", [dd(16, 0.3)], under=under))[4].verdict == "holds here"


def test_a_benchmark_that_was_skipped_gives_its_reason(tmp_path: Path) -> None:
    skipped: dict[Case, list[Entry]] = {
        case: [made_failure(case, launch, "no xhpcg in PATH", "skipped") for launch in range(6)]
        for case in (HPCG, HPCG_INSIDE)
    }
    found = judged("xu2017", write(tmp_path / "run", linpack(2000), more=skipped))[2]
    (one,) = found.evidence
    assert (found.verdict, one.reason, one.why) == (
        "not measured", "not comparable", Reason("not measured", ("host", "skipped", "no xhpcg in PATH")))  # fmt: skip


def test_programs_of_other_versions_are_not_compared(tmp_path: Path) -> None:
    own = library("sysbench", "1.0.20")
    other = msgspec.structs.replace(own, version="1.0.21")
    stacks = [
        image("tools", libraries=(msgspec.structs.replace(one, used_by=("sysbench_cpu",)),)) for one in (own, other)
    ]
    made = experiment(("tools",), images=stacks[:1], environments=stacks[1:])
    observed = write(tmp_path / "run", LITTLE, experiment=made)
    found = judged("zhao2018", observed)[1]
    assert found.verdict == "unclear"
    assert "sysbench 1.0.21 against sysbench 1.0.20" in found.parts[0].refused[observed.name, "sysbench_cpu"]


def test_sides_that_were_not_measured_in_turns_decide_nothing(tmp_path: Path) -> None:
    observed = replace(write(tmp_path / "run", [("hpcg", {"n": 64}, 1.5)]), interleaved=False)
    found = judged("xu2017", observed)[2]
    assert (found.verdict, found.evidence[0].reason) == ("unclear", "not alternated")


def test_docker_s_default_and_its_writable_layer_come_first(tmp_path: Path) -> None:
    volume = ("dd", {"bs": 65536, "count": 16, "storage": "volume"}, 1.0)
    strict = write(tmp_path / "strict", [volume, dd(16, 0.9), ("hpcg", {"n": 64}, 1.0)], under=(DISK, DISK))
    loose = write(tmp_path / "loose", [dd(16, 1.5)], place=("single", "ipc"), under=(DISK, DISK))
    observed = replace(strict, cells=loose.cells | strict.cells)
    found = kinds_of([observed], paper("xu2017"))
    assert [title_of(one) for one in found] == [
        "multi strict, files on overlay", "multi strict, files on volume", "single ipc, files on overlay"]  # fmt: skip
    assert [len(one.beside_host) for one in found] == [2, 1, 1]
    shown = beside([observed], paper("xu2017"))
    assert [one["place"] for one in shown.document["places"]] == ["multi strict", "multi strict", "single ipc"]
    assert [row[2] for row in shown.screen.rows if row[0] == "4"] == ["holds here"]
    fourth = [place["conclusions"][3]["verdict"] for place in shown.document["places"]]
    assert fourth == ["holds here", "does not hold here", "does not hold here"]
    assert sum("4 does not hold here" in note for note in shown.screen.notes) == 2


BOUNDED = {"of": {"workload": "dd"}, "diff_percent": [-1, 1]}


@pytest.mark.parametrize(
    "conclusion",
    [
        {},
        {"parts": [BOUNDED], "lacking": "x"},
        {"parts": [{"of": {"workload": "dd"}}]},
        {"parts": [BOUNDED | {"than": {"workload": "dd"}}]},
        {"parts": [{"of": {"workload": "dd"}, "than": {"workload": "dd"}, "growth": [1, 4]}]},
    ],
)
def test_a_conclusion_that_cannot_be_judged_is_refused(conclusion: dict[str, Any]) -> None:
    content = msgspec.to_builtins(paper("siddaramanna2018")) | {
        "conclusions": [{"number": 1, "text": "x"} | conclusion]
    }
    with pytest.raises(RunReadError, match=r"\$\.conclusions\[0\]"):
        decode(msgspec.json.encode(content))


def test_seccomp_unconfined_and_far_memory_come_after_the_default(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [("hpcg", {"n": 64}, 1.0)], place=("single", "ipc"))
    places = ({"isolation": "strict", "seccomp": "unconfined"}, {"isolation": "strict", "affinity": "far"})
    cells = dict(observed.cells)
    for case, cell in observed.cells.items():
        for place in places:
            if not case.where.on_host or "affinity" in place:
                other = case.having(**({"affinity": "far"} if case.where.on_host else place))
                cells |= joined([({other: cell}, 0)])
    found = kinds_of([replace(observed, cells=cells)], paper("xu2017"))
    assert [one.place for one in found] == ["single ipc", "single strict seccomp unconfined", "single strict far"]


# A run beside papers on host and container as it is shown -------------------------------------------------------------


def test_differences_of_the_paper_stand_beside_those_of_the_run(tmp_path: Path) -> None:
    """As time: -4.263 % of a rate are 4.09 % less time."""
    planted = [dd(16, 0.95), dd(1600, 1.01), ("hpcg", {"n": 64}, 1.005), ioping("latency", 0.98)]
    shown = beside([write(tmp_path / "run", planted)], paper("xu2017"))
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    rows = {row[:2]: row for row in cells.rows}
    assert rows["2", "hpcg"][2:5] == ("holds here", "+0.5 % (+0.4 to +0.6 %)", "pc +0.6 %, server +0.2 %")
    assert rows["4", "dd (count 16)"][4] == "pc -4 %, server -4 %"
    assert rows["5", "dd (count 1600)"][2] == "compared with"
    assert rows["7", "ioping"][4] == "pc -99 %, server -4 %"


def test_each_network_of_a_training_stands_beside_its_bound(tmp_path: Path) -> None:
    other_batch = ("train", {"network": "fcn5", "batch": 1024, "measure": "batch", "storage": "overlay"}, 1.03)
    planted = [*training("batch", 1.02, 1.01, 1.0, 0.99), *training("first", 0.5), other_batch]
    shown = beside([write(tmp_path / "run", planted)], paper("xu2017"))
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    bounds = {row[1]: row[4] for row in cells.rows}
    assert len(bounds) == 6 and set(bounds.values()) == {"both within 5 %", "both within 77 %"}
    assert sum("fcn5" in cell and "batch 1024" in cell for cell in bounds) == 1


@pytest.mark.parametrize("sides", [("host",), ("multi",)])
def test_a_run_of_one_side_is_refused(tmp_path: Path, sides: tuple[str, ...]) -> None:
    observed = write(tmp_path / "run", [dd(16, 1.0)])
    cells = {case: cell for case, cell in observed.cells.items() if case.where.policy in sides}
    with pytest.raises(RequestError, match=r"xu2017, .*linpack"):
        beside([replace(observed, cells=cells)], paper("xu2017"))


def test_an_unknown_paper_is_answered_with_the_list() -> None:
    files = resources.files("collbench.report") / "reference"
    assert papers() == sorted(file.name.removesuffix(".json") for file in files.iterdir())
    assert {"choi2021", "siddaramanna2018", "xu2017", "zhao2018"} <= set(papers())
    with pytest.raises(RequestError, match=r" xu2017\? .*: choi2021, siddaramanna2018"):
        paper("xu2018x")


def test_published_diff_follows_from_the_results_where_both_are_published() -> None:
    for reference in papers():
        published = paper(reference)
        assert published.reference == reference
        for one in published.experiments:
            if one.host is not None and one.docker is not None:
                assert (one.host - one.docker) / one.host * 100 == pytest.approx(one.diff, abs=0.02)
    laptop = {one.experiment: one.diff for one in paper("zhao2018").experiments if one.cell}
    assert laptop == pytest.approx({"cpu": -1.27, "memory": -3.86, "threads": -22.51, "fileio": 9.96}, abs=0.005)


@pytest.mark.parametrize("ending", ["html", "txt", "csv"])
def test_the_report_has_verdicts_cells_and_assumptions(tmp_path: Path, here: Collbench, ending: str) -> None:
    write(tmp_path / "run", [dd(16, 0.95), ("hpcg", {"n": 64}, 1.005)])
    out = tmp_path / f"report.{ending}"
    told = here("report", tmp_path / "run", "--against", "xu2017", "-o", out)
    assert told.code == 0, told.err
    text = " ".join(unescape(out.read_text(encoding="utf-8")).split())
    for expected in ("2 hold here", "Disk, dd: ", "pc -4", "cells of xu2017"):
        assert expected in text, expected
    assert ("ResNet-56" in text) is (ending != "csv")


def test_compare_prints_the_screen_and_with_all_the_cells(
    tmp_path: Path, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.report.tables.LONGEST_LINE", 100)
    write(tmp_path / "run", [dd(16, 0.95), dd(8192, 1.03), ("hpcg", {"n": 64}, 1.005)])
    words = ("compare", tmp_path / "run", "--against", "xu2017")
    first, every = here(*words).out, here(*words, "--all").out
    for text in (first, every):
        assert max(map(len, text.splitlines())) <= 100
    assert every.startswith(first.rstrip("\n")) and "cells of xu2017" in every and "cells of xu2017" not in first
    found = json.loads(here(*words, "--style", "json").out)
    (place,) = found["places"]
    assert place["verdicts"] == {"not measured": 6, "holds here": 2, "unclear": 1}
    second, fifth = place["conclusions"][1], place["conclusions"][4]
    assert second["decided_by"]["ratio"]["value"] == pytest.approx(1.005, abs=0.001)
    assert (fifth["measured"], fifth["cells"], fifth["verdict"], fifth["plans"]) == (1, 2, "unclear", ["xu2017"])
    refused = here(*words, "--by", "policy", "--fail-on", "slower")
    assert refused.code == 2 and "--by, --fail-on" in refused.err


def test_the_next_step_is_the_plan_that_measures_the_rest(tmp_path: Path) -> None:
    planted = [*linpack(2000), dd(16, 0.95), dd(8192, 1.03), dd(16384, 1.03)]
    shown = beside([write(tmp_path / "run", planted)], paper("xu2017"))
    plans = re.findall(r"([\w-]+) \((?:for )?([\d,]+)\)", shown.screen.notes[-1])
    assert plans == [("xu2017-linpack", "1"), ("xu2017", "2,6,7"), ("xu2017-gpu", "3"), ("train", "8,9")]
    rows = {row[0]: row[2:] for row in shown.screen.rows}
    assert (rows["1"][0], rows["1"][2], rows["2"]) == ("unclear", "1 of 14", ("not measured", "-", "0 of 1"))


def test_an_unknown_paper_is_refused_before_the_run_is_read(tmp_path: Path, here: Collbench) -> None:
    told = here("report", tmp_path, "--against", "xu2018", "-o", tmp_path / "report.txt")
    assert told.code == 2 and "xu2018: " in told.err and " xu2017?" in told.err


def test_what_was_not_measured_is_known(tmp_path: Path) -> None:
    found = judged("xu2017", write(tmp_path / "run", [dd(8192, 1.03), *linpack(2000)]))
    assert found[5].parts[0].missing == {"count": (16384,)}
    linpack_ = found[1].parts[0]
    assert (linpack_.support, linpack_.total, linpack_.needed, len(linpack_.missing["n"])) == (1, 14, 8, 13)
    assert found[4].verdict == "not measured"
    assert [part.absent for part in found[3].parts] == [(part.part.of,) for part in found[3].parts]


#: Of each published Diff%, the conclusion that it belongs to; of the others the paper draws none.
OWN = {("hpcg", ""): 2, ("dd", "16"): 4, ("dd", "8192"): 5, ("dd", "16384"): 5, ("ioping", "cached"): 6,
       ("ioping", "direct"): 7, ("ioping", "latency"): 7, ("cpu", ""): 1, ("memory", ""): 1, ("threads", ""): 2,
       ("fileio", ""): 2}  # fmt: skip


@pytest.mark.parametrize(("reference", "machine"), [("xu2017", "pc"), ("xu2017", "server"), ("zhao2018", "laptop")])
def test_what_a_paper_published_confirms_its_conclusions(tmp_path: Path, reference: str, machine: str) -> None:
    """Every published Diff% as if it had been measured, and nothing else."""
    planted, numbers = [], set()
    for one in paper(reference).experiments:
        if one.machine == machine and one.cell is not None and one.diff is not None:
            ratio = 1 - one.diff / 100
            values = dict(one.cell.values)
            files = {"storage": "overlay"} if workloads.get(one.cell.workload).files else {}
            planted.append((one.cell.workload, {**values, **files}, ratio if one.cell.shown == "time" else 1 / ratio))
            which = next((str(values[name]) for name in ("count", "mode") if name in values), "")
            numbers |= {OWN[one.experiment, which]} if (one.experiment, which) in OWN else set()
    found = judged(reference, write(tmp_path / "run", planted, share=1e-6))
    assert {number: found[number].verdict for number in numbers} == dict.fromkeys(numbers, "holds here")
    assert not [one for one in found.values() if one.verdict == "does not hold here"]
    assert len(planted) > 3 and len(numbers) >= 2


def test_runs_of_one_paper_are_judged_together(tmp_path: Path) -> None:
    disk = write(tmp_path / "disk", [dd(16, 0.95), dd(8192, 1.03)])
    more = write(tmp_path / "more", [dd(16384, 1.03), ("hpcg", {"n": 64}, 1.0)])
    found = judged("xu2017", disk, more)
    assert [found[number].verdict for number in (2, 4, 5)] == ["holds here"] * 3
    assert [Path(one.sides[0].run).name for one in found[5].evidence] == ["disk", "more"]
    shown = beside([disk, more], paper("xu2017"))
    assert shown.runs == (disk.name, more.name)
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    assert "run" in cells.columns


def test_what_two_runs_of_one_machine_measured_must_agree(tmp_path: Path) -> None:
    runs = [write(tmp_path / str(ratio), [dd(16, ratio)]) for ratio in (0.95, 1.05)]
    assert judged("xu2017", *runs)[4].verdict == "does not hold here"
    assert judged("xu2017", runs[0])[4].verdict == "holds here"


def test_one_cell_on_two_machines_is_refused(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, [dd(16, ratio)]) for name, ratio in (("a", 0.95), ("b", 1.05)))
    other = write(tmp_path / "c", [("hpcg", {"n": 64}, 1.0)])
    manifest = second.manifests[0]
    hosts = tuple(msgspec.structs.replace(host, name="another") for host in manifest.hosts)
    moved, apart = (
        replace(run, manifests=(msgspec.structs.replace(manifest, hosts=hosts),)) for run in (second, other)
    )
    with pytest.raises(RequestError, match=f"{first.name} .*{moved.name} .*dd .*another"):
        beside([first, moved, other], paper("xu2017"))
    assert beside([first, apart], paper("xu2017")).runs == (first.name, apart.name)


def test_several_runs_have_one_chapter_beside_the_paper(tmp_path: Path, here: Collbench) -> None:
    for name, planted in (("disk", [dd(16, 0.95)]), ("cpu", [("hpcg", {"n": 64}, 1.005)])):
        write(tmp_path / name, planted)
    out = tmp_path / "report.md"
    told = here("report", tmp_path / "disk", tmp_path / "cpu", "--against", "xu2017", "-o", out)
    assert told.code == 0, told.err
    text = out.read_text(encoding="utf-8")
    assert text.count("### conclusions of xu2017") == 1


def test_what_papers_name_is_what_benchmarks_have() -> None:
    """Workloads, axes, measures, and values that these may have."""
    for reference in papers():
        published = paper(reference)
        for part in published.parts:
            grid = {name: values for name, values in part.grid.items() if not isinstance(values, int)}
            for selector in part.selectors:
                _has_values(selector, {**selector.values, **({} if selector is part.than else _own(grid))})
            for name in (*part.at, *part.grid):
                assert name.removeprefix("than.") in _axes(part.of.workload), (reference, name)
        others = [one for conclusion in published.conclusions for one in conclusion.beside]
        others += [one.cell for one in published.experiments if one.cell]
        others += [one.cell for one in published.figures]
        others += [one for ratio in published.ratios for one in (ratio.of, ratio.over)]
        for selector in others:
            _has_values(selector, selector.values)


def _axes(pattern: str) -> set[str]:
    """Those of all workloads of a pattern, and two that items have besides."""
    fitting = [name for name in (*workloads.names(), *collectives.names()) if matches(name, pattern)]
    assert fitting, pattern
    own = [{axis.name for axis in workloads.get(name).axes} for name in fitting if name in workloads.names()]
    return set.intersection(*own or [set()]) | {*AXES, "measure", "library", "workers", "workload"}


def _own(grid: Mapping[str, tuple[Scalar, ...]]) -> dict[str, tuple[Scalar, ...]]:
    return {name: values for name, values in grid.items() if not name.startswith("than.")}


def _has_values(selector: Selector, values: Mapping[str, Scalar | tuple[Scalar, ...]]) -> None:
    assert _axes(selector.workload) >= set(values), selector
    if selector.workload not in workloads.names():  # collectives have no values of their own
        return
    row = workloads.get(selector.workload)
    checks = {axis.name: axis.plan_key.check for axis in row.axes if axis.plan_key is not None}
    for name, value in values.items():
        for one in value if isinstance(value, tuple) else (value,):
            if name == "measure":
                assert one in {measure.name for measure in row.measures}, selector
            elif name in checks and "*" not in str(one):
                checks[name](name, one)


def test_the_plans_of_a_conclusion_measure_it() -> None:
    for reference in papers():
        for conclusion in paper(reference).conclusions:
            for name in conclusion.plans:
                found = of_paper(expand(load_launch_plan(find_plan(name)), lambda _: MACHINE))
                assert found is not None and found[0].reference == reference
                (judgement,) = [one for one in found[1] if one.conclusion.number == conclusion.number]
                assert sum(part.open for part in judgement.parts) > 0, (reference, conclusion.number, name)


def test_the_cells_of_deepbench_are_those_of_its_tables() -> None:
    kinds = {"deepbench_gemm": Gemm, "deepbench_conv": Conv, "deepbench_rnn": Rnn}
    counted = 0
    for part in paper("siddaramanna2018").parts:
        if part.of.workload in kinds:
            pattern = str(part.of.values.get("problem", "*"))
            names = [name for name in problems(kinds[part.of.workload]) if matches(name, pattern)]
            assert part.total == len(names), part
            counted += 1
    assert counted == 5


#: Plans of papers: conclusions that they can confirm, and that they can refute.
PLANS = {
    "xu2017": ({2, 4, 5, 6, 7}, {2, 4, 5, 6, 7}),
    "xu2017-linpack": ({1}, {1}),
    "xu2017-gpu": ({3}, {3}),
    "train": ({8, 9}, {8, 9}),
    "choi2021-cpu": (set(), {1}),
    "choi2021": (set(), {1}),
    "choi2021-gpu": ({1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}),
    "gpu-affinity": ({4}, {3, 4}),
    "zhao2018-ps": (set(), {5, 6}),
    "zhao2018-sysbench": ({1, 2}, {1, 2}),
    "siddaramanna2018-cpu": (set(), {1}),
    "fathom": ({5}, {5}),
}
CORES = tuple(Core(number, node=number % 2) for number in range(32))
MACHINE = Topology(CORES, tuple(TopologyGpu(f"GPU-{letter}", node=0) for letter in "abcd"))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_says_what_it_can_decide_of_its_paper(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = load_launch_plan(find_plan(name))
    expanded = expand(plan, lambda _: MACHINE)
    found = of_paper(expanded)
    assert found is not None and found[0].reference == plan.paper
    confirms = {one.conclusion.number for one in found[1] if one.can_confirm}
    refutes = {one.conclusion.number for one in found[1] if one.can_refute}
    assert (confirms, refutes) == PLANS[name]
    show_cells(expanded)
    assert f"conclusions of {plan.paper}" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["host", "docker"])
def test_what_needs_a_program_that_is_missing_cannot_be_decided(engine: str) -> None:
    expanded = expand(load_launch_plan(find_plan("xu2017")), lambda _: MACHINE)
    found = of_paper(expanded, {(engine, "tools", None): {"hpcg": "xhpcg is missing"}})
    assert found is not None
    published, judged, lacking = found
    decided = {one.conclusion.number for one in judged if one.can_confirm or one.can_refute}
    assert (decided, set(lacking)) == ({4, 5, 6, 7}, {"hpcg"})
    said = {line.split(":")[0]: line for line in decidable(published, judged, lacking)[1:]}
    assert set(said) == {f"  conclusion {number}" for number in (1, 2, 3, 8, 9)}
    assert ["hpcg" in line for line in said.values()] == [False, True, False, False, False]


def test_of_a_program_with_alternatives_the_one_that_is_missing_counts() -> None:
    expanded = expand(load_launch_plan(find_plan("xu2017-linpack")), lambda _: MACHINE)
    (image,) = expanded.plan.images
    (used,) = {use_of(case) for cases in expanded.expected.values() for case in cases}
    for use, lacking in ((used, {"linpack"}), ("linpack blas=another", set())):
        found = of_paper(expanded, {("host", image, None): {use: "missing"}})
        assert found is not None and found[2] == lacking


def test_what_others_are_compared_with_must_be_planned() -> None:
    cases = [case_of(f"sysbench_{test}", {"image": "tools"}) for test in ("threads", "fileio", "cpu", "memory")]
    cases[3] = cases[3].having(access="write")
    inside = [case.having(engine="docker", policy="multi", isolation="strict") for case in cases]
    for number, able in ((4, True), (3, False)):
        items = [Item(case) for case in (*cases[:number], *inside[:number])]
        found = {one.conclusion.number: one for one in planned_conclusions(paper("zhao2018"), items)}
        assert (found[2].can_confirm, found[2].can_refute) == (able, True)


@pytest.mark.parametrize("name", ["choi2021", "choi2021-gpu"])
def test_the_plans_of_collectives_have_no_world_of_one_rank(name: str) -> None:
    plan = load_launch_plan(find_plan(name))
    assert 1 in plan.workers and min(ranks for ranks, _ in worlds_of(plan)) == 2


def test_a_plan_of_an_unknown_paper_is_refused(tmp_path: Path, here: Collbench) -> None:
    text = 'images = ["tools"]\npolicies = ["host"]\nbenchmarks = ["stream"]\npaper = "xu2018"\n'
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    told = here("plan", tmp_path / "plan.toml")
    assert told.code == 2 and "xu2017" in told.err


def test_a_report_that_could_not_be_written_is_refused_before_the_run_is_read(tmp_path: Path, here: Collbench) -> None:
    told = here("report", tmp_path / "none", "-o", tmp_path / "nowhere" / "x.html")
    assert told.code == 2 and "x.html: " in told.err and told.err.endswith(f"{tmp_path / 'nowhere'}.\n")
