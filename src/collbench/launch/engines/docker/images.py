"""Images: built from `containers/NAME.Dockerfile`, asked what they hold, and labelled with the answer."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from collbench.errors import RequestError
from collbench.launch.engines.docker import image_store
from collbench.launch.engines.docker.containers import Docker, remove_all
from collbench.launch.engines.docker.look import contents_of, find, reference_of
from collbench.launch.engines.spec import cleaned
from collbench.launch.probe import Build, Contents
from collbench.launch.shipped import PACKAGE, dockerfiles, find_dockerfile, find_layer, source_tree
from collbench.launch.waiting import Stopping

#: What is needed to install collbench in addition to its code.
_INSTALLS = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py")

_LEFT_OUT = ("__pycache__", ".so", ".egg-info", ".pyc", "source_tree")


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


def context_files(dockerfile: Path, recipe: Recipe) -> dict[str, Path]:
    """Every file by its path in the context. The code is that of the program that runs, installed or in a clone.

    Raises:
        RequestError: a file of the recipe is missing.
    """
    tree = source_tree()
    files = {name: tree / name for name in _INSTALLS}
    files |= {f"src/collbench/{name}": path for name, path in _below(PACKAGE)}
    files |= {f"containers/site/{name}": path for name, path in _below(tree / "containers" / "site")}
    files |= {f"containers/site/{name}": path for name, path in _site(recipe)}
    return files | {f"containers/{dockerfile.name}": dockerfile}


def _below(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not any(part.endswith(_LEFT_OUT) for part in inside.parts):
            yield inside.as_posix(), path


def _site(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    if recipe.ca_bundle is not None:
        if not recipe.ca_bundle.is_file():
            raise RequestError(f"--ca-bundle {recipe.ca_bundle}: no such file.")
        yield "ca.crt", recipe.ca_bundle
    if recipe.wheelhouse is not None:
        wheels = sorted(recipe.wheelhouse.glob("*.whl"))
        if not wheels:
            raise RequestError(f"--wheelhouse {recipe.wheelhouse}: no *.whl in it.")
        yield from ((f"wheels/{wheel.name}", wheel) for wheel in wheels)


def pack(files: Mapping[str, Path]) -> bytes:
    """A context as a tar, the same for the same contents, so that the builder can use its cache."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for name, path in files.items():
            tar.add(path, name, filter=_anonymous)
    return buffer.getvalue()


