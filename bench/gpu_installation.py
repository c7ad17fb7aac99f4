"""collbench on a machine with GPUs: how its ranks are started there.

    python bench/gpu_installation.py --ranks 2 run launch/choi2021-gpu-smoke.toml

starts collbench as the programs beside this one do. Unlike `installation.Installation` it takes whichever interpreter
sees the GPUs, with the mpirun beside it or on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from installation import OUT, Installation, LaunchFailed, as_root


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
        crowded = self.name == "openmpi" and self.ranks > len(os.sched_getaffinity(0))
        mapping = ("--map-by", ":OVERSUBSCRIBE") if crowded else ()
        return (str(self.bin / "mpirun"), *mapping, *binding, "-n", str(self.ranks), *argv)

    def run(self, argv: tuple[str, ...], limit: float, **environment: str) -> str:
        """See `Installation.run`; a PYTHONPATH, by which collbench may have to be found, is kept."""
        path = os.environ.get("PYTHONPATH")
        return super().run(argv, limit, **({} if path is None else {"PYTHONPATH": path}) | environment)

    def document(self, limit: float, *arguments: str | Path) -> dict[str, Any]:
        """The json document of a launch: `manifest` and `records`, some of which may not be ok.

        It is read from a file: of a long standard output, mpirun may lose the end.

        Raises:
            LaunchFailed: an error other than a case that failed, a time-out, or no whole document.
        """
        OUT.mkdir(exist_ok=True)
        file = OUT / "gpu-launch.json"
        file.unlink(missing_ok=True)
        try:
            self.run(self.start(*arguments, "-J", file), limit)
        except LaunchFailed as failure:
            if failure.code != 1 or not file.exists():
                raise
        try:
            document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LaunchFailed(f"collbench left no whole document: {error}") from None
        return document


@cache
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


def main() -> None:
    """Become the mpirun that starts collbench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_here(parser)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of collbench")
    asked = parser.parse_args()
    argv = here_of(asked).start(*asked.arguments)
    os.execve(argv[0], argv, os.environ | as_root())  # noqa: S606 - whoever ends this program ends mpirun


if __name__ == "__main__":
    main()
