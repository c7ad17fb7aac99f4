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
ASKED = frozenset({CASE})


def line(**fields: object) -> bytes:
    return records.encode(msgspec.structs.replace(Record(case=CASE, launch=0, status="failed"), **fields)) + b"\n"


def samples(name: str = "samples/a.npy") -> Samples:
    return Samples(n=3, invalid=0, warmup=0, file=name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / "samples").mkdir(parents=True)
    np.save(tmp_path / "out" / "samples" / "a.npy", np.arange(1, 7, dtype=np.int32).reshape(2, 3))
    return tmp_path / "out"


def test_records_and_samples(folder: Path) -> None:
    (folder / "records.jsonl").write_bytes(line(samples=samples()) + b'{"cut off')
    (collected,) = collect(folder, ASKED)
    assert collected.record.case == CASE
    assert collected.samples is not None and collected.samples.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_nothing_was_written(tmp_path: Path) -> None:
    assert list(collect(tmp_path, ASKED)) == []


@pytest.mark.parametrize("what", ["records.jsonl", "samples", "samples/a.npy"])
def test_links_are_not_followed(folder: Path, tmp_path: Path, what: str) -> None:
    (folder / "records.jsonl").write_bytes(line(samples=samples()))
    secret = tmp_path / "secret"
    (folder / what).rename(secret)
    (folder / what).symlink_to(secret)
    with pytest.raises(RunReadError):
        list(collect(folder, ASKED))


def test_a_pipe_does_not_hang(folder: Path) -> None:
    os.mkfifo(folder / "records.jsonl")
    with pytest.raises(RunReadError, match=r"records\.jsonl"):
        list(collect(folder, ASKED))


@pytest.mark.parametrize("name", ["../a.npy", "samples/../../a.npy", "/etc/passwd", "samples/", "samples/b.npy"])
def test_samples_stay_inside(folder: Path, name: str) -> None:
    (folder / "records.jsonl").write_bytes(line(samples=samples(name)))
    with pytest.raises(RunReadError):
        list(collect(folder, ASKED))


def test_pickles_are_refused(folder: Path) -> None:
    np.save(folder / "samples" / "a.npy", np.array([object()]), allow_pickle=True)
    (folder / "records.jsonl").write_bytes(line(samples=samples()))
    with pytest.raises(RunReadError):
        list(collect(folder, ASKED))


@pytest.mark.parametrize("twice", [False, True])
def test_only_what_was_asked_for_and_once(folder: Path, twice: bool) -> None:
    other = CASE.having(size=16)
    (folder / "records.jsonl").write_bytes(line() + line() if twice else line(case=other))
    with pytest.raises(RunReadError, match=r"records\.jsonl line [12]"):
        list(collect(folder, ASKED))


@pytest.mark.parametrize(
    ("times", "invalid", "said"),
    [
        ([[1, 2, 3], [4, 5, 6]], 0, None),
        ([[-1, 2, 3], [-4, 5, 6]], 1, None),
        ([[-1, 2, -1], [-1, 5, -1]], 2, None),
        ([[-1, 2, 3], [4, 5, 6]], 1, "late samples .* 1"),
        ([[1, 2, 3], [-4, 5, 6]], 1, "late samples .* 1"),
        ([[-1, 2, 3], [-4, 5, 6]], 0, "late samples .* 0"),
        ([[-1, 2, 3], [-4, 5, 6]], 2, "late samples .* 2"),
        ([[1, 0, 3], [4, 5, 6]], 0, "0 ns"),
        ([[1, 0, 3], [4, -1, 6]], 0, "late samples .* 0"),
    ],
)
def test_a_sample_that_is_late_is_late_on_every_rank(
    folder: Path, times: list[list[int]], invalid: int, said: str | None
) -> None:
    np.save(folder / "samples" / "a.npy", np.array(times, np.int32))
    counted = Samples(n=3, invalid=invalid, warmup=0, file="samples/a.npy")
    (folder / "records.jsonl").write_bytes(line(samples=counted))
    if said is None:
        (collected,) = collect(folder, ASKED)
        assert collected.samples is not None and collected.samples.tolist() == times
    else:
        with pytest.raises(RunReadError, match=f"^'samples/a.npy': .*{said}"):
            list(collect(folder, ASKED))


