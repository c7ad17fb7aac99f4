"""Engine `docker`: containers of Docker Engine, or of another engine with its API."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.launch.engines.docker.connection import DOCKER, Service
from collbench.launch.engines.docker.session import DockerSession
from collbench.launch.engines.docker.specs import LADDER, world_commands
from collbench.launch.engines.ladder import Ladder
from collbench.launch.engines.spec import Engine, WorldSpec
from collbench.launch.folders import user_inside
from collbench.launch.waiting import StopCheck
from collbench.schema.plan import LaunchPlan


@dataclass(frozen=True)
class DockerEngine(Engine):
    """Docker on this machine. `program` is the command that people use."""

    name: str = "docker"
    start_seconds: tuple[float, float] = (1.0, 0.4)  # seen with Docker Engine 20.10 on two cores
    ladder: Ladder = LADDER
    local: bool = True
    program: str = "docker"
    service: Service = DOCKER

    def address(self, plan: LaunchPlan) -> str:
        return plan.docker_host

    def user(self) -> tuple[int, int]:
        return user_inside()

    def render(self, world: WorldSpec) -> tuple[str, ...]:
        return world_commands(world, self.program)

    def connect(self, address: str, check: StopCheck) -> DockerSession:
        return DockerSession(address, check, self.service)


ENGINE = DockerEngine()
