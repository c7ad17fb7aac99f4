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
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.processes import LIMIT
from tests.runs import Run, read_run
from tests.unit.made_files import mounted

from collbench.errors import RequestError, RunReadError, RunWriteError
from collbench.schema import record as records
from collbench.schema.record import Record, Samples
from collbench.schema.store import LONGEST_LINE, RunWriter


@pytest.fixture
def stored(stored_run: Path) -> Run:
    return read_run(stored_run)


@pytest.fixture
def copy(stored_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stored_run, tmp_path / "run")


@pytest.fixture
def writer(stored: Run, tmp_path: Path) -> Iterator[RunWriter]:
    """Of a new run, `tmp_path / "new"`, with the manifest of the stored one."""
    with RunWriter(tmp_path / "new", stored.manifest) as writer:
        yield writer


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


def test_every_record_is_on_disk_before_the_next(stored: Run, writer: RunWriter) -> None:
    for number, record in enumerate(stored.records, start=1):
        writer.append(record)
        assert len(read_run(writer.directory).records) == number


def test_a_new_run_is_written_to_an_empty_directory_alone(stored: Run, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with RunWriter(tmp_path / "empty", stored.manifest) as writer:
        writer.append(stored.records[0])
    assert len(read_run(tmp_path / "empty").records) == 1
    before = (copy / "records.jsonl").read_bytes()
    with pytest.raises(RequestError, match=re.escape(str(copy))):
        RunWriter(copy, stored.manifest)
    assert (copy / "records.jsonl").read_bytes() == before
    (tmp_path / "file").write_text("")
    for name in ("file", "file/run", "x" * 300):
        with pytest.raises(RunWriteError, match=name):
            RunWriter(tmp_path / name, stored.manifest)


def assert_unreadable(run: Path, file: str, match: str = "") -> None:
    stored = read_run(run)
    with pytest.raises(RunReadError, match=match or re.escape(Path(file).name)):
        stored.samples(with_file(stored.records[0], file))


@pytest.mark.parametrize("name", ["../secret.npy", "/etc/passwd", "samples/../../secret.npy", "samples/a/b.npy",
                                  "samples/a.txt", "a.npy", "", "."])  # fmt: skip
def test_a_samples_file_outside_the_run_is_refused(copy: Path, name: str) -> None:
    np.save(copy.parent / "secret.npy", np.ones((1, 3), np.int64))
    assert_unreadable(copy, name, "inside samples/")


@pytest.fixture(params=["opened by descriptor", "opened by path"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How samples are opened on Unix, and on a system that knows no folder by its descriptor."""
    if request.param == "opened by path":
        monkeypatch.setattr(os, "supports_dir_fd", set())


@pytest.mark.usefixtures("opening")
@pytest.mark.parametrize("link", ["samples/x.npy", "samples"])
def test_samples_behind_a_link_are_refused(copy: Path, link: str) -> None:
    """The folder of another run would pass for this one's."""
    (copy.parent / "samples").mkdir()
    np.save(copy.parent / "samples" / "x.npy", np.ones((4, 1000), np.int64))
    (copy / link).parent.mkdir(exist_ok=True)
    (copy / link).symlink_to(copy.parent / link)
    assert_unreadable(copy, "samples/x.npy", r"x\.npy: .* samples/")


def test_a_samples_file_that_is_no_array_of_samples_is_refused(copy: Path) -> None:
    (copy / "samples").mkdir()
    for content in (b"", b"text", b"PK\x03\x04 no zip", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<i8'",
                    np.lib.format.magic(9, 9)):  # fmt: skip
        (copy / "samples" / "x.npy").write_bytes(content)
        assert_unreadable(copy, "samples/x.npy")
    for array in (np.ones(3, np.int64), np.ones((2, 2)), np.array([["a"]])):
        np.save(copy / "samples" / "x.npy", array)
        assert_unreadable(copy, "samples/x.npy", r"x\.npy: expected")
    np.save(copy / "samples" / "x.npy", np.array([[{}]]), allow_pickle=True)
    assert_unreadable(copy, "samples/x.npy")
    assert_unreadable(copy, "samples/missing.npy")


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


def test_a_record_without_samples_writes_no_file(stored: Run, writer: RunWriter) -> None:
    taken = Samples(n=0, invalid=0, warmup=5)
    record = msgspec.structs.replace(stored.records[0], status="failed", reason="none", samples=taken, seconds=None)
    assert writer.append(record, np.empty((4, 0), np.int64)) == record
    assert list((writer.directory / "samples").iterdir()) == []
    assert records.encode(record) + b"\n" == (writer.directory / "records.jsonl").read_bytes()


def test_a_run_has_one_writer_that_goes_on_after_a_cut_off_line(stored: Run, copy: Path) -> None:
    path = copy / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with RunWriter.resume(copy) as writer:
        with pytest.raises(RunWriteError, match=re.escape(str(copy))):
            RunWriter.resume(copy)
        assert writer.count == len(stored.records) - 1
        writer.append(stored.records[-1], None)
    run = read_run(copy)
    assert (len(run.records), run.truncated) == (len(stored.records), False)
    with RunWriter.resume(copy) as writer:
        assert writer.count == len(stored.records)


def refused(writer: RunWriter, record: Record, samples: object = None) -> str:
    with pytest.raises(RunWriteError) as error:
        writer.append(record, samples)  # type: ignore[arg-type]
    return str(error.value)


def test_what_a_reader_would_refuse_is_not_written(stored: Run, writer: RunWriter) -> None:
    record = stored.records[0]
    writer.append(record)
    unreadable: dict[str, dict[str, Any]] = {"70 MiB": {"notes": ("x" * (70 << 20),)}, "seconds": {"seconds": None},
                                             "utf-8": {"reason": "\udcff"},
                                             ">= 0": {"samples": Samples(n=-1, invalid=0, warmup=0)}}  # fmt: skip
    for named, fields in unreadable.items():
        message = refused(writer, msgspec.structs.replace(record, launch=1, **fields))
        assert all(text in message for text in (named, "1 records", f"(collbench show {writer.directory})"))
    for shape in ((3, 1000), (4, 999), (4000,), (2, 1000)):
        message = refused(writer, record, np.ones(shape, np.int64))
        assert all(text in message for text in ("4 ranks", "1000 samples", str(list(shape))))
    assert list((writer.directory / "samples").iterdir()) == []
    writer.append(msgspec.structs.replace(record, launch=2))
    assert [record.launch for record in read_run(writer.directory).records] == [0, 2]


@pytest.mark.parametrize("with_samples", [True, False])
def test_a_record_that_did_not_get_to_disk_is_taken_back(
    stored: Run, writer: RunWriter, monkeypatch: pytest.MonkeyPatch, with_samples: bool
) -> None:
    samples, run = np.ones((4, 10), np.int64), writer.directory
    record = of(stored.records[0], samples)
    writer.append(record, samples)
    before = (run / "records.jsonl").read_bytes()
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(RunWriteError, match=rf"{os.strerror(errno.ENOSPC)}.* 1 records"):
        writer.append(msgspec.structs.replace(record, launch=1), samples if with_samples else None)
    monkeypatch.undo()
    assert (run / "records.jsonl").read_bytes() == before
    assert len(list((run / "samples").iterdir())) == 1
    writer.append(msgspec.structs.replace(record, launch=2), samples)
    assert [record.launch for record in read_run(run).records] == [0, 2]


def test_a_line_that_is_no_record_is_refused_before_it_is_read_whole(copy: Path) -> None:
    with (copy / "records.jsonl").open("ab") as file:
        file.write(b" " * (LONGEST_LINE + 1))
    number = len((copy / "records.jsonl").read_bytes().splitlines())
    with pytest.raises(RunReadError, match=rf"line {number}: .*{LONGEST_LINE // 2**20} MiB"):
        read_run(copy)


def replaced(run: Path) -> None:
    (run / "records.jsonl").rename(run / "old")
    shutil.copy(run / "old", run / "records.jsonl")


@pytest.mark.parametrize("lose", [
    shutil.rmtree, lambda run: run.rename(run.with_name("moved")), lambda run: (run / "records.jsonl").unlink(),
    lambda run: (run / "manifest.json").unlink(), replaced, lambda run: os.truncate(run / "records.jsonl", 0),
])  # fmt: skip
def test_a_run_that_goes_while_it_is_written(stored: Run, writer: RunWriter, lose: Callable[[Path], None]) -> None:
    writer.append(stored.records[0])
    writer.verify()
    lose(writer.directory)
    message = refused(writer, stored.records[1])
    assert "1 records" in message and "collbench show" not in message
    with pytest.raises(RunWriteError):
        writer.verify()


def test_refusals_in_words(stored: Run, copy: Path, tmp_path: Path, writer: RunWriter,
                           golden: Callable[[str, str], None]) -> None:  # fmt: skip
    record, text = stored.records[0], ""

    def refuse(call: Callable[..., object], *arguments: object) -> None:
        nonlocal text
        with pytest.raises((RequestError, RunReadError, RunWriteError)) as error:
            call(*arguments)
        text += str(error.value).replace(str(tmp_path), "DIR") + "\n"

    (tmp_path / "file").write_text("")
    refuse(RunWriter, copy, stored.manifest)
    refuse(RunWriter, tmp_path / "file", stored.manifest)
    refuse(read_run, tmp_path / "none")
    refuse(read_run(copy).samples, with_file(record, "../secret.npy"))
    with RunWriter.resume(copy):
        refuse(RunWriter.resume, copy)
    refuse(writer.append, msgspec.structs.replace(record, notes=("x" * (70 << 20),)))
    refuse(writer.append, msgspec.structs.replace(record, seconds=None))
    refuse(writer.append, record, np.ones((3, 1000), np.int64))
    writer.append(record)
    shutil.rmtree(writer.directory)
    refuse(writer.append, record)
    golden("store-refusals.txt", text)


# A write that fails half-way: what was measured before stays readable, and no half line is left ----------------------


FILL = Path(__file__).with_name("fill_run.py")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "tmpfs", "size=256k") as disk:
        yield disk


def filled(stored_run: Path, target: Path, limit: str = "") -> tuple[int, str]:
    """Records kept until the disk was full, and what the writer said."""
    words = ["sh", "-c", f'{limit} exec "$@"', "sh", sys.executable, str(FILL), str(stored_run), str(target)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


def assert_whole(directory: Path, kept: int, message: str) -> None:
    run = read_run(directory)
    assert not run.truncated
    assert [record.launch for record in run.records] == list(range(kept))
    for record in run.records:
        samples = run.samples(record)
        assert samples is not None and samples.shape == (4, 100)
    assert len(list((directory / "samples").iterdir())) == kept
    assert f" {kept} records" in message and f"(collbench show {directory})" in message
    assert len(message.splitlines()) == 1


def test_the_file_may_not_grow(stored_run: Path, tmp_path: Path) -> None:
    """`ulimit -f` (in 512 bytes) stops records.jsonl in the middle of a line; Python ignores the signal."""
    kept, message = filled(stored_run, tmp_path / "run", "ulimit -f 24;")
    assert 5 < kept < 15
    assert_whole(tmp_path / "run", kept, message)
    kept, message = filled(stored_run, tmp_path / "none", "ulimit -f 1;")
    assert kept == 0 and str(tmp_path / "none") in message, "not even the manifest fits"
    assert not (tmp_path / "none" / "manifest.json").exists()


def test_a_full_file_system(stored_run: Path, small_disk: Path) -> None:
    kept, message = filled(stored_run, small_disk / "run")
    assert 5 < kept < 100
    assert_whole(small_disk / "run", kept, message)
