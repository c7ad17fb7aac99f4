"""A run on disk: what is written is read, nothing that a reader refuses is written, a failed write leaves no half."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.processes import LIMIT

from collbench.errors import RequestError, RunReadError, RunWriteError
from collbench.schema import record as records
from collbench.schema.record import Record, Samples
from collbench.schema.store import LONGEST_LINE, Run, RunWriter, read_run


@pytest.fixture
def stored(stored_run: Path) -> Run:
    return read_run(stored_run)


@pytest.fixture
def copy(stored_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stored_run, tmp_path / "run")


def with_file(record: Record, name: str) -> Record:
    assert record.samples is not None
    return msgspec.structs.replace(record, samples=msgspec.structs.replace(record.samples, file=name))


def of(record: Record, samples: NDArray[np.int64]) -> Record:
    """The record as one that counts these samples."""
    return msgspec.structs.replace(record, samples=Samples(n=samples.shape[1], invalid=1, warmup=5))


def test_what_is_written_is_read(stored: Run, tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "run"
    samples = np.array([[400, -500, 2**40], [300, -450, 7], [1, -2, 3], [2, -4, 8]])
    measured = [of(record, samples) if record.status == "ok" else record for record in stored.records]
    with RunWriter(directory, stored.manifest) as writer:
        kept = [writer.append(record, samples if record.status == "ok" else None) for record in measured]
        assert writer.count == len(stored.records)
    run = read_run(directory)
    assert run.manifest == stored.manifest
    assert run.records == tuple(kept)
    assert not run.truncated
    first = run.samples(run.records[0])
    assert first is not None and (first == samples).all()
    assert run.samples(run.records[3]) is None
    assert run.find(stored.records[2].case) == kept[2]
    assert run.find(stored.records[2].case, launch=1) is None


def test_every_record_is_on_disk_before_the_next(stored: Run, tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", stored.manifest) as writer:
        for number, record in enumerate(stored.records, start=1):
            writer.append(record)
            assert len(read_run(tmp_path / "run").records) == number


def test_an_existing_run_is_refused_and_left_alone(stored: Run, copy: Path) -> None:
    before = (copy / "records.jsonl").read_bytes()
    with pytest.raises(RequestError, match=re.escape(str(copy))):
        RunWriter(copy, stored.manifest)
    assert (copy / "records.jsonl").read_bytes() == before


def test_an_empty_directory_is_taken(stored: Run, tmp_path: Path) -> None:
    with RunWriter(tmp_path, stored.manifest) as writer:
        writer.append(stored.records[0])
    assert len(read_run(tmp_path).records) == 1


@pytest.mark.parametrize("name", ["file", "file/run", "x" * 300])
def test_a_directory_that_cannot_be(stored: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunWriteError, match=name):
        RunWriter(tmp_path / name, stored.manifest)


@pytest.mark.parametrize(
    "name",
    ["../secret.npy", "/etc/passwd", "samples/../../secret.npy", "samples/a/b.npy", "samples/a.txt", "a.npy", "", "."],
)
def test_a_samples_file_outside_the_run_is_refused(copy: Path, name: str) -> None:
    np.save(copy.parent / "secret.npy", np.ones((1, 3), np.int64))
    run = read_run(copy)
    with pytest.raises(RunReadError, match="inside samples/"):
        run.samples(with_file(run.records[0], name))


@pytest.fixture(params=["opened by descriptor", "opened by path"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How samples are opened on Unix, and on a system that knows no folder by its descriptor."""
    if request.param == "opened by path":
        monkeypatch.setattr(os, "supports_dir_fd", set())


def assert_unreadable(copy: Path, name: str, match: str = "") -> None:
    run = read_run(copy)
    with pytest.raises(RunReadError, match=match or rf"{name}\.npy"):
        run.samples(with_file(run.records[0], f"samples/{name}.npy"))


@pytest.mark.usefixtures("opening")
@pytest.mark.parametrize("link", ["samples/x.npy", "samples"])
def test_samples_behind_a_link_are_refused(copy: Path, link: str) -> None:
    """The folder of another run would pass for this one's."""
    (copy.parent / "samples").mkdir()
    np.save(copy.parent / "samples" / "x.npy", np.ones((4, 1000), np.int64))
    (copy / link).parent.mkdir(exist_ok=True)
    (copy / link).symlink_to(copy.parent / link)
    assert_unreadable(copy, "x", r"x\.npy: .* samples/")


