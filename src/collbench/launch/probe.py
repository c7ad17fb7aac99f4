"""`python -m collbench.launch.probe [--build] [--torch] [BENCHMARK...]`: prints what its environment holds, as JSON.

`--build` also asks the MPI how it was built, which takes an MPI_Init; `--torch` ignores an MPI. Of benchmarks it prints
what they start, and what they lack.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
from functools import cache, partial
from pathlib import Path

import msgspec

import collbench
from collbench import backends, workloads
from collbench.backends import mpi_cuda
from collbench.bindings.gpu.device import load
from collbench.bindings.gpu.nccl import SONAME, call_in, library_settings, nccl_version
from collbench.bindings.mpi import library_path, load_mpi, vendor, version_line
from collbench.errors import BackendUnavailable, CollbenchError
from collbench.machine import facts
from collbench.machine.cgroup import priority
from collbench.registry import PACKAGE
from collbench.run.facts_of_ranks import hashed, packages
from collbench.schema.manifest import Library
from collbench.schema.record import SCHEMA
from collbench.timing.loop import native_loop

#: Below the package, what an inner `collbench run` imports, with all in folders, but for the tables it prints (report).
MEASURING = (
    "backends", "bindings", "collectives", "machine", "run", "schema", "timing", "workloads",
    "__init__.py", "errors.py", "registry.py", "units.py",
    "cli/command.py", "cli/measure.py", "cli/options.py", "launch/launchers.py",
)  # fmt: skip

#: Endings of the files that count: code, and tables that are read while measuring.
_SOURCES = (".py", ".c", ".h", ".cu", ".toml")


def source_files(package: Path = PACKAGE) -> list[Path]:
    """The files of the code that measures, in an order that is the same everywhere."""
    places = [package / name for name in MEASURING]
    files = {path for place in places for path in (place, *place.rglob("*")) if path.suffix in _SOURCES}
    return sorted(files, key=lambda path: path.relative_to(package).as_posix())


@cache
def sources(package: Path = PACKAGE) -> str:
    """SHA-256 of names and contents of the code that measures: equal in a clone, a wheel and an image of the same."""
    lines = (f"{path.relative_to(package).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
             for path in source_files(package))  # fmt: skip
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Build(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an MPI was built: its configure line, and whether CUDA support is built in, and claimed after MPI_Init."""

    configure: str | None
    cuda_built: bool | None
    cuda_claimed: bool | None


class Contents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`vendor` is `torch` where there is torch and no MPI, and empty where there is neither.

    `libraries` are the MPI or torch, and NCCL where it can be loaded (which needs no GPU). `native`: the C loop was
    built. `backends` are the names known there, `missing` those that cannot be used there, with the reason. `cuda`: the
    CUDA that torch or CuPy is made for. `schema` is that of the records which are written there, and `sources` the hash
    of the code that measures; 0 and empty: an older collbench, which does not say it. Of the benchmarks asked about,
    with their choices (`workloads.uses`), `libraries` has what they start, and `missing_benchmarks` why one cannot be
    measured there. `environment` are the variables there that change what is measured. `priority` is that of a process
    there (`machine.cgroup.priority`).
    """

    collbench: str
    python: str
    vendor: str
    libraries: tuple[Library, ...]
    packages: dict[str, str]
    native: bool
    missing: dict[str, str]
    cuda: str | None = None
    build: Build | None = None
    schema: int = 0
    sources: str = ""
    priority: str = ""
    backends: tuple[str, ...] = ()
    missing_benchmarks: dict[str, str] = {}
    environment: dict[str, str] = {}

    @property
    def identity(self) -> dict[str, str]:
        """What must be equal on all nodes for their ranks to measure the same, besides collbench, each by its name."""
        libraries = {library.name: f"{library.version} (sha256 {(library.sha256 or 'unknown')[:12]})"
                     for library in self.libraries}  # fmt: skip
        return {"library": self.vendor, "Python": self.python, "native loop": "yes" if self.native else "no",
                **libraries, **self.packages}  # fmt: skip

    def lacks(self, backend: str) -> str | None:
        """Why a backend cannot be used there; None: it can."""
        if self.backends and backend not in self.backends:
            return "the package that adds it is not installed there"
        return self.missing.get(backend)

    @property
    def another(self) -> str | None:
        """In what its collbench differs from this one, so that it would measure differently; None: it does not."""
        if (self.collbench, self.schema) != (collbench.__version__, SCHEMA):
            here = f"{collbench.__version__} (schema {SCHEMA})"
            return f"holds collbench {self.collbench} (schema {self.schema or 'unknown'}), this is {here}"
        if self.sources != sources():
            there = self.sources[:12] or "unknown"
            return f"holds collbench {self.collbench} with other code (sources {there}, here {sources()[:12]})"
        return None


def contents(build: bool = False, torch: bool = False, benchmarks: tuple[str, ...] = ()) -> Contents:
    """What this process holds. `build`: with how the MPI was built. `torch`: what torch ranks use, MPI or not."""
    missing = {name: why for name in benchmarks if (why := workloads.missing(name)) is not None}
    programs = workloads.libraries(name for name in benchmarks if name not in missing)
    mpi, how_built = None, None
    with contextlib.suppress(CollbenchError):
        mpi = None if torch else load_mpi()
    kind, libraries = "", tuple[Library, ...]()
    if mpi is not None:
        kind = vendor(mpi)
        name, _, version = version_line(mpi).rpartition(" ")
        libraries = (hashed(Library(name=name, version=version, path=library_path())),)
        if build:
            text = mpi.Get_library_version()
            how_built = Build(configure=mpi_cuda.configure_line(text), cuda_built=mpi_cuda.built(text),
                              cuda_claimed=mpi_cuda.claimed(library_path()))  # fmt: skip
    elif importlib.util.find_spec("torch") is not None:
        kind, libraries = "torch", tuple(map(hashed, backends.get("torch-gloo").libraries()))
    versions = packages()
    return Contents(
        collbench=collbench.__version__, python=sys.version.split()[0], vendor=kind,
        libraries=(*libraries, *_nccl(kind), *map(hashed, programs)), packages=versions,
        native=native_loop() is not None,
        missing={name: why for name in backends.names() if (why := backends.missing(name)) is not None},
        cuda=_cuda(kind, versions), build=how_built, schema=SCHEMA, sources=sources(), priority=priority(),
        backends=backends.names(), missing_benchmarks=missing, environment=facts.environment(backends.variables()),
    )  # fmt: skip


def _nccl(kind: str) -> tuple[Library, ...]:
    """The NCCL that ranks would load; torch brings its own into the process."""
    if kind == "torch":
        import torch  # noqa: F401
    try:
        library = load("nccl", SONAME)
    except BackendUnavailable:
        return ()
    version = ".".join(map(str, nccl_version(library.handle)))
    has = library_settings(partial(call_in, library.handle))
    return (hashed(Library(name="NCCL", version=version, path=library.path, settings=has)),)


def _cuda(kind: str, versions: dict[str, str]) -> str | None:
    """`12` of cupy-cuda12x, or torch's own."""
    if kind == "torch":
        import torch

        return torch.version.cuda
    return next((name[9:-1] for name in versions if name.startswith("cupy-cuda")), None)


if __name__ == "__main__":
    os.environ.pop("SLURM_STEP_NUM_TASKS", None)  # a probe is a task on every node, and no rank of a world
    benchmarks = tuple(word for word in sys.argv[1:] if not word.startswith("-"))
    answer = contents("--build" in sys.argv, "--torch" in sys.argv, benchmarks)
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
