"""Images: built from `containers/NAME.Dockerfile`, asked what they hold, and labelled with the answer."""

from __future__ import annotations

import io
import re
import tarfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from collbench.errors import EngineError, RequestError
from collbench.launch.engines.docker.client import Docker, objects, translated
from collbench.launch.engines.docker.containers import remove_all
from collbench.launch.engines.docker.look import contents_of, find, inspect, reference_of
from collbench.launch.engines.spec import cleaned
from collbench.launch.probe import Contents
from collbench.launch.waiting import Stopping
from collbench.registry import PACKAGE, dockerfiles, find_dockerfile, find_layer, source_tree

#: What is needed to install collbench in addition to its code, and what is left out of that.
_INSTALLS = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py")
_LEFT_OUT = ("__pycache__", ".so", ".egg-info", ".pyc", "source_tree")

#: The label by which a Dockerfile says which MPI its image has.
_MPI = "collbench.mpi.vendor="

#: Longest wait for the next line of a build (s), and last lines of a failed build in its message.
BUILD_SILENCE, BUILD_LINES = 600, 8

OnBuildLine = Callable[[str], None]

# What is built -------------------------------------------------------------------------------------------------------


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


def prepare(text: str, recipe: Recipe) -> ImageBuild:
    """The build for the name of an image or the path of a Dockerfile; no engine is asked.

    Raises:
        RequestError: no such Dockerfile, a file of the recipe is missing, or the Dockerfile lacks the argument BASE or
            an argument of the recipe.
    """
    name, dockerfile = find_dockerfile(text)
    base = re.search(r"^ARG BASE=(\S+)", _text_of(dockerfile), re.MULTILINE)
    if base is None:
        raise RequestError(f"image {dockerfile}: has no line ARG BASE=IMAGE. Add it, and begin with FROM ${{BASE}}.")
    files = context_files(dockerfile, recipe)
    return ImageBuild(
        name, dockerfile, recipe.base or base[1], files, arguments_of(dockerfile, recipe), recipe.no_cache
    )


def prepare_with(layer: str, text: str, recipe: Recipe) -> ImageBuild:
    """The build of NAME-LAYER, on the image NAME that is there, for a name or a path as in `prepare`.

    Raises:
        RequestError: no such layer or Dockerfile, an image without an MPI, or a recipe that is for NAME itself.
    """
    above, (name, dockerfile) = find_layer(layer), find_dockerfile(text)
    if _MPI not in _text_of(dockerfile):
        able = ", ".join(known for known, file in dockerfiles().items() if _MPI in _text_of(file))
        raise RequestError(f"image {text}: has no MPI, and {layer} is for those that have one: {able}.")
    if recipe != Recipe(no_cache=recipe.no_cache):
        raise RequestError(
            f"--with {layer}: is put on the image {name} as it is. Build that first with the other flags, and then "
            f"only: collbench image build {text} --with {layer}"
        )
    base = reference_of(name)
    arguments = arguments_of(above, replace(recipe, base=base))
    files = {f"containers/{above.name}": above}
    return ImageBuild(f"{name}-{layer}", above, base, files, arguments, recipe.no_cache, on=name)


def context_files(dockerfile: Path, recipe: Recipe) -> dict[str, Path]:
    """Every file by its path in the context. The code is that of the program that runs, installed or in a clone.

    Raises:
        RequestError: a file of the recipe is missing.
    """
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
        wheels = sorted(recipe.wheelhouse.glob("*.whl"))
        if not wheels:
            raise RequestError(f"--wheelhouse {recipe.wheelhouse}: no *.whl in it.")
        files |= {f"containers/site/wheels/{wheel.name}": wheel for wheel in wheels}
    return files | {f"containers/{dockerfile.name}": dockerfile}


def arguments_of(dockerfile: Path, recipe: Recipe) -> dict[str, str]:
    """A recipe as build arguments.

    Raises:
        RequestError: an argument is given that the Dockerfile does not have.
    """
    known = re.findall(r"^ARG (\w+)", _text_of(dockerfile), re.MULTILINE)
    if recipe.cuda is not None and "CUDA" not in known:
        raise RequestError(
            f"--cuda {recipe.cuda}: {dockerfile.name} has no argument CUDA. Remove --cuda for this image."
        )
    values = {"BASE": recipe.base, "NO_INDEX": "1" if recipe.no_index else None, "CUDA": recipe.cuda}
    for argument in recipe.arguments:
        name, equals, value = argument.partition("=")
        if not equals or name not in known:
            there = ", ".join(dict.fromkeys(known))
            raise RequestError(f"--build-arg {argument}: write NAME=VALUE; {dockerfile.name} has {there}.")
        values[name] = value
    return {name: value for name, value in values.items() if value is not None}


