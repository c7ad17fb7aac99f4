"""The host's part of a call on a GPU: ncclAllReduce of 8 bytes, collbench over plain C, interleaved launches.

    python bench/gpu_floor.py

gpu_floor.c is compiled against the libnccl and libcudart that backend nccl uses: with the mpicc beside mpirun a rank
for each GPU, without one a single rank. Every round starts it, collbench with driver native, and collbench with driver
python, in random order, and every other round torch-nccl too. All do the same: barrier, call, wait for the stream. What
is compared are launch medians.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

from gpu_installation import GpuInstallation, Libraries, add_here, describe_gpus, find_libraries, here_of
from gpu_rounds import Group, Median, Rounds, failures_text, interleaved, shown
from installation import HERE, OUT, LaunchFailed
from machine import clock_step, describe
from results import keep, table, verdict

TARGET = 1.1
BYTES, SAMPLES, WARMUP, BURST = 8, 2000, 20, 20
ENOUGH = 5  # launches of each kind
LIMIT = 60.0  # s, one launch
KINDS = ("c", "native", "python", "torch-nccl")

PLAN = """\
title = "over plain C"
collectives = ["allreduce"]
backends = ["{backend}"]
drivers = ["{driver}"]
sizes = [{bytes}]
gate = "barrier"
warmup = {warmup}
iters = {samples}
"""


def compile_floor(here: GpuInstallation, libraries: Libraries) -> Path:
    """gpu_floor.c, linked to exactly these libraries.

    Raises:
        LaunchFailed: no compiler, no header, or it does not compile.
    """
    compiler = here.mpicc or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LaunchFailed("there is no C compiler")
    program = OUT / "gpu_floor"
    includes = {libraries.header(name).parent for name in ("nccl.h", "cuda_runtime_api.h")}
    linked = (libraries.nccl, libraries.cudart)
    options = ("-DUSE_MPI",) if here.mpicc else ()
    argv = (compiler, *options, "-O2", "-Wall", "-Wextra", "-o", str(program), str(HERE / "gpu_floor.c"),
            *(f"-I{folder}" for folder in includes), *map(str, linked),
            *(f"-Wl,-rpath,{library.parent}" for library in linked))  # fmt: skip
    here.run(argv, LIMIT)
    return program


def plain(here: GpuInstallation, libraries: Libraries, program: Path) -> list[Median]:
    """One launch of the C program.

    Raises:
        LaunchFailed: it failed, or met another NCCL or another number of ranks than collbench.
    """
    told = json.loads(here.run(here.on_all((str(program), *map(str, (BYTES, SAMPLES, WARMUP, BURST)))), LIMIT))
    version = f"{told['nccl'] // 10000}.{told['nccl'] // 100 % 100}.{told['nccl'] % 100}"
    if libraries.version[:1].isdigit() and version != libraries.version:
        raise LaunchFailed(f"gpu_floor runs NCCL {version}, collbench {libraries.version}")
    if told["ranks"] != here.ranks:
        raise LaunchFailed(f"gpu_floor has {told['ranks']} ranks, collbench {here.ranks}")
    return [Median("c", what, BYTES, told[what]) for what in ("isolated", "issue", "streaming")]


def collbench(here: GpuInstallation, kind: str) -> list[Median]:
    """One launch.

    Raises:
        LaunchFailed: it failed, or a driver fell back.
    """
    backend, driver = ("torch-nccl", "python") if kind == "torch-nccl" else ("nccl", kind)
    plan = OUT / f"gpu_floor-{kind}.toml"
    text = PLAN.format(backend=backend, driver=driver, bytes=BYTES, warmup=WARMUP, samples=SAMPLES)
    plan.write_text(text, encoding="utf-8")
    (record,) = here.document(LIMIT, "run", plan)["records"]
    if (record["driver"], record["gate"]) != (driver, "barrier"):
        raise LaunchFailed(f"{kind}: driver {record['driver']}, gate {record['gate']}: {record['notes']}")
    return [Median(kind, "isolated", BYTES, record["seconds"]["p50"])]


HEAD = ("", "launches", "us", "over C", "rounds", "target", "")


def row(outcome: Rounds, kind: str) -> list[str]:
    """A line of the table; the target is for the native driver alone."""
    seconds = outcome.seconds(kind, "isolated", BYTES)
    ratio = outcome.ratio((kind, "isolated"), ("c", "isolated"), BYTES) if kind != "c" else None
    word = ""
    if kind == "native":
        word = "too few launches" if len(seconds) < ENOUGH or ratio is None else verdict(ratio.value, TARGET)
    return [
        kind,
        str(len(seconds)),
        shown(seconds, 1e-6, 3),
        "-" if ratio is None else f"{ratio.value:.3f}",
        "-" if ratio is None else ratio.range,
        f"{TARGET:.2f}" if kind == "native" else "",
        word,
    ]


def report(here: GpuInstallation, libraries: Libraries, asked: argparse.Namespace, outcome: Rounds) -> str:
    """The page."""
    issue, burst = (shown(outcome.seconds("c", what, BYTES), 1e-6, 3) for what in ("issue", "streaming"))
    return f"""# The host's part of a call on a GPU

{describe()}; {describe_gpus()}; NCCL {libraries.version}; {here.ranks} rank(s), one GPU each.
ncclAllReduce of {BYTES} B, float32, sum, out of place (torch-nccl in place), gate barrier. A sample is a call and the
wait for it; {SAMPLES} in a launch. Medians of launch medians (smallest .. largest), order from seed {asked.seed};
`rounds`: smallest and largest ratio of launches that were neighbours in time. The clock moves in steps of
{clock_step() * 1e9:.0f} ns.

{table(HEAD, [row(outcome, kind) for kind in KINDS])}
In C, of {BURST} calls in a row: {issue} us for a call alone, when nothing is waited for; {burst} us for each, with one
wait at the end.
{failures_text(outcome)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_here(parser)
    parser.add_argument("--rounds", type=int, default=7, help=f"launches of each kind, at least {ENOUGH} [7]")
    parser.add_argument("--limit", type=float, default=120.0, help="begin nothing new after so many s [120]")
    asked = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    here = here_of(asked)
    here = here if here.mpicc else replace(here, ranks=1)
    libraries = find_libraries(here, asked)
    program = compile_floor(here, libraries)
    kinds = {
        "c": lambda: plain(here, libraries, program),
        **{kind: lambda kind=kind: collbench(here, kind) for kind in ("native", "python")},  # type: ignore[misc]
    }
    groups = [Group(kinds), Group({"torch-nccl": lambda: collbench(here, "torch-nccl")}, every=2)]
    outcome = interleaved(groups, asked.rounds, asked.seed, asked.limit)
    keep("gpu_floor", report(here, libraries, asked, outcome), outcome.data(asked, nccl=libraries.version))
    outcome.require()


if __name__ == "__main__":
    main()