def test_lines_are_numbered_and_those_before_one_that_is_wrong_are_taken(folder: Path) -> None:
    other = CASE.having(size=16)
    (folder / "records.jsonl").write_bytes(line() + b"{}\n" + line(case=other))
    kept, failed = left_behind(folder, frozenset({CASE, other}))
    assert isinstance(kept, CollectedRecord) and kept.samples is None
    assert isinstance(failed, LaunchFailed) and "records.jsonl line 2: " in str(failed)


def test_a_line_may_be_so_long_and_no_longer(folder: Path) -> None:
    short = line()
    long = short[:-2] + b" " * (LONGEST_LINE - len(short)) + b"}\n"
    assert len(long) == LONGEST_LINE == 1 << 20
    (folder / "records.jsonl").write_bytes(long)
    assert len(list(collect(folder, ASKED))) == 1
    (folder / "records.jsonl").write_bytes(line() + long[:-2] + b" }\n")
    with pytest.raises(RunReadError, match=r"^records\.jsonl line 2: .* 1048576 bytes\.$"):
        list(collect(folder, ASKED))


def test_a_line_that_was_cut_off_just_there_is_no_record(folder: Path) -> None:
    (folder / "records.jsonl").write_bytes(line() + b" " * (LONGEST_LINE - 1))
    assert len(list(collect(folder, ASKED))) == 1


def test_whatever_goes_wrong_comes_last_in_place_of_a_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(line: bytes, what: str) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(records, "decode", fail)
    (folder / "records.jsonl").write_bytes(line())
    (failed,) = left_behind(folder, ASKED)
    assert str(failed).endswith(": ValueError: odd")


def test_of_many_words_the_first_are_kept(folder: Path) -> None:
    notes = tuple(f"{number} {'n' * 3000}" for number in range(MOST_NOTES + 3))
    long = "w" * LONGEST_TEXT
    (folder / "records.jsonl").write_bytes(
        line(notes=notes, reason=long + "x", transport=long, algorithm="a", protocol=None)
    )
    (collected,) = collect(folder, ASKED)
    record = collected.record
    assert record.notes[:-1] == tuple(f"{note[:2000]} ..." for note in notes[:12])
    assert record.notes[-1].startswith("3 more notes")
    assert (record.reason, record.transport, record.protocol) == (f"{long} ...", long, None)
    assert MOST_NOTES == 12
    (folder / "records.jsonl").write_bytes(line(notes=notes[:MOST_NOTES]))
    (collected,) = collect(folder, ASKED)
    assert len(collected.record.notes) == 12


def test_words_are_of_letters_that_can_be_written() -> None:
    assert cut("a\udc80b") == "a\\udc80b"
    assert cut("x" * 2000) == "x" * 2000


def test_nothing_stays_open(folder: Path) -> None:
    (folder / "records.jsonl").write_bytes(line(samples=samples()))
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    list(collect(folder, ASKED))
    (folder / "samples" / "a.npy").unlink()
    with pytest.raises(RunReadError, match=r"^a\.npy: .*missing"):
        list(collect(folder, ASKED))
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# Plain files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[int]:
    """An open folder with one of each."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    descriptor = open_folder(tmp_path)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    ("name", "largest"),
    [("file", 4), ("gone", None), ("link", None), ("pipe", None), ("folder", None), ("a\0b", None), ("\udcff", None)],
)
def test_only_plain_files_are_opened(inside: int, name: str, largest: int | None) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(RunReadError) as caught:
        open_plain(inside, name, largest)
    assert str(caught.value).startswith(f"{ascii(name)[1:-1]}: ")
    for most in (5, None):
        with open_plain(inside, "file", most) as file:
            assert file.read() == b"12345"
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize("name", ["link", "file", "gone", "a\0"])
def test_only_folders_are_entered(inside: int, name: str) -> None:
    os.close(open_folder("folder", inside))
    with pytest.raises(RunReadError) as caught:
        open_folder(name, inside)
    assert str(caught.value).startswith(f"{ascii(name)[1:-1]}/: ")


def test_why_a_file_or_folder_is_not_opened(inside: int, golden: Callable[[str, str], None]) -> None:
    reasons = []
    for name, largest in (("file", 4), ("gone", None), ("link", None), ("pipe", None), ("folder", None), ("a\0", None)):
        with pytest.raises(RunReadError) as caught:
            open_plain(inside, name, largest)
        reasons.append(str(caught.value))
    for name in ("link", "file", "gone", "a\0"):
        with pytest.raises(RunReadError) as caught:
            open_folder(name, inside)
        reasons.append(str(caught.value))
    golden("plain-files.txt", "".join(f"{reason}\n" for reason in reasons))
