"""Runs that are made up: a folder on disk whose launches have the medians that a test asks for.

    write_run(path, {made_case(): [10e-6, 11e-6]}, libraries=(library("MPICH", "4.3"),))

Times are in seconds. In the place of a median may stand None (the launch has no record of that case), a text (it failed
for that reason), or a Record (taken as it is). Cases with an image make a run of many launches as `launch` writes one:
its manifest says of every image what it and the environment beside it hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.analysis.results import Builder, Cell, Facts, Origin, Way
from collbench.analysis.runs import Observed
from collbench.schema.case import Case, case_of
from collbench.schema.manifest import Experiment, Gpu, Host, Image, Library, Manifest, Protocol
from collbench.schema.record import Ranks, Record, ResultCheck, Samples, Seconds, Work, summarise
from collbench.schema.store import RunWriter

Entry = float | str | Record | None

_CASE = case_of("allreduce", {"backend": "mpi", "driver": "native", "thread_level": "single", "size": 1024,
                              "dtype": "float32", "op": "sum", "ranks": 2})  # fmt: skip
_PROTOCOL = Protocol(align="roundtime", cadence="isolated", warmup=5, check=1, iters=100, budget=0.25, floor=20,
                     cap=10000, timeout=300.0)  # fmt: skip


def made_case(policy: str = "host", isolation: str | None = None, **values: Any) -> Case:
    """An all-reduce of 1 KiB on 2 ranks, but for these values; in containers of Docker where it is not on the host."""
    engine = values.pop("engine", "host" if policy == "host" else "docker")
    return _CASE.having(engine=engine, policy=policy, isolation=isolation, **values)


def made_record(case: Case, launch: int, median: float, mean: float | None = None, **fields: Any) -> Record:
    """A launch that measured the case with this median, and its mean (else equal), but for these fields."""
    mean = median if mean is None else mean
    least, most = min(median, mean), max(median, mean)
    seconds = Seconds(min=least, p50=median, p95=most, p99=most, max=most, mean=mean, ci95=(median, median),
                      lag1=None)  # fmt: skip
    found = Record(
        case=case, launch=launch, status="ok", work=Work(amount=case["size"], count=case["size"] // 4, bus_factor=1.0),
        check=ResultCheck(wrong=0), samples=Samples(n=100, invalid=0, warmup=5), seconds=seconds,
        ranks=Ranks(p50=(median,) * case.where.ranks, binding=("0",) * case.where.ranks,
                    container=(None,) * case.where.ranks),
        driver=case["driver"], align="roundtime", cadence="isolated", clock="common", in_place=case["in_place"],
        transport="shared memory", contended=False, oversubscribed=False,
    )  # fmt: skip
    return msgspec.structs.replace(found, **fields)


def twin(run: Path) -> Path:
    """Another run, or folder of runs, that measured the same: a copy, begun by commands of its own."""
    path = Path(shutil.copytree(run, run.with_name(f"{run.name}-twin"), dirs_exist_ok=True))
    for manifest in path.rglob("manifest.json"):
        known = json.loads(manifest.read_text(encoding="utf-8"))
        manifest.write_text(json.dumps({**known, "command": begun_by(manifest.parent)}), encoding="utf-8")
    return path


def begun_by(path: Path) -> tuple[str, ...]:
    """The command that wrote a run there: no two runs have the same."""
    return "collbench", "run", "--out", str(path)


def sampled(record: Record, samples: NDArray[np.int64]) -> Record:
    """The record as it is of these samples [ranks, n] in ns, late ones negative."""
    largest = samples.max(axis=0)
    taken = Samples(n=len(largest), invalid=int((largest <= 0).sum()), warmup=5)
    return msgspec.structs.replace(record, samples=taken, seconds=summarise(largest[largest > 0]))


def made_cell(case: Case, medians: Sequence[float], ways: Sequence[Way] = (), **origin: Any) -> Cell:
    """A cell with these launch medians (s), measured in these ways; `origin` is what holds of its run."""
    builder = Builder([case])
    for launch, median in enumerate(medians):
        facts = Facts("ok", Work(amount=8), ways[launch] if ways else ())
        builder.row(case, launch, facts, None, median, median)
    return builder.results(Origin(**origin)).cells()[case]


def with_facts(observed: Observed, **changes: Any) -> Observed:
    """The same run, whose records say something else beside their times."""
    facts = {id(cell.results): [one._replace(**changes) for one in cell.results.facts]
             for cell in observed.cells.values()}  # fmt: skip
    cells = {case: Cell(case, replace(cell.results, facts=facts[id(cell.results)]), cell.rows, cell.repeated, cell.rest)
             for case, cell in observed.cells.items()}  # fmt: skip
    return replace(observed, cells=cells)


def made_failure(case: Case, launch: int, reason: str, status: str = "failed") -> Record:
    """A launch that failed on the case, or skipped it."""
    return msgspec.convert({"case": msgspec.to_builtins(case), "launch": launch, "status": status, "reason": reason},
                           Record)  # fmt: skip


def library(name: str = "Open MPI", version: str = "5.0.11", sha256: str | None = "a" * 64) -> Library:
    """A library that moved data."""
    return Library(name=name, version=version, path=f"/opt/{name}/lib/libmpi.so", sha256=sha256)


def host(**fields: Any) -> Host:
    """One machine of four cores, but for these fields."""
    found = Host(name="vm", ranks=(0, 1), kernel="6.1.0", cpu="EPYC 7003", cores=4, memory=16 << 30)
    return msgspec.structs.replace(found, **fields)


def gpu(**fields: Any) -> Gpu:
    """A GPU, but for these fields."""
    found = Gpu(uuid="GPU-1", name="NVIDIA H200", memory=139 << 30, bus="0000:65:00.0", driver="570.1")
    return msgspec.structs.replace(found, **fields)


def image(name: str = "openmpi", **fields: Any) -> Image:
    """One side of a launch: what an image holds, or the environment beside it."""
    found = Image(name=name, id=f"sha256:{name:0<12}", python="3.11.7", libraries=(library(),))
    return msgspec.structs.replace(found, **fields)


def experiment(names: Iterable[str], **fields: Any) -> Experiment:
    """A launch of these images, each the same as the environment on the host beside it, but for these fields."""
    sides = tuple(image(name) for name in names)
    found = Experiment(engine="Docker 27.0", seed=1, launches=10, images=sides, environments=sides, differences=())
    return msgspec.structs.replace(found, **fields)


def made_manifest(**fields: Any) -> Manifest:
    """The manifest of a run with Open MPI on `host()`, but for these fields."""
    found = Manifest(
        created="2026-01-01T00:00:00+00:00", collbench="0.1.0", python="3.11.7", command=("collbench",),
        title="made up", ranks=2, protocol=_PROTOCOL, thread_level={"requested": "single", "granted": "single"},
        launcher="Open MPI's mpirun", libraries=(library(),), hosts=(host(),), environment={},
        packages={"mpi4py": "4.1.2"},
    )  # fmt: skip
    return msgspec.structs.replace(found, **fields)


def protocol(**fields: Any) -> Protocol:
    """How it was measured, but for these fields."""
    return msgspec.structs.replace(_PROTOCOL, **fields)


def made_records(medians: Mapping[Case, Sequence[Entry]]) -> list[Record]:
    """Launch by launch, as they are measured."""
    found: list[Record] = []
    for launch in range(max(map(len, medians.values()), default=0)):
        for case, entries in medians.items():
            entry = entries[launch] if launch < len(entries) else None
            if isinstance(entry, Record):
                found.append(entry)
            elif isinstance(entry, str):
                found.append(made_failure(case, launch, entry))
            elif entry is not None:
                found.append(made_record(case, launch, entry))
    return found


def write_run(path: Path, medians: Mapping[Case, Sequence[Entry]], **fields: Any) -> Path:
    """Write a run; entry i of a case is its launch i. `fields` replace those of the manifest. The path again."""
    names = dict.fromkeys(case.where.image for case in medians if case.where.image is not None)
    if names and "experiment" not in fields:
        fields["experiment"] = experiment(names, launches=max(map(len, medians.values())))
    manifest = made_manifest(**{"command": begun_by(path), **fields})
    with patch("os.fsync"), RunWriter(path, manifest) as writer:  # what is lost is made up again
        for record in made_records(medians):
            writer.append(record)
    return path


def write_launches(path: Path, medians: Mapping[Case, Sequence[Entry]], **fields: Any) -> Path:
    """Write a folder of runs, each of them one launch: `path/0`, `path/1`, ... The path again."""
    for number in range(max(map(len, medians.values()))):
        one = {case: entries[number : number + 1] for case, entries in medians.items()}
        write_run(path / f"{number:03d}", one, **fields)
    return path


def spread(centre: float, launches: int = 10, share: float = 0.01) -> list[float]:
    """Medians of launches around `centre`, evenly up to `share` away from it, in an order that is no trend."""
    steps = [2 * ((7 * number) % launches) / max(launches - 1, 1) - 1 for number in range(launches)]
    return [centre * (1 + share * step) for step in steps]
