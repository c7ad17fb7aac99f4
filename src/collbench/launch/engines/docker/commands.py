"""A world as commands of the engine's own program, as a person would type them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from collbench.launch.engines.docker.specs import (
    GPU_CAPABILITIES,
    INHIBIT_ADDRESS,
    SEALED,
    Spec,
    cdi_names,
    program_of,
    reached,
    specs_for,
)
from collbench.launch.engines.spec import WorldSpec


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
    starter, first = world.stack.starter, members[0].name
    if len(members) == 1:
        local = starter.local(world.cell.ranks, world.placement.crowded, program_of(world))
        return [f"{program} exec {first} {shlex.join(local)}"]
    boxes = world.placement.boxes
    hosts = tuple((name, len(box.ranks)) for name, box in zip(reached(members), boxes, strict=True))
    containers = {name: spec.name for name, spec in zip(reached(members), members, strict=True)}
    argv = shlex.join(starter.across(hosts, program_of(world)))
    if starter.direct is not None:
        return [
            f"{program} exec --detach {' '.join(f'--env {k}={v}' for k, v in variables.items())} "
            f"{containers[name]} {argv}"
            for name, variables in starter.direct(hosts)
        ]
    how = "leaves in the relay folder" if starter.relays else "prints"
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
