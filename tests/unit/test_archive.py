"""Samples are read from an archive as from a folder, and an archive is untrusted: one message, and little memory."""

from __future__ import annotations

import io
import os
import shutil
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from tests.unit.made_runs import made_case, made_manifest, made_record, sampled

from collbench.analysis.runs import observe
from collbench.errors import RunReadError
from collbench.schema import samples
from collbench.schema.record import Record
from collbench.schema.samples import LONGEST_HEADER, SampleFiles, pack, read_samples
from collbench.schema.store import RunWriter, read_run

MATRIX = np.array([[20_000, -21_000, 22_000], [19_000, -20_000, 21_000]])
SPARSE = 1 << 32
LITTLE = 4 << 20

Members = Iterable[tuple[str | zipfile.ZipInfo, bytes]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three records with samples."""
    path = tmp_path / "run"
    with patch("os.fsync"), RunWriter(path, made_manifest()) as writer:
        for launch in range(3):
            samples = MATRIX * (launch + 1)
            writer.append(sampled(made_record(made_case(), launch, 2e-5), samples), samples)
    return path


def array_of(matrix: np.ndarray = MATRIX) -> bytes:
    content = io.BytesIO()
    np.save(content, matrix)
    return content.getvalue()


def names(run: Path) -> list[str]:
    return [record.samples.file or "" for record in read_run(run).records if record.samples]


def packed_by_hand(run: Path, members: Members, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The run with this archive in the place of its folder."""
    shutil.rmtree(run / "samples", ignore_errors=True)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    (run / "samples.zip").write_bytes(content.getvalue())
    return content.getvalue()


def refused(run: Path, most_memory: int | None = None) -> str:
    """What the first record's samples are refused with, without taking more memory than these bytes."""
    record = read_run(run).records[0]
    tracemalloc.start()
    with pytest.raises(RunReadError) as error:
        read_samples(run, record)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_memory is None or peak < most_memory
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(run / "samples"))
    return str(error.value).removeprefix(f"{run}/")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_samples_are_read_from_an_archive_as_from_the_folder(run: Path, method: int) -> None:
    before = [read_run(run).samples(record) for record in read_run(run).records]
    packed_by_hand(run, [(name, (run / name).read_bytes()) for name in names(run)], method)
    after = [read_run(run).samples(record) for record in read_run(run).records]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))  # type: ignore[arg-type]
    assert observe(run).flaws == ()
    assert not (run / "samples").exists()


def test_a_run_is_reached_through_a_link_to_it(run: Path) -> None:
    pack(run)
    (run.parent / "latest").symlink_to(run)
    assert observe(run.parent / "latest").flaws == ()


def test_a_file_in_the_folder_comes_before_its_member(run: Path) -> None:
    """What a launch that goes on wrote last is what its record speaks of."""
    first = read_run(run).records[0]
    pack(run)
    (run / "samples").mkdir()
    (run / names(run)[0]).write_bytes(array_of(MATRIX + 1))
    found = read_run(run).samples(first)
    assert found is not None and (found == MATRIX + 1).all()


def test_who_reads_many_members_opens_the_archive_once(run: Path) -> None:
    pack(run)
    with patch.object(zipfile, "ZipFile", wraps=zipfile.ZipFile) as opened:
        observe(run)
        assert opened.call_count == 1
        with SampleFiles(run) as files:
            for record in read_run(run).records:
                assert files.read(record) is not None
        assert opened.call_count == 2


def test_what_is_wrong_with_an_archive_is_found_out_once(run: Path) -> None:
    """Of an archive with a directory of many megabytes every record would ask again."""
    packed_by_hand(run, [("../x", b"")])
    with patch.object(zipfile, "ZipFile", wraps=zipfile.ZipFile) as opened, SampleFiles(run) as files:
        for record in read_run(run).records:
            with pytest.raises(RunReadError, match="not a samples file"):
                files.read(record)
        assert opened.call_count == 1


@pytest.mark.parametrize("name", ["../x.npy", "/etc/x.npy", "samples/../x.npy", "samples/a/b.npy", "x.npy", "samples/"])
def test_a_member_that_is_no_samples_file_is_refused(run: Path, name: str) -> None:
    """It is never read; but somebody may unpack the archive."""
    packed_by_hand(run, [(names(run)[0], array_of()), (name, b"")])
    assert refused(run) == f"samples.zip: holds {name!a}, which is not a samples file."


def test_a_member_that_is_there_twice_is_refused(run: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        packed_by_hand(run, [(names(run)[0], array_of()), (names(run)[0], array_of(MATRIX + 1))])
    assert refused(run) == f"samples.zip: holds {names(run)[0]} more than once."


def test_a_member_that_is_missing_is_named(run: Path) -> None:
    packed_by_hand(run, [(names(run)[1], array_of())])
    assert refused(run) == f"samples.zip: does not contain {names(run)[0]}."


def test_encrypted_members_are_refused(run: Path) -> None:
    content = bytearray(packed_by_hand(run, [(names(run)[0], array_of())]))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (run / "samples.zip").write_bytes(content)
    assert refused(run) == f"samples.zip: {names(run)[0]} is encrypted."


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_than_deflate_are_refused(run: Path, method: int) -> None:
    packed_by_hand(run, [(names(run)[0], array_of())], method)
    assert refused(run) == f"samples.zip: {names(run)[0]} is compressed by method {method}; only deflate is read."


def test_a_member_of_another_shape_is_refused(run: Path) -> None:
    packed_by_hand(run, [(names(run)[0], array_of(MATRIX[:, :2]))])
    assert "expected integers [2, 3], as its record says, found" in refused(run)


@pytest.mark.parametrize("content", [b"", b"text", array_of()[:-1]])
def test_a_member_that_is_no_array_is_refused(run: Path, content: bytes) -> None:
    packed_by_hand(run, [(names(run)[0], content)])
    assert refused(run).startswith(f"samples.zip: {names(run)[0]}: ")


def test_a_member_that_grows_beyond_its_record_is_refused_before_it_takes_memory(run: Path) -> None:
    """64 MiB of zeros take 64 KiB in the archive, and would be read as the header of an array."""
    bomb = b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 26) + bytes(1 << 26)
    packed_by_hand(run, [(names(run)[0], bomb)])
    del bomb
    most = LONGEST_HEADER + MATRIX.size * 8
    assert f"{names(run)[0]}: {(1 << 26) + 12} bytes; at most {most} are read." in refused(run, LITTLE)


