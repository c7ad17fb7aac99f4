"""Runs that are made up of programs on the host and in a container, with planted ratios, for papers on both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.unit.made_runs import Entry, made_record, spread, write_run

from collbench.analysis.conclusions import JudgedConclusion, judge
from collbench.analysis.papers import kinds_of
from collbench.analysis.runs import Observed, observe
from collbench.report.paper import paper
from collbench.schema.case import Case
from collbench.schema.record import Work
from collbench.workloads.dl.deepbench_programs import Conv, Gemm, Rnn, problems
from collbench.workloads.gpu.suite import VARIANTS

#: A program with its parameters, and how many times the host's time the container takes.
Planted = tuple[str, dict[str, Any], float]
DISK = "ext4 (vda)"
RATE = Work(amount=1 << 20, shown="rate")


def dd(count: int, ratio: float) -> Planted:
    return ("dd", {"bs": 65536, "count": count, "storage": "overlay"}, ratio)


def ioping(mode: str, ratio: float) -> Planted:
    return ("ioping", {"mode": mode, "storage": "overlay"}, ratio)


def sysbench(test: str, ratio: float, **values: Any) -> Planted:
    return (f"sysbench_{test}", values, ratio)


def fileio(ratio: float) -> Planted:
    return sysbench("fileio", ratio, storage="overlay")


def gemm(ratio: float, number: int = 81, skipped: int = 0) -> list[Planted]:
    """So many problems of DeepBench; 81 are most of them."""
    names = list(problems(Gemm))[skipped : skipped + number]
    return [("deepbench_gemm", {"problem": name, "device": "cpu"}, ratio) for name in names]


def conv(ratio: float, number: int = 46, measure: str = "forward") -> list[Planted]:
    names = list(problems(Conv))[:number]
    return [("deepbench_conv", {"problem": name, "device": "cpu", "measure": measure}, ratio) for name in names]


def rnn(kind: str, ratio: float, device: str = "cpu", number: int = 12) -> list[Planted]:
    """So many problems of a kind: 12 are most of the LSTMs and of the GRUs, and all vanilla ones."""
    names = [name for name in problems(Rnn) if name.startswith(f"{kind}_")][:number]
    return [("deepbench_rnn", {"problem": name, "device": device, "measure": "forward"}, ratio) for name in names]


def gpu_launch(measure: str, ratio: float) -> Planted:
    return ("gpu_launch", {"measure": measure}, ratio)


def copy(measure: str, ratio: float, affinity: str = "near") -> Planted:
    return ("gpu_copy", {"measure": measure, "affinity": affinity}, ratio)


#: What Xu, Shi and Chu measured on GPUs.
ON_GPU: list[tuple[str, dict[str, Any]]] = [
    *(("gpu_copy", {"measure": measure}) for measure in ("h2d", "d2h", "d2d")),
    ("gpu_convolution", {}), ("gpu_gemm", {}),
    *(("gpu_histogram", {"bins": bins}) for bins in (64, 256)),
    *(("gpu_transpose", {"variant": variant}) for variant in VARIANTS),
]  # fmt: skip


def on_gpu(ratio: float, *first: float, number: int = len(ON_GPU)) -> list[Planted]:
    """So many of them, with other ratios of the first ones."""
    ratios = [*first, *[ratio] * (number - len(first))]
    return [(workload, own, one) for (workload, own), one in zip(ON_GPU, ratios, strict=False)]


def fathom(network: str, ratio: float) -> Planted:
    return ("fathom", {"network": network}, ratio)


def linpack(*sizes: int, ratio: float = 1.0) -> list[Planted]:
    return [("linpack", {"n": n, "lda": 0}, ratio) for n in sizes]


def training(measure: str, *ratios: float) -> list[Planted]:
    """A ratio for each network, in the order of the paper."""
    values = {"measure": measure, "storage": "overlay"}
    networks = ("fcn5", "alexnet", "resnet56", "lstm")
    return [("train", {"network": name, **values}, ratio) for name, ratio in zip(networks, ratios, strict=False)]


def write(
    path: Path, planted: list[Planted], share: float | Mapping[str, float] = 0.001, launches: int = 10, *,
    place: tuple[str, str] = ("multi", "strict"), under: tuple[str, str] = (DISK, f"overlay on {DISK}"),
    more: Mapping[Case, list[Entry]] | None = None, **fields: Any,
) -> Observed:  # fmt: skip
    """Host and container, whose ratio varies by `share` from block to block, of a program or of all.

    `under` says what lies under the files of both.
    """
    cells: dict[Case, list[Entry]] = {}
    for workload, values, ratio in planted:
        wobble = share if isinstance(share, float) else share.get(workload, 0.001)
        how = {name: value for name, value in values.items() if name == "mode"}
        host = Case(workload=workload, how=how).having(**{"image": "tools", "measure": "total", **values})
        inside = host.having(engine="docker", policy=place[0], isolation=place[1])
        for case, factors, witness in (
            (host, [1.0] * launches, under[0]),
            (inside, spread(ratio, launches, wobble), under[1]),
        ):
            told = witness if case.where.storage else None
            cells[case] = [
                made_record(
                    case, launch, 0.1 * factor, work=RATE, transport=told, driver=None, align=None, cadence=None
                )
                for launch, factor in enumerate(factors)
            ]
    return observe(write_run(path, {**cells, **(more or {})}, **fields))


def judged(reference: str, *observed: Observed) -> dict[int, JudgedConclusion]:
    """The verdicts by the first kind of container of these runs."""
    published = paper(reference)
    return {one.conclusion.number: one for one in judge(published, kinds_of(observed, published)[0])}
