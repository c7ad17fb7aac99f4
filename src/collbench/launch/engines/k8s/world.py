"""The pods of one launch: applied, waited for, followed, copied from, deleted."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from collbench.errors import CollbenchError, EngineError, LaunchFailed
from collbench.launch import processes
from collbench.launch.engines.k8s import states
from collbench.launch.engines.k8s.client import Client, of_launch
from collbench.launch.engines.k8s.objects import kinds, manifests
from collbench.launch.engines.k8s.pods import PART, RESULTS, Launchable, Object, program
from collbench.launch.engines.k8s.results import copy
from collbench.launch.log import Log
from collbench.launch.processes import HostProcess
from collbench.launch.starters.starter import Argv
from collbench.launch.stopping import StopCheck

#: Interval (s) at which Kubernetes is asked, and progress is copied.
ASK, PROGRESS = 1.0, 5.0

#: Wait for the last lines of a launch that has ended (s).
LAST_LINES = 0.5


def wait_for_pods(
    client: Client, launch: str, expected: int, check: StopCheck, say: Callable[[str], None]
) -> list[Object]:
    """Until so many pods of a launch run; what they wait for is said meanwhile.

    Raises:
        EngineError: they wait in vain, or for too long: those of other launches would, too.
        LaunchFailed: one has ended.
    """
    said, end = "", time.monotonic() + client.site.patience
    while True:
        check()
        pods = client.get("pods", of_launch(launch))
        found = states.standing(pods, expected)
        if found.running:
            return pods
        if (died := states.ended(pods)) is not None:
            raise LaunchFailed(died)
        if len(pods) < expected and not found.in_vain and (warnings := client.warnings(launch)):
            found = states.missing(warnings)
        if found.in_vain:
            raise EngineError(f"engine k8s: {found.waits}")
        if time.monotonic() > end:
            raise EngineError(
                f"engine k8s: the pods of {launch} do not run after {client.site.timeout}: {found.waits}. Raise "
                "timeout in the site file, or ask for less."
            )
        if found.waits != said:
            said = found.waits
            say(said)
        time.sleep(ASK)


def on_standard_error(text: str) -> None:
    sys.stderr.write(f"# Kubernetes: {text}\n")


@dataclass
class K8sWorld:
    """All ranks of a launch. `pods` are as Kubernetes showed them last."""

    launch: Launchable
    client: Client
    check: StopCheck
    pods: list[Object] = field(default_factory=list)
    ranks: K8sRanks | None = None
    _applied: bool = False
    _collected: bool = False

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        return (("the pods", self.launch.world.cell.ranks),)

    @property
    def program(self) -> Argv:
        return program()

    @property
    def environment(self) -> dict[str, str]:
        """None: the pods have theirs."""
        return {}

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> K8sRanks:
        """Make the pods, whose command starts every rank, and wait until they run.

        Raises:
            EngineError: Kubernetes refuses, or they do not run in time.
            LaunchFailed: one has ended.
        """
        self._applied = True
        name = self.launch.world.name
        self.client.apply(manifests(self.launch))
        expected = self.launch.pods + (1 if self.launch.by_ssh else 0)
        self.pods = wait_for_pods(self.client, name, expected, self.check, on_standard_error)
        part = "launcher" if self.launch.by_ssh else "ranks"
        follow = ("logs", "--follow", f"--selector={PART}={part},{self._selector}", "--all-containers", "--tail=-1",
                  "--max-log-requests=1000")  # fmt: skip
        self.ranks = K8sRanks(self, processes.execute(self.client.command(*follow), {}, log))
        return self.ranks

    @property
    def _selector(self) -> str:
        return ",".join(f"{name}={value}" for name, value in of_launch(self.launch.world.name).items())

    def died(self) -> str | None:
        """How a pod ended: none does by itself."""
        if self.ranks is not None and self.ranks.ended:
            return None
        return states.ended(self.pods)

    def look(self) -> None:
        """Ask how the pods are. An answer that does not come is no end."""
        with contextlib.suppress(EngineError):
            self.pods = self.client.get("pods", of_launch(self.launch.world.name))

    def copy(self, everything: bool) -> None:
        """What rank 0 has written so far.

        Raises:
            LaunchFailed: it cannot be copied.
        """
        if (pod := states.writer(self.pods)) is not None:
            copy(self.client, pod, self.launch.world.folders.out, everything)

    def collect(self) -> None:
        """All that was written, once.

        Raises:
            LaunchFailed: it cannot be copied.
        """
        if not self._collected:
            self._collected = True
            self.copy(everything=True)

    def close(self) -> None:
        """Delete everything of this launch.

        Raises:
            EngineError: it is still there.
        """
        if self.ranks is not None:
            self.ranks.process.end()
        if self._applied:
            self.client.delete(kinds(self.launch), of_launch(self.launch.world.name))


@dataclass
class K8sRanks:
    """The command that ends with a launch, in its pod. `process` follows what it prints."""

    world: K8sWorld
    process: HostProcess
    _asked: float = 0.0
    _copied: float = 0.0
    _code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether its exit code has been seen."""
        return self._code is not None

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended; Kubernetes is asked at most once a second."""
        now = time.monotonic()
        if self._code is None and now - self._asked > ASK:
            self._asked = now
            self.world.look()
            self._code = self._in_pod()
            if self._code is not None:
                time.sleep(LAST_LINES)
        if self._code is None and now - self._copied > PROGRESS:
            self._copied = now
            with contextlib.suppress(CollbenchError):
                self.world.copy(everything=False)
        return self._code

    def _in_pod(self) -> int | None:
        """What the command left in its pod; None where it has left nothing."""
        pod = states.head(self.world.pods)
        if pod is None:
            return None
        container = "launcher" if self.world.launch.by_ssh else "ranks"
        script = f"cat {RESULTS}/code 2>/dev/null || true"
        with contextlib.suppress(EngineError, ValueError):
            return int(self.world.client.ask("exec", pod, f"--container={container}", "--", "sh", "-c", script))
        return None

    @property
    def how(self) -> str:
        what = "the launcher" if self.world.launch.by_ssh else "rank 0"
        return f"{what} ended with exit code {self._code}"

    @property
    def pid(self) -> None:
        """On other machines."""
