"""The host's part of a call on a GPU: an operation of 8 bytes, collbench over plain C, interleaved launches.

    python bench/gpu_programs.py && python bench/gpu_floor.py

All-reduce, and sendrecv, which even on one GPU is a kernel of NCCL's. Every round starts gpu_floor (gpu_floor.c) and
collbench with both drivers, in random order, and every other round torch-nccl too. All do the same: barrier, call, wait
for the stream. What is compared are launch medians. gpu_floor has a rank for each GPU where it was built with MPI; else
all are measured with one rank.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_installation import GpuInstallation, add_here, describe_gpus, here_of
from gpu_libraries import Libraries, add_libraries, known, libraries_or_reason
from gpu_programs import FLOOR, Programs
from gpu_rounds import Failed, Group, Median, Rounds, failures_text, interleaved, launch, shown
from installation import OUT, LaunchFailed, end_on_sigterm
from machine import clock_step, describe
from results import table, verdict, write

TARGET = 1.1
BYTES, SAMPLES, WARMUP, BURST = 8, 1000, 20, 20
ENOUGH = 5  # launches of each kind
LIMIT = 60.0  # s, one launch
OPERATIONS = ("allreduce", "sendrecv")
#: What the C program says, under the name of a kind.
SAID = {"isolated": "C", "isolated polling": "C, polling", "issue": "C, the call alone", "streaming": "C, in bursts"}
KINDS = ("C", "C, polling", "native", "python", "torch-nccl")

PLAN = """\
title = "over plain C"
collectives = {collectives}
backends = ["{backend}"]
drivers = {drivers}
sizes = [{bytes}]
align = "barrier"
warmup = {warmup}
iters = {samples}
"""


def plain(
    here: GpuInstallation, libraries: Libraries, programs: Programs, operation: str, numbers: tuple[int, ...]
) -> dict[str, Any]:
    """What one launch of the C program says; `numbers`: bytes, samples, warm-ups, calls of a burst.

    Raises:
        LaunchFailed: it failed, or met another NCCL or another number of ranks than collbench.
    """
    argv = programs.start(FLOOR, here, operation, *numbers)
    told: dict[str, Any] = json.loads(here.run(argv, LIMIT, LD_LIBRARY_PATH=libraries.path))
    version = f"{told['nccl'] // 10000}.{told['nccl'] // 100 % 100}.{told['nccl'] % 100}"
    if libraries.version not in ("unknown", version):
        raise LaunchFailed(f"gpu_floor runs NCCL {version}, collbench {libraries.version}")
    if told["ranks"] != here.ranks:
        raise LaunchFailed(f"gpu_floor has {told['ranks']} ranks, collbench {here.ranks}")
    return told


def floor(here: GpuInstallation, libraries: Libraries | str, programs: Programs, operation: str) -> list[Median]:
    """One launch of the C program.

    Raises:
        LaunchFailed: as `plain`.
    """
    told = plain(here, known(libraries), programs, operation, (BYTES, SAMPLES, WARMUP, BURST))
    return [Median(kind, operation, BYTES, told[what]) for what, kind in SAID.items()]


def collbench(here: GpuInstallation, libraries: Libraries | str, backend: str) -> list[Median | Failed]:
    """One launch: both drivers of nccl, or torch-nccl.

    Raises:
        LaunchFailed: it failed as a whole.
    """
    drivers = ["native", "python"] if backend == "nccl" else ["python"]
    plan = OUT / f"gpu_floor-{backend}.toml"
    lists = {"collectives": json.dumps(OPERATIONS), "drivers": json.dumps(drivers)}
    text = PLAN.format(backend=backend, **lists, bytes=BYTES, warmup=WARMUP, samples=SAMPLES)
    plan.write_text(text, encoding="utf-8")

    def take(record: dict[str, Any]) -> list[Median | Failed]:
        case, driver = record["case"], record["driver"]
        kind = driver if backend == "nccl" else backend
        if (driver, record["align"]) != (case["how"]["driver"], "barrier"):
            return [Failed(f"{kind}", f"driver {driver}, align {record['align']}: {record['notes']}")]
        return [Median(kind, case["workload"], BYTES, record["seconds"]["p50"])]

    same = libraries if isinstance(libraries, Libraries) and backend == "nccl" else None
    return launch(here, same, plan, LIMIT, take)


HEAD = ("", "launches", "us", "over C", "rounds", "target", "")


def row(here: GpuInstallation, outcome: Rounds, operation: str, kind: str) -> list[str]:
    """A line of the table; the target is for the native driver alone. In place, one rank of torch has nothing to do."""
    seconds = outcome.seconds(kind, operation, BYTES)
    compared = kind != "C" and (here.ranks > 1 or kind != "torch-nccl")
    ratio = outcome.ratio((kind, operation), ("C", operation), BYTES) if compared else None
    word = ""
    if kind == "native":
        word = "too few launches" if len(seconds) < ENOUGH or ratio is None else verdict(ratio.value, TARGET)
    return [
        f"{operation}, {kind}",
        str(len(seconds)),
        shown(seconds, 1e-6, 3),
        "-" if ratio is None else f"{ratio.value:.3f}",
        "-" if ratio is None else ratio.range,
        f"{TARGET:.2f}" if kind == "native" else "",
        word,
    ]


def report(here: GpuInstallation, version: str, asked: argparse.Namespace, outcome: Rounds) -> str:
    """The page."""
    rows = [row(here, outcome, operation, kind) for operation in OPERATIONS for kind in KINDS]
    alone = [_alone(outcome, operation) for operation in OPERATIONS]
    return f"""# The host's part of a call on a GPU

