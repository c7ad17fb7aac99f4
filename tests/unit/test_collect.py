"""What a world left is hostile until read: links, pipes, foreign cases, damaged samples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collbench.errors import LaunchFailed, RunReadError
from collbench.launch.collect import LONGEST_LINE, LONGEST_TEXT, MOST_NOTES, CollectedRecord, collect, cut, left_behind
from collbench.launch.folders import open_folder, open_plain
from collbench.schema import record as records
from collbench.schema.case import case_of
from collbench.schema.record import Record, Samples

CASE = case_of("bcast", {"backend": "mpi", "driver": "native", "thread_level": "single", "size": 8, "dtype": "int8",
                         "root": 0, "ranks": 2})  # fmt: skip
OTHER = CASE.having(size=16)
ASKED = frozenset({CASE})


def line(**fields: object) -> bytes:
    return records.encode(msgspec.structs.replace(Record(case=CASE, launch=0, status="failed"), **fields)) + b"\n"


def samples(name: str = "samples/a.npy", invalid: int = 0) -> Samples:
    return Samples(n=3, invalid=invalid, warmup=0, file=name)


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, not paths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a world left: samples, and a record that has them."""
    (tmp_path / "out" / "samples").mkdir(parents=True)
    np.save(tmp_path / "out" / "samples" / "a.npy", np.arange(1, 7, dtype=np.int32).reshape(2, 3))
    (tmp_path / "out" / "records.jsonl").write_bytes(line(samples=samples()))
    return tmp_path / "out"


def collected(folder: Path, *lines: bytes) -> list[CollectedRecord]:
    """What is collected where these lines are written."""
    (folder / "records.jsonl").write_bytes(b"".join(lines))
    return list(collect(folder, ASKED))


def test_records_and_samples(folder: Path, tmp_path: Path) -> None:
    before = descriptors()
    (one,) = collected(folder, line(samples=samples()), b'{"cut off')
    assert (one.record.case, descriptors()) == (CASE, before)
    assert one.samples is not None and one.samples.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert list(collect(tmp_path, ASKED)) == [], "nothing was written"


def linked(folder: Path, name: str) -> None:
    secret = folder.parent / "secret"
    (folder / name).rename(secret)
    (folder / name).symlink_to(secret)


def piped(folder: Path) -> None:
    (folder / "records.jsonl").unlink()
    os.mkfifo(folder / "records.jsonl")


