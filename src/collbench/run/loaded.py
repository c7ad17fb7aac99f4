"""The library files that ranks loaded, where somebody asks for them: from the memory map of each process (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path

from collbench.bindings.spec import World
from collbench.machine.digest import sha256_of
from collbench.machine.facts import format_cores
from collbench.schema.loaded import UNREAD, WATCHED, Loaded, said

#: What the kernel appends to the path of a file that was removed since.
_DELETED = " (deleted)"


def notes_on_loaded(world: World) -> tuple[str, ...]:
    """Collective: a note for each file that is asked for, on rank 0; none where nothing is asked for, and elsewhere.

    Asked again after each case, because a library may be loaded when it is first used.
    """
    names = tuple(filter(None, os.environ.get(WATCHED, "").split(",")))
    if not names:
        return ()
    by_rank = world.gather(loaded(names))
    if by_rank is None:
        return ()
    ranks: dict[Loaded, list[int]] = {}
    for rank, found in enumerate(by_rank):
        for one in found:
            ranks.setdefault(Loaded(*one), []).append(rank)
    return tuple(said(one, format_cores(of) if len(of) < world.size else "") for one, of in ranks.items())


def loaded(names: tuple[str, ...], maps: Path = Path("/proc/self/maps")) -> tuple[Loaded, ...]:
    """The mapped files of this process whose names begin so; of a name without one, that there is none."""
    paths: dict[str, None] = {}
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            paths[words[5]] = None
    found: list[Loaded] = []
    for name in names:
        own = [path for path in paths if _is(path, name)]
        found += [Loaded(name, path, _sha256(path)) for path in own] or [Loaded(name)]
    return tuple(found)


def _is(path: str, name: str) -> bool:
    """Whether a file is a version of this library: `libmpi.so` or `libmpi.so.40`, and not `libmpi.sock`."""
    rest = Path(path.removesuffix(_DELETED)).name.removeprefix(name)
    return rest == "" or (rest.startswith(".") and len(rest) < len(Path(path).name))


def _sha256(path: str) -> str:
    """Of a file as it is; zeros where it cannot be read, or was removed since it was loaded."""
    try:
        return sha256_of(path)
    except OSError:
        return UNREAD
