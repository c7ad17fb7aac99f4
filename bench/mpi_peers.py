"""collbench beside IMB-MPI1, and MPI libraries beside their standard ABI: interleaved launches, in one run.

    python bench/mpi_peers.py --intelmpi DIR [--mpich DIR] [--abi DIR]

IMB-MPI1, from Intel's wheel, lines ranks up by a barrier before each operation (`-sync on`), reads the clock around it,
and prints the mean of each rank: largest, smallest, average. With `align = "barrier"` a sample of collbench is the
largest local time of an operation, so its mean over samples is at least IMB's largest mean. With `align = "roundtime"`
it is the time from the first rank's begin to the last one's end, which IMB does not know.

`--abi DIR` is an environment whose mpi4py is built for the ABI (MPI4PY_BUILD_MPIABI=1 MPICC=mpicc_abi pip install
--no-binary mpi4py mpi4py): it runs with the libmpi_abi of `--mpich` and of `--intelmpi`, beside their own environments.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from installation import OUT, Installation, LaunchFailed, end_on_sigterm
from machine import BUSY_SHARE, Moment, describe
from results import keep, table

COLLECTIVES = ("allreduce", "bcast", "gather")
SIZES = (8, 65536, 1048576)
WAKING = 4194304  # measured first and left out: an idle core needs a tenth of a second to come to speed
ITERATIONS = 1000
FLOAT = 4  # bytes
IMB = "IMB-MPI1"
LIMIT = 60.0  # s, one launch

PLAN = """\
title = "beside IMB-MPI1"
collectives = {collectives}
sizes = {sizes}
align = "{align}"
iters = {iters}
"""


@dataclass(frozen=True)
class LaunchTime:
    """One cell of one launch, in seconds: the mean, and the median where the program has one."""

    program: str
    collective: str
    bytes: int
    mean: float
    p50: float | None
    round: int = 0


@dataclass(frozen=True)
class Side:
    """`library`: the environment whose libmpi and mpirun are used; `programs`: the one whose collbench runs."""

    name: str
    library: Installation
    programs: Installation
    align: str = "barrier"

    @property
    def environment(self) -> dict[str, str]:
        """What mpirun and the library need to be found by programs that lie elsewhere."""
        path = os.pathsep.join((str(self.library.bin), os.environ["PATH"]))
        libraries = str(self.library.directory / "lib")
        return {"PATH": path, "LD_LIBRARY_PATH": libraries, "I_MPI_ROOT": str(self.library.directory)}

    def run(self, *argv: str | Path) -> str:
        """Start two ranks, each on a core of its own. Raises LaunchFailed."""
        binding = () if self.library.name == "intelmpi" else ("-bind-to", "core")
        mpirun = str(self.library.bin / "mpirun")
        return self.library.run((mpirun, *binding, "-n", "2", *map(str, argv)), LIMIT, **self.environment)


def of_collbench(side: Side) -> list[LaunchTime]:
    """One launch, a time for each cell. Raises LaunchFailed."""
    plan = OUT / f"mpi_peers-{side.align}.toml"
    sizes = json.dumps([WAKING, *SIZES, *(2 * size for size in SIZES)])
    text = PLAN.format(collectives=json.dumps(COLLECTIVES), sizes=sizes, align=side.align, iters=ITERATIONS)
    plan.write_text(text, encoding="utf-8")
    records = json.loads(side.run(side.programs.collbench, "run", plan, "--style", "json"))["records"]
    if any((record["status"], record["driver"], record["align"]) != ("ok", "native", side.align) for record in records):
        raise LaunchFailed("a case was not measured by the driver native, or lined up in another way")
    shares = [
        record["work"]["count"] * FLOAT for record in records
    ]  # of a rank, as IMB counts: half of a gather's size
    return [LaunchTime(side.name, record["case"]["workload"], share, record["seconds"]["mean"],
                       record["seconds"]["p50"])
            for record, share in zip(records, shares, strict=True) if share in SIZES]  # fmt: skip


def of_imb(side: Side) -> list[LaunchTime]:
    """The same of IMB-MPI1: the largest of its ranks' means. Raises LaunchFailed."""
    lengths = OUT / "mpi_peers-lengths.txt"
    lengths.write_text("\n".join(map(str, (WAKING, *SIZES))) + "\n", encoding="utf-8")
    text = side.run(side.library.bin / "IMB-MPI1", *map(str.capitalize, COLLECTIVES), "-npmin", "2", "-msglen", lengths,
                    "-iter", f"{ITERATIONS},100000", "-iter_policy", "off", "-sync", "on")  # fmt: skip
    times, collective = [], ""
    for line in text.splitlines():
        if match := re.match(r"# Benchmarking (\w+)", line):
            collective = match[1].lower()
        elif match := re.match(r"\s+(\d+)\s+(\d+)\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", line):
            if int(match[2]) != ITERATIONS:
                raise LaunchFailed(f"IMB-MPI1 made {match[2]} repetitions, not {ITERATIONS}")
            times.append(LaunchTime(IMB, collective, int(match[1]), float(match[3]) * 1e-6, None))
    return [time for time in times if time.bytes in SIZES]


Program = Callable[[], list[LaunchTime]]


