"""The isolation ladder: what each step lets the containers of a world share or do. Each step adds to those before."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.schema.launch_plan import ISOLATIONS, Isolation

#: Size of /dev/shm from the step `limits` on, and Docker's own (bytes).
LARGE_SHM = 1 << 30
DOCKER_SHM = 64 << 20


@dataclass(frozen=True)
class Sharing:
    """What is in force at a step. Everything else stays as Docker sets it, less every capability."""

    large_limits: bool
    unlimited_memlock: bool
    shared_ipc: bool
    shared_net: bool
    all_gpus: bool

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Those that the steps name; all others are dropped."""
        return (*(("SYS_NICE",) if self.large_limits else ()), *(("SYS_PTRACE",) if self.shared_ipc else ()))

    @property
    def shm_bytes(self) -> int:
        """Size of /dev/shm in each container; members of a shared IPC namespace have the anchor's."""
        return LARGE_SHM if self.large_limits else DOCKER_SHM

    @property
    def needs_anchor(self) -> bool:
        """Whether a container besides those of the ranks must own what is shared."""
        return self.shared_ipc or self.shared_net


def in_force(step: Isolation, memlock: bool = True) -> Sharing:
    """The step with all before it. `memlock`: the engine can grant unlimited locked memory."""
    height = ISOLATIONS.index(step)
    limits, ipc, net, gpus = (height >= ISOLATIONS.index(name) for name in ("limits", "ipc", "net", "visible"))
    return Sharing(limits, limits and memlock, ipc, net, gpus)


#: For `collbench plan` and the manual.
ADDS: dict[Isolation, str] = {
    "strict": "private ipc, pid, net, uts; only its own GPU; Docker's default limits",
    "limits": "1 GiB of /dev/shm, unlimited memlock, SYS_NICE",
    "ipc": "one ipc and one pid namespace for all, SYS_PTRACE",
    "net": "one network namespace for all, and so one hostname",
    "visible": "every GPU visible in every container",
}
