"""What a plan gives ranks besides their place: variables and library files, and which of these no rank could load."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePosixPath

from collbench.errors import PlanError
from collbench.launch.folders import signed_folder
from collbench.schema.command import files_of
from collbench.schema.plan import Plan
from collbench.schema.record import WATCHED, stem_of
from collbench.units import counted

#: Where containers have the library files that a plan gives.
INSIDE, INSIDE_PRELOAD = PurePosixPath("/collbench/lib"), PurePosixPath("/collbench/preload")

LIBRARY_PATH, PRELOAD = "LD_LIBRARY_PATH", "LD_PRELOAD"


@dataclass(frozen=True)
class Overrides:
    """What a plan sets for every rank besides its place: variables, and library files that are found before others.

    `variables` are by name; `libraries` and `preload` are paths of the host, and so are `files`, which containers have
    at the same places. `before`: the LD_LIBRARY_PATH of ranks. Of a library that is put in front, ranks find that one
    file and no other of its folder: on the host by links in a folder of the launch, in a container by mounts.
    `run/facts_of_ranks.py` tells what they loaded then.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    before: str = ""
    files: tuple[str, ...] = ()

    def on_host(self, folder: Path) -> dict[str, str]:
        """Variables for ranks on the host, where `folder` has the links."""
        return self._variables(str(folder), tuple(str(Path(path).resolve()) for path in self.preload))

    def inside(self) -> dict[str, str]:
        """Variables for ranks in a container with the mounts."""
        return self._variables(str(INSIDE), tuple(str(INSIDE_PRELOAD / Path(path).name) for path in self.preload))

    def _variables(self, folder: str, preload: tuple[str, ...]) -> dict[str, str]:
        parts = {
            LIBRARY_PATH: (folder, self.variables.get(LIBRARY_PATH, self.before)) if self.libraries else (),
            PRELOAD: (*preload, self.variables.get(PRELOAD, "")) if preload else (),
        }
        return {name: ":".join(filter(None, words)) for name, words in parts.items() if words}

    def _named(self) -> dict[str, Path]:
        """The library files, by each name that they may be asked for."""
        return {name: Path(path).resolve() for path in self.libraries for name in library_names(path)}

    def mounts(self) -> dict[str, str]:
        """By path in a container, the file of the host."""
        preload = {str(INSIDE_PRELOAD / Path(path).name): str(Path(path).resolve()) for path in self.preload}
        named = {str(INSIDE / name): str(path) for name, path in self._named().items()}
        return named | preload | {path: str(Path(path).resolve()) for path in self.files}

    def link(self, folder: Path) -> None:
        """Make the links of `on_host`, or raise OSError."""
        if self.libraries:
            folder.mkdir(mode=0o755)
        for name, path in self._named().items():
            (folder / name).symlink_to(path)

    def links(self, folder: Path) -> tuple[str, ...]:
        """The same as commands that a person would type."""
        made = [f"ln -s {shlex.quote(str(path))} {folder / name}" for name, path in self._named().items()]
        return (f"install -d {folder}", *made) if made else ()


NO_OVERRIDES = Overrides()


def overrides_of(plan: Plan, before: str, watched: Sequence[str] = ()) -> Overrides:
    """What a plan gives, where ranks find LD_LIBRARY_PATH as it was `before`; with the libraries that are `watched`."""
    names = dict.fromkeys((*map(stem_of, (*plan.libraries, *plan.preload)), *watched))
    watching = {WATCHED: ",".join(names)} if names else {}
    return Overrides({**watching, **plan.variables}, plan.libraries, plan.preload, before, files_of(plan.benchmarks))


def library_names(path: str) -> tuple[str, ...]:
    """Names by which a library may be asked for: `libmpi.so.40.1`, `libmpi.so.40`, `libmpi.so`; links are followed."""
    names: dict[str, None] = {}
    for name in (Path(path).name, Path(path).resolve().name):
        stem, _, version = name.partition(".so")
        parts = version.split(".")
        names |= dict.fromkeys(f"{stem}.so{'.'.join(parts[:end])}" for end in range(len(parts), 0, -1))
    return tuple(names)


