"""What a plan sets for every rank besides its place: variables, and library files that are found before others.

Of a library that is put in front, ranks find that one file and no other of its folder: on the host by links in a folder
of the launch, in a container by mounts. `run/facts_of_ranks.py` tells what they loaded then.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from collbench.errors import PlanError
from collbench.schema.plan import Plan
from collbench.schema.record import WATCHED, stem_of

#: Where containers have them.
INSIDE, INSIDE_PRELOAD = PurePosixPath("/collbench/lib"), PurePosixPath("/collbench/preload")

LIBRARY_PATH, PRELOAD = "LD_LIBRARY_PATH", "LD_PRELOAD"


@dataclass(frozen=True)
class Overrides:
    """`variables` by name; `libraries` and `preload` are paths of the host. `before`: the LD_LIBRARY_PATH of ranks."""

    variables: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    before: str = ""

    def on_host(self, folder: Path) -> dict[str, str]:
        """Variables for ranks on the host, where `folder` has the links."""
        return self._found_in(str(folder), tuple(str(Path(path).resolve()) for path in self.preload))

    def inside(self) -> dict[str, str]:
        """Variables for ranks in a container with the mounts."""
        return self._found_in(str(INSIDE), tuple(str(INSIDE_PRELOAD / Path(path).name) for path in self.preload))

    def _found_in(self, folder: str, preload: tuple[str, ...]) -> dict[str, str]:
        parts = {
            LIBRARY_PATH: (folder, self.variables.get(LIBRARY_PATH, self.before)) if self.libraries else (),
            PRELOAD: (*preload, self.variables.get(PRELOAD, "")) if preload else (),
        }
        return {name: ":".join(filter(None, words)) for name, words in parts.items() if words}

    def mounts(self) -> dict[str, str]:
        """By path in a container, the file of the host."""
        files = {str(INSIDE / name): path for path in self.libraries for name in names_of(path)}
        files |= {str(INSIDE_PRELOAD / Path(path).name): path for path in self.preload}
        return {target: str(Path(path).resolve()) for target, path in files.items()}

    def link(self, folder: Path) -> None:
        """Make the links of `on_host`.

        Raises:
            OSError: a link cannot be made.
        """
        if self.libraries:
            folder.mkdir(mode=0o755)
        for path in self.libraries:
            for name in names_of(path):
                (folder / name).unlink(missing_ok=True)
                (folder / name).symlink_to(Path(path).resolve())

    def links(self, folder: Path) -> tuple[str, ...]:
        """The same as commands that a person would type."""
        made = [f"ln -s {shlex.quote(str(Path(path).resolve()))} {folder / name}"
                for path in self.libraries for name in names_of(path)]  # fmt: skip
        return (f"install -d {folder}", *made) if made else ()


NO_OVERRIDES = Overrides()


def overrides_of(plan: Plan, before: str, watched: Sequence[str] = ()) -> Overrides:
    """What a plan gives, where ranks find LD_LIBRARY_PATH as it was `before`.

    They tell which file they loaded of these libraries, and of those that are `watched`.
    """
    names = dict.fromkeys((*(stem_of(path) for path in (*plan.libraries, *plan.preload)), *watched))
    watching = {WATCHED: ",".join(names)} if names else {}
    return Overrides({**watching, **plan.variables}, plan.libraries, plan.preload, before)


def names_of(path: str) -> tuple[str, ...]:
    """Names by which a library may be asked for: `libmpi.so.40.1`, `libmpi.so.40`, `libmpi.so`; links are followed."""
    names: dict[str, None] = {}
    for name in (Path(path).name, Path(path).resolve().name):
        stem, _, rest = name.partition(".so")
        versions = rest.split(".")
        names |= dict.fromkeys(f"{stem}.so{'.'.join(versions[:end])}" for end in range(len(versions), 0, -1))
    return tuple(names)


def refuse_overrides(plan: Plan, engine: str) -> None:
    """Whether an engine that starts the ranks itself is to give them something.

    Raises:
        PlanError: it is.
    """
    for key in ("variables", "libraries", "preload"):
        if getattr(plan, key):
            raise PlanError(f"{key}: engine {engine} starts the ranks itself, with the variables of its site file. "
                            "Set them there, or measure on docker, podman or the host.")  # fmt: skip


def refuse_missing_files(plan: Plan) -> None:
    """Whether the library files of a plan are there.

    Raises:
        PlanError: one is not.
    """
    for key in ("libraries", "preload"):
        for path in getattr(plan, key):
            if not Path(path).is_file() or not os.access(path, os.R_OK):
                raise PlanError(f"{key}: {path}: no such file, or it cannot be read.")
