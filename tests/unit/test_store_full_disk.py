"""A write that fails half-way: what was measured before stays readable, and no half line is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes import LIMIT

from collbench.schema.store import read_run

FILL = Path(__file__).with_name("fill_run.py")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = mounted.stderr.strip()
    except OSError as error:
        reason = str(error)
    if reason:
        pytest.skip(f"no file system of our own can be mounted here: {reason}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def filled(stored_run: Path, target: Path, limit: str = "") -> tuple[int, str]:
    """Records kept until the disk was full, and what the writer said."""
    done = subprocess.run(
        ["sh", "-c", f'{limit} exec "$@"', "sh", sys.executable, str(FILL), str(stored_run), str(target)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


def assert_whole(directory: Path, kept: int, said: str) -> None:
    run = read_run(directory)
    assert not run.truncated
    assert [record.launch for record in run.records] == list(range(kept))
    for record in run.records:
        samples = run.samples(record)
        assert samples is not None
        assert samples.shape == (4, 100)
    assert len(list((directory / "samples").iterdir())) == kept
    assert f"The {kept} records written before are whole (collbench show {directory})." in said
    assert len(said.splitlines()) == 1


def test_the_file_may_not_grow(stored_run: Path, tmp_path: Path) -> None:
    """`ulimit -f` (in 512 bytes) stops records.jsonl in the middle of a line; Python ignores the signal."""
    kept, said = filled(stored_run, tmp_path / "run", "ulimit -f 24;")
    assert 5 < kept < 15
    assert_whole(tmp_path / "run", kept, said)


def test_a_full_file_system(stored_run: Path, small_disk: Path) -> None:
    kept, said = filled(stored_run, small_disk / "run")
    assert 5 < kept < 100
    assert_whole(small_disk / "run", kept, said)


def test_not_even_the_manifest_fits(stored_run: Path, tmp_path: Path) -> None:
    kept, said = filled(stored_run, tmp_path / "run", "ulimit -f 1;")
    assert kept == 0
    assert "Nothing was measured" in said
    assert not (tmp_path / "run" / "manifest.json").exists()
