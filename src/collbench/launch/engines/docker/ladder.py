"""The isolation ladder: what each step allows the containers of a world, in addition to the steps before."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.launch.engines.ladder import Sharing, Step, ladder_of

#: Size of /dev/shm from the step `limits` on, and Docker's own (bytes).
LARGE_SHM = 1 << 30
DOCKER_SHM = 64 << 20

#: From the most isolated to the least.
LADDER = ladder_of(
    Step(
        "strict", "private ipc, pid, net, uts; only its own GPU; Docker's default limits",
        Sharing(ipc=False, net=False, all_gpus=False, host=False, shm_bytes=DOCKER_SHM),
    ),
    Step(
        "limits", "1 GiB of /dev/shm, unlimited memlock, SYS_NICE",
        Sharing(ipc=False, net=False, all_gpus=False, host=False, shm_bytes=LARGE_SHM),
    ),
    Step(
        "ipc", "one ipc and one pid namespace for all, SYS_PTRACE",
        Sharing(ipc=True, net=False, all_gpus=False, host=False, shm_bytes=LARGE_SHM),
    ),
    Step(
        "net", "one network namespace for all, and so one hostname",
        Sharing(ipc=True, net=True, all_gpus=False, host=False, shm_bytes=LARGE_SHM), between=True,
    ),
    Step(
        "visible", "every GPU visible in every container",
        Sharing(ipc=True, net=True, all_gpus=True, host=False, shm_bytes=LARGE_SHM), between=True,
    ),
    Step(
        "files", "the ipc, pid, net and uts namespaces of the host, and so its /dev/shm; own files and user", Sharing(),
    ),
)  # fmt: skip

STEPS = tuple(step.name for step in LADDER)


@dataclass(frozen=True)
class Settings:
    """What containers get at a step. Everything else is Docker's default, but all other capabilities are dropped."""

    sharing: Sharing
    large_limits: bool
    unlimited_memlock: bool

    @property
    def capabilities(self) -> tuple[str, ...]:
        added = {"SYS_NICE": self.large_limits, "SYS_PTRACE": self.sharing.ipc}
        return tuple(name for name, is_added in added.items() if is_added)

    @property
    def shm_bytes(self) -> int:
        """Size of /dev/shm in each container; in a shared IPC namespace it is the anchor's, or the host's."""
        return self.sharing.shm_bytes or DOCKER_SHM

    @property
    def needs_anchor(self) -> bool:
        """Whether another container than those of the ranks must own the shared namespaces; the host's are there."""
        return (self.sharing.ipc or self.sharing.net) and not self.sharing.host


def settings_at(name: str, memlock: bool = True) -> Settings:
    """The settings of a step and of all before it. `memlock`: the engine can grant unlimited locked memory."""
    height = STEPS.index(name)
    limits = height >= STEPS.index("limits")
    return Settings(LADDER[height].sharing, limits, limits and memlock)
