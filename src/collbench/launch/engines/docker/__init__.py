"""Engine `docker`: containers of Docker Engine, or of another engine with its API."""

from __future__ import annotations

from functools import partial

from collbench.launch.engines.docker.client import DOCKER, Service
from collbench.launch.engines.docker.containers import DockerSession
from collbench.launch.engines.docker.spec import LADDER, world_commands
from collbench.launch.engines.spec import Engine
from collbench.launch.waiting import StopCheck
from collbench.schema.plan import Plan


def docker_engine(name: str, service: Service) -> Engine:
    """An engine with Docker's API on this machine, by the name of the command that people use."""

    def connect(plan: Plan, check: StopCheck) -> DockerSession:
        return DockerSession(plan.docker_host, check, service)

    seen = (1.0, 0.4)  # with Docker Engine 20.10 on two cores
    return Engine(name, connect, seen, LADDER, local=True, commands=partial(world_commands, program=name))


ENGINE = docker_engine("docker", DOCKER)
