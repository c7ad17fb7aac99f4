"""The images of an engine: looked up, asked what they hold, and what the engine can give to their containers."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from collbench import workloads
from collbench.errors import EngineError, ImageMissing
from collbench.launch import launchers
from collbench.launch.cells import LIBRARY_PATH, NO_OVERRIDES, LaunchCell, Overrides, overrides_of
from collbench.launch.engines.docker.client import Docker, objects, translated
from collbench.launch.engines.docker.spec import (
    ACCOUNT,
    CDI,
    CDI_KIND,
    MEMLOCK,
    OUT,
    PROCESSES,
    SEALED,
    SECURITY,
    STEPS,
    UNLIMITED_MEMLOCK,
    ContainerMount,
    gpu_requests,
    library_mounts,
)
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.expansion import sharing_of
from collbench.launch.folders import folders, refuse_other_device, user_inside
from collbench.launch.placement import Placement
from collbench.launch.probe import Contents
from collbench.machine.cgroup import under
from collbench.schema.plan import Plan

#: The repository of images that are named without a slash or a colon: those that `collbench image build` makes.
REPOSITORY = "collbench"

#: Longest wait for a command in an image, and the interval of looking whether it ended (s).
ANSWER, LOOK = 60, 0.05

#: Last lines that are read of what it prints.
LINES = 200

#: How a container that asks an image is confined: as at the first step of the ladder, and without a network.
CONFINED: dict[str, Any] = {"network_mode": "none", "cap_drop": ["ALL"], "security_opt": [SECURITY]}

# Images --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageRef:
    """The name of an image, for messages, and the id that the name stood for when it was looked up."""

    name: str
    id: str


def reference_of(image: str) -> str:
    """`openmpi` as `collbench/openmpi`; a reference as it is."""
    return image if "/" in image or ":" in image else f"{REPOSITORY}/{image}"


def inspect(engine: Docker, reference: str) -> dict[str, Any]:
    """What the engine knows of an image: id, digests, labels.

    Raises:
        ImageMissing: the engine does not have it.
    """
    import docker.errors

    with translated(f"image {reference}"):
        try:
            (image,) = objects([engine.api.inspect_image(reference)])
        except docker.errors.ImageNotFound as error:
            raise ImageMissing(f"image {reference}: not on this engine ({engine.host}).") from error
    return image


def find(engine: Docker, name: str) -> ImageRef:
    """The image that has this name now, as a plan names it; later another image may get the name.

    Raises:
        ImageMissing: it is not on the engine; the message says how to get it.
    """
    reference = reference_of(name)
    try:
        return ImageRef(reference, str(inspect(engine, reference)["Id"]))
    except ImageMissing as error:
        hint = "Pull it, or build it." if reference == name else f"Build it: collbench image build {name}"
        raise ImageMissing(f"{error} {hint}") from error


def ask(
    engine: Docker, image: ImageRef, argv: tuple[str, ...], variables: Mapping[str, str] | None = None, **settings: Any
) -> tuple[int, str]:
    """Run a command in a confined container of its own, as a rank's user: exit code, and the end of its output.

    The container is removed; one that cannot be is found by the labels of `engine` later (`containers.remove_all`).
    The user has no account in the image (`ACCOUNT`). `settings` are those of `create_host_config`.

    Raises:
        EngineError: it could not be run, or did not end within `ANSWER` seconds.
        Interrupted: told to stop.
    """
    what, api, number = f"image {image.name}: cannot run {argv[0]}", engine.api, None
    owner, group = user_inside()
    # The log is bounded: the engine keeps what an image prints until the container is removed.
    log = {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}
    try:
        with translated(what):
            host = api.create_host_config(init=True, log_config=log, pids_limit=PROCESSES, **{**CONFINED, **settings})
            number = api.create_container(
                image.id, list(argv), user=f"{owner}:{group}", environment=ACCOUNT | dict(variables or {}),
                labels=engine.labels, host_config=host,
            )["Id"]  # fmt: skip
            api.start(number)
            until = time.monotonic() + ANSWER
            while (state := api.inspect_container(number)["State"])["Status"] not in ("exited", "dead"):
                engine.check()
                if time.monotonic() > until:
                    raise EngineError(f"{what}: it did not end within {ANSWER} s.")
                time.sleep(LOOK)
            return int(state["ExitCode"]), api.logs(number, tail=LINES).decode("utf-8", "replace")
    finally:
        if number is not None:
            with contextlib.suppress(Exception):
                api.remove_container(number, force=True, v=True)


def contents_of(
    engine: Docker, image: ImageRef, build: bool = False, requests: list[dict[str, Any]] | None = None,
    benchmarks: tuple[str, ...] = (), overrides: Overrides = NO_OVERRIDES,
) -> Contents:  # fmt: skip
    """What `collbench.launch.probe` prints in an image; with `build`, how its MPI was built too.

    `requests` are the engine's device requests: without a GPU, backends that need one are missing. `overrides` are what
    a plan sets for its ranks, and so for this.

    Raises:
        ImageMissing: it does not hold this collbench.
    """
    argv = ("python", "-m", "collbench.launch.probe", *(("--build",) if build else ()), *benchmarks)
    settings: dict[str, Any] = {"device_requests": requests} if requests else {}
    if overrides.mounts():
        settings["mounts"] = [mount.setting for mount in library_mounts(overrides)]
    if variables := {**overrides.variables, **overrides.inside()}:
        settings["variables"] = variables
    code, output = ask(engine, image, argv, **settings)
    last = output.strip().rpartition("\n")[2]
    try:
        contents = msgspec.json.decode(last, type=Contents)
    except msgspec.DecodeError as error:
        cause = last[:200] or f"exit code {code}"
        raise ImageMissing(f"image {image.name}: does not hold collbench ({cause}).") from error
    if contents.another is not None:
        again = f"collbench image build {image.name.removeprefix(f'{REPOSITORY}/')}"
        raise ImageMissing(f"image {image.name}: {contents.another}. Build it again: {again}")
    return contents


# What an engine can give ---------------------------------------------------------------------------------------------


def allows_memlock(engine: Docker, image: ImageRef) -> bool:
    """Whether a container may lock memory without limit: not where the engine itself may not."""
    try:
        return ask(engine, image, ("true",), ulimits=[UNLIMITED_MEMLOCK])[0] == 0
    except EngineError as error:
        if "rlimit" in str(error):
            return False
        raise


def allowed_calls(engine: Docker, image: ImageRef) -> frozenset[str]:
    """Of `process_vm_readv` and `kcmp`, what processes in a container without capabilities may call on each other."""
    _, output = ask(engine, image, ("python", "-m", "collbench.doctor.attach_probe"))
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


def refuse_unseen_folder(engine: Docker, image: ImageRef, plan: Plan) -> None:
    """Mount a folder as a launch does, and let the user in the container read it and write to it.

    Raises:
        EngineError: the engine is on another machine, or in another mount namespace, or the user may not write there.
    """
    token = secrets.token_hex(8)
    with folders(plan, user_inside()) as at:
        (at.out / "token").write_text(token, encoding="ascii")
        command = ("sh", "-c", f"cat {OUT}/token && : > {OUT}/seen")
        try:
            code, output = ask(engine, image, command, mounts=[ContainerMount(str(at.out), OUT, True).setting])
            usable = code == 0 and output.split()[-1:] == [token]  # an image's entry point may print something before
        except EngineError as error:
            if str(at.out) not in str(error):
                raise
            usable = False
    if not usable:
        raise EngineError(
            f"temporary folder {tempfile.gettempdir()}: containers of the engine at {engine.host} cannot use it. "
            "Engine and driver must share it: set TMPDIR to a folder that both have under the same path."
        )


def refuse_without_host(engine: Docker, image: ImageRef) -> None:
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
    """Whether an engine (25 and later) knows a CDI device of NVIDIA's, by its `Docker.describe`.

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


