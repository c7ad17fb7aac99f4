"""From a placement and an isolation step to container specifications: pure, and printable as docker commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collbench.launch.isolation import Sharing
from collbench.launch.placing import Box, Placement

#: Where a container finds what is mounted into it.
PLAN, OUT, RELAY = "/collbench/plan.json", "/collbench/out", "/collbench/relay"

#: Labels on everything that a launch creates: the run, this launch of it, and the process that drives it.
RUN_LABEL, LAUNCH_LABEL, DRIVER_LABEL = "collbench.run", "collbench.launch", "collbench.driver"

#: What the image's accounts would say of the user inside, who has none there.
ACCOUNT = (("HOME", "/tmp"), ("USER", "collbench"))  # noqa: S108 - in the container

_SECURITY = "no-new-privileges"

#: The engine's option for a bridge on which the host has no address.
INHIBIT_ADDRESS = "com.docker.network.bridge.inhibit_ipv4"

#: Processes and threads that a container may have: so many, or so many for each of its ranks where that is more.
PROCESSES, PROCESSES_PER_RANK = 4096, 256

#: What NVIDIA's runtime is to put into a container beside the device: the driver's library, and NVML's.
GPU_CAPABILITIES = ("gpu", "compute", "utility")

#: The kind of device in NVIDIA's CDI specification (nvidia-ctk cdi generate).
CDI_KIND = "nvidia.com/gpu"


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host in a container."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Spec:
    """One container, as it will be created. `joins_ipc` and `joins_net` name the container whose namespaces it enters.

    `image` is an id: a name may come to mean another image between two launches. `processes` is the most that it may
    have. `gpus` are UUIDs of those that it sees, by their CDI names where the engine knows them (`cdi`). `lives` is the
    longest that it may live, in seconds: what a killed driver leaves behind ends by itself.
    """

    name: str
    image: str
    labels: tuple[tuple[str, str], ...]
    user: str
    lives: int
    cores: str
    nodes: str
    hostname: str | None
    network: str | None
    aliases: tuple[str, ...]
    joins_ipc: str | None
    joins_net: str | None
    donates: bool
    shm_bytes: int
    unlimited_memlock: bool
    capabilities: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    processes: int
    gpus: tuple[str, ...] = ()
    cdi: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """It only waits; ranks are executed in it."""
        return ("sleep", str(self.lives))


@dataclass(frozen=True)
class WorldSpec:
    """What the containers of one launch have in common. `run` is the experiment's name, `name` this launch's.

    `driver` says who drives it, `cdi` how the engine knows GPUs.
    """

    run: str
    name: str
    driver: str
    image: str
    user: str
    lives: int
    environment: dict[str, str]
    cdi: bool = False

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """On everything."""
        return ((RUN_LABEL, self.run), (LAUNCH_LABEL, self.name), (DRIVER_LABEL, self.driver))

    @property
    def network(self) -> str:
        """The network of its containers; without a way out."""
        return f"{self.name}-net"

    def container(self, box: str) -> str:
        """The container of a box; also its hostname where it has one of its own."""
        return f"{self.name}-{box}"


def specs_of(
    world: WorldSpec, placement: Placement, sharing: Sharing, mounts: Mapping[str, tuple[Mount, ...]]
) -> tuple[Spec, ...]:
    """The containers of a world in the order in which they must start: the anchor first. `mounts` are by box."""
    shared = sharing.needs_anchor and len(placement.boxes) > 1
    anchor = world.container("anchor") if shared else None
    found = [] if anchor is None else [_anchor(world, anchor, placement, sharing)]
    for box in placement.boxes:
        gpus = placement.gpus if sharing.all_gpus else box.gpus
        found.append(_member(world, box, anchor, sharing, mounts.get(box.name, ()), gpus))
    return tuple(found)


def _anchor(world: WorldSpec, name: str, placement: Placement, sharing: Sharing) -> Spec:
    """Owns what is shared; computes nothing. In a shared network it answers to every container's name."""
    every = Box("anchor", (), tuple(placement.slots))
    aliases = tuple(world.container(box.name) for box in placement.boxes) if sharing.shared_net else ()
    # Open MPI's mpirun must find its own host among those that it is given, by this name.
    hostname = aliases[0] if aliases else name
    return _spec(
        world, name, every, sharing, (), hostname=hostname, network=world.network, aliases=aliases, donates=True
    )


