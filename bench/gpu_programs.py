"""The programs that collbench is held against on GPUs: two of nccl-tests, and gpu_floor. Built, or carried.

    python bench/gpu_programs.py [--source NCCL_TESTS]

leaves in bench/out/programs what gpu_peer.py and gpu_floor.py start. On one GPU those of bench/carried/programs are
taken, if they start here. Else they are built with the libraries that backend nccl measures, and for several GPUs with
MPI, so that each has a process as with collbench. NCCL_TESTS is a copy of https://github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpu_installation import GpuInstallation, add_here, gpus, here_of
from gpu_libraries import Libraries, add_libraries, find_libraries, libraries
from installation import HERE, OUT, LaunchFailed, end_on_sigterm, run

NCCL_TESTS = ("all_reduce_perf", "sendrecv_perf")
FLOOR = "gpu_floor"
CARRIED = HERE / "carried"
#: How each is started to see whether it works here at all.
TRIALS = dict.fromkeys(NCCL_TESTS, ("-b", "8", "-e", "8", "-n", "2", "-g", "1")) | {
    FLOOR: ("allreduce", "8", "2", "2", "2")
}
HOPPER = "90"  # its compute capability
BUILD_LIMIT, TRIAL_LIMIT = 300.0, 30.0  # s


@dataclass(frozen=True)
class Programs:
    """A folder with programs; the file `mpi` in it names those that are built with MPI."""

    folder: Path

    def path(self, name: str) -> Path:
        """Raises `LaunchFailed` where it is not there."""
        if not (self.folder / name).exists():
            raise LaunchFailed(f"there is no {name} in {self.folder} (bench/gpu_programs.py makes it)")
        return self.folder / name

    def with_mpi(self, name: str) -> bool:
        """Whether a process for each GPU is started."""
        file = self.folder / "mpi"
        return file.exists() and name in file.read_text(encoding="ascii").split()

    def start(self, name: str, here: GpuInstallation, *arguments: object) -> tuple[str, ...]:
        """Its argv: a rank for each GPU if it is built with MPI, else one process, and no mpirun that loses output."""
        argv = (str(self.path(name)), *map(str, arguments))
        return here.on_all(argv) if self.with_mpi(name) else argv

    def add(self, name: str, built: Path, mpi: bool) -> None:
        """Put it into the folder; it is there whole or not at all."""
        others = (self.folder / "mpi").read_text(encoding="ascii").split() if (self.folder / "mpi").exists() else []
        names = {*others, name} if mpi else {*others} - {name}
        (self.folder / "mpi").write_text(" ".join(sorted(names)), encoding="ascii")
        shutil.copy2(built, self.folder / f"{name}.new")
        (self.folder / f"{name}.new").replace(self.folder / name)


def build_nccl_tests(found: Libraries, source: Path, mpi: Path | None, targets: list[str], scratch: Path) -> None:
    """Both programs of nccl-tests in `scratch`. `mpi`: the folder above include/mpi.h; `targets`: as ["90"].

    Raises:
        LaunchFailed: no nvcc, no source, no nccl.h, or make failed.
    """
    if found.nvcc is None:
        raise LaunchFailed("there is no nvcc")
    if not (source / "src").is_dir():
        raise LaunchFailed(f"there is no nccl-tests in {source}")
    home = found.links(scratch / "nccl")
    code = " ".join(f"-gencode=arch=compute_{one},code=sm_{one}" for one in targets)
    argv = (
        "make", "-C", str(source / "src"), f"-j{os.cpu_count()}", *(str(scratch / name) for name in NCCL_TESTS),
        f"BUILDDIR={scratch}", f"NCCL_HOME={home}", f"CUDA_HOME={found.nvcc.parent.parent}", f"CUDA_LIB={home / 'lib'}",
        f"NVCC_GENCODE={code}", f"MPI={int(mpi is not None)}", f"MPI_HOME={mpi or ''}",
    )  # fmt: skip
    run(argv, BUILD_LIMIT, dict(os.environ))


def build_floor(found: Libraries, mpicc: str | None, scratch: Path) -> None:
    """gpu_floor in `scratch`, linked to exactly these libraries.

    Raises:
        LaunchFailed: no compiler, no header, or it does not compile.
    """
    compiler = mpicc or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LaunchFailed("there is no C compiler")
    for name in ("nccl.h", "cuda_runtime_api.h"):
        found.header(name)
    linked = (found.nccl, found.cudart)
    argv = (compiler, *(("-DUSE_MPI",) if mpicc else ()), "-O2", "-Wall", "-Wextra", "-o", str(scratch / FLOOR),
            str(HERE / "gpu_floor.c"), *(f"-I{folder}" for folder in found.includes), *map(str, linked))  # fmt: skip
    run(argv, BUILD_LIMIT, dict(os.environ))


def mpi_home(here: GpuInstallation) -> Path | None:
    """The folder above include/mpi.h, which this MPI's compiler tells; None where there is none."""
    if here.mpicc is None:
        return None
    OUT.mkdir(exist_ok=True)
    asking = OUT / "asks_for_mpi.c"  # of a file: Open MPI's mpicc adds no folders where none is named
    asking.write_text("#include <mpi.h>\n", encoding="ascii")
    argv = (here.mpicc, "-E", str(asking))
    text = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    header = re.search(r'^# \d+ "(/.*)/include/mpi\.h"', text, re.MULTILINE)
    return Path(header[1]) if header else None


