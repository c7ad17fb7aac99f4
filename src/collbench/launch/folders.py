"""Temporary folders of launches: made and signed, read as untrusted, and removed with what their worlds left.

And storage: what lies under the files of programs that work in files. A container has it as its temporary folder: its
own writable layer (`overlay`), a volume of the engine, a folder of the host (`bind`), or memory (`tmpfs`). The host's
counterpart is a folder on the same device.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Literal

import msgspec

from collbench.errors import EngineError, PlanError, RunReadError
from collbench.launch.cells import LaunchCell
from collbench.launch.placement import Placement
from collbench.machine.cgroup import under
from collbench.machine.facts import machine_id
from collbench.schema.plan import Plan
from collbench.schema.world import Place
from collbench.units import format_spans, parse_spans

#: Prefix of temporary folders, the file in each that names its driver, and one that names another place of them.
FOLDER, DRIVER, ELSEWHERE = "collbench-", "driver", "elsewhere"

#: Further places of such folders: for files that outlive a restart, and for files in memory.
_MORE_PLACES = ("/var/tmp", "/dev/shm")  # noqa: S108 - folders in them

#: Longest identity and longest path (PATH_MAX) that are read from a file (bytes).
_LONGEST, _LONGEST_PATH = 200, 4096


def driver_identity() -> str:
    """A name of this process that no other ever has: boot, PID namespace, process number, start, time namespace."""
    return f"{machine_id()}/{namespace('pid')}/{os.getpid()}/{started_at('self')}/{namespace('time')}"


def started_at(process: str) -> str:
    """When a process of this PID namespace started, in ticks after boot of this time namespace; or OSError."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()[19]


def namespace(kind: Literal["pid", "time"]) -> int:
    """The one in which process numbers are unique, or ticks after boot comparable; 0: the kernel has no such thing."""
    try:
        return Path(f"/proc/self/ns/{kind}").stat().st_ino
    except FileNotFoundError:  # time namespaces are of Linux 5.6
        return 0


def sign(folder: Path) -> IO[str]:
    """Write this process's name into a folder, in a file that stays locked until it is closed or this process ends.

    A lock is seen from every PID namespace, process numbers are not. The file gets its name when it is locked, so that
    nobody meets an unlocked signature of a living driver.
    """
    import fcntl  # Unix has it

    draft = folder / f"{DRIVER}.draft"
    with contextlib.ExitStack() as undo:
        signature = undo.enter_context(draft.open("w", encoding="ascii"))
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(signature, fcntl.LOCK_EX | fcntl.LOCK_NB)
        signature.write(driver_identity())
        signature.flush()
        draft.rename(folder / DRIVER)
        undo.pop_all()
    return signature


@contextlib.contextmanager
def signpost(place: str) -> Iterator[None]:
    """Where folders of this process are made in another place than the usual ones: a temporary folder names it.

    It is removed at the end; a sweep finds the place by that of a killed process. Raises OSError.
    """
    if place in _usual_places():
        yield
        return
    with signed_folder(None) as folder:
        (folder / ELSEWHERE).write_text(place, encoding="utf-8", errors="replace")
        yield


def opened(path: Path, encoding: str = "ascii") -> IO[str]:
    """A text file of another launch, which may be anything; or OSError: it is a link. A pipe is not waited for."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding=encoding)


def signature_of(folder: Path) -> tuple[str, bool | None]:
    """The driver that a folder names, and whether its lock is held, None: unknown; or OSError, UnicodeDecodeError."""
    import fcntl

    with opened(folder / DRIVER) as signature:
        driver = signature.read(_LONGEST)
        try:
            fcntl.flock(signature, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return driver, True
        except OSError:
            return driver, None
    return driver, False


def signed() -> Iterator[tuple[Path, str, bool | None]]:
    """Temporary folders of launches, of all users: path, driver, whether its lock is held."""
    places = dict.fromkeys((*_usual_places(), *_signposted()))
    for folder in sorted(folder for place in places for folder in Path(place).glob(f"{FOLDER}*")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if not folder.is_symlink():
                driver, locked = signature_of(folder)
                yield folder, driver, locked if locked or _is_trusted(folder) else None


def _usual_places() -> tuple[str, ...]:
    return (tempfile.gettempdir(), *_MORE_PLACES)


def _signposted() -> Iterator[str]:
    for post in (post for place in _usual_places() for post in Path(place).glob(f"{FOLDER}*/{ELSEWHERE}")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if _is_trusted(post.parent) and not post.parent.is_symlink():
                with opened(post, "utf-8") as file:
                    place = file.read(_LONGEST_PATH)
                if Path(place).is_absolute() and Path(place).is_dir():
                    yield place


def _is_trusted(folder: Path) -> bool:
    """Of this user or of root; others could sign in a living driver's name."""
    return folder.stat().st_uid in (0, os.getuid())