def named(folder: Path, name: str) -> None:
    (folder / "records.jsonl").write_bytes(line(samples=samples(name)))


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a link as records": lambda folder: linked(folder, "records.jsonl"),
    "a link as a folder": lambda folder: linked(folder, "samples"),
    "a link as samples": lambda folder: linked(folder, "samples/a.npy"),
    "a pipe": piped,
    "samples beside": lambda folder: named(folder, "../a.npy"),
    "samples outside": lambda folder: named(folder, "samples/../../a.npy"),
    "samples of the system": lambda folder: named(folder, "/etc/passwd"),
    "a folder as samples": lambda folder: named(folder, "samples/"),
    "no samples": lambda folder: named(folder, "samples/b.npy"),
    "pickles": lambda folder: np.save(folder / "samples" / "a.npy", np.array([object()]), allow_pickle=True),
    "a case twice": lambda folder: (folder / "records.jsonl").write_bytes(line() * 2),
    "a case that was not asked for": lambda folder: (folder / "records.jsonl").write_bytes(line(case=OTHER)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_hostile_is_refused_and_nothing_stays_open(folder: Path, what: str) -> None:
    HOSTILE[what](folder)
    before = descriptors()
    with pytest.raises(RunReadError, match=r"records\.jsonl( line [12])?:|a\.npy|b\.npy|passwd|samples/"):
        list(collect(folder, ASKED))
    assert descriptors() == before


@pytest.mark.parametrize(("times", "invalid", "flaw"), [
    ([[1, 2, 3], [4, 5, 6]], 0, None), ([[-1, 2, 3], [-4, 5, 6]], 1, None), ([[-1, 2, -1], [-1, 5, -1]], 2, None),
    ([[-1, 2, 3], [4, 5, 6]], 1, "late samples .* 1"), ([[1, 2, 3], [-4, 5, 6]], 1, "late samples .* 1"),
    ([[-1, 2, 3], [-4, 5, 6]], 0, "late samples .* 0"), ([[-1, 2, 3], [-4, 5, 6]], 2, "late samples .* 2"),
    ([[1, 0, 3], [4, 5, 6]], 0, "0 ns"), ([[1, 0, 3], [4, -1, 6]], 0, "late samples .* 0"),
    ([[1, 2, -(2**63)]] * 2, 1, "impossible"),  # its absolute value is no integer of 64 bits
])  # fmt: skip
def test_a_late_sample_is_late_on_all_ranks(
    folder: Path, times: list[list[int]], invalid: int, flaw: str | None
) -> None:
    np.save(folder / "samples" / "a.npy", np.array(times))
    record = line(samples=samples(invalid=invalid))
    if flaw is None:
        (one,) = collected(folder, record)
        assert one.samples is not None and one.samples.tolist() == times
    else:
        with pytest.raises(RunReadError, match=f"^'samples/a.npy': .*{flaw}"):
            collected(folder, record)


def test_lines_are_numbered_and_those_before_one_that_is_wrong_are_taken(folder: Path) -> None:
    (folder / "records.jsonl").write_bytes(line() + b"{}\n" + line(case=OTHER))
    kept, failed = left_behind(folder, frozenset({CASE, OTHER}))
    assert isinstance(kept, CollectedRecord) and kept.samples is None
    assert isinstance(failed, LaunchFailed) and "records.jsonl line 2: " in str(failed)


def test_a_line_may_be_so_long_and_no_longer(folder: Path) -> None:
    short = line()
    long = short[:-2] + b" " * (LONGEST_LINE - len(short)) + b"}\n"
    assert len(long) == LONGEST_LINE == 1 << 20
    assert len(collected(folder, long)) == 1
    with pytest.raises(RunReadError, match=r"^records\.jsonl line 2: .* 1048576 bytes\.$"):
        collected(folder, line(), long[:-2], b" }\n")
    assert len(collected(folder, line(), b" " * (LONGEST_LINE - 1))) == 1, "it was cut off just there"


def test_whatever_goes_wrong_comes_last_in_place_of_a_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(line: bytes, what: str) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(records, "decode", fail)
    (failed,) = left_behind(folder, ASKED)
    assert str(failed).endswith(": ValueError: odd")


def test_of_many_words_the_first_are_kept(folder: Path) -> None:
    notes = tuple(f"{number} {'n' * 3000}" for number in range(MOST_NOTES + 3))
    long = "w" * LONGEST_TEXT
    (one,) = collected(folder, line(notes=notes, reason=long + "x", transport=long, algorithm="a", protocol=None))
    assert one.record.notes[:-1] == tuple(f"{note[:2000]} ..." for note in notes[:12])
    assert one.record.notes[-1].startswith("3 ")
    assert (one.record.reason, one.record.transport, one.record.protocol) == (f"{long} ...", long, None)
    (one,) = collected(folder, line(notes=notes[:MOST_NOTES]))
    assert len(one.record.notes) == MOST_NOTES == 12
    assert cut("a\udc80b") == "a\\udc80b"
    assert cut("x" * 2000) == "x" * 2000


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[int]:
    """An open folder with one of each."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    with open_folder(tmp_path) as descriptor:
        yield descriptor


def test_only_plain_files_are_opened_and_only_folders_entered(inside: int, golden: Callable[[str, str], None]) -> None:
    before, reasons = descriptors(), list[str]()
    for name in ("file", "gone", "link", "pipe", "folder", "a\0", "\udcff"):
        with pytest.raises(RunReadError) as caught:
            open_plain(inside, name, 4 if name == "file" else None)
        reasons.append(str(caught.value))
        assert reasons[-1].startswith(f"{ascii(name)[1:-1]}: ")
    for name in ("link", "file", "gone", "a\0"):
        with pytest.raises(RunReadError) as caught, open_folder(name, inside):
            pass
        reasons.append(str(caught.value))
        assert reasons[-1].startswith(f"{ascii(name)[1:-1]}/: ")
    for most in (5, None):
        with open_plain(inside, "file", most) as file:
            assert file.read() == b"12345"
    with open_folder("folder", inside):
        pass
    assert descriptors() == before
    golden("plain-files.txt", "".join(f"{reason}\n" for reason in reasons))
