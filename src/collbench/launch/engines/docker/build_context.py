"""What a builder of images is given: a Dockerfile, this collbench to install, and what only this site has."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import RequestError
from collbench.launch.shipped import PACKAGE, source_tree

#: What installs collbench, beside its code.
_INSTALLS = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py")

_LEFT_OUT = ("__pycache__", ".so", ".egg-info", ".pyc", "source_tree")


@dataclass(frozen=True)
class Recipe:
    """How to build: the base image, certificates of a proxy, wheels instead of a package index, for which CUDA."""

    base: str | None = None
    no_cache: bool = False
    ca_bundle: Path | None = None
    wheelhouse: Path | None = None
    no_index: bool = False
    cuda: str | None = None


def context_files(dockerfile: Path, recipe: Recipe) -> dict[str, Path]:
    """By its path in the context, every file of it. The code is that of the program that runs, installed or in a clone.

    Raises:
        RequestError: a file of the recipe is not there.
    """
    tree = source_tree()
    found = {name: tree / name for name in _INSTALLS}
    found |= {f"src/collbench/{name}": path for name, path in _below(PACKAGE)}
    found |= {f"containers/site/{name}": path for name, path in _below(tree / "containers" / "site")}
    found |= {f"containers/site/{name}": path for name, path in _site(recipe)}
    return found | {f"containers/{dockerfile.name}": dockerfile}


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
    """A context as a tar, the same for the same contents, so that the builder finds what it has built before."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for name, path in files.items():
            tar.add(path, name, filter=_anonymous)
    return buffer.getvalue()


def only(dockerfile: str) -> bytes:
    """A context that holds nothing but a Dockerfile with this text."""
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
