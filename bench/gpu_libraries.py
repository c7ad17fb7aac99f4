"""NVIDIA's libraries that backend nccl measures, for programs that are to be linked to the same."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_installation import GpuInstallation
from installation import HERE, LaunchFailed


@dataclass(frozen=True)
class Libraries:
    """NVIDIA's libraries that backend nccl measures, the folders of their headers, and what went wrong on the way."""

    nccl: Path
    version: str
    cudart: Path
    includes: tuple[Path, ...]
    nvcc: Path | None
    problems: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """LD_LIBRARY_PATH for a program that is linked to them."""
        folders = (str(self.nccl.parent), str(self.cudart.parent), os.environ.get("LD_LIBRARY_PATH", ""))
        return ":".join(filter(None, folders))

    def check(self, manifest: dict[str, Any]) -> None:
        """Raises `LaunchFailed` where a launch of collbench measured another NCCL."""
        for one in manifest["libraries"]:
            if one["name"] == "NCCL" and self.version not in ("unknown", one["version"]):
                raise LaunchFailed(f"collbench ran NCCL {one['version']} ({one['path']}), and not {self.version}")

    def links(self, home: Path) -> Path:
        """Make `home` a folder laid out as NCCL_HOME, with the names that a linker looks for."""
        shutil.rmtree(home, ignore_errors=True)
        (home / "lib").mkdir(parents=True)
        for library, name in ((self.nccl, "libnccl.so"), (self.cudart, "libcudart.so")):
            (home / "lib" / library.name).symlink_to(library)
            if library.name != name:
                (home / "lib" / name).symlink_to(library)
        (home / "include").symlink_to(self.header("nccl.h").parent)
        return home

    def header(self, name: str) -> Path:
        """Where a header is.

        Raises:
            LaunchFailed: it is in none of the folders.
        """
        for folder in self.includes:
            if (folder / name).exists():
                return folder / name
        raise LaunchFailed(f"no {name} in {', '.join(map(str, self.includes)) or 'any folder'}")


def find_libraries(here: GpuInstallation, asked: argparse.Namespace) -> Libraries:
    """What gpu_search.py finds in the interpreter; --nccl and --cudart overrule it.

    Raises:
        LaunchFailed: one of them is found nowhere.
    """
    given = {name: str(path) for name in ("nccl", "cudart") if (path := getattr(asked, name)) is not None}
    told: dict[str, Any] = {}
    if len(given) < 2:
        told = json.loads(here.run((here.python, str(HERE / "gpu_search.py")), 60.0).splitlines()[-1])
    version = told.get("version", "unknown") if "nccl" not in given else "unknown"
    paths = told | given
    if not paths.keys() >= {"nccl", "cudart"}:
        raise LaunchFailed("; ".join(told["problems"]))
    return libraries(Path(paths["nccl"]), Path(paths["cudart"]), version, tuple(told.get("problems", ())))


def libraries_or_reason(here: GpuInstallation, asked: argparse.Namespace) -> Libraries | str:
    """As `find_libraries`, or why they are not known: what needs none of them can still be measured."""
    try:
        return find_libraries(here, asked)
    except LaunchFailed as failure:
        return f"NVIDIA's libraries are not known: {failure}"


def known(libraries: Libraries | str) -> Libraries:
    """Raises `LaunchFailed` with the reason where they are not."""
    if isinstance(libraries, str):
        raise LaunchFailed(libraries)
    return libraries


def libraries(nccl: Path, cudart: Path, version: str = "unknown", problems: tuple[str, ...] = ()) -> Libraries:
    """These two, and where headers may be: beside them, and in the toolkit whose nvcc there is.

    NVIDIA's wheels split headers that include each other, so a compiler is to be given all folders.
    """
    nvcc = _nvcc()
    nccl, cudart = nccl.resolve(), cudart.resolve()
    homes = (nccl.parent.parent, cudart.parent.parent, *(() if nvcc is None else (nvcc.parent.parent,)))
    includes = (*(home / "include" for home in homes), Path("/usr/local/cuda/include"), Path("/usr/include"))
    there = dict.fromkeys(path for path in includes if path.is_dir())
    return Libraries(nccl, version, cudart, tuple(there), nvcc, problems)


def _nvcc() -> Path | None:
    """The nvcc on the PATH, or where toolkits are installed: preferably one that is in a toolkit, and no wrapper."""
    names = filter(None, map(shutil.which, ("nvcc", "/usr/local/cuda/bin/nvcc")))
    found = [Path(name).resolve() for name in names]
    toolkits = [one for one in found if (one.parent.parent / "include" / "cuda_runtime_api.h").exists()]
    return next(iter(toolkits or found), None)


def add_libraries(parser: argparse.ArgumentParser) -> None:
    """Flags for `find_libraries`."""
    parser.add_argument("--nccl", type=Path, default=None, help="libnccl.so.2 [the one that backend nccl measures]")
    parser.add_argument("--cudart", type=Path, default=None, help="libcudart.so [the one that backend nccl uses]")
