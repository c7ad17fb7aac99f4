"""Commands on this machine: started with their children in a session of their own, followed, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from collbench.errors import CollbenchError
from collbench.launch.log import Lines, Log
from collbench.launch.starters.starter import Argv
from collbench.machine.children import descendants, runs
from collbench.machine.parent import end_with_parent

#: Longest wait for a process to end when told to (s).
STOP = 3.0

#: Longest wait for the last lines of a process that has ended (s): a grandchild may hold its pipes open.
DRAIN = 1.0

#: Most bytes of an output that are read at once.
PIECE = 1 << 16


@dataclass
class HostProcess:
    """A command on the host, with its children in a session of their own."""

    name: str
    process: subprocess.Popen[bytes]
    readers: tuple[threading.Thread, ...] = ()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs. Then its output has been read."""
        if self.process.poll() is not None:
            for reader in self.readers:
                reader.join(DRAIN)
        return self.process.poll()

    @property
    def how(self) -> str:
        """How it ended, for a message."""
        code = self.code or 0
        if code >= 0:
            return f"ended with exit code {code}"
        return f"{self.name} was ended by signal {-code} ({signal.strsignal(-code)})"

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def end(self) -> None:
        """End it with all its children: by SIGTERM, then by SIGKILL; those too that have a session of their own."""
        below = descendants(self.pid) if self.process.poll() is None else []
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(STOP)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        until = time.monotonic() + STOP
        while (left := [child for child in below if runs(child)]) and time.monotonic() < until:
            time.sleep(0.02)
        for child in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child.number, signal.SIGKILL)


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
    readers = tuple(
        threading.Thread(target=_follow, args=(stream, is_error, log), daemon=True) for is_error, stream in streams
    )
    for reader in readers:
        reader.start()
    return HostProcess(Path(argv[0]).name, process, readers)


def _follow(stream: IO[bytes], is_error: bool, log: Log) -> None:
    lines = Lines(log.longest)
    with stream:
        while piece := os.read(stream.fileno(), PIECE):
            for line in lines.of(piece):
                log.add(is_error, line)
    for line in lines.last():
        log.add(is_error, line)
