"""collbench on a machine with GPUs: how its ranks are started there, and which libraries of NVIDIA it measures.

Unlike `installation.Installation` it takes whichever interpreter sees the GPUs, with the mpirun beside it or on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installation import OUT, Installation, LaunchFailed

#: Prints where libcudart is, as backend nccl finds it.
_CUDART = """
import cupy
from collbench.backends.parts.gpu.shared_library import load
major = cupy.cuda.runtime.runtimeGetVersion() // 1000
print(load("cudart", f"libcudart.so.{major}", only=False).path)
"""


@dataclass(frozen=True)
class GpuInstallation(Installation):
    """`interpreter` has collbench and CuPy, `module` is run as collbench, `ranks` is one for each GPU.

    `directory` holds bin/mpirun; `name` is whose it is.
    """

    interpreter: str
    module: str
    ranks: int

    @property
    def python(self) -> str:
        """The interpreter."""
        return self.interpreter

    @property
    def mpicc(self) -> str | None:
        """The compiler beside mpirun; None where there is none."""
        return shutil.which(str(self.bin / "mpicc"))

    def start(self, *arguments: str | Path) -> tuple[str, ...]:
        """The argv of collbench with a rank for each GPU."""
        return self.on_all((self.python, "-m", self.module, *map(str, arguments)))

    def on_all(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """`argv` with a rank for each GPU, not bound: NCCL and torch have threads of their own beside a rank's."""
        binding = ("--bind-to", "none") if self.name == "openmpi" else ("-bind-to", "none")
        return (str(self.bin / "mpirun"), *binding, "-n", str(self.ranks), *argv)

    def run(self, argv: tuple[str, ...], limit: float, **environment: str) -> str:
        """See `Installation.run`; a PYTHONPATH, by which collbench may have to be found, is kept."""
        path = os.environ.get("PYTHONPATH")
        return super().run(argv, limit, **({} if path is None else {"PYTHONPATH": path}) | environment)

    def document(self, limit: float, *arguments: str | Path) -> dict[str, Any]:
        """The json document of a launch: `manifest` and `records`.

        Raises:
            LaunchFailed: an error, a time-out, or a case that was not measured.
        """
        printed: dict[str, Any] = json.loads(self.run(self.start(*arguments, "--style", "json"), limit))
        for record in printed["records"]:
            if record["status"] != "ok":
                raise LaunchFailed(f"{record['case']['backend']}: {record['reason']}")
        return printed


@dataclass(frozen=True)
class Libraries:
    """NVIDIA's libraries that backend nccl measures, and the folders of their headers."""

    nccl: Path
    version: str
    cudart: Path
    includes: tuple[Path, ...]
    nvcc: Path | None

    def links(self) -> Path:
        """A folder laid out as NCCL_HOME, with the names that a linker looks for."""
        home = OUT / "nccl"
        shutil.rmtree(home, ignore_errors=True)
        (home / "lib").mkdir(parents=True)
        for library, name in ((self.nccl, "libnccl.so"), (self.cudart, "libcudart.so")):
            (home / "lib" / library.name).symlink_to(library)
            if library.name != name:
                (home / "lib" / name).symlink_to(library)
        (home / "include").symlink_to(self.header("nccl.h").parent)
        return home

    def header(self, name: str) -> Path:
        """Where a header is.

        Raises:
            LaunchFailed: it is in none of the folders.
        """
        for folder in self.includes:
            if (folder / name).exists():
                return folder / name
        raise LaunchFailed(f"no {name} in {', '.join(map(str, self.includes))}")


def find_libraries(here: GpuInstallation, asked: argparse.Namespace) -> Libraries:
    """What a first launch of backend nccl says that it measured; --nccl and --cudart overrule it.

    Raises:
        LaunchFailed: that launch failed.
    """
    if asked.nccl is None:
        plain = ("allreduce", "--backend", "nccl", "-b", "8", "-e", "8", "-n", "2")
        told = {one["name"]: one for one in here.document(120.0, *plain)["manifest"]["libraries"]}
        nccl, version = Path(told["NCCL"]["path"]).resolve(), str(told["NCCL"]["version"])
    else:
        nccl, version = asked.nccl.resolve(), "not asked"
    cudart = asked.cudart or Path(here.run((here.python, "-c", _CUDART), 60.0).split()[-1])
    found = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    nvcc = None if found is None else Path(found).resolve()
    homes = (nccl.parent.parent, cudart.resolve().parent.parent, *(() if nvcc is None else (nvcc.parent.parent,)))
    includes = (*(home / "include" for home in homes), Path("/usr/local/cuda/include"), Path("/usr/include"))
    return Libraries(nccl, version, cudart.resolve(), tuple(path for path in includes if path.is_dir()), nvcc)


def gpus() -> tuple[str, ...]:
    """What nvidia-smi says of each GPU: name, compute capability, driver."""
    query = "name,compute_cap,driver_version"
    try:
        text = subprocess.run(
            ("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"),
            capture_output=True, text=True, timeout=30, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def describe_gpus() -> str:
    """One phrase for the page."""
    found = gpus()
    return "no GPU" if not found else f"{len(found)} x {found[0]}" if len(set(found)) == 1 else "; ".join(found)


def add_here(parser: argparse.ArgumentParser) -> None:
    """Flags from which `here` is made."""
    parser.add_argument("--python", default=sys.executable, help="an interpreter with collbench and CuPy [this one]")
    parser.add_argument("--module", default="collbench", help="what is run as collbench [collbench]")
    parser.add_argument("--ranks", type=int, default=None, help="one for each GPU [as many as nvidia-smi lists]")
    parser.add_argument("--nccl", type=Path, default=None, help="libnccl.so.2 [the one that backend nccl measures]")
    parser.add_argument("--cudart", type=Path, default=None, help="libcudart.so [the one that backend nccl uses]")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")


def here_of(asked: argparse.Namespace) -> GpuInstallation:
    """The installation that the flags mean.

    Raises:
        LaunchFailed: there is no mpirun.
    """
    beside = Path(asked.python).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise LaunchFailed(f"there is no mpirun beside {asked.python} or on the PATH")
    text = subprocess.run((found, "--version"), capture_output=True, text=True, timeout=30, check=False).stdout
    name = "openmpi" if "Open MPI" in text else "mpich"
    ranks = asked.ranks or max(len(gpus()), 1)
    return GpuInstallation(Path(found).parent.parent, name, asked.python, asked.module, ranks)
