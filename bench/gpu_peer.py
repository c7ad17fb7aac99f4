"""collbench over nccl-tests: bursts of operations in the same NCCL, interleaved launches, in one run.

    python bench/gpu_programs.py [--source NCCL_TESTS] && python bench/gpu_peer.py

Both make 20 operations back to back and wait once; a sample is their time over 20, float32, out of place. All-reduce,
and sendrecv, which even on one GPU is a kernel of NCCL's. torch.distributed, which has no out-of-place form, stands
beside nccl-tests in place. At 8 bytes gpu_floor says what the two kinds of waiting cost: collbench's
cudaStreamSynchronize, and nccl-tests' polling. What is compared are medians of launches.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gpu_floor import plain
from gpu_installation import GpuInstallation, add_here, here_of
from gpu_libraries import Libraries, add_libraries, known, libraries_or_reason
from gpu_peer_page import BURST, BURSTS, ENOUGH, FEW, IN_PLACE, OPERATIONS, SMALLEST, WARMUP, Measured, report
from gpu_programs import Programs
from gpu_rounds import Failed, Group, Median, Rounds, interleaved, launch
from installation import OUT, LaunchFailed, end_on_sigterm
from results import write

LIMIT = 60.0  # s, one launch

PLAN = """\
title = "over nccl-tests"
collectives = {collectives}
backends = ["{backend}"]
sizes = {sizes}
cadence = "streaming"
burst = {burst}
align = "barrier"
warmup = {warmup}
iters = {bursts}
registration = ["{registration}"]
"""
REGISTRATIONS = ("none", "local", "symmetric")


@dataclass(frozen=True)
class Peers:
    """What is compared. `libraries` is a reason where they were not found."""

    here: GpuInstallation
    libraries: Libraries | str
    programs: Programs
    registration: int = 0

    def nccl_tests(self, operation: str, size: int) -> list[Median]:
        """One launch at one size: in a larger sweep it moves through its buffers, and finds less in the GPU's cache.

        Raises:
            LaunchFailed: an error, a wrong result, or another NCCL than collbench's.
        """
        found, program = known(self.libraries), OPERATIONS[operation]
        many = self.here.ranks == 1 or self.programs.with_mpi(program)
        flags = ("-b", size, "-e", size, "-d", "float", "-n", BURST, "-w", WARMUP * BURST, "-N", BURSTS,
                 "-a", 3, "-g", 1 if many else self.here.ranks,
                 *(("-R", self.registration) if self.registration else ()))  # fmt: skip
        text = self.here.run(self.programs.start(program, self.here, *flags), LIMIT, LD_LIBRARY_PATH=found.path)
        same_nccl(text, found.version)
        return rows_of(text, operation, size)

    def collbench(self, backend: str, operations: Sequence[str], sizes: Sequence[int]) -> list[Median | Failed]:
        """One launch.

        Raises:
            LaunchFailed: it failed as a whole.
        """
        kind = "native" if backend == "nccl" else backend
        plan = OUT / f"gpu_peer-{backend}-{sizes[0]}.toml"
        asked = {"collectives": json.dumps(list(operations)), "sizes": json.dumps(list(sizes)), "backend": backend}
        asked["registration"] = REGISTRATIONS[self.registration]
        plan.write_text(PLAN.format(**asked, burst=BURST, warmup=WARMUP, bursts=BURSTS), encoding="utf-8")

        def take(record: dict[str, Any]) -> list[Median | Failed]:
            name, driver = record["case"]["workload"], record["driver"]
            if record["burst"] != BURST or (kind == "native" and driver != "native"):
                return [Failed(f"{kind} {name}", f"burst {record['burst']}, driver {driver}: {record['notes']}")]
            what = name if kind == "native" else name + IN_PLACE
            return [Median(kind, what, record["work"]["amount"], record["seconds"]["p50"])]

        same = self.libraries if isinstance(self.libraries, Libraries) and kind == "native" else None
        return launch(self.here, same, plan, LIMIT, take)

    def waits(self, operation: str) -> list[Median]:
        """One launch of gpu_floor: a burst and either wait.

        Raises:
            LaunchFailed: as `gpu_floor.plain`.
        """
        numbers = (SMALLEST, BURSTS, WARMUP, BURST)
        told = plain(self.here, known(self.libraries), self.programs, operation, numbers)
        kinds = {"streaming": "C", "streaming polling": "C polling"}
        return [Median(kinds[what], operation, SMALLEST, told[what]) for what in kinds]

    def groups(self) -> list[Group]:
        """Small sizes every round, the large one in every other, and then torch with all."""
        small = [size for size, enough in ENOUGH.items() if enough > FEW]
        large = [size for size in ENOUGH if size not in small]
        if self.registration:
            return [Group(self._pairs(small)), Group(self._pairs(large), every=2)]
        waits = {f"C {name}": lambda name=name: self.waits(name) for name in OPERATIONS}
        torch = {"torch-nccl": lambda: self.collbench("torch-nccl", ["allreduce"], list(ENOUGH))}
        return [Group(self._pairs(small) | waits), Group(self._pairs(large), every=2), Group(torch, every=2)]

    def _pairs(self, sizes: list[int]) -> dict[str, Any]:
        tests = {
            f"nccl-tests {name} {size} B": lambda name=name, size=size: self.nccl_tests(name, size)
            for name in OPERATIONS
            for size in sizes
        }
        return tests | {f"native {sizes[0]} B": lambda: self.collbench("nccl", list(OPERATIONS), sizes)}


def rows_of(text: str, operation: str, size: int) -> list[Median]:
    """Medians over the printed cycles.

    Columns: size, count, type, redop, root; then time in us, two bandwidths and wrong elements, out of place; then the
    same in place.

    Raises:
        LaunchFailed: there are no rows, or one has wrong elements.
    """
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+float\s", line)]
    if not rows or any(len(row) < 9 for row in rows):
        raise LaunchFailed(f"{OPERATIONS[operation]} printed no whole rows")
    if any(row[8] not in ("0", "N/A") for row in rows):
        raise LaunchFailed(f"{OPERATIONS[operation]} found wrong results")
    found = [Median("nccl-tests", operation, size, median(float(row[5]) for row in rows) * 1e-6)]
    if all(len(row) > 9 and re.fullmatch(r"[\d.]+", row[9]) for row in rows):
        found.append(Median("nccl-tests", operation + IN_PLACE, size, median(float(row[9]) for row in rows) * 1e-6))
    return found


def same_nccl(text: str, version: str) -> None:
    """Raises `LaunchFailed` where the header of nccl-tests names another version (nccl-library=22907)."""
    said = re.search(r"nccl-library=(\d+)", text)
    code = int(said[1]) if said else 0
    seen = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    if said and version != "unknown" and seen != version:
        raise LaunchFailed(f"nccl-tests runs NCCL {seen}, collbench {version}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_here(parser)
    add_libraries(parser)
    parser.add_argument("--programs", type=Path, default=OUT / "programs", help="what gpu_programs.py made")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    parser.add_argument("--rounds", type=int, default=7, help="launches of each kind [7]")
    parser.add_argument("--limit", type=float, default=180.0, help="begin nothing new after so many s [180]")
    parser.add_argument("--registration", type=int, choices=(0, 1, 2), default=0, help="as -R of nccl-tests [0]")
    asked = parser.parse_args()
    end_on_sigterm()
    OUT.mkdir(exist_ok=True)
    here = here_of(asked)
    libraries, programs = libraries_or_reason(here, asked), Programs(asked.programs.resolve())
    alike = here.ranks == 1 or all(map(programs.with_mpi, OPERATIONS.values()))
    version = libraries.version if isinstance(libraries, Libraries) else "unknown"
    measured = Measured(here.ranks, alike, version, asked.seed, asked.registration)
    name = f"gpu_peer_registration-{asked.registration}" if asked.registration else "gpu_peer"

    def keep(outcome: Rounds) -> None:
        write(name, outcome.data(asked, **asdict(measured)), lambda: report(measured, outcome))

    groups = Peers(here, libraries, programs, asked.registration).groups()
    outcome = interleaved(groups, asked.rounds, asked.seed, asked.limit, keep)
    print(report(measured, outcome))
    outcome.require()


if __name__ == "__main__":
    main()