def _member(
    world: WorldSpec, box: Box, anchor: str | None, sharing: Sharing, mounts: tuple[Mount, ...], gpus: tuple[str, ...]
) -> Spec:
    joins_net = anchor if sharing.shared_net else None
    name = world.container(box.name)
    return _spec(
        world, name, box, sharing, mounts, hostname=None if joins_net else name,
        network=None if joins_net else world.network,
        joins_ipc=anchor if sharing.shared_ipc else None, joins_net=joins_net, gpus=gpus,
    )  # fmt: skip


def _spec(
    world: WorldSpec,
    name: str,
    box: Box,
    sharing: Sharing,
    mounts: tuple[Mount, ...],
    *,
    hostname: str | None,
    network: str | None,
    aliases: tuple[str, ...] = (),
    joins_ipc: str | None = None,
    joins_net: str | None = None,
    donates: bool = False,
    gpus: tuple[str, ...] = (),
) -> Spec:
    return Spec(
        name=name,
        image=world.image,
        labels=world.labels,
        user=world.user,
        lives=world.lives,
        cores=box.cores,
        nodes=box.nodes,
        hostname=hostname,
        network=network,
        aliases=aliases,
        joins_ipc=joins_ipc,
        joins_net=joins_net,
        donates=donates,
        shm_bytes=sharing.shm_bytes,
        unlimited_memlock=sharing.unlimited_memlock,
        capabilities=sharing.capabilities,
        environment=(*world.environment.items(), *ACCOUNT, ("COLLBENCH_CONTAINER", box.name)),
        mounts=mounts,
        processes=max(PROCESSES, PROCESSES_PER_RANK * len(box.ranks)),
        gpus=gpus,
        cdi=world.cdi,
    )


def docker_command(spec: Spec) -> str:
    """A docker command that creates the same container."""
    return shlex.join(["docker", "run", "--detach", *_flags(spec), spec.image, *spec.command])


def cdi_names(gpus: tuple[str, ...]) -> tuple[str, ...]:
    """GPUs as the Container Device Interface names them."""
    return tuple(f"{CDI_KIND}={uuid}" for uuid in gpus)


def _flags(spec: Spec) -> Iterator[str]:
    yield from (f"--name={spec.name}", f"--user={spec.user}", "--cap-drop=ALL", f"--security-opt={_SECURITY}")
    yield from (f"--cpuset-cpus={spec.cores}", f"--cpuset-mems={spec.nodes}", f"--pids-limit={spec.processes}")
    yield "--log-driver=none"
    yield from (f"--cap-add={name}" for name in spec.capabilities)
    yield from (f"--label={name}={value}" for name, value in spec.labels)
    if spec.joins_net is not None:
        yield f"--network=container:{spec.joins_net}"
    else:
        yield from (f"--network={spec.network}", f"--hostname={spec.hostname}")
        yield from (f"--network-alias={alias}" for alias in spec.aliases)
    if spec.joins_ipc is not None:
        yield from (f"--ipc=container:{spec.joins_ipc}", f"--pid=container:{spec.joins_ipc}")
    else:
        yield from ("--init", f"--ipc={'shareable' if spec.donates else 'private'}", f"--shm-size={spec.shm_bytes}")
    if spec.unlimited_memlock:
        yield "--ulimit=memlock=-1:-1"
    if spec.cdi:
        yield from (f"--device={name}" for name in cdi_names(spec.gpus))
    elif spec.gpus:
        yield f'--gpus="device={",".join(spec.gpus)}","capabilities={",".join(GPU_CAPABILITIES)}"'
    yield from (f"--env={name}={value}" for name, value in spec.environment)
    for mount in spec.mounts:
        only = "" if mount.writable else ",readonly"
        yield f"--mount=type=bind,source={mount.source},target={mount.target}{only}"
