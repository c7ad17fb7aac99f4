"""A container's specification as the SDK's host configuration: the same as `docker_command` writes."""

from __future__ import annotations

from typing import Any

from collbench.launch.specs import Spec


def host_settings(spec: Spec) -> dict[str, Any]:
    """Keyword arguments of `create_host_config`."""
    import docker.types

    network = f"container:{spec.joins_net}" if spec.joins_net else spec.network
    joined = {"ipc_mode": f"container:{spec.joins_ipc}", "pid_mode": f"container:{spec.joins_ipc}"}
    own = {"ipc_mode": "shareable" if spec.donates else "private", "shm_size": spec.shm_bytes}
    limits = [docker.types.Ulimit(name="memlock", soft=-1, hard=-1)] if spec.unlimited_memlock else []
    return {
        "init": True,
        "network_mode": network,
        "cap_drop": ["ALL"],
        "cap_add": list(spec.capabilities),
        "security_opt": ["no-new-privileges"],
        "cpuset_cpus": spec.cores,
        "cpuset_mems": spec.nodes,
        "ulimits": limits,
        "binds": [f"{m.source}:{m.target}:{'rw' if m.writable else 'ro'}" for m in spec.mounts],
        **(joined if spec.joins_ipc else own),
    }
