"""Folders that a world could write to are removed, whatever it made of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from collbench.launch.folders import remove_folder

#: Makes a folder that its owner cannot enter, one that it can only read, and removes all; as an ordinary user where it
#: is started by root.
CLOSED = """
import os, sys
from pathlib import Path
from collbench.launch.folders import remove_folder
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
root = Path(sys.argv[1]) / "root"
for name, mode in (("closed", 0), ("read-only", 0o500), ("listed", 0o400)):
    (root / name / "inner").mkdir(parents=True)
    (root / name / "file").touch()
    (root / name / "inner").chmod(0)
    (root / name).chmod(mode)
sys.exit(not remove_folder(root))
"""


def nested(root: Path, depth: int) -> None:
    """Folders in one another; by descriptors, because the path is longer than the kernel takes."""
    root.mkdir()
    folder = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=folder)
        os.close(os.open("file", os.O_CREAT, dir_fd=folder))
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)


@pytest.mark.slow
def test_a_folder_deeper_than_a_path_is_long(tmp_path: Path) -> None:
    nested(tmp_path / "root", 3000)
    assert remove_folder(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "in" / "link").symlink_to(kept)
    (root / "link").symlink_to(kept)
    (root / os.fsdecode(b"\xff\xfe")).touch()
    os.mkfifo(root / "pipe")
    assert remove_folder(root)
    assert [path.name for path in kept.iterdir()] == ["file"]
    (tmp_path / "root").symlink_to(kept)
    assert not remove_folder(root)
    assert [path.name for path in kept.iterdir()] == ["file"]


def test_folders_that_were_closed() -> None:
    with tempfile.TemporaryDirectory() as place:  # another user cannot enter pytest's own
        Path(place).chmod(0o777)
        done = subprocess.run([sys.executable, "-c", CLOSED, place], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert list(Path(place).iterdir()) == []


def test_what_names_the_driver_stays_for_as_long_as_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    (root / "out").mkdir(parents=True)
    (root / "driver").write_text("me")

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        raise PermissionError(name)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        assert not remove_folder(root)
    assert (root / "driver").exists()
    assert remove_folder(root)
