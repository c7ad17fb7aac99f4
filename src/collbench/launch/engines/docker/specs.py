"""From a world and its isolation step to containers: as specifications, for the SDK, and as commands to type. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from collbench.launch.engines.ladder import SHARING, USUAL_SHM, Step, ladder_of, step_of
from collbench.launch.engines.spec import WorldSpec
from collbench.launch.folders import Storage
from collbench.launch.launchers import Argv
from collbench.launch.overrides import Overrides
from collbench.launch.placement import Box
from collbench.launch.rank_environment import SHM_FOLDER, needs_shm_folder, variables

LADDER = ladder_of(
    Step("strict", "private ipc, pid, net, uts; only its own GPU; Docker's default limits", SHARING["strict"]),
    Step("limits", "1 GiB of /dev/shm, unlimited memlock, SYS_NICE", SHARING["limits"]),
    Step("ipc", "one ipc and one pid namespace for all, SYS_PTRACE", SHARING["ipc"]),
    Step("net", "one network namespace for all, and so one hostname", SHARING["net"], between=True),
    Step("visible", "every GPU visible in every container", SHARING["visible"], between=True),
    Step("files", "the ipc, pid, net and uts namespaces of the host, and so its /dev/shm; own files and user",
         SHARING["files"]),
)  # fmt: skip

STEPS = tuple(step.name for step in LADDER)


#: Paths in a container of what is mounted into it.
PLAN, PLACEMENT = "/collbench/plan.json", "/collbench/placement.json"
OUT, RELAY, TURNS = "/collbench/out", "/collbench/relay", "/collbench/turns"

#: The name of the first container for a launcher in it, in the network of the host: every launcher knows it as its own.
LOCALHOST = "localhost"

#: The command of every rank in a container, and what follows where its world takes turns with others.
INSIDE = ("collbench", "run", PLAN, "--placement", PLACEMENT, "--out", OUT, "--style", "csv")
IN_TURNS = ("--turns", TURNS)

#: A container ends by itself after this time (s), so that those of a killed driver do not stay.
LIVES = 24 * 3600

#: What an engine can give, as `WorldSpec.stack.grants` has it: unlimited locked memory, a network in which the host has
#: no address, GPUs by their CDI names.
MEMLOCK, SEALED, CDI = "memlock", "sealed", "cdi"

#: Labels on everything that a launch creates: the run, this launch of it, and the process that drives it.
RUN_LABEL, LAUNCH_LABEL, DRIVER_LABEL = "collbench.run", "collbench.launch", "collbench.driver"

#: Variables of the user in a container, who has no account in the image.
ACCOUNT = (("HOME", "/tmp"), ("USER", "collbench"))  # noqa: S108 - in the container

#: Options of security that every container has; one without the filter of system calls has another.
SECURITY, UNFILTERED = "no-new-privileges", "seccomp=unconfined"

#: The engine's option for a bridge on which the host has no address.
INHIBIT_ADDRESS = "com.docker.network.bridge.inhibit_ipv4"

#: The most processes and threads of a container: the larger of a number and a number for each of its ranks.
PROCESSES, PROCESSES_PER_RANK = 4096, 256

#: What NVIDIA's runtime puts into a container with a device: the libraries of the driver and NVML.
GPU_CAPABILITIES = ("gpu", "compute", "utility")

#: The kind of device in NVIDIA's CDI specification (nvidia-ctk cdi generate).
CDI_KIND = "nvidia.com/gpu"


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host in a container; or without a source a new volume, or memory (`kind` tmpfs)."""

    source: str
    target: str
    writable: bool = False
    kind: Literal["bind", "volume", "tmpfs"] = "bind"


@dataclass(frozen=True)
class Spec:
    """One container, as it will be created. `joins_ipc` and `joins_net` name the container whose namespaces it joins.

    `image` is an id: a name may get another image between two launches. `processes` is the most that it may have.
    `gpus` are UUIDs of those that it sees, by their CDI names where the engine knows them (`cdi`). `donates`: it is the
    anchor, which owns the namespaces that the others join. `of_host`: it is in the host's, with its network, hostname
    and /dev/shm.
    """

    name: str
    image: str
    labels: tuple[tuple[str, str], ...]
    user: str
    cores: str
    nodes: str
    hostname: str | None
    network: str | None
    shm_bytes: int
    unlimited_memlock: bool
    capabilities: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    processes: int
    mounts: tuple[Mount, ...] = ()
    aliases: tuple[str, ...] = ()
    joins_ipc: str | None = None
    joins_net: str | None = None
    donates: bool = False
    of_host: bool = False
    gpus: tuple[str, ...] = ()
    cdi: bool = False
    seccomp: str = "default"

    @property
    def security(self) -> tuple[str, ...]:
        """Its options of security."""
        return (SECURITY,) if self.seccomp == "default" else (SECURITY, UNFILTERED)

    @property
    def command(self) -> tuple[str, ...]:
        """It only waits; the commands of a world are executed in it."""
        return ("sleep", str(LIVES))