def test_a_member_that_lies_about_its_size_takes_no_more_memory(run: Path) -> None:
    """It says 100 bytes, and 64 MiB come out of it."""
    bomb = b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 26) + bytes(1 << 26)
    content = bytearray(packed_by_hand(run, [(names(run)[0], bomb)]))
    del bomb
    for signature, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = content.index(signature) + place
        content[at : at + 4] = struct.pack("<I", 100)
    (run / "samples.zip").write_bytes(content)
    assert refused(run, LITTLE).startswith(f"samples.zip: {names(run)[0]}: ")


def test_a_directory_of_gigabytes_is_refused_before_it_takes_memory(run: Path) -> None:
    content = packed_by_hand(run, [(names(run)[0], array_of())])
    end = bytearray(content[content.index(b"PK\x05\x06") :])
    end[12:16] = struct.pack("<I", SPARSE - 1 - 22)  # its size
    end[16:20] = struct.pack("<I", 0)  # where it begins
    with (run / "samples.zip").open("wb") as file:
        file.seek(SPARSE - 1 - 22)
        file.write(end)
    with patch.object(samples, "LARGEST_DIRECTORY", 1 << 20):
        assert refused(run, LITTLE) == "samples.zip: its directory takes more than 1 MiB."


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def without_directory(content: bytes) -> bytes:
    return content[: content.index(b"PK\x01\x02")]


def other_directory(content: bytes) -> bytes:
    return content.replace(b"PK\x01\x02", b"PK\x09\x09")


def other_name(content: bytes) -> bytes:
    """In its own header the member is named otherwise than in the directory."""
    at = content.index(b"samples/")
    return content[:at] + b"x" + content[at + 1 :]


def other_sample(content: bytes) -> bytes:
    """One byte of the values; they are stored as they are."""
    at = content.index(b"PK\x01\x02") - 1
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def empty(content: bytes) -> bytes:
    return b""


def text(content: bytes) -> bytes:
    return b"no archive"


@pytest.mark.parametrize("damage", [cut, without_directory, other_directory, other_name, other_sample, empty, text])
def test_a_damaged_archive_is_refused(run: Path, damage: Callable[[bytes], bytes]) -> None:
    content = packed_by_hand(run, [(names(run)[0], array_of())], zipfile.ZIP_STORED)
    (run / "samples.zip").write_bytes(damage(content))
    assert refused(run).startswith("samples.zip: ")


def test_of_an_archive_that_is_a_link_it_says_that_links_are_not_followed(run: Path) -> None:
    packed_by_hand(run, [(names(run)[0], array_of())])
    (run / "samples.zip").rename(run / "other.zip")
    (run / "samples.zip").symlink_to("other.zip")
    assert "a symbolic link, and links are not followed" in refused(run)


def test_a_damaged_member_is_refused(run: Path) -> None:
    content = bytearray(packed_by_hand(run, [(names(run)[0], array_of())]))
    begin = content.index(b".npy") + 4
    content[begin : begin + 8] = b"\xff" * 8
    (run / "samples.zip").write_bytes(content)
    assert refused(run).startswith(f"samples.zip: {names(run)[0]}: ")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.parent / "other.zip")])
def test_an_archive_that_is_no_plain_file_is_refused(run: Path, make: Callable[[Path], None]) -> None:
    packed_by_hand(run, [(names(run)[0], array_of())])
    (run / "samples.zip").rename(run / "other.zip")
    make(run / "samples.zip")
    assert refused(run).startswith("samples.zip: ")


def test_a_damaged_archive_is_told_of_as_damaged_files_are(run: Path) -> None:
    packed_by_hand(run, [("../x", b"")])
    (flaw,) = observe(run).flaws
    assert (flaw.kind, flaw.values[:3]) == ("unreadable", (3, 3, 3))


def test_a_plain_file_that_is_larger_than_its_record_says_is_not_read(run: Path) -> None:
    name = names(run)[0]
    os.truncate(run / name, LONGEST_HEADER + MATRIX.size * 8 + 1)
    assert refused(run).startswith(f"{name}: {LONGEST_HEADER + MATRIX.size * 8 + 1} bytes; at most ")


def test_the_name_in_a_record_stays_inside_the_archive(run: Path) -> None:
    record: Record = read_run(run).records[0]
    pack(run)
    assert record.samples is not None
    outside = msgspec.structs.replace(record, samples=msgspec.structs.replace(record.samples, file="../x.npy"))
    with pytest.raises(RunReadError, match="not inside samples/"):
        read_run(run).samples(outside)
