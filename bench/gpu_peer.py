"""collbench over nccl-tests: bursts of ncclAllReduce in the same NCCL, interleaved launches, in one run.

    python bench/gpu_peer.py --source NCCL_TESTS

NCCL_TESTS is a copy of https://github.com/NVIDIA/nccl-tests; all_reduce_perf is built from it with the NCCL that
backend nccl uses (`--build` does that alone, `--perf FILE` takes one that is there). Both make 20 operations back to
back and wait once; a sample is their time over 20, out of place, float32, sum. torch.distributed, which has no
out-of-place form, stands beside them in place. What is compared are medians of launches.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path
from statistics import median

from gpu_installation import GpuInstallation, Libraries, add_here, describe_gpus, find_libraries, gpus, here_of
from gpu_rounds import Group, Median, Rounds, failures_text, interleaved, shown
from installation import OUT, LaunchFailed
from machine import describe
from results import keep, table, verdict

TARGET = 1.02
#: Sizes in bytes, and how many launches are enough for a verdict.
FEW = 3
ENOUGH = {8: 5, 1 << 20: 5, 1 << 30: FEW}
BURST, WARMUP, BURSTS = 20, 5, 20
LIMIT, BUILD_LIMIT = 60.0, 300.0  # s

PLAN = """\
title = "over nccl-tests"
collectives = ["allreduce"]
backends = ["{backend}"]
sizes = {sizes}
cadence = "streaming"
burst = {burst}
gate = "barrier"
warmup = {warmup}
iters = {bursts}
"""


def build(here: GpuInstallation, libraries: Libraries, source: Path) -> Path:
    """all_reduce_perf from the source, for the GPUs of this machine; over MPI where there are several, and an mpi.h.

    Raises:
        LaunchFailed: no nvcc, no nccl.h, or make failed.
    """
    if libraries.nvcc is None:
        raise LaunchFailed("there is no nvcc")
    home, folder = libraries.links(), OUT / "nccl-tests"
    capabilities = sorted({line.split(",")[1].strip().replace(".", "") for line in gpus()}) or ["90"]
    targets = " ".join(f"-gencode=arch=compute_{one},code=sm_{one}" for one in capabilities)
    mpi = int(here.ranks > 1 and (here.directory / "include" / "mpi.h").exists())
    cuda = libraries.nvcc.parent.parent
    here.run(
        (
            "make", "-C", str(source / "src"), f"-j{os.cpu_count()}", str(folder / "all_reduce_perf"),
            f"BUILDDIR={folder}", f"NCCL_HOME={home}", f"CUDA_HOME={cuda}", f"CUDA_LIB={home / 'lib'}",
            f"NVCC_GENCODE={targets}", f"MPI={mpi}", f"MPI_HOME={here.directory}",
        ),
        BUILD_LIMIT,
    )  # fmt: skip
    (folder / "mpi").write_text(str(mpi), encoding="ascii")
    return folder / "all_reduce_perf"


def nccl_tests(here: GpuInstallation, libraries: Libraries, perf: Path, size: int) -> list[Median]:
    """One launch at one size: of a larger sweep it would move through its buffers, and find less in the GPU's cache.

    Raises:
        LaunchFailed: an error, a wrong result, or another NCCL than collbench's.
    """
    beside = perf.parent / "mpi"
    many = not beside.exists() or beside.read_text(encoding="ascii") == "1" or here.ranks == 1
    flags = ("-b", size, "-e", size, "-d", "float", "-o", "sum", "-n", BURST, "-w", WARMUP * BURST, "-N", BURSTS,
             "-a", 3, "-g", 1 if many else here.ranks)  # fmt: skip
    argv = (str(perf), *map(str, flags))
    folders = (libraries.nccl.parent, libraries.cudart.parent, here.directory / "lib")
    path = ":".join((*map(str, folders), *filter(None, (os.environ.get("LD_LIBRARY_PATH"),))))
    text = here.run(here.on_all(argv) if many else argv, LIMIT, LD_LIBRARY_PATH=path)
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+float\s+sum\s", line)]
    if not rows or any(row[8] not in ("0", "N/A") for row in rows):
        raise LaunchFailed("all_reduce_perf printed no rows" if not rows else "all_reduce_perf found wrong results")
    _same_nccl(text, libraries.version)
    return [Median("nccl-tests", "burst", size, median(float(row[5]) for row in rows) * 1e-6)]


def _same_nccl(text: str, version: str) -> None:
    """Raises `LaunchFailed` where the header of all_reduce_perf names another version (nccl-library=22907)."""
    said = re.search(r"nccl-library=(\d+)", text)
    code = int(said[1]) if said else 0
    seen = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    if said and version[:1].isdigit() and seen != version:
        raise LaunchFailed(f"all_reduce_perf runs NCCL {seen}, collbench {version}")


def collbench(here: GpuInstallation, backend: str, sizes: tuple[int, ...]) -> list[Median]:
    """One launch.

    Raises:
        LaunchFailed: it failed, or another driver or burst than asked for.
    """
    kind = "native" if backend == "nccl" else backend
    plan = OUT / f"gpu_peer-{backend}-{sizes[0]}.toml"
    text = PLAN.format(backend=backend, sizes=json.dumps(sizes), burst=BURST, warmup=WARMUP, bursts=BURSTS)
    plan.write_text(text, encoding="utf-8")
    records = here.document(LIMIT, "run", plan)["records"]
    for record in records:
        if record["burst"] != BURST or (kind == "native" and record["driver"] != "native"):
            raise LaunchFailed(f"{kind}: burst {record['burst']}, driver {record['driver']}: {record['notes']}")
    return [Median(kind, "burst", one["work"]["bytes"], one["seconds"]["p50"]) for one in records]


HEAD = (
    "size", "launches", "nccl-tests us", "native us", "torch-nccl us", "native/nccl-tests", "rounds", "target", "",
    "torch/nccl-tests",
)  # fmt: skip


def report(here: GpuInstallation, libraries: Libraries, asked: argparse.Namespace, outcome: Rounds) -> str:
    """The page."""
    rows = [row(outcome, size) for size in ENOUGH]
    return f"""# collbench over nccl-tests