def program_of(world: WorldSpec) -> Argv:
    """The command of a rank."""
    return INSIDE if world.folders.turns is None else (*INSIDE, *IN_TURNS)


def given(what: Overrides) -> tuple[Mount, ...]:
    """The library files that a plan puts in front of others."""
    return tuple(Mount(source, target) for target, source in what.mounts().items())


def _storage(storage: Storage | None) -> tuple[Mount, ...]:
    """What is mounted for programs that work in files; nothing where they work in the container's own layer."""
    kinds: dict[str, Literal["bind", "volume", "tmpfs"]] = {"bind": "bind", "volume": "volume", "tmpfs": "tmpfs"}
    if storage is None or storage.kind not in kinds:
        return ()
    return (Mount(storage.source or "", storage.folder, True, kinds[storage.kind]),)


def specs_for(world: WorldSpec) -> tuple[Spec, ...]:
    """The containers of a world, in the order in which they must start: the anchor first.

    It owns the namespaces that all share, and computes nothing; the host's are there without it. Everything that is not
    said here is the engine's default.
    """
    cell, stack, placement = world.cell, world.stack, world.placement
    if cell.isolation is None:
        raise ValueError(f"{cell.title}: no step of the ladder")
    sharing, limits = step_of(LADDER, cell.isolation).sharing, STEPS.index(cell.isolation) >= STEPS.index("limits")
    capabilities = {"SYS_NICE": limits, "SYS_PTRACE": sharing.ipc}
    environment = variables(cell, placement, stack) | stack.overrides.inside()

    def made(name: str, box: Box, **fields: Any) -> Spec:
        return Spec(
            name=name, image=stack.reference, user=f"{world.user[0]}:{world.user[1]}", cores=box.cores, nodes=box.nodes,
            labels=((RUN_LABEL, world.run), (LAUNCH_LABEL, world.name), (DRIVER_LABEL, world.driver)),
            shm_bytes=sharing.shm_bytes or USUAL_SHM, unlimited_memlock=limits and MEMLOCK in stack.grants,
            capabilities=tuple(capability for capability, is_added in capabilities.items() if is_added),
            environment=(*environment.items(), *ACCOUNT, ("COLLBENCH_CONTAINER", box.name)),
            processes=max(PROCESSES, PROCESSES_PER_RANK * len(box.ranks)), cdi=CDI in stack.grants,
            seccomp=cell.seccomp, **fields,
        )  # fmt: skip

    names, mounts = tuple(f"{world.name}-{box.name}" for box in placement.boxes), _mounts(world)
    network, anchor, specs = f"{world.name}-net", None, list[Spec]()
    if (sharing.ipc or sharing.net) and not sharing.host and len(names) > 1:
        anchor, aliases = f"{world.name}-anchor", names if sharing.net else ()
        # Open MPI's mpirun must find its own host, by this name, among those that it is given.
        hostname = aliases[0] if aliases else anchor
        specs.append(made(anchor, Box("anchor", (), placement.slots), hostname=hostname, network=network,
                          aliases=aliases, donates=True))  # fmt: skip
    joins_net = anchor if sharing.net else None
    connected = not (joins_net or sharing.host)
    for name, box in zip(names, placement.boxes, strict=True):
        specs.append(made(
            name, box, mounts=mounts[box.name], gpus=placement.gpus if sharing.all_gpus else box.gpus,
            hostname=name if connected else None, network=network if connected else None,
            joins_ipc=anchor if sharing.ipc else None, joins_net=joins_net, of_host=sharing.host,
        ))  # fmt: skip
    return tuple(specs)


def _mounts(world: WorldSpec) -> dict[str, tuple[Mount, ...]]:
    """By box; that of rank 0 may write to the launch's folders."""
    at, stack = world.folders, world.stack
    told = (Mount(str(at.plan), PLAN), Mount(str(at.placement), PLACEMENT), *given(stack.overrides))
    if at.turns is not None:
        told += (Mount(str(at.turns), TURNS),)
    if needs_shm_folder(world.cell, world.placement, stack):
        told += (Mount("", SHM_FOLDER, True, "tmpfs"),)
    mounts = {box.name: told for box in world.placement.boxes}
    writable = (Mount(str(at.out), OUT, True), Mount(str(at.relay), RELAY, True))
    mounts[world.placement.boxes[0].name] += (*writable, *_storage(world.storage))
    return mounts


