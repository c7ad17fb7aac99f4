"""A samples file is held against its record before it is read, and its record against it afterwards."""

from __future__ import annotations

import io
import os
import re
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
from numpy.typing import NDArray
from tests.runs import read_run
from tests.unit.made_runs import experiment, made_case, made_manifest, made_record, sampled, write_run

from collbench.analysis.runs import EVERY, SampleCheck, observe
from collbench.errors import RunReadError
from collbench.report.caveats import flaw_text, misleading
from collbench.report.page.contents import chapter
from collbench.schema import samples as samples_module
from collbench.schema.record import Record, Samples, summarise
from collbench.schema.samples import ALL_RANKS_LIMIT, LONGEST_HEADER, decode_samples, disagreement, pack
from collbench.schema.store import RunWriter

MATRIX = np.array([[20_000, -21_000, 22_000], [19_000, -20_000, 21_000]])
RECORD = sampled(made_record(made_case(), 0, 2e-5), MATRIX)


def array_of(array: NDArray[np.generic] = MATRIX) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def decoded(array: NDArray[np.generic], record: Record = RECORD) -> NDArray[np.int64]:
    return decode_samples(io.BytesIO(array_of(array)), "x", record)


def header(shape: tuple[int, ...], descr: str = "<i8") -> io.BytesIO:
    """A file that ends after its header."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    content.seek(0)
    return content


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_samples_are_read_as_they_were_written(kind: type[np.signedinteger[np.typing.NBitBase]], order: str) -> None:
    samples = decoded(np.array(MATRIX, kind, order=order))  # type: ignore[call-overload]
    assert samples.dtype == np.int64 and (samples == MATRIX).all()


#: The smallest number of all has no absolute value: what narrows or adds samples would make 0 of it.
IMPOSSIBLE = (-(2**63), 2**63 - 1, -(2**62) - 1)


@pytest.mark.parametrize(("content", "named"), [
    *((array_of(array), r"\[2, 3\]") for array in (MATRIX[:, :2], MATRIX[:1], MATRIX.T, MATRIX[0])),
    *((array_of(MATRIX.astype(kind)), "integers") for kind in ("<f8", "<i2", "<u8", ">i8")),
    *((array_of(np.where(MATRIX == -20_000, value, MATRIX)), "impossible") for value in IMPOSSIBLE),
    (array_of()[:-1], "ends"),
])  # fmt: skip
def test_a_file_that_is_not_what_its_record_says_is_refused(content: bytes, named: str) -> None:
    with pytest.raises(RunReadError, match=f"^x: .*{named}"):
        decode_samples(io.BytesIO(content), "x", RECORD)


def test_above_64_ranks_one_row_is_enough() -> None:
    above, exactly = (msgspec.structs.replace(RECORD, case=made_case(ranks=ALL_RANKS_LIMIT + more)) for more in (1, 0))
    for rows in (1, 65):
        assert decoded(np.tile(MATRIX[:1], (rows, 1)), above).shape == (rows, 3)
    for record, rows in ((above, 2), (above, 3), (above, 64), (exactly, 1)):
        with pytest.raises(RunReadError, match=rf"\[{record.case['ranks']}, 3\]"):
            decoded(np.tile(MATRIX[:1], (rows, 1)), record)


@pytest.mark.parametrize("shape", [(2, samples_module.MOST_VALUES), (2, 10**9), (2, 2**61)])
def test_what_would_take_more_memory_than_any_run_needs_is_refused_by_its_header(shape: tuple[int, ...]) -> None:
    """A header alone takes none: a sparse file of gigabytes takes a few bytes on disk."""
    record = msgspec.structs.replace(RECORD, samples=Samples(n=shape[1], invalid=0, warmup=0))
    with pytest.raises(RunReadError, match=f" {samples_module.MOST_VALUES} "):
        decode_samples(header(shape), "x", record)
    for descr in ("|i1", "<i8"):
        tracemalloc.start()
        with pytest.raises(RunReadError, match=r"x: .*\[2, 3\]"):
            decode_samples(header(shape, descr), "x", RECORD)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20


def test_a_record_agrees_with_its_samples_or_says_what_they_do_not_have() -> None:
    def with_median(seconds: float) -> Record:
        assert RECORD.seconds is not None
        return msgspec.structs.replace(RECORD, seconds=msgspec.structs.replace(RECORD.seconds, p50=seconds))

    assert RECORD.seconds is not None
    for median, rounded in ((RECORD.seconds.p50, 0.0), (RECORD.seconds.p50, 0.9e-9)):
        assert disagreement(with_median(median + rounded), MATRIX) == ""
    tenth = disagreement(with_median(RECORD.seconds.p50 / 10), MATRIX)
    assert tenth.startswith("median 21 us") and "2.1 us" in tenth
    none_late = msgspec.structs.replace(RECORD, samples=Samples(n=3, invalid=0, warmup=5))
    assert disagreement(none_late, MATRIX).startswith("1 samples")


def measured(path: Path, changed: float = 1.0) -> Path:
    """A run of two cells with samples; all times of one are said to be so many times what they are."""
    draw = np.random.default_rng(1)
    with RunWriter(path, made_manifest(experiment=experiment(("a",)))) as writer:
        for launch in range(7):
            for policy, factor in (("host", 1.0), ("single", changed)):
                samples = draw.integers(18_000, 22_000, (2, 50))
                record = sampled(made_record(made_case(policy, image="a"), launch, 2e-5), samples)
                assert record.seconds is not None
                seconds = summarise((samples.max(axis=0) * factor).astype(np.int64))
                writer.append(msgspec.structs.replace(record, seconds=seconds), samples)
    return path


def test_a_run_whose_summaries_were_changed_is_told(tmp_path: Path) -> None:
    assert observe(measured(tmp_path / "good")).flaws == ()
    assert observe(write_run(tmp_path / "without", {made_case(): [1e-6] * 3})).flaws == ()
    observed = observe(measured(tmp_path / "run", 0.1))
    (flaw,) = observed.flaws
    assert (flaw.kind, flaw.values[:3]) == ("disagreeing", (7, 14, 14))
    assert flaw_text(flaw) in misleading(observed)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"no array")])
def test_samples_that_are_missing_or_damaged_are_told(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    run = measured(tmp_path / "run")
    damage(min((run / "samples").iterdir()))
    observed = observe(run)
    (flaw,) = observed.flaws
    assert (flaw.kind, flaw.values[:3]) == ("unreadable", (1, 14, 14))
    captions = [figure.caption for section in chapter(observed, {}, 0.02).sections for figure in section.folded]
    assert any(caption.count("1 samples files") for caption in captions)


def test_of_many_files_some_are_opened(tmp_path: Path) -> None:
    """All of the first, every second up to twice as many, every fourth up to four times: the rest takes no time."""
    check, absent = SampleCheck(tmp_path), Samples(n=3, invalid=1, warmup=5, file="samples/x.npy")
    records = (msgspec.structs.replace(RECORD, launch=launch, samples=absent) for launch in range(4 * EVERY))
    assert sum(1 for _ in check.passing(records)) == 4 * EVERY
    opened = EVERY + EVERY // 2 + 2 * EVERY // 4
    (flaw,) = check.flaws()
    assert (flaw.kind, flaw.where, flaw.values[:3]) == ("unreadable", tmp_path, (opened, opened, 4 * EVERY))


@pytest.mark.parametrize(("value", "width"), [(-(2**63), 8), (-(2**31), 8), (1 - 2**31, 4), (-1000, 4), (1000, 4),
                                              (2**31 - 1, 4), (2**31, 8), (2**62, 8)])  # fmt: skip
def test_no_sample_changes_when_it_is_narrowed(tmp_path: Path, value: int, width: int) -> None:
    samples = np.array([[value, 5]])
    samples_module.save_samples(tmp_path / "a.npy", samples)
    stored = np.load(tmp_path / "a.npy")
    assert (stored == samples).all()
    assert stored.dtype.itemsize == width


def test_above_64_ranks_each_sample_is_that_of_the_slowest(tmp_path: Path) -> None:
    """A late one stays negative, whichever rank has it."""
    samples = np.full((65, 4), 7)
    samples[3, 0], samples[64, 1], samples[0, 2], samples[1, 2] = 9, 1, -8, 11
    samples_module.save_samples(tmp_path / "a.npy", samples)
    assert np.load(tmp_path / "a.npy").tolist() == [[9, 7, -11, 7]]


# Samples in an archive are read as from the folder, and an archive is untrusted: one message, and little memory ------


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


def refusal_of(run: Path, most_memory: int | None = None) -> str:
    """What the first record's samples are refused with, without taking more memory than these bytes."""
    stored = read_run(run)
    tracemalloc.start()
    with pytest.raises(RunReadError) as error:
        stored.samples(stored.records[0])
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


