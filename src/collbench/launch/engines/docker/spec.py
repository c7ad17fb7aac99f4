"""From a world and its isolation step to the containers of Docker: what each is, for the SDK and as a command. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from collbench.launch.engines.spec import SHARING, USUAL_SHM, LadderStep, WorldSpec, ladder_of
from collbench.launch.expansion import SHM_FOLDER, needs_shm_folder, sharing_of, variables
from collbench.launch.launchers import Argv
from collbench.launch.overrides import Overrides
from collbench.launch.placement import Box

LADDER = ladder_of(
    LadderStep("strict", "private ipc, pid, net, uts; only its own GPU; Docker's default limits", SHARING["strict"]),
    LadderStep("limits", "1 GiB of /dev/shm, unlimited memlock, SYS_NICE", SHARING["limits"]),
    LadderStep("ipc", "one ipc and one pid namespace for all, SYS_PTRACE", SHARING["ipc"]),
    LadderStep("net", "one network namespace for all, and so one hostname", SHARING["net"], between=True),
    LadderStep("visible", "every GPU visible in every container", SHARING["visible"], between=True),
    LadderStep("files", "the ipc, pid, net and uts namespaces of the host, and so its /dev/shm; own files and user",
         SHARING["files"]),
)  # fmt: skip

STEPS = tuple(step.name for step in LADDER)

#: Paths in a container of what is mounted into it, and the command of every rank there.
PLAN, PLACEMENT = "/collbench/plan.json", "/collbench/placement.json"
OUT, RELAY, TURNS = "/collbench/out", "/collbench/relay", "/collbench/turns"
INSIDE = ("collbench", "run", PLAN, "--placement", PLACEMENT, "--out", OUT, "--style", "csv")

#: The command of a container: it waits, and the commands of a world are executed in it. It ends by itself after this
#: time (s), so that those of a killed driver do not stay.
WAITS = ("sleep", str(24 * 3600))

#: What an engine can give, as `WorldSpec.stack.grants` has it: unlimited locked memory, a network in which the host has
#: no address, GPUs by their CDI names.
MEMLOCK, SEALED, CDI = "memlock", "sealed", "cdi"

#: Labels on everything that a launch creates: the run, this launch of it, and the process that drives it.
RUN_LABEL, LAUNCH_LABEL, DRIVER_LABEL = "collbench.run", "collbench.launch", "collbench.driver"

#: Variables of the user in a container, who has no account in the image.
ACCOUNT = {"HOME": "/tmp", "USER": "collbench"}  # noqa: S108 - in the container

#: Options of security that every container has; one without the filter of system calls has another.
SECURITY, UNFILTERED = "no-new-privileges", "seccomp=unconfined"

#: The engine's option for a bridge on which the host has no address, and options of a launch's network.
INHIBIT_ADDRESS = "com.docker.network.bridge.inhibit_ipv4"
NETWORK_OPTIONS = {INHIBIT_ADDRESS: "true"}

#: No limit on locked memory. The most processes of a container: the larger of a number and one for each of its ranks.
UNLIMITED_MEMLOCK = {"Name": "memlock", "Soft": -1, "Hard": -1}
PROCESSES, PROCESSES_PER_RANK = 4096, 256

#: What NVIDIA's runtime puts into a container with a device: the libraries of the driver and NVML. The kind of device
#: in NVIDIA's CDI specification (nvidia-ctk cdi generate).
GPU_CAPABILITIES, CDI_KIND = ("gpu", "compute", "utility"), "nvidia.com/gpu"


@dataclass(frozen=True)
class ContainerMount:
    """A file or folder of the host in a container (`kind` bind); or a new volume or memory (tmpfs), without a source.

    By its type a source must exist; the SDK's `binds` would make it, as root. A new volume goes with its container.
    """

    source: str
    target: str
    writable: bool = False
    kind: str = "bind"

    @property
    def setting(self) -> dict[str, Any]:
        return {"Target": self.target, "Source": self.source or None, "Type": self.kind, "ReadOnly": not self.writable}

    @property
    def flag(self) -> str:
        source = f"source={self.source}," if self.source else ""
        return f"type={self.kind},{source}target={self.target}{'' if self.writable else ',readonly'}"


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
    labels: dict[str, str]
    user: str
    cores: str
    nodes: str
    hostname: str | None
    network: str | None
    shm_bytes: int
    unlimited_memlock: bool
    capabilities: tuple[str, ...]
    environment: dict[str, str]
    processes: int
    mounts: tuple[ContainerMount, ...] = ()
    aliases: tuple[str, ...] = ()
    joins_ipc: str | None = None
    joins_net: str | None = None
    donates: bool = False
    of_host: bool = False
    gpus: tuple[str, ...] = ()
    cdi: bool = False
    seccomp: str = "default"


@dataclass(frozen=True)
class Layout:
    """The containers of a world. `anchor` owns the namespaces that all share, and computes nothing.

    `members` have the ranks; `hosts` are their names for the launcher in the first of them, with their numbers of
    ranks. `network` is the one that is made for them.
    """

    anchor: Spec | None
    members: tuple[Spec, ...]
    hosts: tuple[tuple[str, int], ...]
    network: str | None

    @property
    def specs(self) -> tuple[Spec, ...]:
        """All containers, in the order in which they must start."""
        return self.members if self.anchor is None else (self.anchor, *self.members)

    @property
    def names(self) -> dict[str, str]:
        return {host: spec.name for (host, _), spec in zip(self.hosts, self.members, strict=True)}


def program_of(world: WorldSpec) -> Argv:
    return INSIDE if world.folders.turns is None else (*INSIDE, "--turns", TURNS)


def library_mounts(overrides: Overrides) -> tuple[ContainerMount, ...]:
    """The library files that a plan puts in front of others."""
    return tuple(ContainerMount(source, target) for target, source in overrides.mounts().items())


def layout_of(world: WorldSpec) -> Layout:
    """The containers of a world; what is not said is the engine's default. The host's namespaces need no anchor."""
    cell, stack, placement = world.cell, world.stack, world.placement
    sharing, limits = sharing_of(cell), STEPS.index(cell.isolation) >= STEPS.index("limits")
    capabilities = {"SYS_NICE": limits, "SYS_PTRACE": sharing.ipc}
    environment = variables(cell, placement, stack) | stack.overrides.inside() | ACCOUNT

    def container(name: str, box: Box, **fields: Any) -> Spec:
        return Spec(
            name=name, image=stack.reference, user=f"{world.user[0]}:{world.user[1]}", cores=box.cores, nodes=box.nodes,
            labels={RUN_LABEL: world.run, LAUNCH_LABEL: world.name, DRIVER_LABEL: world.driver},
            shm_bytes=sharing.shm_bytes or USUAL_SHM, unlimited_memlock=limits and MEMLOCK in stack.grants,
            capabilities=tuple(capability for capability, is_added in capabilities.items() if is_added),
            environment=environment | {"COLLBENCH_CONTAINER": box.name},
            processes=max(PROCESSES, PROCESSES_PER_RANK * len(box.ranks)), cdi=CDI in stack.grants,
            seccomp=cell.seccomp, **fields,
        )  # fmt: skip

    names, mounts = tuple(f"{world.name}-{box.name}" for box in placement.boxes), _mounts(world)
    network, anchor = None if sharing.host else f"{world.name}-net", None
    if (sharing.ipc or sharing.net) and not sharing.host and len(names) > 1:
        name, aliases = f"{world.name}-anchor", names if sharing.net else ()
        anchor = container(
            name, Box("anchor", (), placement.slots), network=network, aliases=aliases, donates=True,
            # Open MPI's mpirun must find its own host, by this name, among those that it is given.
            hostname=aliases[0] if aliases else name,
        )  # fmt: skip
    joins = None if anchor is None else anchor.name
    joins_net = joins if sharing.net else None
    connected = not (joins_net or sharing.host)
    members = tuple(
        container(
            name, box, mounts=mounts[box.name], gpus=placement.gpus if sharing.all_gpus else box.gpus,
            hostname=name if connected else None, network=network if connected else None,
            joins_ipc=joins if sharing.ipc else None, joins_net=joins_net, of_host=sharing.host,
        )
        for name, box in zip(names, placement.boxes, strict=True)
    )  # fmt: skip
    # In the host's network all have the host's name. A launcher must find itself among its hosts, so that the first one
    # is `localhost`; the others are names alone, by which it asks for daemons, and which nobody resolves.
    reached = ("localhost", *names[1:]) if sharing.host else names
    hosts = tuple((host, len(box.ranks)) for host, box in zip(reached, placement.boxes, strict=True))
    return Layout(anchor, members, hosts, network)


def _mounts(world: WorldSpec) -> dict[str, tuple[ContainerMount, ...]]:
    """By box; that of rank 0 may write to the launch's folders, and has the storage of programs that work in files."""
    at, stack, storage = world.folders, world.stack, world.storage
    files = (ContainerMount(str(at.plan), PLAN), ContainerMount(str(at.placement), PLACEMENT))
    common = (*files, *library_mounts(stack.overrides))
    if at.turns is not None:
        common += (ContainerMount(str(at.turns), TURNS),)
    if needs_shm_folder(world.cell, world.placement, stack):
        common += (ContainerMount("", SHM_FOLDER, True, "tmpfs"),)
    first = (*common, ContainerMount(str(at.out), OUT, True), ContainerMount(str(at.relay), RELAY, True))
    if storage is not None and storage.kind in ("bind", "volume", "tmpfs"):  # else in the container's own layer
        first += (ContainerMount(storage.source or "", storage.folder, True, storage.kind),)
    return {box.name: common if number else first for number, box in enumerate(world.placement.boxes)}