def reached(members: Sequence[Spec]) -> tuple[str, ...]:
    """The names of these containers for the launcher in the first of them.

    In the host's network they all have the host's name. A launcher must find itself among its hosts, so that the first
    one is `localhost`; the others are names alone, by which it asks for daemons, and which nobody resolves.
    """
    first = LOCALHOST if members[0].of_host else members[0].name
    return (first, *(spec.name for spec in members[1:]))


def cdi_names(gpus: tuple[str, ...]) -> tuple[str, ...]:
    """GPUs as the Container Device Interface names them."""
    return tuple(f"{CDI_KIND}={uuid}" for uuid in gpus)


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


def world_commands(world: WorldSpec, program: str = "docker") -> tuple[str, ...]:
    """The network, the containers, what starts the ranks, and what removes everything."""
    specs = specs_for(world)
    network = next((spec.network for spec in specs if spec.network), None)
    sealed = f" --opt {INHIBIT_ADDRESS}=true" if SEALED in world.stack.grants else ""
    made = [f"{program} network create --internal{sealed} {network}"] if network else []
    removed = [f"{program} network rm {network}"] if network else []
    return (
        *made,
        *(container_command(spec, program) for spec in specs),
        *_starts(world, [spec for spec in specs if not spec.donates], program),
        "; ".join((f"{program} rm -f {' '.join(spec.name for spec in specs)}", *removed)),
    )


def _starts(world: WorldSpec, members: list[Spec], program: str) -> list[str]:
    """The command in the first container; across containers, what else the launcher does."""
    launcher, first = world.stack.launcher, members[0].name
    if len(members) == 1:
        local = launcher.local(world.cell.ranks, world.placement.crowded, program_of(world))
        return [f"{program} exec {first} {shlex.join(local)}"]
    boxes = world.placement.boxes
    hosts = tuple((name, len(box.ranks)) for name, box in zip(reached(members), boxes, strict=True))
    containers = {name: spec.name for name, spec in zip(reached(members), members, strict=True)}
    argv = shlex.join(launcher.across(hosts, program_of(world)))
    if launcher.direct is not None:
        return [
            f"{program} exec --detach {' '.join(f'--env {k}={v}' for k, v in variables.items())} "
            f"{containers[name]} {argv}"
            for name, variables in launcher.direct(hosts)
        ]
    how = "leaves in the relay folder" if launcher.relays else "prints"
    return [
        f"{program} exec {first} {argv}",
        f"#   waits until the commands that it {how} run in the other containers; collbench launch starts them",
    ]


def container_command(spec: Spec, program: str = "docker") -> str:
    """A command that creates and starts the same container."""
    return shlex.join([program, "run", "--detach", *_flags(spec), spec.image, *spec.command])


def _flags(spec: Spec) -> Iterator[str]:
    yield from (f"--name={spec.name}", f"--user={spec.user}", "--cap-drop=ALL")
    yield from (f"--security-opt={option}" for option in spec.security)
    yield from (f"--cpuset-cpus={spec.cores}", f"--cpuset-mems={spec.nodes}", f"--pids-limit={spec.processes}")
    yield "--log-driver=none"
    yield from (f"--cap-add={name}" for name in spec.capabilities)
    yield from (f"--label={name}={value}" for name, value in spec.labels)
    yield from _namespaces(spec)
    if spec.unlimited_memlock:
        yield "--ulimit=memlock=-1:-1"
    if spec.cdi:
        yield from (f"--device={name}" for name in cdi_names(spec.gpus))
    elif spec.gpus:
        yield f'--gpus="device={",".join(spec.gpus)}","capabilities={",".join(GPU_CAPABILITIES)}"'
    yield from (f"--env={name}={value}" for name, value in spec.environment)
    for mount in spec.mounts:
        only = "" if mount.writable else ",readonly"
        source = f"source={mount.source}," if mount.source else ""
        yield f"--mount=type={mount.kind},{source}target={mount.target}{only}"


def _namespaces(spec: Spec) -> Iterator[str]:
    if spec.of_host:
        yield from ("--network=host", "--ipc=host", "--pid=host", "--uts=host")
        return
    if spec.joins_net is not None:
        yield f"--network=container:{spec.joins_net}"
    else:
        yield from (f"--network={spec.network}", f"--hostname={spec.hostname}")
        yield from (f"--network-alias={alias}" for alias in spec.aliases)
    if spec.joins_ipc is not None:
        yield from (f"--ipc=container:{spec.joins_ipc}", f"--pid=container:{spec.joins_ipc}")
    else:
        yield from ("--init", f"--ipc={'shareable' if spec.donates else 'private'}", f"--shm-size={spec.shm_bytes}")
