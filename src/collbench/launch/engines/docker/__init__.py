"""Engine `docker`: containers of Docker Engine, or of another engine with its API."""

from __future__ import annotations

from collbench.launch.engines.docker.connection import DOCKER, Service
from collbench.launch.engines.docker.session import DockerSession
from collbench.launch.engines.docker.specs import LADDER, world_commands
from collbench.launch.engines.spec import Engine, WorldSpec
from collbench.launch.waiting import StopCheck
from collbench.schema.plan import LaunchPlan


def docker_engine(name: str, service: Service) -> Engine:
    """An engine with Docker's API on this machine, by the name of the command that people use."""

    def connect(plan: LaunchPlan, check: StopCheck) -> DockerSession:
        return DockerSession(plan.docker_host, check, service)

    def commands(world: WorldSpec) -> tuple[str, ...]:
        return world_commands(world, name)

    seen = (1.0, 0.4)  # with Docker Engine 20.10 on two cores
    return Engine(name, connect, seen, LADDER, local=True, commands=commands)


ENGINE = docker_engine("docker", DOCKER)