class ContainerOption(NamedTuple):
    """An option of a container: `key` and `value` for the SDK, `flag` of the command, once with each of its words.

    `words` follow from the value where they are None. A value of None is the engine's default.
    """

    flag: str
    key: str
    value: Any
    words: Iterable[str] | None = None

    def flags(self) -> list[str]:
        if isinstance(self.value, bool):
            return [self.flag] if self.value else []
        words = self.words
        if words is None and isinstance(self.value, dict):
            words = (f"{name}={value}" for name, value in self.value.items())
        elif words is None and self.value is not None:
            words = self.value if isinstance(self.value, list) else [self.value]
        return [f"{self.flag}={word}" for word in words or ()]


def options(spec: Spec) -> tuple[ContainerOption, ...]:
    """All options of a container, in the order of its command; the arguments of the SDK follow from them too."""
    host, anchor = "host" if spec.of_host else None, f"container:{spec.joins_ipc}" if spec.joins_ipc else None
    network = host or (f"container:{spec.joins_net}" if spec.joins_net else spec.network)
    alone = not (host or anchor)  # in a PID namespace of its own an init process reaps
    memlock, gpus = [UNLIMITED_MEMLOCK] if spec.unlimited_memlock else [], gpu_requests(spec.gpus, spec.cdi) or None
    capabilities = f'"device={",".join(spec.gpus)}","capabilities={",".join(GPU_CAPABILITIES)}"'
    return (
        ContainerOption("--name", "name", spec.name),
        ContainerOption("--user", "user", spec.user),
        ContainerOption("--cap-drop", "cap_drop", ["ALL"]),
        ContainerOption("--security-opt", "security_opt",
                        [SECURITY] if spec.seccomp == "default" else [SECURITY, UNFILTERED]),
        ContainerOption("--cpuset-cpus", "cpuset_cpus", spec.cores),
        ContainerOption("--cpuset-mems", "cpuset_mems", spec.nodes),
        ContainerOption("--pids-limit", "pids_limit", spec.processes),
        ContainerOption("--log-driver", "log_config", {"Type": "none"}, ["none"]),  # commands are read as they print
        ContainerOption("--cap-add", "cap_add", list(spec.capabilities)),
        ContainerOption("--label", "labels", spec.labels),
        ContainerOption("--network", "network_mode", network),
        ContainerOption("--hostname", "hostname", spec.hostname),
        ContainerOption("--network-alias", "aliases", list(spec.aliases)),
        ContainerOption("--init", "init", alone),
        ContainerOption("--ipc", "ipc_mode", host or anchor or ("shareable" if spec.donates else "private")),
        ContainerOption("--pid", "pid_mode", host or anchor),
        ContainerOption("--uts", "uts_mode", host),
        ContainerOption("--shm-size", "shm_size", spec.shm_bytes if alone else None),
        ContainerOption("--ulimit", "ulimits", memlock, ["memlock=-1:-1" for _ in memlock]),
        ContainerOption("--device", "device_requests", gpus, cdi_names(spec.gpus)) if spec.cdi
        else ContainerOption("--gpus", "device_requests", gpus, [capabilities] if gpus else []),
        ContainerOption("--env", "environment", spec.environment),
        ContainerOption("--mount", "mounts", [at.setting for at in spec.mounts], [at.flag for at in spec.mounts]),
    )  # fmt: skip


