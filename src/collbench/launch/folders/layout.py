"""The folders of one launch on this machine: what its ranks read, where they may write, and as which user."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from collbench.launch.folders.neighbours import CORES
from collbench.launch.folders.removal import DESCRIPTORS, remove_folder
from collbench.launch.folders.signature import FOLDER, sign
from collbench.schema.place import Place
from collbench.schema.plan import Plan

#: The user in containers when the driver is root: above those of people (up to 60000), of systemd's services (to 65519)
#: and nobody (65534), and below the first to which containers without root are mapped (100000, subuid(5)).
UNPRIVILEGED = 98_417


@dataclass(frozen=True)
class Folders:
    """The inner plan, where its ranks belong, where the first one writes its run, where its box asks for daemons.

    `turns` has the pipes of ranks that take turns with other worlds; None: they do not.
    """

    plan: Path
    placement: Path
    out: Path
    relay: Path
    turns: Path | None = None


def folders_in(root: Path, turns: bool = False) -> Folders:
    at = Folders(root / "plan.json", root / "placement.json", root / "out", root / "relay")
    return replace(at, turns=root / "turns") if turns else at


@contextlib.contextmanager
def folders(
    plan: Plan, user: tuple[int, int], cores: str = "", parent: Path | None = None, places: tuple[Place, ...] = (),
    pipes: Sequence[str] = (),
) -> Iterator[Folders]:  # fmt: skip
    """Make temporary folders, in which only `user` may write, and remove them at the end.

    Everybody may read which `cores` are taken. They are in `parent`, or where temporary files are. Where there are
    `places`, of each rank one, a file holds them: ten thousand are too many for an environment variable (128 KiB).
    `pipes` are names of those by which ranks take turns.
    """
    with signed_folder(parent) as root:
        (root / CORES).write_text(cores, encoding="ascii")
        made = folders_in(root, bool(pipes))
        _write(made.plan, plan)
        if places:
            _write(made.placement, places)
        for folder in (made.out, made.relay):
            make_folder(folder, user)
        if made.turns is not None:
            make_folder(made.turns, user)
            for name in pipes:
                _make_pipe(made.turns / name, user)
        root.chmod(0o711)
        yield made


@contextlib.contextmanager
def signed_folder(parent: Path | None, name: str = "") -> Iterator[Path]:
    """A temporary folder with the signature of its driver, in `parent` or where such are; removed at the end.

    If its driver is killed, `launch --sweep` removes it. Its own name begins with `name`, behind what all share.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.ExitStack() as signature, contextlib.ExitStack() as spare:
        for _ in range(DESCRIPTORS):  # or it could not be removed where there are no more
            spare.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        root = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{name}", dir=parent))
        try:
            signature.enter_context(sign(root))  # closed when all of it is removed
            yield root
        finally:
            spare.close()
            remove_folder(root)


def make_folder(folder: Path, user: tuple[int, int]) -> None:
    """A folder that belongs to `user`, who alone may enter it; where the driver is not root, to the driver."""
    folder.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(folder, *user)


def _make_pipe(pipe: Path, user: tuple[int, int]) -> None:
    os.mkfifo(pipe, 0o600)
    if os.getuid() == 0:
        os.chown(pipe, *user)


def _write(file: Path, content: object) -> None:
    file.write_bytes(msgspec.json.encode(content))
    file.chmod(0o644)


def user_inside() -> tuple[int, int]:
    """The driver's user and group; where that is root, a number that no account on this machine has."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    number = next(number for number in itertools.count(UNPRIVILEGED) if not _is_known(number))
    return number, number


def _is_known(number: int) -> bool:
    import pwd  # Unix has it

    try:
        return bool(pwd.getpwuid(number))
    except KeyError:
        return False
