"""Engine `podman`: Podman serves Docker's API on a socket of its own (`podman system service`)."""

from __future__ import annotations

import os

from collbench.launch.engines.docker import DockerEngine
from collbench.launch.engines.docker.connection import Service

#: The socket of root's service, and of other users'.
_SOCKET = "/run/podman/podman.sock" if os.getuid() == 0 else f"/run/user/{os.getuid()}/podman/podman.sock"

ENGINE = DockerEngine(
    name="podman",
    program="podman",
    service=Service(
        title="Podman",
        host=f"unix://{_SOCKET}",
        variable="CONTAINER_HOST",
        start=f"systemctl {'' if os.getuid() == 0 else '--user '}start podman.socket",
        access="Name the service of your own user, or run this as root.",
        only_cdi=True,
    ),
)