#: The file in a launch's temporary folder with the cores of its ranks, the most that is read of it (bytes), and a list
#: of cores as the kernel writes it.
CORES, LONGEST = "cores", 4096
_LIST = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*", re.ASCII)


def disturbances(placements: Iterable[Placement]) -> list[str]:
    """A line for each living launch, in a temporary folder that we see, that shares cores with these placements."""
    ours = frozenset[int]().union(*(placement.cores for placement in placements))
    lines = []
    for folder, _, locked in signed():
        with contextlib.suppress(OSError, ValueError), opened(folder / CORES) as file:  # it ended, or may not be read
            listed = file.read(LONGEST).strip()
            shared = ours & parse_spans(listed) if _LIST.fullmatch(listed) else set()
            if locked and shared:
                cores = f"core{'s' if len(shared) > 1 else ''} {format_spans(shared)}"
                lines.append(f"another launch runs on {cores} ({folder}): the two disturb each other's measurements")
    return lines


_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)  # not every system has them

#: Most descriptors that are open at a time while a folder is removed.
DESCRIPTORS = 4


def remove_folder(root: Path) -> bool:
    """Remove a folder with everything in it; links are removed, not followed. Returns whether it is gone.

    Folders inside are moved up before they are emptied, so that neither the depth of calls nor the length of a path
    grows with them. The folder's own files are removed last, among them the one that names its driver.
    """
    with contextlib.suppress(OSError):
        top = os.open(root, os.O_RDONLY | _FOLDER)
        try:
            waiting = _folders_in(top)
            while waiting:
                waiting += _remove_one(top, waiting.pop())
            if not _folders_in(top):
                _unlink_all(top)
        finally:
            os.close(top)
        root.rmdir()
    return not os.path.lexists(root)


