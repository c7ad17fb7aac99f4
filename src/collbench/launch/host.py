"""The host side of a comparison: commands that run beside the containers, in an environment of the same MPI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from collbench.errors import CollbenchError, PlanError
from collbench.launch.log import Log
from collbench.launch.probe import Contents
from collbench.launch.starters.starter import Argv
from collbench.machine.parent import end_with_parent

#: Longest wait for an environment to say what it holds, and for a process to end when told to (s).
ANSWER, STOP = 60.0, 3.0

#: Longest wait for the last words of a process that has ended (s): a grandchild may hold its pipes open.
DRAIN = 1.0


@dataclass
class HostProcess:
    """A command on the host, with its children in a session of their own."""

    process: subprocess.Popen[bytes]
    readers: tuple[threading.Thread, ...] = ()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs. What it said has been read then."""
        if self.process.poll() is not None:
            for reader in self.readers:
                reader.join(DRAIN)
        return self.process.poll()

    def end(self) -> None:
        """End it with all its children: asked first, then killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(STOP)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def execute(argv: Argv, environment: dict[str, str], log: Log) -> HostProcess:
    """Start a command whose lines go to the log.

    Raises:
        CollbenchError: it cannot be started.
    """
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, **environment}, preexec_fn=partial(end_with_parent, signal.SIGTERM),
        )  # fmt: skip
    except OSError as error:
        raise CollbenchError(f"host: cannot start {argv[0]}: {error.strerror}.") from error
    streams = ((False, process.stdout), (True, process.stderr))
    readers = tuple(threading.Thread(target=_follow, args=(s, is_error, log), daemon=True) for is_error, s in streams)
    for reader in readers:
        reader.start()
    return HostProcess(process, readers)


def _follow(stream: IO[bytes], is_error: bool, log: Log) -> None:
    with stream:
        for line in stream:
            log.add(is_error, line.decode("utf-8", "replace").rstrip("\n"))


def find_environment(image: str, given: str | None) -> Path:
    """The environment beside an image: the plan's, else `.venvs/IMAGE`, else the one that this program runs in.

    Raises:
        PlanError: the plan names one that is none.
    """
    if given is not None:
        found = Path(given).expanduser()
        if not (found / "bin" / "python").exists():
            raise PlanError(f"environments: {image}: {given} has no bin/python. Name a virtual environment.")
        return found.absolute()
    beside = Path(".venvs") / image
    return beside.absolute() if (beside / "bin" / "python").exists() else Path(sys.prefix)


def probe(environment: Path, vendor: str = "") -> Contents:
    """What an environment holds; with vendor `torch`, what torch ranks use there, though there be an MPI too.

    Raises:
        PlanError: collbench is not installed there, or it does not answer.
    """
    import msgspec

    more = ("--torch",) if vendor == "torch" else ()
    argv = (str(environment / "bin" / "python"), "-m", "collbench.launch.probe", *more)
    try:
        done = subprocess.run(argv, capture_output=True, timeout=ANSWER, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"environment {environment}: {error}.") from error
    try:
        return msgspec.json.decode(done.stdout, type=Contents)
    except msgspec.DecodeError as error:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise PlanError(
            f"environment {environment}: does not say what it holds ({said[-1] if said else error}). "
            "Install collbench of this version there."
        ) from error