def test_a_file_in_the_folder_comes_before_its_member(run: Path) -> None:
    """What a launch that goes on wrote last is what its record speaks of."""
    first = read_run(run).records[0]
    pack(run)
    (run / "samples").mkdir()
    (run / names(run)[0]).write_bytes(array_of(MATRIX + 1))
    samples = read_run(run).samples(first)
    assert samples is not None and (samples == MATRIX + 1).all()


def test_who_reads_many_members_opens_the_archive_once(run: Path) -> None:
    """Also where something is wrong with it: of one with a directory of many megabytes every record would ask again."""
    pack(run)
    (run.parent / "latest").symlink_to(run)
    with patch.object(zipfile, "ZipFile", wraps=zipfile.ZipFile) as opened:
        assert observe(run.parent / "latest").flaws == (), "through a link to it"
        assert opened.call_count == 1
        with samples_module.SampleFiles(run) as files:
            assert all(files.read(record) is not None for record in read_run(run).records)
        assert opened.call_count == 2
        packed_by_hand(run, [("../x", b"")])
        opened.reset_mock()
        with samples_module.SampleFiles(run) as files:
            for record in read_run(run).records:
                with pytest.raises(RunReadError, match=r"\.\./x"):
                    files.read(record)
        assert opened.call_count == 1
    (flaw,) = observe(run).flaws
    assert (flaw.kind, flaw.values[:3]) == ("unreadable", (3, 3, 3))


