"""The folder that a program works in: made for a case, and removed with everything in it.

A process that is killed leaves its folder, which the next one removes: a folder is locked while its process lives.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collbench.run.child import ProgramFailed

#: How names of such folders begin, and that of one which is not locked yet.
PREFIX, DRAFT = "collbench-files-", "collbench-new-"

#: The folders of this process, for a thread that ends it.
_HELD: set[Path] = set()

#: How often removal is tried again, while the program that works there may still make files.
_TRIES = 3


def prefix() -> str:
    """Names have this machine's in them: where several machines share a folder, one may not see another's locks."""
    return f"{PREFIX}{re.sub(r'[^A-Za-z0-9.-]', '_', os.uname().nodename)}-"


@contextlib.contextmanager
def working_folder(parent: str | None) -> Iterator[Path]:
    """An empty folder in `parent` (None: where temporary files are). It and what killed processes left is removed.

    Raises:
        ProgramFailed: it cannot be made.
    """
    try:
        remove_abandoned(Path(parent or tempfile.gettempdir()))
        folder, lock = _made(parent)
    except OSError as error:
        where, name = (parent, "name") if parent else ("of temporary files", "set TMPDIR to")
        raise ProgramFailed(f"folder {where}: {error.strerror}; {name} one in which files can be made") from error
    _HELD.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _HELD.discard(folder)
        os.close(lock)


def remove_held() -> None:
    """Remove the folders of this process, which ends without leaving their contexts."""
    for folder in tuple(_HELD):
        for _ in range(_TRIES):
            shutil.rmtree(folder, ignore_errors=True)


def _made(parent: str | None) -> tuple[Path, int]:
    """A folder, and the open file whose lock says that this process lives.

    It gets its name when it is locked, so that nobody meets an unlocked folder of a living process.
    """
    import fcntl  # Unix has it

    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=parent))
    lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is removed either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return draft.rename(draft.with_name(prefix() + draft.name.removeprefix(DRAFT))), lock
    except BaseException:
        os.close(lock)
        draft.rmdir()
        raise


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders in `parent` whose process is gone."""
    import fcntl

    for folder in parent.glob(f"{prefix()}*"):
        with contextlib.suppress(OSError):  # of a living process, or of one that removed it meanwhile
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(opened).st_uid == os.getuid():
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(opened)
