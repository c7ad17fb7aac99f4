"""A million records: how long it takes to summarise them, and how much memory.

    python bench/million_records.py

Writes runs of a million made-up records into a temporary folder (1.1 GB), and reads each in a process of its own the
way `collbench show` does: record by record into cells, and the cells into text. Needs an environment with collbench;
no MPI. One core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from installation import end_on_sigterm
from machine import describe
from results import keep, table, verdict

LAYOUTS = ((1000, 1000), (142_858, 7))  # cells, launches
WALL_TARGET, PEAK_TARGET = 8.0, 6e8  # s, bytes
POLICIES = (("host", None), ("multi", "visible"), ("multi", "strict"), ("single", "visible"), ("single", "strict"))
COLLECTIVES = ("allreduce", "bcast", "gather", "scatter", "allgather", "reduce", "alltoall")
DTYPES = ("float32", "float64", "int32", "bfloat16")


def write(path: Path, cells: int, launches: int) -> None:
    """A run of `cells` cases in five places and `launches` launches, launch by launch."""
    import msgspec
    import numpy as np
    from synthetic_run import manifest, record

    from collbench.schema.manifest import Experiment, encode

    path.mkdir()
    images = Experiment(engine="none", seed=1, launches=launches, images=(), environments=(), differences=())
    (path / "manifest.json").write_bytes(encode(msgspec.structs.replace(manifest(2, 1000), experiment=images)))
    first = record(8, np.arange(1000, 2000, dtype=np.int64).repeat(2).reshape(1000, 2).T)
    template = msgspec.json.encode(first)
    head, _, tail = template.partition(msgspec.json.encode(first.case))
    before, _, after = tail.partition(b'"launch":0')
    assert first.seconds is not None
    left, _, right = after.partition(b'"p50":' + msgspec.json.encode(first.seconds.p50))
    assert left and right
    draw = np.random.default_rng(1)
    asked = [msgspec.json.encode(case_of(first.case, number)) for number in range(cells)]
    with (path / "records.jsonl").open("wb") as file:
        for launch in range(launches):
            starts = b'%b"launch":%d%b"p50":' % (before, launch, left)
            times = draw.uniform(*first.seconds.ci95, cells).tolist()  # a reader refuses a median outside its interval
            file.writelines(
                b"".join((head, case, starts, repr(p50).encode(), right, b"\n"))
                for case, p50 in zip(asked, times, strict=True)
            )


def case_of(first: Any, number: int) -> Any:
    """The case of that number: places turn fastest, then collectives, dtypes, and sizes last."""
    rest, place = divmod(number, len(POLICIES))
    rest, collective = divmod(rest, len(COLLECTIVES))
    size, dtype = divmod(rest, len(DTYPES))
    policy, isolation = POLICIES[place]
    return first.having(workload=COLLECTIVES[collective], dtype=DTYPES[dtype], size=8 * (size + 1), image="openmpi",
                        policy=policy, isolation=isolation,
                        engine="host" if policy == "host" else "docker")  # fmt: skip


def summarise(path: Path) -> dict[str, float]:
    """What `collbench show` does with a run of many launches, and how long each half takes."""
    from collbench.analysis.results import cells_of
    from collbench.report.cells import launch_tables
    from collbench.report.tables import terminal
    from collbench.schema.store import RecordStream

    began = time.perf_counter()
    cells = cells_of(RecordStream(path))
    read = time.perf_counter()
    text = terminal(launch_tables(cells))
    ended = time.perf_counter()
    records = sum(len(cell.medians) for cell in cells.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"records": records, "cells": len(cells), "read": read - began, "summary": ended - read,
            "cpu": time.process_time(), "peak": peak, "characters": len(text)}  # fmt: skip


def measured(path: Path) -> dict[str, float]:
    """The same in a process of its own, start of Python and imports included in `wall`."""
    argv = [sys.executable, __file__, "--summarise", str(path)]
    began = time.perf_counter()
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found | {"wall": time.perf_counter() - began}


def row(found: list[dict[str, float]], size: int) -> list[str]:
    wall, peak = median(one["wall"] for one in found), max(one["peak"] for one in found)
    one = found[0]
    return [f"{one['cells']:.0f} cells, {one['records'] / one['cells']:.0f} launches", f"{size / 1e6:.0f}",
            f"{median(one['read'] for one in found):.1f}", f"{median(one['summary'] for one in found):.1f}",
            f"{median(one['cpu'] for one in found):.1f}", f"{wall:.1f}", f"{WALL_TARGET:g}", verdict(wall, WALL_TARGET),
            f"{peak / 1e6:.0f}", f"{PEAK_TARGET / 1e6:g}", verdict(peak, PEAK_TARGET)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions [3]")
    parser.add_argument("--summarise", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    end_on_sigterm()
    if asked.summarise is not None:
        print(json.dumps(summarise(asked.summarise)))
        return
    machine = describe()
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    rows, data = [], dict[str, Any](machine=machine)
    for cells, launches in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            write(path, cells, launches)
            size = (path / "records.jsonl").stat().st_size
            found = [measured(path) for _ in range(asked.rounds)]
        rows.append(row(found, size))
        data[f"{cells} x {launches}"] = {"bytes": size, "rounds": found}
    head = (
        "a million records",
        "MB on disk",
        "reading s",
        "text s",
        "CPU s",
        "wall s",
        "target",
        "",
        "peak MB",
        "target",
        "",
    )
    text = f"# A million records\n\n{machine}, one of them used. Medians of {asked.rounds}; peak: the highest.\n\n"
    keep("million_records", text + table(head, rows), data)


if __name__ == "__main__":
    main()
