"""How large a job and how large a message collbench can carry, and how much disk its records take.

    python bench/size.py --env DIR [--env DIR]

64 ranks on however many cores there are; the peak memory of a rank that moves 1 GiB; a run of 64 ranks, 30 sizes and
1000 samples on disk. The last part writes with collbench's own store, in the first environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from installation import HERE, OUT, Installation, LaunchFailed, add_env, end_on_sigterm
from machine import describe
from results import keep, table, verdict

GIB = 2**30
SWEEP_LIMIT, MEMORY_LIMIT, DISK_LIMIT = 240.0, 120.0, 120.0  # s, one program
MANY = 64
SWEEP = ("allreduce", "-b", "8", "-e", "4K", "-f", "8", "-n", "20")
OVERHEAD_TARGET, TOTAL_TARGET, DISK_TARGET = 100e6, 24 * GIB, 20e6  # bytes

#: Bytes that MPI's own arguments take on a rank of two, for `-b 1G -e 1G`: gather shares 1 GiB out over the ranks.
BUFFERS = {
    "allreduce": {0: 2 * GIB, 1: 2 * GIB},
    "bcast": {0: GIB, 1: GIB},
    "gather": {0: GIB + GIB // 2, 1: GIB // 2},
}
IN_C = ("allreduce", "bcast")  # what native_floor.c can do


def many_ranks(here: Installation) -> dict[str, Any]:
    """Whether 64 ranks finish a short sweep, and in how many seconds."""
    began = time.perf_counter()
    try:
        argv = here.mpirun(MANY, here.collbench, *SWEEP, "--style", "json", oversubscribe=True)
        records = json.loads(here.run(argv, SWEEP_LIMIT))["records"]
    except LaunchFailed as failure:
        return {"seconds": time.perf_counter() - began, "outcome": str(failure)}
    good = [record for record in records if record["status"] == "ok" and record["check"]["wrong"] == 0]
    outcome = "finished" if len(good) == len(records) == 4 else f"{len(good)} of {len(records)} cases are good"
    return {
        "seconds": time.perf_counter() - began,
        "outcome": outcome,
        "p50": {record["work"]["amount"]: record["seconds"]["p50"] for record in good},
    }


def memory(here: Installation, collective: str) -> dict[str, Any]:
    """Peak resident bytes of both ranks at 1 GiB, by collbench and, where it has the collective, by native_floor.c."""
    flags = (collective, "-b", "1G", "-e", "1G", "-n", "3", "-w", "1", "--style", "json")
    try:
        peak, text = peaks(here, here.collbench, *flags)
        record = json.loads(text)["records"][0]
        floor = here.compile(HERE / "native_floor.c")
        plain = peaks(here, str(floor), collective, "3", "1", str(GIB))[0] if collective in IN_C else None
    except LaunchFailed as failure:
        return {"outcome": str(failure)}
    return {
        "outcome": record["status"] if record["check"]["wrong"] == 0 else "wrong",
        "p50": record["seconds"]["p50"],
        "peak": peak,
        "over": [bytes_ - BUFFERS[collective][rank] for rank, bytes_ in enumerate(peak)],
        "over_c": None if plain is None else [mine - floor for mine, floor in zip(peak, plain, strict=True)],
    }


def peaks(here: Installation, *argv: str) -> tuple[list[int], str]:
    """Peak resident bytes of two ranks of a program, and what it printed."""
    where = OUT / f"peak-{here.name}"
    text = here.run(here.mpirun(2, here.python, HERE / "peak_memory.py", where, *argv), MEMORY_LIMIT)
    return [int(Path(f"{where}-{rank}").read_text(encoding="ascii")) for rank in range(2)], text


def disk(here: Installation, ranks: int, sizes: int, samples: int, seed: int) -> dict[str, int]:
    """Bytes of a run on disk: as files are long, and as the file system allots blocks."""
    directory = OUT / "size-run"
    shutil.rmtree(directory, ignore_errors=True)
    arguments = (str(directory), *map(str, (ranks, sizes, samples, seed)))
    here.run((here.python, str(HERE / "synthetic_run.py"), *arguments), DISK_LIMIT)
    files = [path.stat() for path in directory.rglob("*") if path.is_file()]
    shutil.rmtree(directory)
    return {
        "files": len(files),
        "bytes": sum(found.st_size for found in files),
        "allotted": sum(found.st_blocks * 512 for found in files),
    }


def page(data: dict[str, Any], installations: list[Installation]) -> str:
    """Everything as tables."""
    cores = len(os.sched_getaffinity(0))
    sweeps = [
        [here.name, f"{data[here.name]['many']['seconds']:.1f}", data[here.name]["many"]["outcome"]]
        for here in installations
    ]
    lines = [row_of_memory(here.name, name, data[here.name][name]) for here in installations for name in BUFFERS]
    stored = data["disk"]
    return "\n".join(
        (
            f"# Size\n\n{describe()}.\n\n## {MANY} ranks on {cores} cores: {' '.join(SWEEP)}\n",
            table(("", "wall s", "outcome"), sweeps),
            "## One rank at 1 GiB, 2 ranks, 3 samples; MB are 1e6 bytes, shared pages count\n",
            table(
                ("", "outcome", "median ms", "peak MB", "over plain C MB", "over its buffers MB", "target", ""), lines
            ),
            "## A run of 64 ranks, 30 sizes, 1000 samples on disk\n",
            table(
                ("files", "MB", "MB allotted", "target", ""),
                [
                    [
                        str(stored["files"]),
                        f"{stored['bytes'] * 1e-6:.2f}",
                        f"{stored['allotted'] * 1e-6:.2f}",
                        f"{DISK_TARGET * 1e-6:.0f}",
                        verdict(stored["allotted"], DISK_TARGET),
                    ]
                ],
            ),
        )
    )


def row_of_memory(name: str, collective: str, found: dict[str, Any]) -> list[str]:
    """A line of the second table; both ranks, rank 0 first."""
    if "peak" not in found:
        return [f"{name} {collective}", found["outcome"], "", "", "", "", "", "missed"]
    met = max(found["over"]) <= OVERHEAD_TARGET and sum(found["peak"]) <= TOTAL_TARGET and found["outcome"] == "ok"
    return [
        f"{name} {collective}",
        found["outcome"],
        f"{found['p50'] * 1e3:.0f}",
        ", ".join(f"{peak * 1e-6:.0f}" for peak in found["peak"]),
        ", ".join(f"{over * 1e-6:+.0f}" for over in found["over_c"] or ()),
        ", ".join(f"{over * 1e-6:+.0f}" for over in found["over"]),
        f"+{OVERHEAD_TARGET * 1e-6:.0f}",
        "met" if met else "missed",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--seed", type=int, default=1, help="of the synthetic samples [1]")
    asked = parser.parse_args()
    end_on_sigterm()
    OUT.mkdir(exist_ok=True)
    data: dict[str, Any] = {"seed": asked.seed, "machine": describe()}
    for here in asked.installations:
        data[here.name] = {"many": many_ranks(here)} | {name: memory(here, name) for name in BUFFERS}
    data["disk"] = disk(asked.installations[0], MANY, 30, 1000, asked.seed)
    keep("size", page(data, asked.installations), data)


if __name__ == "__main__":
    main()