def test_an_archive_is_refused_with_what_is_wrong_in_it(run: Path, golden: Callable[[str, str], None]) -> None:
    """Members that are no samples files are never read; but somebody may unpack the archive."""
    name, refusals = names(run)[0], list[str]()

    def refuse(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED,
               flags: int = 0) -> None:  # fmt: skip
        content = bytearray(packed_by_hand(run, members, method))
        content[content.index(b"PK\x01\x02") + 8] |= flags
        (run / "samples.zip").write_bytes(content)
        refusals.append(refusal_of(run))

    for other in ("../x.npy", "/etc/x.npy", "samples/../x.npy", "samples/a/b.npy", "x.npy", "samples/"):
        refuse((name, array_of()), (other, b""))
    with pytest.warns(UserWarning, match="Duplicate name"):
        refuse((name, array_of()), (name, array_of(MATRIX + 1)))
    refuse((names(run)[1], array_of()))
    refuse((name, array_of()), flags=1)
    refuse((name, array_of()), method=zipfile.ZIP_BZIP2)
    refuse((name, array_of()), method=zipfile.ZIP_LZMA)
    refuse((name, array_of(MATRIX[:, :2])))
    golden("archive-refusals.txt", "".join(f"{line}\n" for line in refusals))


@pytest.mark.parametrize("content", [b"", b"text", array_of()[:-1]])
def test_a_member_that_is_no_array_is_refused(run: Path, content: bytes) -> None:
    packed_by_hand(run, [(names(run)[0], content)])
    assert refusal_of(run).startswith(f"samples.zip: {names(run)[0]}: ")


