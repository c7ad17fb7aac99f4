"""A container's specification as the SDK's host configuration: the same as `docker_command` writes."""

from __future__ import annotations

from typing import Any

from collbench.launch.specs import GPU_CAPABILITIES, Spec, cdi_names


def gpu_requests(gpus: tuple[str, ...], cdi: bool) -> list[Any]:
    """The SDK's device requests for GPUs by UUID: none, or one."""
    import docker.types

    if not gpus:
        return []
    if cdi:
        return [docker.types.DeviceRequest(driver="cdi", device_ids=list(cdi_names(gpus)))]
    return [docker.types.DeviceRequest(device_ids=list(gpus), capabilities=[list(GPU_CAPABILITIES)])]


def host_settings(spec: Spec) -> dict[str, Any]:
    """Keyword arguments of `create_host_config`."""
    import docker.types

    network = f"container:{spec.joins_net}" if spec.joins_net else spec.network
    joined = {"ipc_mode": f"container:{spec.joins_ipc}", "pid_mode": f"container:{spec.joins_ipc}"}
    own = {"ipc_mode": "shareable" if spec.donates else "private", "shm_size": spec.shm_bytes}
    devices = gpu_requests(spec.gpus, spec.cdi)
    limits = [docker.types.Ulimit(name="memlock", soft=-1, hard=-1)] if spec.unlimited_memlock else []
    return {
        "init": spec.joins_ipc is None,  # it reaps in the namespace that it owns; the anchor's does for its members
        "network_mode": network,
        "cap_drop": ["ALL"],
        "cap_add": list(spec.capabilities),
        "security_opt": ["no-new-privileges"],
        "cpuset_cpus": spec.cores,
        "cpuset_mems": spec.nodes,
        "ulimits": limits,
        "binds": [f"{m.source}:{m.target}:{'rw' if m.writable else 'ro'}" for m in spec.mounts],
        **({"device_requests": devices} if devices else {}),
        **(joined if spec.joins_ipc else own),
    }
