"""The copies of backend mpi-staged over plain ones: pinned host memory and one GPU, in both directions.

    python bench/gpu_copies.py

The plain side is a program of its own (`--plain`): cudaMemcpyAsync through CuPy between two events, 20 times each way.
The other side is what collbench records as legs `device to host` and `host to device` of an all-reduce on one rank, in
place: then MPI itself moves nothing. Interleaved launches; what is compared are launch medians.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from gpu_installation import GpuInstallation, add_here, describe_gpus, here_of
from gpu_rounds import Failed, Group, Launch, Median, Rounds, failures_text, interleaved, launch, shown
from installation import OUT, end_on_sigterm
from machine import describe
from results import table, write

TARGET = 0.95  # of the plain bandwidth, at least
SIZES = (64 << 20, 1 << 30)
COPIES, WARMUP = 20, 3
ENOUGH = 5  # launches of each kind
LIMIT = 90.0  # s, one launch
DIRECTIONS = ("device to host", "host to device")

PLAN = """\
title = "copies"
collectives = ["allreduce"]
backends = ["mpi-staged"]
staging = ["pinned"]
in_place = [true]
sizes = {sizes}
warmup = {warmup}
iters = {copies}
"""


def copy_times(cupy: Any, size: int) -> dict[str, float]:
    """Median seconds of a copy of `size` bytes, by direction."""
    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    host, device = cupy.cuda.alloc_pinned_memory(size), cupy.cuda.alloc(size)
    ways = ((host.ptr, device.ptr, runtime.memcpyDeviceToHost), (device.ptr, host.ptr, runtime.memcpyHostToDevice))
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    found = {}
    for direction, (target, source, kind) in zip(DIRECTIONS, ways, strict=True):
        times = []
        for _ in range(WARMUP + COPIES):
            begin.record(stream)
            runtime.memcpyAsync(target, source, size, kind, stream.ptr)
            end.record(stream)
            stream.synchronize()
            times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e-3)
        found[direction] = median(times[WARMUP:])
    return found


def print_plain() -> None:
    """The plain side: a line of JSON."""
    import cupy

    print(json.dumps([[size, copy_times(cupy, size)] for size in SIZES]))


def plain(here: GpuInstallation) -> list[Median]:
    """One launch of the plain side.

    Raises:
        LaunchFailed: it failed.
    """
    told = json.loads(here.run((here.python, str(Path(__file__).resolve()), "--plain"), LIMIT))
    return [Median("plain", way, size, seconds) for size, ways in told for way, seconds in ways.items()]


def staged(here: GpuInstallation, plan: Path) -> list[Median | Failed]:
    """One launch of collbench, on one rank.

    Raises:
        LaunchFailed: it failed as a whole.
    """

    def take(record: dict[str, Any]) -> list[Median | Failed]:
        if record["driver"] != "native":
            return [Failed("mpi-staged", f"driver {record['driver']}: {record['notes']}")]
        legs = record["legs"]
        return [Median("mpi-staged", way, record["work"]["amount"], legs[way]["p50"]) for way in DIRECTIONS]

    return launch(here, None, plan, LIMIT, take)


HEAD = ("copy", "launches", "plain ms", "mpi-staged ms", "plain GB/s", "of it", "rounds", "target", "")


def row(outcome: Rounds, size: int, way: str) -> list[str]:
    """A line of the table. The share of the plain bandwidth is plain time over the leg's."""
    times = {kind: outcome.seconds(kind, way, size) for kind in ("plain", "mpi-staged")}
    share = outcome.ratio(("plain", way), ("mpi-staged", way), size)
    counted = min(map(len, times.values()))
    if share is None:
        word = "not measured"
    else:
        word = "too few launches" if counted < ENOUGH else "met" if share.value >= TARGET else "missed"
    return [
        f"{way}, {size >> 20} MiB",
        str(counted),
        *(shown(values, 1e-3, 3) for values in times.values()),
        f"{size / median(times['plain'].values()) * 1e-9:.2f}" if times["plain"] else "-",
        "-" if share is None else f"{share.value:.1%}",
        "-" if share is None else share.range,
        f"{TARGET:.0%}",
        word,
    ]


def report(asked: argparse.Namespace, outcome: Rounds) -> str:
    """The page."""
    rows = [row(outcome, size, way) for size in SIZES for way in DIRECTIONS]
    return f"""# Copies of mpi-staged over plain ones

{describe()}; {describe_gpus()}; one rank, pinned host memory, {COPIES} copies in a launch. The plain copy is timed by
two events on the GPU, the leg by the host's clock, with the call and the wait in it. Medians of launch medians
(smallest .. largest), order from seed {asked.seed}; `rounds`: smallest and largest share of launches that were
neighbours in time.

{table(HEAD, rows)}{failures_text(outcome)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_here(parser)
    parser.add_argument("--plain", action="store_true", help="be the plain side: print its times")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    parser.add_argument("--rounds", type=int, default=5, help=f"launches of each kind, at least {ENOUGH} [5]")
    parser.add_argument("--limit", type=float, default=90.0, help="begin nothing new after so many s [90]")
    asked = parser.parse_args()
    if asked.plain:
        print_plain()
        return
    end_on_sigterm()
    OUT.mkdir(exist_ok=True)
    asked.ranks = 1
    here = here_of(asked)
    plan = OUT / "gpu_copies.toml"
    plan.write_text(PLAN.format(sizes=list(SIZES), warmup=WARMUP, copies=COPIES), encoding="utf-8")
    kinds: dict[str, Launch] = {"plain": lambda: plain(here), "mpi-staged": lambda: staged(here, plan)}

    def keep(outcome: Rounds) -> None:
        write("gpu_copies", outcome.data(asked), lambda: report(asked, outcome))

    outcome = interleaved([Group(kinds)], asked.rounds, asked.seed, asked.limit, keep)
    print(report(asked, outcome))
    outcome.require()


if __name__ == "__main__":
    main()
