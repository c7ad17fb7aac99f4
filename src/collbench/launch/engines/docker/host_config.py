"""A container's specification as arguments of the SDK: the same container as `commands.container_command`."""

from __future__ import annotations

from typing import Any

from collbench.launch.engines.docker.specs import GPU_CAPABILITIES, INHIBIT_ADDRESS, Mount, Spec, cdi_names

#: Options of a launch's network, which is internal too: the host gets no address in it.
NETWORK_OPTIONS = {INHIBIT_ADDRESS: "true"}


def gpu_requests(gpus: tuple[str, ...], cdi: bool) -> list[Any]:
    """The SDK's device requests for GPUs by UUID: none, or one."""
    import docker.types

    if not gpus:
        return []
    if cdi:
        return [docker.types.DeviceRequest(driver="cdi", device_ids=list(cdi_names(gpus)))]
    return [docker.types.DeviceRequest(device_ids=list(gpus), capabilities=[list(GPU_CAPABILITIES)])]


def mounts_of(mounts: tuple[Mount, ...]) -> list[Any]:
    """Mounts by type. `bind` needs an existing source; the SDK's `binds` would make it, as root.

    A volume without a source is a new one, which is removed with its container.
    """
    import docker.types

    return [docker.types.Mount(m.target, m.source or None, type=m.kind, read_only=not m.writable) for m in mounts]


def container_settings(api: Any, spec: Spec) -> dict[str, Any]:
    """Keyword arguments of `create_container`."""
    network = None
    if spec.network is not None:
        end = api.create_endpoint_config(aliases=list(spec.aliases))
        network = api.create_networking_config({spec.network: end})
    return {
        "image": spec.image,
        "command": list(spec.command),
        "name": spec.name,
        "hostname": spec.hostname,
        "user": spec.user,
        "labels": dict(spec.labels),
        "environment": dict(spec.environment),
        "host_config": api.create_host_config(**host_settings(spec)),
        "networking_config": network,
    }


def host_settings(spec: Spec) -> dict[str, Any]:
    """Keyword arguments of `create_host_config`."""
    import docker.types

    devices = gpu_requests(spec.gpus, spec.cdi)
    limits = [docker.types.Ulimit(name="memlock", soft=-1, hard=-1)] if spec.unlimited_memlock else []
    return {
        "cap_drop": ["ALL"],
        "cap_add": list(spec.capabilities),
        "security_opt": list(spec.security),
        "cpuset_cpus": spec.cores,
        "cpuset_mems": spec.nodes,
        "ulimits": limits,
        "pids_limit": spec.processes,
        "log_config": docker.types.LogConfig(type="none"),  # what ranks print is read from the commands themselves
        "mounts": mounts_of(spec.mounts),
        **({"device_requests": devices} if devices else {}),
        **namespaces(spec),
    }


def namespaces(spec: Spec) -> dict[str, Any]:
    """Those that a container gets, and an init process where the PID namespace is its own, in which that one reaps."""
    if spec.of_host:
        return dict.fromkeys(("network_mode", "ipc_mode", "pid_mode", "uts_mode"), "host") | {"init": False}
    network = f"container:{spec.joins_net}" if spec.joins_net else spec.network
    if spec.joins_ipc:
        anchor = f"container:{spec.joins_ipc}"
        return {"network_mode": network, "ipc_mode": anchor, "pid_mode": anchor, "init": False}
    ipc = "shareable" if spec.donates else "private"
    return {"network_mode": network, "ipc_mode": ipc, "shm_size": spec.shm_bytes, "init": True}