@pytest.mark.parametrize("lies", [False, True])
def test_a_member_that_grows_beyond_its_record_is_refused_before_it_takes_memory(run: Path, lies: bool) -> None:
    """64 MiB of zeros take 64 KiB in the archive, and would be read as the header of an array; or it says 100 bytes."""
    bomb, name = b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 26) + bytes(1 << 26), names(run)[0]
    content = bytearray(packed_by_hand(run, [(name, bomb)]))
    del bomb
    if lies:
        for signature, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
            at = content.index(signature) + place
            content[at : at + 4] = struct.pack("<I", 100)
        (run / "samples.zip").write_bytes(content)
    sizes = "" if lies else rf"{(1 << 26) + 12} bytes; .* {LONGEST_HEADER + MATRIX.size * 8} "
    assert re.match(rf"samples.zip: {name}: {sizes}", refusal_of(run, LITTLE))


def test_a_directory_of_gigabytes_is_refused_before_it_takes_memory(run: Path) -> None:
    content = packed_by_hand(run, [(names(run)[0], array_of())])
    end = bytearray(content[content.index(b"PK\x05\x06") :])
    end[12:16] = struct.pack("<I", SPARSE - 1 - 22)  # its size
    end[16:20] = struct.pack("<I", 0)  # where it begins
    with (run / "samples.zip").open("wb") as file:
        file.seek(SPARSE - 1 - 22)
        file.write(end)
    with patch.object(samples_module, "LARGEST_DIRECTORY", 1 << 20):
        assert re.search("samples.zip: .*directory .* 1 MiB", refusal_of(run, LITTLE))


def other_name(content: bytes) -> bytes:
    """In its own header the member is named otherwise than in the directory."""
    at = content.index(b"samples/")
    return content[:at] + b"x" + content[at + 1 :]


def other_sample(content: bytes) -> bytes:
    """One byte of the values; they are stored as they are."""
    at = content.index(b"PK\x01\x02") - 1
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[: len(content) // 2],
    "without its directory": lambda content: content[: content.index(b"PK\x01\x02")],
    "another directory": lambda content: content.replace(b"PK\x01\x02", b"PK\x09\x09"), "another name": other_name,
    "another sample": other_sample, "empty": lambda content: b"", "text": lambda content: b"no archive"
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_is_refused(run: Path, damage: str) -> None:
    content = packed_by_hand(run, [(names(run)[0], array_of())], zipfile.ZIP_STORED)
    (run / "samples.zip").write_bytes(DAMAGES[damage](content))
    assert refusal_of(run).startswith("samples.zip: ")


def test_a_damaged_member_and_a_plain_file_that_is_larger_than_its_record_says_are_refused(run: Path) -> None:
    name, size = names(run)[0], LONGEST_HEADER + MATRIX.size * 8 + 1
    os.truncate(run / name, size)
    assert refusal_of(run).startswith(f"{name}: {size} bytes; ")
    content = bytearray(packed_by_hand(run, [(name, array_of())]))
    begin = content.index(b".npy") + 4
    content[begin : begin + 8] = b"\xff" * 8
    (run / "samples.zip").write_bytes(content)
    assert refusal_of(run).startswith(f"samples.zip: {name}: ")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.parent / "other.zip")])
def test_an_archive_that_is_no_plain_file_is_refused(run: Path, make: Callable[[Path], None]) -> None:
    packed_by_hand(run, [(names(run)[0], array_of())])
    (run / "samples.zip").rename(run / "other.zip")
    make(run / "samples.zip")
    message = refusal_of(run)
    assert message.startswith("samples.zip: ") and ("symbolic link" in message) == (run / "samples.zip").is_symlink()


def test_the_name_in_a_record_stays_inside_the_archive(run: Path) -> None:
    record = read_run(run).records[0]
    pack(run)
    assert record.samples is not None
    outside = msgspec.structs.replace(record, samples=msgspec.structs.replace(record.samples, file="../x.npy"))
    with pytest.raises(RunReadError, match="samples/"):
        read_run(run).samples(outside)
