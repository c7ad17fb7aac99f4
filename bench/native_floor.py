"""collbench over plain C: the same MPI call, align and statistic, interleaved launches, in one run.

    python bench/native_floor.py --env DIR [--env DIR]

Every round starts each library three times: native_floor.c, collbench with driver native and with driver python, in
random order. A launch gives one median per collective and size; what is compared are launch medians.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from installation import HERE, OUT, Installation, LaunchFailed, add_env, end_on_sigterm
from machine import BUSY_SHARE, FURTHER, Watched, clock_step, core_distance, describe
from results import keep, table, verdict

COLLECTIVES = ("allreduce", "bcast")
KINDS = ("c", "native", "python")
TARGET = {8: 1.03, 65536: 1.02, 1048576: 1.02}
#: Measured first and left out: an idle core needs a tenth of a second to come to speed, and Open MPI sleeps a second
#: in MPI_Init. Without it, two launches in five of the first cell take half as long again, in C as in collbench.
WAKING = 2097152
SIZES = (WAKING, *TARGET)
SAMPLES, WARMUP = 1000, 5
ENOUGH = 7  # launches of each kind
LIMIT = 60.0  # s, one launch
ATTEMPTS = 5
LATE_SHARE = 0.25  # a launch with more late samples says more about the machine than about the program

PLAN = """\
title = "over plain C"
collectives = {collectives}
sizes = {sizes}
drivers = ["{driver}"]
thread_level = "single"
align = "roundtime"
iters = {iters}
warmup = {warmup}
"""


@dataclass(frozen=True)
class LaunchMedian:
    """One cell of one launch: the median of its valid samples in seconds."""

    library: str
    kind: str
    round: int
    collective: str
    bytes: int
    p50: float
    invalid: int
    samples: int


def command(here: Installation, kind: str, floor: Path) -> tuple[str, ...]:
    """The argv of one launch."""
    if kind == "c":
        return here.mpirun(2, floor, ",".join(COLLECTIVES), str(SAMPLES), str(WARMUP), *map(str, SIZES))
    plan = OUT / f"native_floor-{kind}.toml"
    names, sizes = json.dumps(COLLECTIVES), json.dumps(SIZES)
    text = PLAN.format(collectives=names, sizes=sizes, driver=kind, iters=SAMPLES, warmup=WARMUP)
    plan.write_text(text, encoding="utf-8")
    return here.mpirun(2, here.collbench, "run", plan, "--style", "json")


def launch(here: Installation, kind: str, floor: Path, number: int) -> list[LaunchMedian]:
    """Start once; a median per cell.

    Raises:
        LaunchFailed: an error, a time-out, a driver that fell back, or too many late samples.
    """
    text = here.run(command(here, kind, floor), LIMIT)
    if kind == "c":
        found = [LaunchMedian(here.name, kind, number, **json.loads(line)) for line in text.splitlines()]
    else:
        found = [from_record(record, here, kind, number) for record in json.loads(text)["records"]]
    found = [cell for cell in found if cell.bytes != WAKING]
    if len(found) != len(COLLECTIVES) * len(TARGET):
        raise LaunchFailed(f"{kind}: not every cell was measured")
    if any(cell.invalid > LATE_SHARE * cell.samples for cell in found):
        raise LaunchFailed(f"{kind}: more than {LATE_SHARE:.0%} of the samples were late at the align")
    return found


def from_record(record: dict, here: Installation, kind: str, number: int) -> LaunchMedian:  # type: ignore[type-arg]
    """What native_floor.c would have printed."""
    if record["status"] != "ok" or (record["driver"], record["align"]) != (kind, "roundtime"):
        raise LaunchFailed(f"{kind}: {record['reason'] or record['notes']}")
    return LaunchMedian(
        library=here.name,
        kind=kind,
        round=number,
        collective=record["case"]["workload"],
        bytes=record["work"]["amount"],
        p50=record["seconds"]["p50"],
        invalid=record["samples"]["invalid"],
        samples=record["samples"]["n"],
    )


def take(
    here: Installation, floor: Path, number: int, kinds: list[str], watched: Watched, quiet: float
) -> list[LaunchMedian]:
    """One launch of each kind.

    Raises:
        LaunchFailed: one of them did, or the machine changed. The others are thrown away too: a ratio wants neighbours.
    """
    found: list[LaunchMedian] = []
    for kind in kinds:
        watched.begin(quiet)
        found += launch(here, kind, floor, number)
        if (disturbance := watched.disturbance()) is not None:
            raise LaunchFailed(f"{kind}: {disturbance}")
    return found


def measure(asked: argparse.Namespace, watched: Watched) -> tuple[list[LaunchMedian], list[str]]:
    """All rounds, the libraries of each in random order, until the time is up; and what failed on the way."""
    until = time.monotonic() + asked.limit
    order = random.Random(asked.seed)  # noqa: S311 - an order, not a secret
    floors = {here.name: here.compile(HERE / "native_floor.c") for here in asked.installations}
    found: list[LaunchMedian] = []
    failures: list[str] = []
    for number in range(asked.rounds):
        for here in order.sample(asked.installations, len(asked.installations)):
            for attempt in range(ATTEMPTS):
                if time.monotonic() > until:
                    return found, failures
                kinds = order.sample(KINDS, len(KINDS))
                try:
                    found += take(here, floors[here.name], number, kinds, watched, asked.quiet * 2**attempt)
                    break
                except LaunchFailed as failure:
                    failures.append(f"round {number}, {here.name}, {failure}")
        print(f"round {number + 1} of {asked.rounds}, {len(failures)} taken again", flush=True)
    return found, failures


def row(found: list[LaunchMedian], library: str, collective: str, size: int, step: float) -> list[str]:
    """A line of the table."""
    here = [one for one in found if (one.library, one.collective, one.bytes) == (library, collective, size)]
    by_kind = {kind: [one.p50 for one in sorted(here, key=lambda m: m.round) if one.kind == kind] for kind in KINDS}
    middle = {kind: median(values) for kind, values in by_kind.items()}
    neighbours = {kind: [a / b for a, b in zip(by_kind[kind], by_kind["c"], strict=True)] for kind in KINDS[1:]}
    ratio = middle["native"] / middle["c"]
    return [
        f"{library} {collective} {size} B",
        *(f"{middle[kind] * 1e6:.3f}" for kind in KINDS),
        f"{ratio:.3f}",
        spread(neighbours["native"]),
        f"{TARGET[size]:.2f}",
        verdict(ratio, TARGET[size]) if len(by_kind["c"]) >= ENOUGH else "too few launches",
        f"{step / middle['c']:.1%}",
        f"{middle['python'] / middle['c']:.2f}",
        spread(neighbours["python"]),
    ]


def spread(values: list[float]) -> str:
    """Smallest, median and largest."""
    return f"{min(values):.2f} / {median(values):.3f} / {max(values):.2f}"


HEAD = (
    "cell", "C us", "native us", "python us", "native/C", "rounds", "target", "", "clock step", "python/C", "rounds"
)  # fmt: skip


def report(asked: argparse.Namespace, found: list[LaunchMedian], failures: list[str], step: float) -> str:
    """The page: how it was measured, and the table."""
    launches = {here.name: sum(one.library == here.name for one in found) for here in asked.installations}
    cells = len(COLLECTIVES) * len(TARGET) * len(KINDS)
    names = [(here.name, name, size) for here in asked.installations for name in COLLECTIVES for size in TARGET]
    rows = [row(found, *name, step) for name in names if launches[name[0]]]
    counted = ", ".join(f"{count // cells} for {name}" for name, count in launches.items())
    return f"""# collbench over plain C

