"""A Docker Engine that belongs to the tests: it may be stopped and killed, and its socket closed to us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.processes import LIMIT, unmarked, wait_for


def missing() -> str | None:
    """Why there can be none here."""
    if os.getuid() != 0:
        return "an engine of the tests' own takes root"
    return None if shutil.which("dockerd") else "there is no dockerd to start an engine of the tests' own"


class OwnEngine:
    """Beside the machine's engine: with its own socket, data and processes.

    And in a network namespace of its own, with bridges and firewall rules that are nobody else's: two engines in one
    remove each other's.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="collbench-engine-"))
        self.socket = self.folder / "docker.sock"
        self.host = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait for its answer."""
        argv = (
            "unshare", "--net", "dockerd", "-H", self.host, "--data-root", str(self.folder / "data"),
            "--exec-root", str(self.folder / "x"), "--pidfile", str(self.folder / "pid"),
        )  # fmt: skip
        plain = {name: value for name, value in unmarked().items() if name != "COLUMNS"}  # it cuts `docker top`
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, env=plain)
        wait_for(lambda: self._answers() or self._ended())
        assert not self._ended(), (self.folder / "log").read_text(errors="replace")[-500:]

    def _answers(self) -> bool:
        asked = ("docker", "-H", self.host, "version")
        return subprocess.run(asked, capture_output=True, timeout=LIMIT, check=False).returncode == 0

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; its containers end with it (or when it is started again, after SIGKILL)."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(LIMIT)
        self._forget_containerd()

    def _forget_containerd(self) -> None:
        """It ends with its dockerd, but where nobody reaps it the next one takes it for alive."""
        pid = self.folder / "x" / "containerd" / "containerd.pid"
        wait_for(lambda: not pid.exists() or not _alive(int(pid.read_text())))
        pid.unlink(missing_ok=True)

    def load(self, reference: str) -> None:
        """Take an image over from the machine's engine."""
        with subprocess.Popen(("docker", "save", reference), stdout=subprocess.PIPE) as saved:
            subprocess.run(("docker", "-H", self.host, "load"), stdin=saved.stdout, check=True, timeout=LIMIT,
                           stdout=subprocess.DEVNULL)  # fmt: skip

    def end(self) -> None:
        """For good, with what it mounted."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.folder)):
                subprocess.run(("umount", line.split()[1]), check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    """Whether it runs: neither gone nor waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
