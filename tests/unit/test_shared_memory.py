"""What killed ranks leave in /dev/shm is removed; what others have there, or what is in use, is not."""

from __future__ import annotations

import mmap
import os
import threading
import time
from pathlib import Path

import pytest

from collbench.launch import folders
from collbench.launch.folders import remove_left


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PATIENCE", 0.2)


def made(place: Path, name: str, age: float = 0.0) -> Path:
    path = place / name
    path.write_bytes(bytes(4096))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_files_of_libraries_are_removed_by_owner_age_and_name(tmp_path: Path) -> None:
    left = [made(tmp_path, name) for name in ("mpich_shm_1a_0", "nccl-AbC123", "sm_segment.vm.0.1.0")]
    made(tmp_path, "mpich_shm_2b_0", age=100)
    made(tmp_path, "results")
    assert remove_left(os.getuid() + 1, time.time() - 50, tmp_path) == []
    assert remove_left(os.getuid(), time.time() - 50, tmp_path) == [path.name for path in left]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mpich_shm_2b_0", "results"]


def test_a_file_that_a_process_has_mapped_or_open_is_in_use(tmp_path: Path) -> None:
    mapped, opened = made(tmp_path, "mpich_shm_1_0"), made(tmp_path, "sm_segment.vm.0.1.0")
    with mapped.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    with opened.open("rb"):
        assert remove_left(os.getuid(), 0.0, tmp_path) == []
    assert remove_left(os.getuid(), 0.0, tmp_path) == [opened.name]
    memory.close()
    assert remove_left(os.getuid(), 0.0, tmp_path) == [mapped.name]


def test_ranks_that_are_ending_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PATIENCE", 60.0)
    path = made(tmp_path, "mpich_shm_1_0")
    file = path.open("rb")
    threading.Timer(0.3, file.close).start()
    begun = time.monotonic()
    assert remove_left(os.getuid(), 0.0, tmp_path) == [path.name]
    assert 0.2 < time.monotonic() - begun < 50


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    """A rank may have made anything there."""
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "mpich_shm_1_0").symlink_to(tmp_path / "kept")
    assert remove_left(os.getuid(), 0.0, tmp_path) == ["mpich_shm_1_0"]
    assert (tmp_path / "kept").read_text() == "kept"