def cdi_names(gpus: tuple[str, ...]) -> list[str]:
    return [f"{CDI_KIND}={uuid}" for uuid in gpus]


def gpu_requests(gpus: tuple[str, ...], cdi: bool) -> list[dict[str, Any]]:
    """Device requests of the engine's API for GPUs by UUID: none, or one."""
    if gpus and cdi:
        return [{"Driver": "cdi", "DeviceIDs": cdi_names(gpus)}]
    return [{"DeviceIDs": list(gpus), "Capabilities": [list(GPU_CAPABILITIES)]}] if gpus else []


def container_settings(api: Any, spec: Spec) -> dict[str, Any]:
    """Keyword arguments of `create_container`. `api` is the SDK's client."""
    values = {option.key: option.value for option in options(spec)}
    end = {"Aliases": aliases} if (aliases := values.pop("aliases")) else {}
    container = {key: values.pop(key) for key in ("name", "user", "hostname", "labels", "environment")}
    return container | {
        "image": spec.image,
        "command": list(WAITS),
        "host_config": api.create_host_config(**{key: value for key, value in values.items() if value is not None}),
        "networking_config": {"EndpointsConfig": {spec.network: end}} if spec.network else None,
    }


def container_command(spec: Spec, program: str = "docker") -> str:
    """A command that creates and starts the same container."""
    flags = (flag for option in options(spec) for flag in option.flags())
    return shlex.join([program, "run", "--detach", *flags, spec.image, *WAITS])