{describe()}; {describe_gpus()}; NCCL {libraries.version}; {here.ranks} rank(s), one GPU each. all_reduce, float32, sum,
{BURST} operations back to back and one wait, {WARMUP} such bursts before, {BURSTS} timed in a launch. Medians of launch
medians (smallest .. largest), order from seed {asked.seed}. `rounds`: smallest and largest ratio of launches that were
neighbours in time. nccl-tests and native out of place, torch-nccl in place.{_alone(here)}

{table(HEAD, rows)}{failures_text(outcome)}"""


def _alone(here: GpuInstallation) -> str:
    return "" if here.ranks > 1 else " With one rank nothing travels: NCCL copies on the GPU."


def row(outcome: Rounds, size: int) -> list[str]:
    """A line of the table."""
    kinds = ("nccl-tests", "native", "torch-nccl")
    seconds = {kind: outcome.seconds(kind, "burst", size) for kind in kinds}
    counted = min(len(seconds["nccl-tests"]), len(seconds["native"]))
    ratio = outcome.ratio(("native", "burst"), ("nccl-tests", "burst"), size)
    torch = outcome.ratio(("torch-nccl", "burst"), ("nccl-tests", "burst"), size)
    word = "too few launches" if counted < ENOUGH[size] or ratio is None else verdict(ratio.value, TARGET)
    return [
        f"{size} B",
        str(counted),
        *(shown(seconds[kind], 1e-6, 2) for kind in kinds),
        "-" if ratio is None else f"{ratio.value:.3f}",
        "-" if ratio is None else ratio.range,
        f"{TARGET:.2f}",
        word,
        "-" if torch is None else f"{torch.value:.3f}",
    ]


def groups_of(here: GpuInstallation, libraries: Libraries, perf: Path) -> list[Group]:
    """Of every size nccl-tests and collbench as neighbours, the slow ones in every other round; then torch with all."""
    pairs = [
        Group(
            {
                f"nccl-tests {size} B": lambda size=size: nccl_tests(here, libraries, perf, size),  # type: ignore[misc]
                f"native {size} B": lambda size=size: collbench(here, "nccl", (size,)),  # type: ignore[misc]
            },
            every=1 if enough > FEW else 2,
        )
        for size, enough in ENOUGH.items()
    ]
    return [*pairs, Group({"torch-nccl": lambda: collbench(here, "torch-nccl", tuple(ENOUGH))}, every=2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_here(parser)
    parser.add_argument("--source", type=Path, default=Path("bench/carried/nccl-tests"), help="of nccl-tests")
    parser.add_argument("--perf", type=Path, default=None, help="an all_reduce_perf that is there already")
    parser.add_argument("--build", action="store_true", help="build all_reduce_perf, and measure nothing")
    parser.add_argument("--rounds", type=int, default=7, help="launches of each kind [7]")
    parser.add_argument("--limit", type=float, default=150.0, help="begin nothing new after so many s [150]")
    asked = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    here = here_of(asked)
    libraries = find_libraries(here, asked)
    perf = asked.perf or build(here, libraries, asked.source.resolve())
    if asked.build:
        print(f"{perf}: NCCL {libraries.version} ({libraries.nccl})")
        return
    outcome = interleaved(groups_of(here, libraries, perf.resolve()), asked.rounds, asked.seed, asked.limit)
    more = {"nccl": libraries.version, "library": libraries.nccl.name, "ranks": here.ranks}
    keep("gpu_peer", report(here, libraries, asked, outcome), outcome.data(asked, **more))
    outcome.require()


if __name__ == "__main__":
    main()