def starts(program: Path, arguments: tuple[str, ...], found: Libraries) -> str | None:
    """Why it does not work on this machine, alone on one GPU; None where it does."""
    try:
        run((str(program), *arguments), TRIAL_LIMIT, os.environ | {"LD_LIBRARY_PATH": found.path})
    except LaunchFailed as failure:
        return str(failure)
    return None


@dataclass(frozen=True)
class Recipe:
    """Programs that are built together, by a function that leaves them in a folder; whether with MPI."""

    names: tuple[str, ...]
    mpi: bool
    build: Callable[[Path], None]

    def add_to(self, programs: Programs, wanted: Sequence[str]) -> None:
        """Build, in an empty folder: nothing of other libraries is to be linked.

        Raises:
            LaunchFailed: as the function.
        """
        scratch = OUT / "build" / self.names[0]
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self.build(scratch)
        for name in wanted:
            programs.add(name, scratch / name, self.mpi)
            print(f"{name}: built {'with' if self.mpi else 'without'} MPI", flush=True)


def recipes(found: Libraries, source: Path, targets: list[str], mpicc: str | None, mpi: Path | None) -> list[Recipe]:
    """All programs; with MPI where there is a compiler for it, and the folder above its include/mpi.h."""
    return [
        Recipe((FLOOR,), mpicc is not None, partial(build_floor, found, mpicc)),
        Recipe(NCCL_TESTS, mpi is not None, partial(build_nccl_tests, found, source, mpi, targets)),
    ]


def provide(here: GpuInstallation, found: Libraries, source: Path, carried: Path, programs: Programs) -> list[str]:
    """Fill the folder; returns what could not be had. Each program is there as soon as it can be."""
    missing: list[str] = []
    with_mpi = (here.mpicc, mpi_home(here)) if here.ranks > 1 else (None, None)
    for recipe in recipes(found, source, architectures(), *with_mpi):
        wanted = [name for name in recipe.names if here.ranks > 1 or not _carried(name, carried, found, programs)]
        try:
            if wanted:
                recipe.add_to(programs, wanted)
        except LaunchFailed as failure:
            missing.append(f"{', '.join(wanted)}: {failure}")
    return missing


def _carried(name: str, carried: Path, found: Libraries, programs: Programs) -> bool:
    if not (carried / name).exists():
        return False
    reason = starts(carried / name, TRIALS[name], found)
    print(f"{name}: carried" if reason is None else f"{name}: the carried one does not start: {reason}", flush=True)
    if reason is None:
        programs.add(name, carried / name, mpi=False)
    return reason is None


def architectures() -> list[str]:
    """Of the GPUs here, as nvcc names them; that of Hopper where there is none."""
    return sorted({line.split(",")[1].strip().replace(".", "") for line in gpus()}) or [HOPPER]


def carry(asked: argparse.Namespace) -> None:
    """For a machine that may have no compiler: against these two libraries, without MPI, nothing is started.

    Raises:
        LaunchFailed: one cannot be built; those before it are there.
    """
    asked.carry.mkdir(parents=True, exist_ok=True)
    for recipe in recipes(libraries(asked.nccl, asked.cudart), asked.source.resolve(), [HOPPER], None, None):
        recipe.add_to(Programs(asked.carry), recipe.names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_here(parser)
    add_libraries(parser)
    parser.add_argument("--source", type=Path, default=CARRIED / "nccl-tests", help="of nccl-tests")
    parser.add_argument("--carry", type=Path, default=None, help="build into this folder, with --nccl and --cudart")
    asked = parser.parse_args()
    end_on_sigterm()
    try:
        if asked.carry is not None:
            carry(asked)
            return
        here, programs = here_of(asked), Programs(OUT / "programs")
        shutil.rmtree(programs.folder, ignore_errors=True)
        programs.folder.mkdir(parents=True)
        found = find_libraries(here, asked)
        print(f"NCCL {found.version} ({found.nccl}), {found.cudart}", *found.problems, sep="\n", flush=True)
        missing = provide(here, found, asked.source.resolve(), CARRIED / "programs", programs)
    except LaunchFailed as failure:
        raise SystemExit(f"gpu_programs: {failure}") from None
    if missing:
        raise SystemExit("\n".join(missing))


if __name__ == "__main__":
    main()
