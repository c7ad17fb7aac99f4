"""collbench over plain C: the same MPI call, gate and statistic, interleaved launches, in one run.

    python bench/native_floor.py --env DIR [--env DIR]

Every round starts every cell (library, collective, size) three times: native_floor.c, `collbench --driver native` and
`collbench --driver python`, in random order. A launch gives one median per size; what is compared are launch medians.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from installation import HERE, Installation, LaunchFailed, add_env
from machine import clock_step, describe, wait_for_quiet
from results import keep, table, verdict

COLLECTIVES = ("allreduce", "bcast")
KINDS = ("c", "native", "python")
TARGET = {8: 1.03, 65536: 1.02, 1048576: 1.02}
#: Sizes that share a launch, the factor between them, and a launch's samples of each.
SWEEPS = (((8, 65536), 8192, 2000), ((1048576,), 2, 300))
WARMUP = 5
LIMIT = 60.0  # s, one launch
ATTEMPTS = 5
LATE_SHARE = 0.10  # a launch with more late samples says more about the machine than about the program


@dataclass(frozen=True)
class Sweep:
    """What one launch measures."""

    installation: Installation
    collective: str
    sizes: tuple[int, ...]
    factor: int
    samples: int


@dataclass(frozen=True)
class LaunchMedian:
    """One size of one launch: the median of its valid samples in seconds."""

    library: str
    collective: str
    bytes: int
    kind: str
    round: int
    p50: float
    late: int
    samples: int


def command(sweep: Sweep, kind: str, floor: Path) -> tuple[str, ...]:
    """The argv of one launch."""
    here = sweep.installation
    if kind == "c":
        sizes = map(str, sweep.sizes)
        return here.mpirun(2, floor, sweep.collective, str(sweep.samples), str(WARMUP), *sizes)
    ends = ("-b", str(sweep.sizes[0]), "-e", str(sweep.sizes[-1]), "-f", str(sweep.factor))
    how = ("-n", str(sweep.samples), "-w", str(WARMUP), "--driver", kind, "--thread-level", "single")
    return here.mpirun(2, here.collbench, sweep.collective, *ends, *how, "--gate", "roundtime", "--style", "json")


def launch(sweep: Sweep, kind: str, floor: Path, number: int) -> list[LaunchMedian]:
    """Start once; a median per size.

    Raises:
        LaunchFailed: an error, a time-out, a driver that fell back, or too many late samples.
    """
    text = sweep.installation.run(command(sweep, kind, floor), LIMIT)
    lines = [json.loads(line) for line in text.splitlines()] if kind == "c" else _from_records(text, kind)
    if [line["bytes"] for line in lines] != list(sweep.sizes):
        raise LaunchFailed(f"{kind}: not every size was measured")
    if any(line["invalid"] > LATE_SHARE * line["samples"] for line in lines):
        raise LaunchFailed(f"{kind}: more than {LATE_SHARE:.0%} of the samples were late at the gate")
    return [
        LaunchMedian(
            sweep.installation.name, sweep.collective, line["bytes"], kind, number, line["p50"], line["invalid"],
            line["samples"],
        )
        for line in lines
    ]  # fmt: skip


def _from_records(text: str, kind: str) -> list[dict[str, Any]]:
    """The lines that native_floor.c would have printed."""
    records = json.loads(text)["records"]
    if any(record["status"] != "ok" or record["driver"] != kind for record in records):
        raise LaunchFailed(f"{kind}: {records[0]['reason'] or records[0]['notes']}")
    return [
        {
            "bytes": record["work"]["bytes"],
            "p50": record["seconds"]["p50"],
            "invalid": record["samples"]["invalid"],
            "samples": record["samples"]["n"],
        }
        for record in records
    ]


def take(sweep: Sweep, floor: Path, number: int, order: random.Random, quiet: float) -> list[LaunchMedian]:
    """One launch of each kind, in random order.

    Raises:
        LaunchFailed: one of them did; the others are thrown away too, since a ratio wants neighbours in time.
    """
    found: list[LaunchMedian] = []
    for kind in order.sample(KINDS, len(KINDS)):
        wait_for_quiet(quiet)
        found += launch(sweep, kind, floor, number)
    return found


def measure(asked: argparse.Namespace) -> tuple[list[LaunchMedian], list[str]]:
    """All rounds, the sweeps of each in random order, until the time is up; and what failed on the way."""
    until = time.monotonic() + asked.limit
    order = random.Random(asked.seed)  # noqa: S311 - an order, not a secret
    floors = {one.name: one.compile(HERE / "native_floor.c") for one in asked.installations}
    sweeps = [Sweep(one, name, *sweep) for one in asked.installations for name in COLLECTIVES for sweep in SWEEPS]
    found: list[LaunchMedian] = []
    failures: list[str] = []
    for number in range(asked.rounds):
        for sweep in order.sample(sweeps, len(sweeps)):
            for attempt in range(ATTEMPTS):
                if time.monotonic() > until:
                    return found, failures
                try:
                    found += take(sweep, floors[sweep.installation.name], number, order, asked.quiet * 2**attempt)
                    break
                except LaunchFailed as failure:
                    failures.append(f"{sweep.installation.name} {sweep.collective} {sweep.sizes}: {failure}")
        print(f"round {number + 1} of {asked.rounds}, {len(failures)} failures", flush=True)
    return found, failures


def cell(found: list[LaunchMedian], library: str, collective: str, size: int) -> dict[str, list[float]]:
    """Launch medians of a cell by kind, in the order of the rounds."""
    here = [m for m in found if (m.library, m.collective, m.bytes) == (library, collective, size)]
    return {kind: [m.p50 for m in sorted(here, key=lambda m: m.round) if m.kind == kind] for kind in KINDS}


def row(name: tuple[str, str, int], by_kind: dict[str, list[float]], step: float) -> list[str]:
    """A line of the table."""
    middle = {kind: median(values) for kind, values in by_kind.items()}
    ratio = {kind: middle[kind] / middle["c"] for kind in ("native", "python")}
    spread = {
        kind: sorted(mine / floor for mine, floor in zip(by_kind[kind], by_kind["c"], strict=True)) for kind in ratio
    }
    target = TARGET[name[2]]
    return [
        f"{name[0]} {name[1]} {name[2]} B",
        str(len(by_kind["c"])),
        *(f"{middle[kind] * 1e6:.3f}" for kind in KINDS),
        f"{ratio['native']:.3f}",
        f"{spread['native'][0]:.3f} .. {spread['native'][-1]:.3f}",
        f"{target:.2f}",
        verdict(ratio["native"], target),
        f"{ratio['python']:.2f}",
        f"{spread['python'][0]:.2f} .. {spread['python'][-1]:.2f}",
        f"{step / middle['c']:.1%}",
    ]


HEAD = (
    "cell", "launches", "C us", "native us", "python us", "native/C", "rounds", "target", "", "python/C", "rounds", "clock step",
)  # fmt: skip


def report(asked: argparse.Namespace, found: list[LaunchMedian], failures: list[str], step: float) -> str:
    """The page: how it was measured, and the table."""
    names = [(one.name, coll, size) for one in asked.installations for coll in COLLECTIVES for size in TARGET]
    cells = [(name, cell(found, *name)) for name in names]
    rows = [row(name, by_kind, step) for name, by_kind in cells if by_kind["c"]]
    return f"""# collbench over plain C

{describe()}; 2 ranks, one core each; thread level single; gate roundtime.
Median of launch medians; the order was drawn with seed {asked.seed}; `rounds` is the smallest and the largest ratio of
launches that were neighbours in time. The clock moves in steps of {step * 1e9:.0f} ns: `clock step` is one of them in
percent of C's time. {len(failures)} times three neighbours were taken again because one of them failed.

{table(HEAD, rows)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=7, help="launches of each kind and cell, at least 7 [7]")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    parser.add_argument("--quiet", type=float, default=2.0, help="wait so long (s) for other processes to rest [2]")
    parser.add_argument("--limit", type=float, default=330.0, help="begin nothing new after so many seconds [330]")
    asked = parser.parse_args()
    step = clock_step()
    found, failures = measure(asked)
    data = {
        "seed": asked.seed,
        "machine": describe(),
        "clock_step": step,
        "failures": failures,
        "launches": [asdict(one) for one in found],
    }
    keep("native_floor", report(asked, found, failures, step), data)


if __name__ == "__main__":
    main()