{describe()}; {describe_gpus()}; NCCL {version}; {here.ranks} rank(s), one GPU each.
{BYTES} B, float32, sum, out of place (torch-nccl in place), align barrier. A sample is a call and the wait for it, in
cudaStreamSynchronize but for `polling`, which asks cudaStreamQuery until the stream is idle; {SAMPLES} in a launch.
Medians of launch medians (smallest .. largest), order from seed {asked.seed}; `rounds`: smallest and largest ratio of
launches that were neighbours in time. The clock moves in steps of {clock_step() * 1e9:.0f} ns.

{table(HEAD, rows)}
{"".join(alone)}{failures_text(outcome)}"""


def _alone(outcome: Rounds, operation: str) -> str:
    kinds = (SAID["issue"], SAID["streaming"])
    issue, burst = (shown(outcome.seconds(kind, operation, BYTES), 1e-6, 3) for kind in kinds)
    return (
        f"In C, of {BURST} times {operation} in a row: {issue} us for a call alone, when nothing is waited for;\n"
        f"{burst} us for each, with one wait at the end.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_here(parser)
    add_libraries(parser)
    parser.add_argument("--programs", type=Path, default=OUT / "programs", help="what gpu_programs.py made")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    parser.add_argument("--rounds", type=int, default=7, help=f"launches of each kind, at least {ENOUGH} [7]")
    parser.add_argument("--limit", type=float, default=120.0, help="begin nothing new after so many s [120]")
    asked = parser.parse_args()
    end_on_sigterm()
    OUT.mkdir(exist_ok=True)
    programs = Programs(asked.programs.resolve())
    here = here_of(asked)
    here = here if programs.with_mpi(FLOOR) else replace(here, ranks=1)
    libraries = libraries_or_reason(here, asked)
    version = libraries.version if isinstance(libraries, Libraries) else "unknown"
    floors = {f"C {name}": lambda name=name: floor(here, libraries, programs, name) for name in OPERATIONS}
    groups = [
        Group(floors | {"nccl": lambda: collbench(here, libraries, "nccl")}),
        Group({"torch-nccl": lambda: collbench(here, libraries, "torch-nccl")}, every=2),
    ]

    def keep(outcome: Rounds) -> None:
        write("gpu_floor", outcome.data(asked, nccl=version), lambda: report(here, version, asked, outcome))

    outcome = interleaved(groups, asked.rounds, asked.seed, asked.limit, keep)
    print(report(here, version, asked, outcome))
    outcome.require()


if __name__ == "__main__":
    main()