def measure(programs: dict[str, Program], asked: argparse.Namespace) -> tuple[list[LaunchTime], int]:
    """All rounds: every program once, in random order; and how many rounds were thrown away."""
    order, until = random.Random(asked.seed), time.monotonic() + asked.limit  # noqa: S311 - an order, not a secret
    kept: list[LaunchTime] = []
    number = thrown_away = 0
    while number < asked.rounds and time.monotonic() < until:
        times: list[LaunchTime] = []
        before = Moment.now()
        for name in order.sample(list(programs), len(programs)):
            times += programs[name]()
        if (others := Moment.now().others_since(before)) > BUSY_SHARE:
            thrown_away += 1
            print(f"round {number + 1}: others used {others:.0%} of the cores", flush=True)
            continue
        kept += [LaunchTime(**(asdict(one) | {"round": number})) for one in times]
        number += 1
        print(f"round {number} of {asked.rounds}", flush=True)
    return kept, thrown_away


def row(times: list[LaunchTime], base: str, other: str, cell: tuple[str, int], statistic: str) -> list[str]:
    """Both medians of launches (us), and the ratios of launches of one round: median, smallest .. largest."""
    of = {name: [getattr(one, statistic) for one in sorted(times, key=lambda one: one.round)
                 if (one.program, one.collective, one.bytes) == (name, *cell)] for name in (base, other)}  # fmt: skip
    ratios = [b / a for a, b in zip(of[base], of[other], strict=True)]
    return [*(f"{median(values) * 1e6:.3f}" for values in of.values()), f"{median(ratios):.3f}",
            f"{min(ratios):.2f} .. {max(ratios):.2f}"]  # fmt: skip


CELLS = [(collective, size) for collective in COLLECTIVES for size in SIZES]


def page(machine: str, seed: int, times: list[LaunchTime], thrown_away: int) -> str:
    """How it was measured, and the tables."""
    names = {one.program for one in times}
    imb = [[f"{collective} {size} B", *row(times, IMB, "intelmpi", (collective, size), "mean"),
            *row(times, IMB, "intelmpi roundtime", (collective, size), "mean")[1:]]
           for collective, size in CELLS]  # fmt: skip
    through = [name for name in ("mpich", "intelmpi") if f"{name} abi" in names]
    abi = [[f"{name} {collective} {size} B", *row(times, name, f"{name} abi", (collective, size), "p50")]
           for name in through for collective, size in CELLS]  # fmt: skip
    rounds = max((one.round for one in times), default=-1) + 1
    head = f"""# IMB-MPI1, and the ABI of MPI, beside collbench

{machine}; 2 ranks, a core each.
{rounds} rounds of interleaved launches, in an order from seed {seed}; {ITERATIONS} operations a launch and cell.
{thrown_away} rounds in which others used more than {BUSY_SHARE:.0%} of the cores were thrown away. Times are medians of
launches in us, ratios those of two launches of one round: median, smallest .. largest.

## IMB-MPI1 of Intel MPI

Means. IMB's is the largest of two ranks' means behind a barrier. `barrier`: collbench with the same barrier, samples
are the largest time of two ranks. Bytes of a gather are those of a rank. `roundtime`: ranks begin at an agreed time,
samples are last out minus first in. Two cells of 8 B differ by 0.1 us, which is as much as earlier messages change a
small operation behind a barrier (docs/method.md). Why broadcasts of 64 KiB differ by 11 % is not known.

{table(("cell", "IMB us", "barrier us", "barrier/IMB", "rounds", "roundtime us", "roundtime/IMB", "rounds"), imb)}"""
    if not abi:
        return head
    return f"""{head}
## The ABI of MPI

Medians. collbench with an mpi4py that is built for libmpi_abi.so.1, one binary for both libraries, over collbench with
the library's own; `align = "barrier"`.

{table(("cell", "own us", "ABI us", "ABI/own", "rounds"), abi)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intelmpi", type=Path, required=True, metavar="DIR", help="an environment with Intel MPI")
    parser.add_argument("--mpich", type=Path, metavar="DIR", help="one with MPICH")
    parser.add_argument("--abi", type=Path, metavar="DIR", help="one whose mpi4py is built for the ABI")
    parser.add_argument("--rounds", type=int, default=15, help="[15]")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    parser.add_argument("--limit", type=float, default=600.0, help="begin nothing new after so many s [600]")
    asked = parser.parse_args()
    end_on_sigterm()
    OUT.mkdir(exist_ok=True)
    names = {"intelmpi": asked.intelmpi, "mpich": asked.mpich}
    libraries = {name: Installation(path.absolute(), name) for name, path in names.items() if path}
    sides = [Side(name, library, library) for name, library in libraries.items()]
    if asked.abi:
        binary = Installation(asked.abi.absolute(), "abi")
        sides += [Side(f"{name} abi", library, binary) for name, library in libraries.items()]
    intelmpi = sides[0]
    sides.append(Side("intelmpi roundtime", intelmpi.library, intelmpi.library, "roundtime"))
    programs: dict[str, Program] = {side.name: partial(of_collbench, side) for side in sides}
    programs[IMB] = partial(of_imb, intelmpi)
    times, thrown_away = measure(programs, asked)
    data: dict[str, Any] = {"seed": asked.seed, "machine": describe(), "thrown_away": thrown_away,
            "launches": [asdict(one) for one in times]}  # fmt: skip
    keep("mpi_peers", page(data["machine"], asked.seed, times, thrown_away), data)


if __name__ == "__main__":
    main()
