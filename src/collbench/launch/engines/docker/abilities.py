"""What an engine can give to a container: tried before an experiment, because not every engine says it."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import EngineError
from collbench.launch.engines.docker.connection import Connection
from collbench.launch.engines.docker.containers import Docker
from collbench.launch.engines.docker.host_config import gpu_requests, mounts_of
from collbench.launch.engines.docker.image_store import Resolved, run_once
from collbench.launch.engines.docker.specs import CDI_KIND, OUT, Mount
from collbench.launch.folders.layout import folders, user_inside
from collbench.schema.plan import Plan

#: Settings of a container that asks an image: as at the first step of the ladder, and without a network.
CONFINED: dict[str, Any] = {"network_mode": "none", "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}


def ask(
    engine: Connection, image: Resolved, argv: tuple[str, ...], variables: Mapping[str, str] | None = None,
    **settings: Any,
) -> tuple[int, str]:  # fmt: skip
    """Run a command in an image as a rank's user, with these variables: exit code, and the end of what it printed."""
    owner, group = user_inside()
    given = {"variables": variables} if variables else {}
    return run_once(engine, image, argv, f"{owner}:{group}", **given, **{**CONFINED, **settings})


def allows_memlock(engine: Connection, image: Resolved) -> bool:
    """Whether a container may lock memory without limit: not where the engine itself may not."""
    import docker.types

    unlimited = docker.types.Ulimit(name="memlock", soft=-1, hard=-1)
    try:
        return ask(engine, image, ("true",), ulimits=[unlimited])[0] == 0
    except EngineError as error:
        if "rlimit" in str(error):
            return False
        raise


def allowed_calls(engine: Connection, image: Resolved) -> frozenset[str]:
    """Of `process_vm_readv` and `kcmp`, what processes in a container without capabilities may call on each other."""
    _, output = ask(engine, image, ("python", "-m", "collbench.doctor.parts.attach_probe"))
    try:
        errors = msgspec.json.decode(output.strip(), type=dict[str, dict[str, int | None]])["plain"]
    except (msgspec.DecodeError, KeyError):
        return frozenset()
    return frozenset(name for name, key in (("process_vm_readv", "readv"), ("kcmp", "kcmp")) if errors.get(key) == 0)


def seals_networks(engine: Docker) -> bool:
    """Whether a network can be made in which the host has no address: some engines refuse the option."""
    name = f"{engine.run}-sealed"
    try:
        engine.create_network(name, engine.labels)
    except EngineError as error:
        if "option" in str(error):
            return False
        raise
    engine.remove([], engine.networks(*(f"{key}={value}" for key, value in engine.labels.items())))
    return True


def refuse_unseen_folder(engine: Connection, image: Resolved, plan: Plan) -> None:
    """Mount a folder as a launch does, and let the user in the container read it and write to it.

    Raises:
        EngineError: the engine is on another machine, or in another mount namespace, or the user may not write there.
    """
    token = secrets.token_hex(8)
    with folders(plan, user_inside()) as made:
        (made.out / "token").write_text(token, encoding="ascii")
        command = ("sh", "-c", f"cat {OUT}/token && : > {OUT}/seen")
        try:
            code, output = ask(engine, image, command, mounts=mounts_of((Mount(str(made.out), OUT, True),)))
            usable = code == 0 and output.split()[-1:] == [token]  # an image's entry point may print something before
        except EngineError as error:
            if str(made.out) not in str(error):
                raise
            usable = False
    if not usable:
        raise EngineError(
            f"temporary folder {tempfile.gettempdir()}: containers of the engine at {engine.host} cannot use it. "
            "Engine and driver must share it: set TMPDIR to a folder that both have under the same path."
        )


def refuse_without_host(engine: Connection, image: Resolved) -> None:
    """Try a container in the host's namespaces, which must be those of this process: it removes what ranks leave there.

    Raises:
        EngineError: the engine makes no such containers, or this process is in other ipc and pid namespaces.
    """
    spaces = [Path("/proc/self/ns/ipc"), Path("/proc/self/ns/pid")]
    modes: dict[str, Any] = dict.fromkeys(("network_mode", "ipc_mode", "pid_mode", "uts_mode"), "host")
    code, output = ask(engine, image, ("readlink", *map(str, spaces)), **modes)
    if code != 0 or output.split()[-len(spaces) :] != [str(space.readlink()) for space in spaces]:
        raise EngineError(
            "step files: the engine's host has other ipc and pid namespaces than this process. Run collbench launch on "
            "that host, or in a container with --ipc=host --pid=host."
        )


def knows_cdi(description: dict[str, Any], root: Path = Path("/")) -> bool:
    """Whether an engine (25 and later) knows a CDI device of NVIDIA's, by its `Connection.describe`.

    It lists devices (28.3 and later), or the folders of their specifications, which are read on this machine.
    """
    if any(CDI_KIND in str(device) for device in description.get("DiscoveredDevices") or ()):
        return True
    for folder in description.get("CDISpecDirs") or ():
        for path in (root / str(folder).lstrip("/")).glob("*"):
            with contextlib.suppress(OSError):
                if path.suffix in (".yaml", ".json") and CDI_KIND in path.read_text("utf-8", "replace"):
                    return True
    return False


def refuse_without_gpus(engine: Connection, image: Resolved, gpus: tuple[str, ...], cdi: bool) -> None:
    """Try a container with GPUs of these UUIDs.

    Raises:
        EngineError: the engine cannot give them to one.
    """
    try:
        ask(engine, image, ("true",), device_requests=gpu_requests(gpus, cdi))
    except EngineError as error:
        raise EngineError(
            f"{error}. The engine cannot give GPUs to containers. Install NVIDIA's container toolkit on its machine, "
            "run nvidia-ctk runtime configure (or, from engine 25 on, nvidia-ctk cdi generate), and restart the engine."
        ) from error


def storage_root(description: dict[str, Any]) -> str:
    """The folder of layers and volumes, by an engine's `Connection.describe`.

    With containerd's image store (the default from engine 29 on) layers are containerd's.
    """
    snapshots = any("io.containerd.snapshotter" in str(line) for line in description.get("DriverStatus") or ())
    return "/var/lib/containerd" if snapshots else str(description.get("DockerRootDir") or "/var/lib/docker")