def _text_of(dockerfile: Path) -> str:
    """The text of a Dockerfile.

    Raises:
        RequestError: it cannot be read.
    """
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
    file, tag = f"containers/{build.dockerfile.name}", reference_of(build.name)
    return ("docker", "build", "--file", file, "--tag", tag, *arguments, *cache, "-")


# Building ------------------------------------------------------------------------------------------------------------


def build(engine: Docker, wanted: ImageBuild, on_line: OnBuildLine, stopping: Stopping) -> Contents:
    """Build an image, ask it what it holds, and label it with the answer. `on_line` gets the builder's lines.

    Ctrl-C ends the build; while the image is asked, it is handled by `stopping`.

    Raises:
        ImageMissing: the engine does not have what it is to be built on.
        EngineError: the build failed; the last lines are in the message.
    """
    if wanted.on is not None:
        find(engine, wanted.on)  # a builder would look for it in a registry
    context, file, tag = pack(wanted.files), f"containers/{wanted.dockerfile.name}", reference_of(wanted.name)
    draft = f"{tag}:unlabelled-{engine.run}"  # another build of this name may run
    with cleaned(partial(remove_all, engine)):
        build_context(engine, context, file, draft, wanted.arguments, wanted.no_cache, {}, on_line)
        try:
            with stopping.listening():
                contents = contents_of(engine, find(engine, draft), build=True)
                base = inspect(engine, wanted.base)  # one of no registry has no digest, but an id
                labels = labels_of(contents)
                labels["collbench.base"] = f"{wanted.base} {(base.get('RepoDigests') or [base['Id']])[0]}"
                context = pack({"Dockerfile": f"FROM {draft}\n".encode()})
                build_context(engine, context, "Dockerfile", tag, {}, False, labels, lambda line: None)
                return contents
        finally:
            untag(engine, draft)


def build_context(
    engine: Docker, context: bytes, dockerfile: str, tag: str, arguments: dict[str, str], no_cache: bool,
    labels: dict[str, str], on_line: OnBuildLine,
) -> None:  # fmt: skip
    """Build and tag an image from a context in a tar; the builder's lines go to `on_line`.

    Raises:
        EngineError: it failed; the builder's last lines are in the message.
    """
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
    labels = {
        "collbench.version": contents.collbench,
        "collbench.python": contents.python,
        "collbench.sources": contents.sources,
        "collbench.native": "yes" if contents.native else "no",
    }
    if contents.libraries and contents.vendor not in ("torch", ""):  # one MPI per image
        labels["collbench.mpi"] = f"{contents.libraries[0].name} {contents.libraries[0].version}"
        labels["collbench.mpi.sha256"] = contents.libraries[0].sha256 or ""
    if (mpi := contents.build) is not None:
        words: dict[bool | None, str] = {True: "yes", False: "no", None: "unknown"}
        labels["collbench.mpi.configure"] = mpi.configure or ""
        # Whether it works is not known: finding out takes a GPU.
        labels["collbench.mpi.cuda"] = f"built {words[mpi.cuda_built]}, claimed {words[mpi.cuda_claimed]}"
    if contents.cuda is not None:
        labels["collbench.cuda"] = contents.cuda
    for library in contents.libraries:
        if library.name == "NCCL":
            labels |= {"collbench.nccl": library.version, "collbench.nccl.sha256": library.sha256 or ""}
    for name, version in contents.packages.items():
        labels[f"collbench.package.{name}"] = version
        if name.startswith("cupy-cuda"):
            labels["collbench.cupy"] = version
    return labels


def listed(engine: Docker) -> list[dict[str, str]]:
    """Labels of every image that collbench built, with its tag and id."""
    with translated("listing images"):
        images = objects(engine.api.images(filters={"label": "collbench.image"}))
    rows = [
        {**(image.get("Labels") or {}), "tag": tag, "id": str(image["Id"])[7:19]}
        for image in images
        for tag in image.get("RepoTags") or []
        if tag != "<none>:<none>"
    ]
    return sorted(rows, key=lambda row: row["tag"])