def check_overrides(plan: Plan, starting: Collection[str]) -> None:
    """Whether ranks can be given what the plan sets; PlanError: not by engines `starting` them, or a file is none."""
    for engine, key in product(starting, ("variables", "libraries", "preload")):
        if getattr(plan, key):
            raise PlanError(f"{key}: engine {engine} starts the ranks itself, with the variables of its site file. "
                            "Set them there, or measure on docker, podman or the host.")  # fmt: skip
    if starting and (files := files_of(plan.benchmarks)):
        raise PlanError(f"files: engine {next(iter(starting))} cannot copy {files[0]}. Have it in the image, or "
                        "on a file system of all nodes, and write its whole path in the command.")  # fmt: skip
    for key in ("libraries", "preload"):
        for path in getattr(plan, key):
            if not Path(path).is_file() or not os.access(path, os.R_OK):
                raise PlanError(f"{key}: {path}: no such file, or it cannot be read.")
            if what := _no_library(path):
                raise PlanError(f"{key}: {path}: is {what}. Give a library by its path, such as "
                                "/build/libnccl.so.2.")  # fmt: skip
    if "host" in plan.policies and (plan.libraries or plan.preload):
        _refuse_missing_needs(overrides_of(plan, os.environ.get(LIBRARY_PATH, "")))


#: Of the header of an ELF file (elf(5)): bytes that tell what it is, where class and byte order are, and the processor.
_HEADER, _CLASS, _MACHINE = 20, slice(4, 6), slice(18, 20)
_MAGIC, _SHARED = b"\x7fELF", 3

_NAMED = 3  #: Of the libraries that a file lacks.
_LIMIT = 20.0  #: Longer than it takes (s) to find the libraries of a file on a busy machine.
_NOT_FOUND = re.compile(r"^\s*(\S+) => not found|([^/\s]+: version `\S+') not found", re.MULTILINE)


def _no_library(path: str) -> str:
    """By its header (elf(5)): that a file is not ELF, no shared object, or for another processor; empty: a library."""
    with Path("/proc/self/exe").open("rb") as program, Path(path).open("rb") as file:
        here, header = program.read(_HEADER), file.read(_HEADER)
    if not header.startswith(_MAGIC) or len(header) < _HEADER:
        return "not an ELF library"
    if header[_CLASS] != here[_CLASS] or header[_MACHINE] != here[_MACHINE]:
        return "a library for another processor than that of this machine"
    is_shared = int.from_bytes(header[16:18], "little" if header[5] == 1 else "big") == _SHARED
    return "" if is_shared else "an ELF file, but no shared library"


def _refuse_missing_needs(overrides: Overrides) -> None:
    """PlanError of a library file that needs one which the dynamic linker does not find where ranks on the host do."""
    given = {name for path in (*overrides.libraries, *overrides.preload) for name in library_names(path)}
    with signed_folder(None) as folder:
        links = folder / "lib"
        overrides.link(links)
        environment = {**os.environ, **overrides.variables, **overrides.on_host(links), "LC_ALL": "C"}
        environment.pop(PRELOAD, None)  # ldd itself would load it
        files = {path: ("libraries", links / Path(path).name) for path in overrides.libraries}
        files |= {path: ("preload", Path(path).resolve()) for path in overrides.preload}
        for path, (key, file) in files.items():
            if lacking := [name for name in _not_found(file, environment) if name not in given]:
                beside = key == "libraries" and not {*lacking} <= {*_not_found(Path(path), environment)}
                why = "It finds libraries beside itself ($ORIGIN), which a link to it does not. " if beside else ""
                others = f" and {counted(len(lacking) - _NAMED, 'other')}" if len(lacking) > _NAMED else ""
                raise PlanError(
                    f"{key}: {path} needs {', '.join(lacking[:_NAMED])}{others}, which is not found. {why}"
                    f"{'Give it as preload, or set' if beside else 'Set'} {LIBRARY_PATH} of every side to the folder "
                    "that has what it needs."
                )


def _not_found(path: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What a file needs and the dynamic linker does not find, by ldd; empty too where ldd says nothing."""
    try:
        done = subprocess.run(("ldd", path), capture_output=True, text=True, errors="replace", timeout=_LIMIT,
                              check=False, stdin=subprocess.DEVNULL, env=environment)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(dict.fromkeys("".join(groups) for groups in _NOT_FOUND.findall(done.stdout + done.stderr)))
