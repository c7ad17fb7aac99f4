"""`collbench pack`: nothing is lost, whatever interrupts it, and everything reads a packed run as it was."""

from __future__ import annotations

import errno
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.runs import read_run
from tests.unit.made_runs import experiment, made_case, made_manifest, made_record, sampled

from collbench.analysis.runs import Observed, observe
from collbench.errors import RequestError, RunReadError, RunWriteError
from collbench.schema import samples as packing
from collbench.schema.samples import ARCHIVE, pack
from collbench.schema.store import RunWriter

Collbench = Callable[..., CompletedProcess[str]]

LAUNCHES = 4


def append(writer: RunWriter, launch: int) -> None:
    samples = np.random.default_rng(launch).integers(18_000, 22_000, (2, 300))
    for policy in ("host", "single"):
        writer.append(sampled(made_record(made_case(policy, image="a"), launch, 2e-5), samples), samples)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Eight records with samples."""
    with patch("os.fsync"), RunWriter(tmp_path / "run", made_manifest(experiment=experiment(("a",)))) as writer:
        for launch in range(LAUNCHES):
            append(writer, launch)
    return tmp_path / "run"


def contents(run: Path) -> dict[str, bytes]:
    """Every samples file, wherever it is."""
    found = {f"samples/{path.name}": path.read_bytes() for path in (run / "samples").glob("*")}
    if (run / "samples.zip").exists():
        with zipfile.ZipFile(run / "samples.zip") as archive:
            found = {name: archive.read(name) for name in archive.namelist()} | found
    return found


def files(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir())


def numbers(observed: Observed) -> list[tuple[object, ...]]:
    return [(case, cell.launches, cell.medians, cell.facts, cell.samples) for case, cell in observed.cells.items()]


PACKED = ["manifest.json", "records.jsonl", "samples.zip"]


def test_a_packed_run_is_three_files_and_loses_nothing(run: Path) -> None:
    before, read = contents(run), observe(run)
    blocks = sum(512 * path.stat().st_blocks for path in (run / "samples").iterdir())
    found = pack(run)
    assert found == packing.Packed(8, blocks, 512 * (run / "samples.zip").stat().st_blocks)
    assert files(run) == PACKED
    assert contents(run) == before
    assert numbers(observe(run)) == numbers(read) and observe(run).flaws == ()


def test_packing_twice_gives_the_same_bytes(run: Path) -> None:
    """Wherever, whenever, and in whatever order the files were written."""
    other = Path(shutil.copytree(run, run.with_name("other")))
    for path in sorted((other / "samples").iterdir(), reverse=True):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
        os.utime(path, (1, 1))
        path.chmod(0o600)
    pack(run)
    pack(other)
    assert (run / "samples.zip").read_bytes() == (other / "samples.zip").read_bytes()


def test_a_packed_run_has_nothing_more_to_pack(run: Path) -> None:
    pack(run)
    before = (run / "samples.zip").stat()
    assert pack(run) is None
    assert (run / "samples.zip").stat().st_mtime_ns == before.st_mtime_ns


def test_samples_that_no_record_names_are_packed_too(run: Path) -> None:
    """A writer that is killed leaves them; it is not for us to throw them away."""
    (run / "samples" / "stray.npy").write_bytes(b"half an arr")
    pack(run)
    assert contents(run)["samples/stray.npy"] == b"half an arr"


class Killed(BaseException):
    """What ends a program at any place."""


def dying(name: str, at: int) -> Any:
    """This function of `os` ends the program once it was called `at` times."""
    real, calls = getattr(os, name), iter(range(at))

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise Killed
        return real(*args, **kwargs)

    return patch.object(os, name, call)


STEPS = [("fsync", 0), ("replace", 0), ("fsync", 1), *(("unlink", number) for number in range(10)), ("rmdir", 0)]


@pytest.mark.parametrize(("name", "at"), STEPS)
def test_nothing_is_lost_wherever_it_is_interrupted(run: Path, name: str, at: int) -> None:
    before = contents(run)
    whole = Path(shutil.copytree(run, run.with_name("whole")))
    pack(whole)
    with dying(name, at), pytest.raises(Killed):
        pack(run)
    assert contents(run) == before
    assert observe(run).flaws == ()
    pack(run)
    assert files(run) == PACKED
    assert (run / "samples.zip").read_bytes() == (whole / "samples.zip").read_bytes()


def test_the_half_archive_of_one_that_was_killed_is_no_obstacle(run: Path) -> None:
    """Nor is it followed: in the run of a stranger it may lead to a file of ours."""
    (run.parent / "ours").write_text("ours")
    (run / "samples.zip.part").symlink_to(run.parent / "ours")
    before = contents(run)
    pack(run)
    assert files(run) == PACKED
    assert contents(run) == before
    assert (run.parent / "ours").read_text() == "ours"


def test_files_stay_when_the_archive_is_not_what_was_written(run: Path) -> None:
    before = contents(run)
    real = packing._write

    def write(path: Path, *args: Any) -> None:
        real(path, *args)
        content = bytearray(path.read_bytes())
        content[content.index(b".npy") + 100] ^= 1
        path.write_bytes(content)

    with patch.object(packing, "_write", write), pytest.raises((RunReadError, RunWriteError)):
        pack(run)
    assert contents(run) == before
    assert files(run) == ["manifest.json", "records.jsonl", "samples"]


def test_files_stay_when_the_archive_lacks_one(run: Path) -> None:
    real = packing._write

    def write(path: Path, names: tuple[str, ...], samples: Any) -> None:
        real(path, names[1:], samples)

    with patch.object(packing, "_write", write), pytest.raises(RunWriteError, match=f"pack {run}: "):
        pack(run)
    assert files(run) == ["manifest.json", "records.jsonl", "samples"]


def test_a_full_disk_leaves_the_run_as_it_was(run: Path) -> None:
    before = contents(run)
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch.object(os, "fsync", side_effect=full), pytest.raises(RunWriteError) as error:
        pack(run)
    assert str(error.value).startswith(f"pack {run}: {full.strerror}. ")
    assert contents(run) == before
    assert files(run) == ["manifest.json", "records.jsonl", "samples"]


def test_a_run_that_is_being_written_is_refused(run: Path) -> None:
    with RunWriter.resume(run), pytest.raises(RunWriteError, match=f"{run}: "):
        pack(run)
    assert files(run) == ["manifest.json", "records.jsonl", "samples"]
    assert pack(run) is not None


def linked(run: Path) -> Iterator[str]:
    (run / "samples").rename(run.parent / "elsewhere")
    (run / "samples").symlink_to(run.parent / "elsewhere")
    yield "samples: is a link"


def with_link(run: Path) -> Iterator[str]:
    (run / "samples" / "a.npy").symlink_to("/etc/passwd")
    yield "a.npy: not a samples file"


def with_folder(run: Path) -> Iterator[str]:
    (run / "samples" / "a.npy").mkdir()
    yield "a.npy: not a samples file"


def with_note(run: Path) -> Iterator[str]:
    (run / "samples" / "notes.txt").write_text("of a person")
    yield "notes.txt: not a samples file. Move it away"


def damaged(run: Path) -> Iterator[str]:
    (run / "samples.zip").write_bytes(b"no archive")
    yield "samples.zip: "


@pytest.mark.parametrize("make", [linked, with_link, with_folder, with_note, damaged])
def test_what_cannot_be_packed_is_named_and_left_alone(run: Path, make: Callable[[Path], Iterator[str]]) -> None:
    (said,) = make(run)
    before = sorted((run / "samples").iterdir())
    with pytest.raises(RunReadError, match=said):
        pack(run)
    assert sorted((run / "samples").iterdir()) == before


@pytest.mark.parametrize("gone", ["manifest.json", "records.jsonl"])
def test_what_is_no_run_is_refused(run: Path, gone: str) -> None:
    (run / gone).unlink()
    with pytest.raises((RunReadError, RunWriteError), match=gone):
        pack(run)
    assert (run / "samples").is_dir() and not (run / "samples.zip").exists()


def test_a_launch_goes_on_with_a_packed_run(run: Path) -> None:
    """What it adds stands beside the archive until the run is packed again."""
    whole = Path(shutil.copytree(run, run.with_name("whole")))
    pack(run)
    for path in (run, whole):
        with RunWriter.resume(path) as writer:
            append(writer, LAUNCHES)
    assert len(list((run / "samples").iterdir())) == 2
    assert contents(run) == contents(whole)
    assert observe(run).flaws == ()
    assert numbers(observe(run)) == numbers(observe(whole))
    pack(run)
    pack(whole)
    assert files(run) == PACKED
    assert (run / "samples.zip").read_bytes() == (whole / "samples.zip").read_bytes()


def test_nothing_new_is_written_where_a_packed_run_is(run: Path) -> None:
    pack(run)
    before = contents(run)
    with pytest.raises(RequestError, match=f"{run}: "):
        RunWriter(run, read_run(run).manifest)
    assert contents(run) == before


@pytest.mark.slow
def test_the_command_packs_runs_and_says_what_that_saved(collbench: Collbench, run: Path) -> None:
    shutil.copytree(run, run.with_name("other"))
    compared = collbench("compare", run, "--by", "policy").stdout
    done = collbench("pack", run, run.with_name("other"))
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert re.fullmatch(rf"{re.escape(str(run))}: 8 .* {ARCHIVE}: [0-9.]+ MB .* [0-9.]+ MB .*", first)
    assert second.startswith(f"{run.with_name('other')}: 8 ")
    assert files(run) == PACKED
    again = collbench("pack", run)
    assert (again.returncode, again.stdout.count("\n")) == (0, 1) and again.stdout.startswith(f"{run}: ")
    done = collbench("compare", run, "--by", "policy")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", compared)


def test_the_command_refuses_with_a_line(collbench: Collbench, run: Path) -> None:
    done = collbench("pack", run.parent)
    assert done.returncode == 2
    assert done.stderr.startswith(f"collbench: {run.parent}: ") and done.stderr.endswith(f" {run}.\n")
    with RunWriter.resume(run):
        done = collbench("pack", run)
    assert done.returncode == 1 and done.stderr.startswith(f"collbench: {run}: ")
    assert len(done.stderr.splitlines()) == 1
