"""Engine `podman`: Podman serves Docker's API on a socket of its own (`podman system service`)."""

from __future__ import annotations

import os

from collbench.launch.engines.docker import docker_engine
from collbench.launch.engines.docker.client import Service

_USER = os.getuid() if hasattr(os, "getuid") else 0

#: The socket of root's service, and of other users'.
_SOCKET = f"/run/user/{_USER}/podman/podman.sock" if _USER else "/run/podman/podman.sock"

ENGINE = docker_engine("podman", Service(
    title="Podman", host=f"unix://{_SOCKET}", variable="CONTAINER_HOST",
    start=f"systemctl {'--user ' if _USER else ''}start podman.socket",
    access="Name the service of your own user, or run this as root.", only_cdi=True,
))  # fmt: skip