@pytest.mark.parametrize(
    "content",
    [b"", b"text", b"PK\x03\x04 no zip", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<i8'", np.lib.format.magic(9, 9)],
)
def test_a_samples_file_that_is_no_array_is_refused(copy: Path, content: bytes) -> None:
    (copy / "samples").mkdir()
    (copy / "samples" / "x.npy").write_bytes(content)
    assert_unreadable(copy, "x")


def test_arrays_that_are_no_samples_are_refused(copy: Path) -> None:
    (copy / "samples").mkdir()
    for number, array in enumerate([np.ones(3, np.int64), np.ones((2, 2)), np.array([["a"]])]):
        np.save(copy / "samples" / f"{number}.npy", array)
        assert_unreadable(copy, f"{number}", rf"{number}\.npy: expected")
    np.save(copy / "samples" / "object.npy", np.array([[{}]]), allow_pickle=True)
    assert_unreadable(copy, "object")
    assert_unreadable(copy, "missing")


def test_a_last_line_that_was_cut_off_is_left_out(copy: Path) -> None:
    whole = (copy / "records.jsonl").read_bytes()
    last = len(whole.splitlines()[-1]) + 1
    for cut in (1, last // 2, last - 1):
        (copy / "records.jsonl").write_bytes(whole[:-cut])
        run = read_run(copy)
        assert (len(run.records), run.truncated) == (9, True)
    (copy / "records.jsonl").write_bytes(whole[:-last])
    assert (len(read_run(copy).records), read_run(copy).truncated) == (9, False)


@pytest.mark.parametrize("damage", [b"{}\n", b"\n", b"\x00\xff\n", b'{"schema": 2}\n'])
def test_a_broken_line_is_named_by_its_number(copy: Path, damage: bytes) -> None:
    lines = (copy / "records.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "records.jsonl").write_bytes(b"".join([*lines[:4], damage, *lines[5:]]))
    with pytest.raises(RunReadError, match=r"records\.jsonl line 5: "):
        read_run(copy)


def test_what_is_no_run_is_refused(tmp_path: Path, copy: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
        with pytest.raises(RunReadError, match=re.escape(str(path))):
            read_run(path)
    (copy / "records.jsonl").unlink()
    assert read_run(copy).records == ()
    (copy / "records.jsonl").mkdir()
    with pytest.raises(RunReadError, match=r"records\.jsonl"):
        read_run(copy)


def test_a_record_without_samples_writes_no_file(stored: Run, tmp_path: Path) -> None:
    taken = Samples(n=0, invalid=0, warmup=5)
    record = msgspec.structs.replace(stored.records[0], status="failed", reason="none", samples=taken, seconds=None)
    with RunWriter(tmp_path / "run", stored.manifest) as writer:
        kept = writer.append(record, np.empty((4, 0), np.int64))
    assert kept == record
    assert list((tmp_path / "run" / "samples").iterdir()) == []
    assert records.encode(kept) + b"\n" == (tmp_path / "run" / "records.jsonl").read_bytes()


def test_a_run_has_one_writer(stored: Run, copy: Path) -> None:
    with RunWriter.resume(copy), pytest.raises(RunWriteError, match=re.escape(str(copy))):
        RunWriter.resume(copy)
    with RunWriter.resume(copy) as writer:
        assert writer.count == len(stored.records)


def test_going_on_takes_a_cut_off_line_away(stored: Run, copy: Path) -> None:
    path = copy / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with RunWriter.resume(copy) as writer:
        assert writer.count == len(stored.records) - 1
        writer.append(stored.records[-1], None)
    run = read_run(copy)
    assert len(run.records) == len(stored.records)
    assert not run.truncated


def refused(writer: RunWriter, record: Record, samples: object = None) -> str:
    with pytest.raises(RunWriteError) as error:
        writer.append(record, samples)  # type: ignore[arg-type]
    return str(error.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"notes": ("x" * (70 << 20),)}, "70 MiB"),
        ({"seconds": None}, "seconds"),
        ({"samples": Samples(n=-1, invalid=0, warmup=0)}, ">= 0"),
        ({"reason": "\udcff"}, "utf-8"),
    ],
)
def test_what_a_reader_would_refuse_is_not_written(
    stored: Run, tmp_path: Path, more: dict[str, object], said: str
) -> None:
    record = stored.records[0]
    with RunWriter(tmp_path / "run", stored.manifest) as writer:
        writer.append(record)
        message = refused(writer, msgspec.structs.replace(record, launch=1, **more))
        assert said in message
        assert "The 1 records" in message and f"(collbench show {tmp_path / 'run'})" in message
        writer.append(msgspec.structs.replace(record, launch=2))
    assert [one.launch for one in read_run(tmp_path / "run").records] == [0, 2]


@pytest.mark.parametrize("shape", [(3, 1000), (4, 999), (4000,), (2, 1000)])
def test_samples_that_are_not_the_records_are_not_written(stored: Run, tmp_path: Path, shape: tuple[int, ...]) -> None:
    with RunWriter(tmp_path / "run", stored.manifest) as writer:
        message = refused(writer, stored.records[0], np.ones(shape, np.int64))
    assert all(text in message for text in ("4 ranks", "1000 samples", str(list(shape))))
    assert list((tmp_path / "run" / "samples").iterdir()) == []


@pytest.mark.parametrize("with_samples", [True, False])
def test_a_record_that_did_not_get_to_disk_is_taken_back(
    stored: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_samples: bool
) -> None:
    samples = np.ones((4, 10), np.int64)
    record = of(stored.records[0], samples)
    with RunWriter(tmp_path / "run", stored.manifest) as writer:
        writer.append(record, samples)
        before = (tmp_path / "run" / "records.jsonl").read_bytes()

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        second = msgspec.structs.replace(record, launch=1)
        with pytest.raises(RunWriteError, match=r"No space left on device\. The 1 records"):
            writer.append(second, samples if with_samples else None)
        monkeypatch.undo()
        assert (tmp_path / "run" / "records.jsonl").read_bytes() == before
        assert len(list((tmp_path / "run" / "samples").iterdir())) == 1
        writer.append(msgspec.structs.replace(record, launch=2), samples)
    assert [one.launch for one in read_run(tmp_path / "run").records] == [0, 2]


def test_a_line_that_is_no_record_is_refused_before_it_is_read_whole(copy: Path) -> None:
    with (copy / "records.jsonl").open("ab") as file:
        file.write(b" " * (LONGEST_LINE + 1))
    number = len((copy / "records.jsonl").read_bytes().splitlines())
    with pytest.raises(RunReadError, match=rf"line {number}: .*{LONGEST_LINE // 2**20} MiB"):
        read_run(copy)


def replaced(run: Path) -> None:
    (run / "records.jsonl").rename(run / "old")
    shutil.copy(run / "old", run / "records.jsonl")


@pytest.mark.parametrize(
    "lose",
    [
        shutil.rmtree,
        lambda run: run.rename(run.with_name("moved")),
        lambda run: (run / "records.jsonl").unlink(),
        lambda run: (run / "manifest.json").unlink(),
        replaced,
        lambda run: os.truncate(run / "records.jsonl", 0),
    ],
)
def test_a_run_that_goes_while_it_is_written(stored: Run, tmp_path: Path, lose: Callable[[Path], None]) -> None:
    with RunWriter(tmp_path / "run", stored.manifest) as writer:
        writer.append(stored.records[0])
        writer.verify()
        lose(tmp_path / "run")
        message = refused(writer, stored.records[1])
        with pytest.raises(RunWriteError):
            writer.verify()
    assert "1 records" in message and "collbench show" not in message


def test_refusals_in_words(stored: Run, copy: Path, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    record, said = stored.records[0], list[str]()

    def refuse(call: Callable[..., object], *arguments: object) -> None:
        with pytest.raises((RequestError, RunReadError, RunWriteError)) as error:
            call(*arguments)
        said.append(str(error.value).replace(str(tmp_path), "DIR"))

    (tmp_path / "file").write_text("")
    refuse(RunWriter, copy, stored.manifest)
    refuse(RunWriter, tmp_path / "file", stored.manifest)
    refuse(read_run, tmp_path / "none")
    refuse(read_run(copy).samples, with_file(record, "../secret.npy"))
    with RunWriter.resume(copy):
        refuse(RunWriter.resume, copy)
    with RunWriter(tmp_path / "new", stored.manifest) as writer:
        refuse(writer.append, msgspec.structs.replace(record, notes=("x" * (70 << 20),)))
        refuse(writer.append, msgspec.structs.replace(record, seconds=None))
        refuse(writer.append, record, np.ones((3, 1000), np.int64))
        writer.append(record)
        shutil.rmtree(tmp_path / "new")
        refuse(writer.append, record)
    golden("store-refusals.txt", "".join(f"{line}\n" for line in said))


# A write that fails half-way: what was measured before stays readable, and no half line is left ----------------------


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
        assert samples is not None and samples.shape == (4, 100)
    assert len(list((directory / "samples").iterdir())) == kept
    assert f"The {kept} records" in said and f"(collbench show {directory})" in said
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
    assert kept == 0 and str(tmp_path / "run") in said
    assert not (tmp_path / "run" / "manifest.json").exists()
