"""A Docker Engine that belongs to the tests: it may be stopped and killed, and its socket closed to us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.launch.engine import Engine

#: Longest wait for it to answer, and to end (s).
STARTS, ENDS = 40.0, 30.0


def missing() -> str | None:
    """Why there can be none here."""
    if os.getuid() != 0:
        return "an engine of the tests' own takes root"
    return None if shutil.which("dockerd") else "there is no dockerd to start an engine of the tests' own"


class OwnEngine:
    """Beside the machine's engine: with its own socket, data and processes, and without a hand in the firewall."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.host = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Engine:
        """Start it and wait for its answer."""
        argv = (
            "dockerd", "-H", self.host, "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "x"),
            "--pidfile", str(self.folder / "pid"), "--bridge", "none", "--iptables=false",
        )  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + STARTS
        while (found := self._answering()) is None:
            tail = (self.folder / "log").read_text(errors="replace")[-500:]
            assert self._process.poll() is None, tail
            assert time.monotonic() < until, tail
            time.sleep(0.2)
        return found

    def _answering(self) -> Engine | None:
        try:
            return Engine(self.host)
        except CollbenchError:
            return None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; its containers end with it (or when it is started again, after SIGKILL)."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(ENDS)

    def load(self, reference: str) -> None:
        """Take an image over from the machine's engine."""
        with subprocess.Popen(("docker", "save", reference), stdout=subprocess.PIPE) as saved:
            subprocess.run(("docker", "-H", self.host, "load"), stdin=saved.stdout, check=True, timeout=120,
                           stdout=subprocess.DEVNULL)  # fmt: skip

    def end(self) -> None:
        """For good, with the containerd that it started."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        pid = self.folder / "x" / "containerd" / "containerd.pid"
        if pid.exists():
            try:
                os.kill(int(pid.read_text()), signal.SIGTERM)
            except ProcessLookupError:
                return
