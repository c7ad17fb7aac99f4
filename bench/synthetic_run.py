"""Writes a run with collbench's own store: `synthetic_run.py DIRECTORY RANKS SIZES SAMPLES SEED`.

The samples look like measured ones: skewed, with a tail, late now and then, and different on every rank. Sizes double
from 8 bytes on, at 1 GB/s.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collbench.schema.case import case_of
from collbench.schema.manifest import Manifest, Protocol
from collbench.schema.record import Ranks, Record, ResultCheck, Samples, Work, summarise
from collbench.schema.store import RunWriter


def manifest(ranks: int, n: int) -> Manifest:
    return Manifest(
        created="2025-01-01T00:00:00+00:00",
        collbench="0",
        python="3",
        command=("collbench",),
        title="synthetic",
        ranks=ranks,
        protocol=Protocol(
            align="roundtime",
            cadence="isolated",
            warmup=5,
            check=1,
            iters=n,
            budget=0.25,
            floor=20,
            cap=n,
            timeout=300.0,
        ),
        thread_level={"requested": "single", "granted": "single"},
        launcher="none",
        libraries=(),
        packages={},
        hosts=(),
        environment={},
        simulated=True,
    )


def samples_of(size: int, ranks: int, n: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """[ranks, n] in ns: a hundredth takes twenty times as long, a fiftieth was late and is negative."""
    typical = 2000.0 * np.log2(ranks) + size
    found = typical * draw.lognormal(0.0, 0.2, (1, n)) * draw.lognormal(0.0, 0.05, (ranks, n))
    found[:, draw.random(n) < 0.01] *= 20
    found[:, draw.random(n) < 0.02] *= -1
    whole: NDArray[np.int64] = found.astype(np.int64)
    return whole


def record(size: int, samples: NDArray[np.int64]) -> Record:
    ranks, n = samples.shape
    largest = samples.max(axis=0)
    medians = np.median(np.abs(samples), axis=1) * 1e-9
    return Record(
        case=case_of("allreduce", {
            "backend": "mpi", "driver": "native", "thread_level": "single", "size": size, "dtype": "float32",
            "op": "sum", "ranks": ranks,
        }),
        launch=0,
        status="ok",
        work=Work(amount=size, count=size // 4, bus_factor=2 * (ranks - 1) / ranks),
        check=ResultCheck(wrong=0),
        samples=Samples(n=n, invalid=int((largest < 0).sum()), warmup=5),
        seconds=summarise(largest[largest > 0]),
        ranks=Ranks(p50=tuple(map(float, medians)), binding=tuple(map(str, range(ranks))), container=(None,) * ranks),
        driver="native",
        align="roundtime",
        cadence="isolated",
        clock="common",
        in_place=False,
        contended=False,
        oversubscribed=False,
    )  # fmt: skip


def main(directory: str, ranks: int, sizes: int, n: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    with RunWriter(Path(directory), manifest(ranks, n)) as writer:
        for size in (8 << power for power in range(sizes)):
            samples = samples_of(size, ranks, n, draw)
            writer.append(record(size, samples), samples)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