def _remove_one(top: int, name: str) -> list[str]:
    """Remove a folder in `top`. Folders that were in it are moved to `top`, under the names that are returned."""
    moved: list[str] = []
    with contextlib.suppress(OSError):
        folder = _entered(top, name)
        try:
            for child in _folders_in(folder):
                os.close(_entered(folder, child))  # to move a folder its owner must be able to write to it
                fresh = secrets.token_hex(8)
                os.rename(child, fresh, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(fresh)
            _unlink_all(folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)
    return moved


def _entered(parent: int, name: str) -> int:
    """Open a folder in an open folder; it is made writable for its owner first."""
    path_only = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        with contextlib.suppress(OSError):
            os.chmod(f"/proc/self/fd/{path_only}", 0o700)  # noqa: PTH101 - an open folder
        return os.open(".", os.O_RDONLY | _FOLDER, dir_fd=path_only)
    finally:
        os.close(path_only)


def _folders_in(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _unlink_all(folder: int) -> None:
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


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
    names = ("plan.json", "placement.json", "out", "relay", *(("turns",) if turns else ()))
    return Folders(*(root / name for name in names))


@contextlib.contextmanager
def folders(
    plan: Plan, user: tuple[int, int], cores: str = "", parent: Path | None = None, places: tuple[Place, ...] = (),
    turns: bool = False,
) -> Iterator[Folders]:  # fmt: skip
    """Make temporary folders, in which only `user` may write, and remove them at the end.

    Everybody may read which `cores` are taken. They are in `parent`, or where temporary files are. A file holds the
    `places` of ranks: ten thousand are too many for an environment variable (128 KiB).
    """
    with signed_folder(parent) as root:
        (root / CORES).write_text(cores, encoding="ascii")
        made = folders_in(root, turns)
        for file, content in ((made.plan, plan.document), (made.placement, places)):
            if content:
                file.write_bytes(msgspec.json.encode(content))
                file.chmod(0o644)
        for folder in filter(None, (made.out, made.relay, made.turns)):
            make_for(user, folder)
        root.chmod(0o711)
        yield made


@contextlib.contextmanager
def signed_folder(parent: Path | None, name: str = "") -> Iterator[Path]:
    """A temporary folder with the signature of its driver, in `parent` or where such are; removed at the end.

    If its driver is killed, `launch --sweep` removes it. `name` follows the prefix that all share. Raises OSError.
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


def make_for(user: tuple[int, int], path: Path, pipe: bool = False) -> None:
    """Make a folder, or a pipe, that is of `user` alone; where the driver is not root, of the driver."""
    if pipe:
        os.mkfifo(path, 0o600)
    else:
        path.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(path, *user)


def user_inside() -> tuple[int, int]:
    """The driver's user and group; where that is root, a number that no account on this machine has."""
    import pwd  # Unix has it

    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    number = UNPRIVILEGED
    with contextlib.suppress(KeyError):
        while pwd.getpwuid(number):
            number += 1
    return number, number


@contextlib.contextmanager
def open_folder(name: str | Path, parent: int | None = None) -> Iterator[int]:
    """A folder, opened in the open folder `parent` if there is one; or RunReadError: it is a link, or no folder."""
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except (OSError, ValueError) as error:
        raise RunReadError(f"{_shown(name)}/: {_why(error)}.") from error
    try:
        yield folder
    finally:
        os.close(folder)


def open_plain(folder: int, name: str, largest: int | None = None) -> BinaryIO:
    """Open a plain file in an open folder, to be read; RunReadError: it is none, or has more than `largest` bytes."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError as error:
        raise RunReadError(f"{_shown(name)}: is missing.") from error
    except (OSError, ValueError) as error:  # a name may hold characters that no name can
        raise RunReadError(f"{_shown(name)}: {_why(error)}; a world may only leave plain files.") from error
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, file)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise RunReadError(f"{_shown(name)}: not a plain file.")
        if largest is not None and status.st_size > largest:
            raise RunReadError(f"{_shown(name)}: {status.st_size} bytes; at most {largest} are read.")
        undo.pop_all()
    return os.fdopen(file, "rb")


def _shown(name: str | Path) -> str:
    """A name from a world, in characters that every record and terminal can hold."""
    return ascii(str(name))[1:-1]


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


#: Memory as a folder of the host.
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a folder in it

#: How MPICH (5.0.2), Open MPI (5.0.11) and NCCL (2.30) name their files in it.
NAMES = ("mpich_shm_*", "sm_segment.*", "nccl-*")

#: How long ranks that were killed may take to let go of theirs, and the interval of looking whether they did (s).
PATIENCE, LOOK = 2.0, 0.05


def remove_left(owner: int, since: float, place: Path = Path(SHARED_MEMORY)) -> list[str]:
    """Remove such files of a user that are not older than `since` and that no process uses any more; their names.

    `since` is in seconds since the epoch. The processes of all ranks must be seen from here.
    """
    removed: list[str] = []
    until = time.monotonic() + PATIENCE
    while left := dict(_left(owner, since, place)):
        used = _used()
        for path in (path for path, file in left.items() if file not in used):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                removed.append(path.name)
        if time.monotonic() > until:
            break
        time.sleep(LOOK)
    return removed


def _left(owner: int, since: float, place: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Paths, with device and number of the file."""
    for path in sorted(path for name in NAMES for path in place.glob(name)):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if status.st_uid == owner and status.st_mtime >= since:
                yield path, (status.st_dev, status.st_ino)


def _used() -> set[tuple[int, int]]:
    """Device and number of every file that a process has mapped or open, as far as this user may see that."""
    used: set[tuple[int, int]] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text("utf-8", "replace").splitlines():
                # address, permissions, offset, device, number, and perhaps a path (proc(5))
                _, _, _, device, number, *_ = line.split(None, 5)
                major, _, minor = device.partition(":")
                used.add((os.makedev(int(major, 16), int(minor, 16)), int(number)))
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    status = descriptor.stat()
                    used.add((status.st_dev, status.st_ino))
    return used


#: Something younger than this (s) may belong to a launch that is just being made, by a driver not known otherwise.
YOUNG = 600.0

#: boot/PID namespace/process number/start/time namespace, as `driver_identity` writes it.
_IDENTITY = re.compile(r"([^/]+)/([0-9]{1,20})/([0-9]{1,9})/([0-9]{1,20})/([0-9]{1,20})", re.ASCII)


def sweep_folders(busy: set[str]) -> list[str]:
    """Remove this user's temporary folders whose driver is gone and not `busy` on the engine; returns their paths."""
    removed = []
    for folder, driver, locked in signed():
        with contextlib.suppress(FileNotFoundError):  # its driver removed it meanwhile
            status = folder.stat()
            alive = driver in busy or time.time() - status.st_mtime < YOUNG
            if status.st_uid == os.getuid() and is_dead(driver, locked, alive) and remove_folder(folder):
                removed.append(str(folder))
    return removed


def locks() -> dict[str, bool | None]:
    """By driver, whether a lock on one of its temporary folders is held; None where that cannot be known."""
    held: dict[str, bool | None] = {}
    for _, driver, locked in signed():
        held[driver] = held.get(driver) or locked
    return held


def is_dead(driver: str, locked: bool | None, busy: bool) -> bool:
    """Whether the process of that name is certainly gone. A name in another form: it is not.

    `locked`: the lock on its folder is held; None where no folder can be seen from here. `busy`: something of it on the
    engine runs or is young. That decides where nothing else does: the driver may be on another machine, or in a
    container with a temporary folder of its own.
    """
    identity = _IDENTITY.fullmatch(driver)
    if locked or identity is None:
        return False
    booted, pid_namespace, number, started, time_namespace = identity.groups()
    if booted != machine_id():
        return not busy
    of_here = int(pid_namespace) == namespace("pid")
    if not of_here or Path("/proc/self").readlink() != Path(str(os.getpid())):  # /proc is of another namespace
        return locked is False or not busy
    try:
        os.kill(int(number), 0)
        return int(time_namespace) == namespace("time") and started_at(number) != started  # else by another clock
    except ProcessLookupError:
        return True
    except OSError:  # of another user, which /proc may hide
        return False


#: Where containers have their storage: every image has this folder, and every user may write to it.
INSIDE = "/tmp"  # noqa: S108 - in the container


@dataclass(frozen=True)
class Storage:
    """What one launch has. `folder` is where its ranks find it, `source` a folder of the host that was made for it."""

    kind: str
    folder: str
    source: str | None = None


@contextlib.contextmanager
def storage_of(cell: LaunchCell, parent: str, user: tuple[int, int]) -> Iterator[Storage | None]:
    """The storage of a launch, if any; a folder of the host is below `parent`, and removed at the end; or OSError."""
    if (where := place_of(cell, parent)) is None:
        yield described(cell)
        return
    with signpost(where), signed_folder(Path(where)) as root:  # the post goes when all of it is removed
        root.chmod(0o711)
        make_for(user, root / "files")
        yield described(cell, root / "files")


def described(cell: LaunchCell, source: Path | None = None) -> Storage | None:
    """The storage of a cell, with the folder of the host that was made for it, where one is needed."""
    made = None if source is None else str(source)
    return Storage(cell.storage, made or "" if cell.engine == "host" else INSIDE, made) if cell.storage else None


def place_of(cell: LaunchCell, parent: str) -> str | None:
    """Where a folder of the host has to be made; None where there is no storage, or it is the container's own."""
    if cell.storage is None or (cell.engine != "host" and cell.storage != "bind"):
        return None
    in_memory = cell.engine == "host" and cell.storage == "tmpfs"
    return SHARED_MEMORY if in_memory else str(Path(parent).absolute())  # an engine takes no other


def refuse_unusable_folder(cells: Iterable[LaunchCell], parent: str) -> None:
    """Whether folders can be made where these cells need one of the host; PlanError: not in one of them."""
    for cell in cells:
        where = place_of(cell, parent)
        is_there = where is not None and Path(where).is_dir()
        if where is not None and not (is_there and os.access(where, os.W_OK | os.X_OK)):
            reason = "nothing can be made in it" if is_there else "there is no such folder"
            way = "leave it out" if where == SHARED_MEMORY else "set folder to another of the host"
            raise PlanError(f"storage {cell.storage}: folder {where}: {reason}; {way}.")


def refuse_other_device(cells: Iterable[LaunchCell], parent: str, engine_root: str) -> None:
    """Whether what containers keep below `engine_root` is on the device of `parent`, the host's; or EngineError."""
    compared = {cell.storage for cell in cells if cell.storage in ("overlay", "volume")}
    if not compared:
        return
    try:
        there, here = Path(engine_root).stat().st_dev, Path(parent).stat().st_dev
    except OSError as error:
        problem = f"storage: {error.filename}: {error.strerror}; set folder to a folder of the host."
        raise EngineError(problem) from error
    if there != here:
        inside, outside = (f"in {place} on {under(Path(place)).text}" for place in (engine_root, parent))
        raise EngineError(f"storage {', '.join(sorted(compared))}: the engine keeps it {inside}, and the host's "
                          f"counterpart would be {outside}: two devices would be compared. Set folder to a folder on "
                          "the engine's device.")  # fmt: skip