def world_commands(world: WorldSpec, program: str = "docker") -> tuple[str, ...]:
    """The network, the containers, what starts the ranks, and what removes everything."""
    layout = layout_of(world)
    creates = [container_command(spec, program) for spec in layout.specs]
    removes = f"{program} rm -f {' '.join(spec.name for spec in layout.specs)}"
    if layout.network:
        sealed = f" --opt {INHIBIT_ADDRESS}=true" if SEALED in world.stack.grants else ""
        creates.insert(0, f"{program} network create --internal{sealed} {layout.network}")
        removes += f"; {program} network rm {layout.network}"
    return (*creates, *_starts(world, layout, program), removes)


def _starts(world: WorldSpec, layout: Layout, program: str) -> list[str]:
    """The command in the first container; across containers, what else the launcher does."""
    launcher, hosts, first = world.stack.launcher, layout.hosts, layout.members[0].name
    if len(hosts) == 1:
        local = launcher.local(world.cell.ranks, world.placement.crowded, program_of(world))
        return [f"{program} exec {first} {shlex.join(local)}"]
    argv = shlex.join(launcher.across(hosts, program_of(world)))
    if launcher.direct is not None:
        return [
            f"{program} exec --detach {' '.join(f'--env {k}={v}' for k, v in variables.items())} "
            f"{layout.names[name]} {argv}"
            for name, variables in launcher.direct(hosts)
        ]
    how = "leaves in the relay folder" if launcher.relays else "prints"
    return [
        f"{program} exec {first} {argv}",
        f"#   waits until the commands that it {how} run in the other containers; collbench launch starts them",
    ]
