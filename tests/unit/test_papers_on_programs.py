"""Conclusions of papers on host and container, on runs that are made up: each verdict, and what decides it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_papers import (
    DISK,
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
from tests.unit.made_runs import Entry, experiment, image, library, made_failure

from collbench.analysis.estimate import Estimate
from collbench.analysis.paper.cells import kinds_of
from collbench.analysis.paper.judge import diff_percent
from collbench.analysis.paper.reference import decode
from collbench.errors import RunReadError
from collbench.report.paper import beside, paper, papers
from collbench.schema.case import Case, case_of

#: Problem sizes of the 2017 paper, which needs more than half of them.
SIZES = (2000, 5000, 10000, 15000, 18000, 20000, 22000, 25000)


#: Conclusion, what is planted, how much the ratio varies, the verdict.
CASES: list[tuple[str, int, list[Planted], float, str]] = [
    ("xu2017", 1, linpack(*SIZES, ratio=1.004), 0.001, "confirmed"),
    ("xu2017", 1, linpack(*SIZES[:7], ratio=1.004), 0.001, "undecided"),
    ("xu2017", 1, linpack(*SIZES[:7], ratio=1.03), 0.001, "refuted"),
    ("xu2017", 1, linpack(*SIZES[:6], ratio=1.03) + linpack(25000), 0.001, "undecided"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.005)], 0.001, "confirmed"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.005)], 0.02, "undecided"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.05)], 0.01, "refuted"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 0.95)], 0.01, "refuted"),
    ("xu2017", 2, [("hpcg", {"n": 64}, 1.0), ("hpcg", {"n": 128}, 1.05)], 0.001, "refuted"),
    ("xu2017", 3, on_gpu(1.003), 0.001, "confirmed"),
    ("xu2017", 3, on_gpu(1.003, number=14), 0.001, "undecided"),
    ("xu2017", 3, on_gpu(1.0, 1.02), 0.001, "refuted"),
    ("xu2017", 4, [dd(16, 0.95)], 0.01, "confirmed"),
    ("xu2017", 4, [dd(16, 1.0)], 0.001, "refuted"),
    ("xu2017", 4, [dd(16, 0.99)], 0.02, "undecided"),
    ("xu2017", 5, [dd(8192, 1.03), dd(16384, 1.01)], 0.001, "confirmed"),
    ("xu2017", 5, [dd(8192, 1.03)], 0.001, "undecided"),
    ("xu2017", 5, [dd(8192, 1.03), dd(16384, 0.97)], 0.001, "refuted"),
    ("xu2017", 5, [dd(8192, 1.03), dd(16384, 1.2)], 0.001, "refuted"),
    ("xu2017", 6, [ioping("cached", 1.2)], 0.001, "confirmed"),
    ("xu2017", 6, [ioping("cached", 1.0)], 0.001, "refuted"),
    ("xu2017", 6, [ioping("cached", 1.02)], 0.2, "undecided"),
    ("xu2017", 7, [ioping("direct", 1 / 3.8), ioping("latency", 0.9)], 0.001, "confirmed"),
    ("xu2017", 7, [ioping("direct", 1.002), ioping("latency", 0.9)], 0.001, "refuted"),
    ("xu2017", 7, [ioping("direct", 0.9), ioping("latency", 1.1)], 0.001, "refuted"),
    ("xu2017", 7, [ioping("direct", 0.9)], 0.001, "undecided"),
    ("xu2017", 7, [ioping("direct", 1.0), ioping("latency", 0.9)], 0.2, "undecided"),
    ("xu2017", 8, training("batch", 1.02, 0.97, 1.001), 0.001, "confirmed"),
    ("xu2017", 8, training("batch", 1.02, 1.1, 1.1), 0.001, "refuted"),
    ("xu2017", 8, training("batch", 1.02, 1.001, 1.0), 0.2, "undecided"),
    ("xu2017", 9, training("first", 0.243, 0.306, 1.0, 1.0), 0.001, "confirmed"),
    ("xu2017", 9, training("first", 0.5, 1.001), 0.001, "refuted"),
    ("xu2017", 9, training("first", 0.5), 0.001, "undecided"),
    ("zhao2018", 1, [sysbench("cpu", 1.013), sysbench("memory", 0.963, access="write")], 0.001, "confirmed"),
    ("zhao2018", 1, [sysbench("cpu", 1.07), sysbench("memory", 0.963, access="write")], 0.001, "refuted"),
    ("zhao2018", 1, [sysbench("cpu", 1.013)], 0.001, "undecided"),
]  # fmt: skip

LITTLE = [sysbench("cpu", 1.013), sysbench("memory", 0.963, access="write")]


CASES += [
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.0384), fileio(1.11)], 0.001, "undecided"),  # as much as memory
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22), fileio(1.11)], 0.001, "confirmed"),
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 0.8), fileio(0.9)], 0.001, "confirmed"),  # affected is either way
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22), fileio(1.01)], 0.001, "refuted"),
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22), fileio(1.11)], 0.2, "undecided"),
    ("zhao2018", 2, [*LITTLE, sysbench("threads", 1.22)], 0.001, "undecided"),
    ("zhao2018", 2, [LITTLE[0], sysbench("threads", 1.22), fileio(1.11)], 0.001, "undecided"),
    ("zhao2018", 2, [LITTLE[0], sysbench("threads", 1.001), fileio(1.11)], 0.001, "refuted"),
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
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(0.99)], 0.001, "confirmed"),
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(1.05)], 0.001, "refuted"),
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(1.01)], 0.05, "undecided"),
    ("siddaramanna2018", 1, [*gemm(1.004), *conv(1.0, 45)], 0.001, "undecided"),
    ("siddaramanna2018", 1, [*gemm(1.0, 1), *conv(1.0, 1)], 0.001, "undecided"),
    ("siddaramanna2018", 1, [*gemm(1.05, 79), *conv(1.0)], 0.001, "undecided"),
    ("siddaramanna2018", 1, gemm(1.05, 80), 0.001, "refuted"),
    ("siddaramanna2018", 2, [*rnn("vanilla", 1.0), *rnn("lstm", 1.01)], 0.001, "confirmed"),
    ("siddaramanna2018", 2, [*rnn("vanilla", 1.0), *rnn("lstm", 1.04)], 0.001, "refuted"),
    ("siddaramanna2018", 2, [*rnn("vanilla", 1.0), *rnn("gru", 1.0)], 0.001, "undecided"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.1, "cuda"), *launches(1.3)], 0.001, "confirmed"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.0, "cuda"), *launches(1.3)], 0.001, "refuted"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.1, "cuda"), *launches(1.0)], 0.001, "refuted"),
    ("siddaramanna2018", 3, rnn("gru", 1.0, "cuda"), 0.001, "refuted"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.02, "cuda"), *launches(1.3)], 0.01, "undecided"),
    ("siddaramanna2018", 3, rnn("gru", 1.1, "cuda"), 0.001, "not measurable here"),
    ("siddaramanna2018", 3, [*rnn("gru", 1.1), *launches(1.3)], 0.001, "not measurable here"),
    ("siddaramanna2018", 4, copies(1.0, 1.6), 0.001, "confirmed"),
    ("siddaramanna2018", 4, copies(1.0, 1.02), 0.001, "refuted"),
    ("siddaramanna2018", 4, copies(1.2, 1.6), 0.001, "refuted"),
    ("siddaramanna2018", 4, copies(1.0, 1.12), 0.05, "undecided"),
    ("siddaramanna2018", 4, [copy("h2d", 1.0)], 0.001, "not measurable here"),
    ("siddaramanna2018", 5, networks(1.0, 1.01, 0.99), 0.001, "confirmed"),
    ("siddaramanna2018", 5, networks(1.0, 1.01, 1.1), 0.001, "refuted"),
    ("siddaramanna2018", 5, networks(1.0, 1.01, 1.0)[:2], 0.001, "undecided"),
]


@pytest.mark.parametrize(("reference", "number", "planted", "share", "finding"), CASES)
def test_every_conclusion_comes_out_each_way(
    tmp_path: Path, reference: str, number: int, planted: list[Planted], share: float, finding: str
) -> None:
    found = judged(reference, write(tmp_path / "run", planted, share))[number]
    assert found.finding == finding, found


def test_the_conclusions_that_can_be_decided_are_all_tested_each_way() -> None:
    decided = {(reference, number, finding) for reference, number, _, _, finding in CASES}
    for reference in papers():
        for one in paper(reference).conclusions:
            if all(part.than is None for part in one.parts):
                ways = {finding for paper, number, finding in decided if (paper, number) == (reference, one.number)}
                assert ways - {"not measurable here"} == {"confirmed", "refuted", "undecided"}, (reference, one)


def test_a_first_epoch_says_nothing_about_batches(tmp_path: Path) -> None:
    found = judged("xu2017", write(tmp_path / "run", training("first", 1.0, 1.0, 1.0)))[8]
    assert (found.finding, found.parts[0].total, found.evidence) == ("not measurable here", 4, ())
    assert found.parts[0].absent == (found.parts[0].part.of,)


def test_what_may_be_no_effect_at_all_is_not_affected_most(tmp_path: Path) -> None:
    planted = [*LITTLE, sysbench("threads", 1.0), fileio(1.11)]
    found = judged("zhao2018", write(tmp_path / "run", planted, {"sysbench_threads": 0.3}))[2]
    assert [part.finding for part in found.parts] == ["undecided", "confirmed"]


def test_what_others_are_compared_with_must_be_known(tmp_path: Path) -> None:
    planted = [LITTLE[0], sysbench("threads", 1.22), fileio(1.11)]
    found = judged("zhao2018", write(tmp_path / "run", planted))[2]
    assert [(part.finding, part.evidence[0].reason) for part in found.parts] == [
        ("undecided", "unknown references")
    ] * 2
    assert [one.workload for one in found.parts[0].absent] == ["sysbench_memory"]
    memory = case_of("sysbench_memory", {"access": "write", "image": "tools", "measure": "total"})
    inside = memory.having(engine="docker", policy="multi", isolation="strict")
    failed: dict[Case, list[Entry]] = {case: ["killed"] * 10 for case in (memory, inside)}
    found = judged("zhao2018", write(tmp_path / "failed", planted, more=failed))[2]
    assert found.finding == "undecided"
    reasons = {one.sides[0].case.workload: one.reason for one in found.parts[0].evidence}
    assert (reasons["sysbench_threads"], reasons["sysbench_memory"]) == ("unknown references", "not comparable")


def test_launches_on_several_devices_are_no_evidence(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [ioping("direct", 0.3)])
    for cell in observed.cells.values():
        cell.transports = {*cell.transports, "ext4 (vdb)"}
    found = judged("xu2017", observed)[7]
    (one,) = found.evidence
    assert (one.reason, one.detail) == ("devices", ("ext4 (vda) and ext4 (vdb)",) * 2)


def test_two_kinds_of_container_without_the_host_are_no_evidence(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [dd(16, 0.9), dd(8192, 1.03), dd(16384, 1.03)])
    single = {
        case.having(policy="single"): replace(cell, case=case.having(policy="single"))
        for case, cell in observed.cells.items() if case["count"] == 8192 and not case.where.on_host
    }  # fmt: skip
    cells = {case: cell for case, cell in observed.cells.items() if not (case["count"] == 8192 and case.where.on_host)}
    without = replace(observed, cells=cells | single)
    assert [one.place for one in kinds_of([without], paper("xu2017"))] == ["multi strict"]
    (part,) = judged("xu2017", without)[5].parts
    assert (part.finding, part.support, part.total, part.missing) == ("undecided", 1, 2, {"count": (8192,)})


def test_diff_is_that_of_the_quantity_that_the_paper_shows() -> None:
    longer = Estimate(1.25, (1.0, 2.0), 10)
    time, rate = diff_percent(longer, "time"), diff_percent(longer, "rate")
    assert (time.value, time.interval) == (-25.0, (-100.0, 0.0))
    assert rate.value == pytest.approx(20.0) and rate.interval == (0.0, 50.0)
    assert diff_percent(Estimate(1.0, None, 3), "rate").interval is None


def test_few_launches_decide_nothing_and_say_what_they_lack(tmp_path: Path) -> None:
    found = judged("xu2017", write(tmp_path / "run", [("hpcg", {"n": 64}, 1.5)], launches=4))[2]
    assert (found.finding, found.evidence[0].reason) == ("undecided", "few launches")


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
    assert (found.finding, found.evidence[0].reason) == ("not measurable here", "devices")
    assert found.evidence[0].detail == said


@pytest.mark.parametrize("under", [(DISK, DISK), (DISK, f"overlay on {DISK}"), ("tmpfs", "tmpfs")])
def test_files_on_one_device_are_evidence(tmp_path: Path, under: tuple[str, str]) -> None:
    assert judged("xu2017", write(tmp_path / "run", [dd(16, 0.3)], under=under))[4].finding == "confirmed"


def test_a_benchmark_that_was_skipped_gives_its_reason(tmp_path: Path) -> None:
    host = case_of("hpcg", {"n": 64, "image": "tools", "measure": "total"})
    inside = host.having(engine="docker", policy="multi", isolation="strict")
    skipped: dict[Case, list[Entry]] = {
        case: [made_failure(case, launch, "no xhpcg in PATH", "skipped") for launch in range(6)]
        for case in (host, inside)
    }
    found = judged("xu2017", write(tmp_path / "run", linpack(2000), more=skipped))[2]
    (one,) = found.evidence
    assert (found.finding, one.reason, one.detail) == (
        "not measurable here", "not comparable", ("host: skipped: no xhpcg in PATH",))  # fmt: skip


def test_programs_of_other_versions_are_not_compared(tmp_path: Path) -> None:
    own = library("sysbench", "1.0.20")
    other = msgspec.structs.replace(own, version="1.0.21")
    stacks = [
        image("tools", libraries=(msgspec.structs.replace(one, used_by=("sysbench_cpu",)),)) for one in (own, other)
    ]
    made = experiment(("tools",), images=stacks[:1], environments=stacks[1:])
    observed = write(tmp_path / "run", LITTLE, experiment=made)
    found = judged("zhao2018", observed)[1]
    assert found.finding == "undecided"
    assert "sysbench 1.0.21 against sysbench 1.0.20" in found.parts[0].refused[observed.name, "sysbench_cpu"]


def test_sides_that_were_not_measured_in_turns_decide_nothing(tmp_path: Path) -> None:
    observed = replace(write(tmp_path / "run", [("hpcg", {"n": 64}, 1.5)]), interleaved=False)
    found = judged("xu2017", observed)[2]
    assert (found.finding, found.evidence[0].reason) == ("undecided", "not in turns")


def test_docker_s_default_and_its_writable_layer_come_first(tmp_path: Path) -> None:
    volume = ("dd", {"bs": 65536, "count": 16, "storage": "volume"}, 1.0)
    strict = write(tmp_path / "strict", [volume, dd(16, 0.9), ("hpcg", {"n": 64}, 1.0)], under=(DISK, DISK))
    loose = write(tmp_path / "loose", [dd(16, 1.5)], place=("single", "ipc"), under=(DISK, DISK))
    observed = replace(strict, cells=loose.cells | strict.cells)
    found = kinds_of([observed], paper("xu2017"))
    assert [one.title for one in found] == [
        "multi strict, files on overlay", "multi strict, files on volume", "single ipc, files on overlay"]  # fmt: skip
    assert [len(one.beside_host) for one in found] == [2, 1, 1]
    (shown,) = beside([observed], paper("xu2017"))
    assert len(shown.answer) == 3
    lists = [table for table in shown.tables if "conclusions" in table.title]
    assert [row[:1] + row[2:3] for row in lists[0].rows if row[0] == "4"] == [("4", "confirmed")]
    assert [row[0] for row in lists[1].rows if row[0]] == ["4"]
    assert [table.title for table in shown.tables if table.title.startswith("figures")] == [
        f"figures of xu2017: {one.title}" for one in found]  # fmt: skip


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
    with pytest.raises(RunReadError, match="cannot be read"):
        decode(msgspec.json.encode(content))


def test_seccomp_unconfined_and_far_memory_come_after_the_default(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [("hpcg", {"n": 64}, 1.0)], place=("single", "ipc"))
    places = ({"isolation": "strict", "seccomp": "unconfined"}, {"isolation": "strict", "affinity": "far"})
    cells = dict(observed.cells)
    for case, cell in observed.cells.items():
        for place in places:
            if not case.where.on_host or "affinity" in place:
                other = case.having(**({"affinity": "far"} if case.where.on_host else place))
                cells[other] = replace(cell, case=other)
    found = kinds_of([replace(observed, cells=cells)], paper("xu2017"))
    assert [one.place for one in found] == ["single ipc", "single strict seccomp unconfined", "single strict far"]