def only(dockerfile: str) -> bytes:
    """A context with nothing but a Dockerfile of this text."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(dockerfile)
        tar.addfile(member, io.BytesIO(dockerfile.encode()))
    return buffer.getvalue()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    member.mode = 0o644
    return member


OnLine = Callable[[str], None]

#: The label by which a Dockerfile says which MPI its image has.
_MPI = "collbench.mpi.vendor="


@dataclass(frozen=True)
class ImageBuild:
    """An image to be built. `files` are by their paths in the context, `arguments` those of the build.

    `on` is the image, by its name, that the engine must have for it.
    """

    name: str
    dockerfile: Path
    recipe: Recipe
    files: dict[str, Path]
    arguments: dict[str, str]
    on: str | None = None


def prepare(text: str, recipe: Recipe) -> ImageBuild:
    """The build for the name of an image or the path of a Dockerfile; no engine is asked.

    Raises:
        RequestError: no such Dockerfile, a file of the recipe is missing, or the Dockerfile lacks the argument BASE or
            an argument of the recipe.
    """
    name, dockerfile = find_dockerfile(text)
    _base_of(dockerfile)
    return ImageBuild(name, dockerfile, recipe, context_files(dockerfile, recipe), arguments_of(dockerfile, recipe))


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
    made = replace(recipe, base=reference_of(name))
    files = {f"containers/{above.name}": above}
    return ImageBuild(f"{name}-{layer}", above, made, files, arguments_of(above, made), on=name)


def command_of(build: ImageBuild) -> tuple[str, ...]:
    """The docker command that builds from a context on its standard input."""
    arguments = (word for name, value in build.arguments.items() for word in ("--build-arg", f"{name}={value}"))
    cache = ("--no-cache",) if build.recipe.no_cache else ()
    file, tag = f"containers/{build.dockerfile.name}", reference_of(build.name)
    return ("docker", "build", "--file", file, "--tag", tag, *arguments, *cache, "-")


def build(engine: Docker, wanted: ImageBuild, on_line: OnLine, stopping: Stopping) -> Contents:
    """Build an image, ask it what it holds, and label it with the answer. `on_line` gets the builder's lines.

    Ctrl-C ends the build; while the image is asked, it is handled by `stopping`.

    Raises:
        ImageMissing: the engine does not have what it is to be built on.
        EngineError: the build failed; the last lines are in the message.
    """
    if wanted.on is not None:
        find(engine, wanted.on)  # a builder would look for it in a registry
    name, file = wanted.name, f"containers/{wanted.dockerfile.name}"
    context = pack(wanted.files)
    draft = f"{reference_of(name)}:unlabelled-{engine.run}"  # another build of this name may run
    with cleaned(partial(remove_all, engine)):
        image_store.build(engine, context, file, draft, wanted.arguments, wanted.recipe.no_cache, {}, on_line)
        try:
            with stopping.listening():
                return _labelled(engine, name, wanted.dockerfile, draft, wanted.recipe)
        finally:
            image_store.untag(engine, draft)


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
    given = {"BASE": recipe.base, "NO_INDEX": "1" if recipe.no_index else None, "CUDA": recipe.cuda}
    for argument in recipe.arguments:
        name, equals, value = argument.partition("=")
        if not equals or name not in known:
            there = ", ".join(dict.fromkeys(known))
            raise RequestError(f"--build-arg {argument}: write NAME=VALUE; {dockerfile.name} has {there}.")
        given[name] = value
    return {name: value for name, value in given.items() if value is not None}


def _labelled(engine: Docker, name: str, dockerfile: Path, draft: str, recipe: Recipe) -> Contents:
    """Ask a draft what it holds, and tag it with labels that say so."""
    contents = contents_of(engine, image_store.resolve(engine, draft), build=True)
    labels = labels_of(contents) | {"collbench.base": _base(engine, dockerfile, recipe)}
    image_store.build(
        engine, only(f"FROM {draft}\n"), "Dockerfile", reference_of(name), {}, False, labels, lambda line: None
    )
    return contents


def labels_of(contents: Contents) -> dict[str, str]:
    """What an image holds, as labels."""
    labels = {"collbench.version": contents.collbench, "collbench.python": contents.python}
    labels["collbench.sources"] = contents.sources
    labels["collbench.native"] = "yes" if contents.native else "no"
    if contents.libraries and contents.vendor not in ("torch", ""):  # one MPI per image
        labels["collbench.mpi"] = f"{contents.libraries[0].name} {contents.libraries[0].version}"
        labels["collbench.mpi.sha256"] = contents.libraries[0].sha256 or ""
    if contents.build is not None:
        labels["collbench.mpi.configure"] = contents.build.configure or ""
        labels["collbench.mpi.cuda"] = _cuda(contents.build)
    packages = {f"collbench.package.{name}": version for name, version in contents.packages.items()}
    return labels | _for_gpus(contents) | packages


def _for_gpus(contents: Contents) -> dict[str, str]:
    """NCCL, CuPy, and which CUDA they are made for."""
    labels = {} if contents.cuda is None else {"collbench.cuda": contents.cuda}
    for name, version in contents.packages.items():
        if name.startswith("cupy-cuda"):
            labels["collbench.cupy"] = version
    for library in contents.libraries:
        if library.name == "NCCL":
            labels |= {"collbench.nccl": library.version, "collbench.nccl.sha256": library.sha256 or ""}
    return labels


def _cuda(build: Build) -> str:
    """`built yes, claimed no`: finding out whether it works takes a GPU."""
    words: dict[bool | None, str] = {True: "yes", False: "no", None: "unknown"}
    return f"built {words[build.cuda_built]}, claimed {words[build.cuda_claimed]}"


def _base(engine: Docker, dockerfile: Path, recipe: Recipe) -> str:
    """The base image and its digest, or its id where it is not from a registry."""
    base = recipe.base or _base_of(dockerfile)
    image = image_store.inspect(engine, base)
    return f"{base} {(image.get('RepoDigests') or [image['Id']])[0]}"


def _base_of(dockerfile: Path) -> str:
    """The base image that a Dockerfile names, of which a label is made.

    Raises:
        RequestError: it names none.
    """
    base = re.search(r"^ARG BASE=(\S+)", _text_of(dockerfile), re.MULTILINE)
    if base is None:
        raise RequestError(f"image {dockerfile}: has no line ARG BASE=IMAGE. Add it, and begin with FROM ${{BASE}}.")
    return base[1]


def _text_of(dockerfile: Path) -> str:
    """The text of a Dockerfile.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        return dockerfile.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"image {dockerfile}: cannot be read as UTF-8 text ({error}).") from error


def listed(engine: Docker) -> list[dict[str, str]]:
    """Labels of every image that collbench built, with its tag and id."""
    rows = [
        {**(image.get("Labels") or {}), "tag": tag, "id": str(image["Id"])[7:19]}
        for image in image_store.labelled(engine, "collbench.image")
        for tag in image.get("RepoTags") or []
        if tag != "<none>:<none>"
    ]
    return sorted(rows, key=lambda row: row["tag"])
