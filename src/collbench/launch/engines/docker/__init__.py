"""Engine `docker`: containers of Docker Engine, or of another engine with its API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.engines.docker.connection import DOCKER, Service
from collbench.launch.engines.docker.session import DockerSession
from collbench.launch.engines.docker.specs import LADDER, world_commands
from collbench.launch.engines.ladder import Ladder
from collbench.launch.engines.spec import WorldSpec
from collbench.launch.folders import user_inside
from collbench.launch.patience import StopCheck
from collbench.launch.placing import Placement
from collbench.machine import topology
from collbench.machine.topology import Topology
from collbench.schema.launch_plan import LaunchPlan


@dataclass(frozen=True)
class DockerEngine:
    """Docker on this machine. `program` is the command that people use."""

    name: str = "docker"
    program: str = "docker"
    service: Service = field(default=DOCKER)
    ladder: Ladder = LADDER
    starts_ranks: bool = False
    bare: bool = False
    local: bool = True
    start_seconds: tuple[float, float] = (1.0, 0.4)  # seen with Docker Engine 20.10 on two cores

    def address(self, plan: LaunchPlan) -> str:
        return plan.docker_host

    def machine(self, address: str = "") -> Topology:
        """The driver's own: containers run beside it, and share its folders."""
        return topology.here()

    def cautions(self, address: str = "") -> tuple[str, ...]:
        return ()

    def container(self, box: str) -> str | None:
        """As its ranks find it in COLLBENCH_CONTAINER."""
        return box

    def longest(self, plan: LaunchPlan) -> None:
        """Any time."""

    def user(self) -> tuple[int, int]:
        return user_inside()

    def render(self, world: WorldSpec) -> tuple[str, ...]:
        return world_commands(world, self.program)

    def script(self, plan: LaunchPlan, order: Sequence[Launch], placements: Mapping[LaunchCell, Placement]) -> None:
        """World by world."""

    def connect(self, address: str, check: StopCheck) -> DockerSession:
        return DockerSession(address, check, self.service)


ENGINE = DockerEngine()