def refuse_without_gpus(engine: Docker, image: ImageRef, gpus: tuple[str, ...], cdi: bool) -> None:
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
    """The folder of layers and volumes, by an engine's `Docker.describe`.

    With containerd's image store (the default from engine 29 on) layers are containerd's.
    """
    snapshots = any("io.containerd.snapshotter" in str(line) for line in description.get("DriverStatus") or ())
    return "/var/lib/containerd" if snapshots else str(description.get("DockerRootDir") or "/var/lib/docker")


#: Remarks on what an engine does not grant, for readers of the numbers.
_NOT_GRANTED = {
    MEMLOCK: "the engine cannot grant unlimited memlock: the step limits does not include it (ulimit -l)",
    SEALED: "the engine cannot keep the host's address off a network: ranks reach what listens there",
}


def look_at(engine: Docker, plan: Plan, placements: Mapping[LaunchCell, Placement]) -> Looks:
    """What every image of these cells holds, and what the engine can give: as `Session.look` says.

    Raises:
        ImageMissing: an image is missing, or does not hold this collbench and what its ranks need.
        EngineError: the engine cannot give what every launch needs.
    """
    images = {name: find(engine, name) for name in dict.fromkeys(cell.image for cell in placements)}
    first = next(iter(images.values()))
    gpus = max((placement.gpus for placement in placements.values()), key=len, default=())
    cdi = bool(gpus) and (engine.service.only_cdi or knows_cdi(engine.describe()))
    refuse_unseen_folder(engine, first, plan.of_world())
    if gpus:
        refuse_without_gpus(engine, first, gpus, cdi)
    if any(sharing_of(cell).host for cell in placements):
        refuse_without_host(engine, first)
    shared = any(placement.shares_boxes for placement in placements.values())  # and so ranks read each other's memory
    looks, variable = {}, f"{LIBRARY_PATH}="
    for name, image in images.items():
        engine.check()
        details = inspect(engine, image.id)
        config = details.get("Config") or {}
        paths = (str(text).removeprefix(variable) for text in config.get("Env") or () if str(text).startswith(variable))
        library_path = next(paths, "")
        contents = contents_of(
            engine, image, requests=gpu_requests(gpus, cdi), benchmarks=workloads.uses(plan.benchmarks),
            overrides=overrides_of(plan, library_path),
        )  # fmt: skip
        attach = launchers.get(contents.vendor, name).attach if shared else frozenset()
        looks[name] = Look(
            contents, image.id, f"image {name}", id=str(details["Id"]), digests=tuple(details.get("RepoDigests") or ()),
            labels={key: str(value) for key, value in (config.get("Labels") or {}).items()
                    if key.startswith("collbench.")},
            refused=attach - allowed_calls(engine, image) if attach else frozenset(), library_path=library_path,
        )  # fmt: skip
    memlock = all(cell.isolation == STEPS[0] for cell in placements) or allows_memlock(engine, first)
    abilities = {MEMLOCK: memlock, SEALED: seals_networks(engine), CDI: cdi}
    grants = frozenset(name for name, granted in abilities.items() if granted)
    return Looks(
        {name: replace(look, grants=grants) for name, look in looks.items()},
        tuple(remark for name, remark in _NOT_GRANTED.items() if name not in grants),
        storage_devices=_storage_devices(engine, plan, placements),
    )


def _storage_devices(engine: Docker, plan: Plan, placements: Mapping[LaunchCell, Placement]) -> dict[str, str]:
    """By storage, the device that it is on.

    Raises:
        EngineError: the host's counterpart would be on another.
    """
    if not any(cell.storage for cell in placements):
        return {}
    root = storage_root(engine.describe())
    if "host" in plan.policies:
        refuse_other_device(placements, plan.storage_folder, root)
    here, there = (under(Path(folder)).text for folder in (plan.storage_folder, root))
    return {"overlay": there, "volume": there, "bind": here}
