"""A file that is dropped from the page cache or read into it, and the share of it that is then there."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path

import pytest
from tests.unit.made_files import in_memory

from collbench.workloads.host import files as page_cache
from collbench.workloads.host.files import kind_of

PAGES = 512


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Just written: its pages are in the cache, and not on the device yet."""
    if kind_of(tmp_path) == "tmpfs":
        pytest.skip("temporary files are on tmpfs here")
    path = tmp_path / "data"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    return path


def resident(path: Path) -> float:
    with path.open("r+b") as file:
        return page_cache.resident(file.fileno())


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr("sys.argv", ["page_cache", *map(str, arguments)])
    try:
        page_cache.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_file_is_cold_and_then_warm(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resident(file) == 1.0
    for state, share in (("cold", 0.0), ("warm", 1.0), ("cold", 0.0)):
        assert run(monkeypatch, state, file) == 0
        assert json.loads(capsys.readouterr().out) == {"resident": share}
        assert resident(file) == share


def test_the_share_is_that_of_its_pages(file: Path) -> None:
    with file.open("r+b") as opened:
        page_cache.drop(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no more than what is asked for
        for page in range(0, PAGES, 4):
            os.pread(opened.fileno(), 1, page * mmap.PAGESIZE)
    assert resident(file) == 0.25


def test_an_empty_file_and_one_that_ends_within_a_page(file: Path) -> None:
    os.truncate(file, mmap.PAGESIZE + 1)
    assert resident(file) == 1.0
    os.truncate(file, 0)
    assert resident(file) == 0.0


@pytest.mark.parametrize(
    ("state", "undone", "said"),
    [("cold", "drop", "100.0% of {} is in the page cache after fsync and posix_fadvise(DONTNEED)\n"),
     ("warm", "read", "0.0% of {} is in the page cache after it was read; is there memory for it?\n")],
)  # fmt: skip
def test_a_state_that_is_not_reached_is_an_error(
    state: str, undone: str, said: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if state == "warm":
        run(monkeypatch, "cold", file)
        capsys.readouterr()
    monkeypatch.setattr(page_cache, undone, lambda file: None)
    assert run(monkeypatch, state, file) == 1
    assert capsys.readouterr() == ("", said.format(file))


def test_pages_that_are_not_on_the_device_stay_without_fsync(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    assert run(monkeypatch, "cold", file) == 1


def test_files_in_memory_cannot_be_cold_but_warm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_memory() as folder:
        (folder / "data").write_bytes(bytes(mmap.PAGESIZE))
        assert run(monkeypatch, "cold", folder / "data") == 77
        assert capsys.readouterr() == ("", "cache=cold: a file on tmpfs is always in memory\n")
        assert run(monkeypatch, "warm", folder / "data") == 0
    assert capsys.readouterr() == ('{"resident": 1.0}\n', "")


def test_without_the_file_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "warm", tmp_path / "none") == 1
    assert capsys.readouterr() == ("", f"page cache of {tmp_path}/none: No such file or directory\n")


def test_the_kinds_of_file_systems(tmp_path: Path) -> None:
    assert kind_of(Path("/proc")) == "file system 0x9fa0"
    with pytest.raises(FileNotFoundError):
        kind_of(tmp_path / "none")
