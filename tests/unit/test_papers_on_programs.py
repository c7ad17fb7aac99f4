"""Conclusions of papers on host and container, on runs that are made up: each verdict, and what decides it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
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

from collbench.analysis.compare import Reason
from collbench.analysis.conclusions import JudgedConclusion, diff_percent
from collbench.analysis.papers import decode, kinds_of
from collbench.analysis.results import joined
from collbench.errors import RunReadError
from collbench.report.paper import beside, paper, papers, title_of
from collbench.schema.case import Case, case_of

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


def linpack_of(path: Path, ratios: dict[int, float], launches: int = 10) -> JudgedConclusion:
    """Each of these problem sizes on its own noise of 1 %."""
    rng = np.random.default_rng(7)
    more: dict[Case, list[Entry]] = {}
    for n, ratio in ratios.items():
        host = case_of("linpack", {"n": n, "lda": 0, "image": "tools", "measure": "solve"})
        inside = host.having(engine="docker", policy="multi", isolation="strict")
        for case, factor in ((host, 1.0), (inside, ratio)):
            times = 0.1 * factor * np.exp(rng.normal(0, 0.01, launches))
            more[case] = [made_record(case, launch, time, work=RATE, driver=None, gate=None, cadence=None)
                          for launch, time in enumerate(times.tolist())]  # fmt: skip
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
    host = case_of("hpcg", {"n": 64, "image": "tools", "measure": "total"})
    inside = host.having(engine="docker", policy="multi", isolation="strict")
    wave = 1.05 + 0.01 * np.sin(2 * np.pi * np.arange(24) / period)
    more: dict[Case, list[Entry]] = {
        case: [made_record(case, launch, 0.1 * factor, work=RATE, driver=None, gate=None, cadence=None)
               for launch, factor in enumerate(factors)]
        for case, factors in ((host, [1.0] * 24), (inside, wave.tolist()))
    }  # fmt: skip
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
    host = case_of("hpcg", {"n": 64, "image": "tools", "measure": "total"})
    inside = host.having(engine="docker", policy="multi", isolation="strict")
    skipped: dict[Case, list[Entry]] = {
        case: [made_failure(case, launch, "no xhpcg in PATH", "skipped") for launch in range(6)]
        for case in (host, inside)
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
                cells |= joined([({other: cell}, 0)])
    found = kinds_of([replace(observed, cells=cells)], paper("xu2017"))
    assert [one.place for one in found] == ["single ipc", "single strict seccomp unconfined", "single strict far"]