{describe()}; 2 ranks, one core each; thread level single; align roundtime;
{SAMPLES} samples. Median of launch medians; launches of each kind: {counted}; order from seed {asked.seed}.
`rounds`: smallest, median and largest ratio of launches that were neighbours in time. The clock moves in steps of
{step * 1e9:.0f} ns; `clock step` is one of them in percent of C's time.
{len(failures)} times three neighbours were taken again: one of them failed or had more than {LATE_SHARE:.0%} late
samples, or others used more than {BUSY_SHARE:.0%} of the cores meanwhile, or the cores had moved more than
{FURTHER} times as far apart as at their best (bench/core_distance.c).

{table(HEAD, rows)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=21, help=f"launches of each kind, at least {ENOUGH} [21]")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    parser.add_argument("--quiet", type=float, default=2.0, help="wait so long (s) for other processes to rest [2]")
    parser.add_argument("--limit", type=float, default=330.0, help="begin nothing new after so many s [330]")
    asked = parser.parse_args()
    end_on_sigterm()
    step = clock_step()
    watched = Watched(core_distance(asked.installations[0]))
    found, failures = measure(asked, watched)
    data = {
        "seed": asked.seed,
        "machine": describe(),
        "clock_step": step,
        "core_distance_ns": watched.seen,
        "taken_again": failures,
        "launches": [asdict(one) for one in found],
    }
    keep("native_floor", report(asked, found, failures, step), data)


if __name__ == "__main__":
    main()
