"""Images: built from `containers/NAME.Dockerfile`, then asked what is in them, and labelled with the answer."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.errors import RequestError
from collbench.launch.engines.docker import image_store
from collbench.launch.engines.docker.cleanup import nothing_left
from collbench.launch.engines.docker.containers import Docker
from collbench.launch.engines.docker.look import contents_of, reference_of
from collbench.launch.probe import Build, Contents
from collbench.launch.stopping import Stopping
from collbench.spelling import suggestion

#: What of the source tree a build needs: the same as .dockerignore lets through.
_SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt", "src", "containers")

_LEFT_OUT = ("__pycache__", ".so", ".egg-info", ".pyc")

Hear = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """How to build: the base image, certificates of a proxy, wheels instead of a package index, for which CUDA."""

    base: str | None = None
    no_cache: bool = False
    ca_bundle: Path | None = None
    wheelhouse: Path | None = None
    no_index: bool = False
    cuda: str | None = None


def source_tree() -> Path:
    """The clone: the current folder, or the one that this program is installed from.

    Raises:
        RequestError: neither holds the Dockerfiles.
    """
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / "containers").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise RequestError("image build: needs the source tree with containers/. Run it in a clone of collbench.")


def dockerfiles(tree: Path) -> dict[str, Path]:
    """Name to Dockerfile."""
    return {path.name.removesuffix(".Dockerfile"): path for path in sorted((tree / "containers").glob("*.Dockerfile"))}


def build(engine: Docker, name: str, recipe: Recipe, hear: Hear, stopping: Stopping) -> Contents:
    """Build an image, ask it what it holds, tag it with labels that say so. `hear` gets the builder's lines.

    Ctrl-C cuts the build off, which the engine then ends; while the image is asked it is heard by `stopping`.

    Raises:
        RequestError: no such Dockerfile, or a file of the recipe is not there.
        EngineError: the build failed; the last lines are in the message.
    """
    tree = source_tree()
    known = dockerfiles(tree)
    if name not in known:
        raise RequestError(f"image {name!r}: no containers/{name}.Dockerfile. {suggestion(name, tuple(known))}")
    arguments = arguments_of(known[name], recipe)
    context = pack(tree, recipe)
    draft = f"{reference_of(name)}:unlabelled-{engine.run}"  # another build of this name may run
    with nothing_left(engine):
        image_store.build(engine, context, f"containers/{name}.Dockerfile", draft, arguments, recipe.no_cache, {}, hear)
        try:
            with stopping.listening():
                return _labelled(engine, name, known[name], draft, recipe)
        finally:
            image_store.untag(engine, draft)


def arguments_of(dockerfile: Path, recipe: Recipe) -> dict[str, str]:
    """A recipe as build arguments.

    Raises:
        RequestError: CUDA is asked for, and the Dockerfile does not know it.
    """
    if recipe.cuda is not None and not re.search(r"^ARG CUDA\b", dockerfile.read_text(encoding="utf-8"), re.MULTILINE):
        raise RequestError(
            f"--cuda {recipe.cuda}: {dockerfile.name} has no argument CUDA. Leave it away for this image."
        )
    given = {"BASE": recipe.base, "NO_INDEX": "1" if recipe.no_index else None, "CUDA": recipe.cuda}
    return {name: value for name, value in given.items() if value is not None}


def _labelled(engine: Docker, name: str, dockerfile: Path, draft: str, recipe: Recipe) -> Contents:
    """Ask a draft what it holds, and tag it with labels that say so."""
    found = contents_of(engine, image_store.resolve(engine, draft), build=True)
    labels = labels_of(found) | {"collbench.base": _base(engine, dockerfile, recipe)}
    image_store.build(
        engine, _only(f"FROM {draft}\n"), "Dockerfile", reference_of(name), {}, False, labels, lambda line: None
    )
    return found


def labels_of(found: Contents) -> dict[str, str]:
    """What an image says of itself, as labels."""
    own = {"collbench.version": found.collbench, "collbench.python": found.python}
    own["collbench.native"] = "yes" if found.native else "no"
    if found.libraries and found.vendor != "torch":  # one MPI per image
        own["collbench.mpi"] = f"{found.libraries[0].name} {found.libraries[0].version}"
        own["collbench.mpi.sha256"] = found.libraries[0].sha256 or ""
    if found.build is not None:
        own["collbench.mpi.configure"] = found.build.configure or ""
        own["collbench.mpi.cuda"] = _cuda(found.build)
    return own | _for_gpus(found) | {f"collbench.package.{name}": version for name, version in found.packages.items()}


def _for_gpus(found: Contents) -> dict[str, str]:
    """NCCL, CuPy, and which CUDA they are made for."""
    own = {} if found.cuda is None else {"collbench.cuda": found.cuda}
    for name, version in found.packages.items():
        if name.startswith("cupy-cuda"):
            own["collbench.cupy"] = version
    for library in found.libraries:
        if library.name == "NCCL":
            own |= {"collbench.nccl": library.version, "collbench.nccl.sha256": library.sha256 or ""}
    return own


def _cuda(build: Build) -> str:
    """`built yes, claimed no`: whether it works takes a GPU to find out."""
    words: dict[bool | None, str] = {True: "yes", False: "no", None: "unknown"}
    return f"built {words[build.cuda_built]}, claimed {words[build.cuda_claimed]}"


def pack(tree: Path, recipe: Recipe) -> bytes:
    """The build's context as a tar, with what only this site has under containers/site.

    Raises:
        RequestError: a file of the recipe is not there.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in _SOURCES:
            tar.add(tree / name, name, filter=_wanted)
        for path, target in _site(recipe):
            tar.add(path, f"containers/site/{target}")
    return buffer.getvalue()


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if any(part.endswith(_LEFT_OUT) for part in Path(member.name).parts):
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    return member


def _site(recipe: Recipe) -> Iterator[tuple[Path, str]]:
    if recipe.ca_bundle is not None:
        if not recipe.ca_bundle.is_file():
            raise RequestError(f"--ca-bundle {recipe.ca_bundle}: no such file.")
        yield recipe.ca_bundle, "ca.crt"
    if recipe.wheelhouse is not None:
        wheels = sorted(recipe.wheelhouse.glob("*.whl"))
        if not wheels:
            raise RequestError(f"--wheelhouse {recipe.wheelhouse}: no *.whl in it.")
        yield from ((wheel, f"wheels/{wheel.name}") for wheel in wheels)


def _only(dockerfile: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(dockerfile)
        tar.addfile(member, io.BytesIO(dockerfile.encode()))
    return buffer.getvalue()


def _base(engine: Docker, dockerfile: Path, recipe: Recipe) -> str:
    """The base image and its digest, or its id where it came from no registry."""
    lines = dockerfile.read_text(encoding="utf-8").splitlines()
    base = recipe.base or next(line.partition("=")[2] for line in lines if line.startswith("ARG BASE="))
    found: dict[str, Any] = image_store.inspect(engine, base)
    return f"{base} {(found.get('RepoDigests') or [found['Id']])[0]}"


def listed(engine: Docker) -> list[dict[str, str]]:
    """Labels of every image that collbench built, with its tag and id."""
    rows = [
        {**(found.get("Labels") or {}), "tag": tag, "id": str(found["Id"])[7:19]}
        for found in image_store.labelled(engine, "collbench.image")
        for tag in found.get("RepoTags") or []
        if tag != "<none>:<none>"
    ]
    return sorted(rows, key=lambda row: row["tag"])
