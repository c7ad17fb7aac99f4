"""What a builder of images is given: a Dockerfile, this collbench to install, and files of this site."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import RequestError
from collbench.launch.shipped import PACKAGE, source_tree

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
