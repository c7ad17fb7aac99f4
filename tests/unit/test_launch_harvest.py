"""What a world left is hostile until read: links, pipes, foreign cases, damaged samples."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collbench.errors import RunReadError
from collbench.launch.harvest import take_over
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
    (found,) = take_over(folder, ASKED)
    assert found.record.case == CASE
    assert found.samples is not None
    assert found.samples.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_nothing_was_written(tmp_path: Path) -> None:
    assert list(take_over(tmp_path, ASKED)) == []


@pytest.mark.parametrize("what", ["records.jsonl", "samples", "samples/a.npy"])
def test_links_are_not_followed(folder: Path, tmp_path: Path, what: str) -> None:
    (folder / "records.jsonl").write_bytes(line(samples=samples()))
    secret = tmp_path / "secret"
    (folder / what).rename(secret)
    (folder / what).symlink_to(secret)
    with pytest.raises(RunReadError):
        list(take_over(folder, ASKED))


def test_a_pipe_does_not_hang(folder: Path) -> None:
    os.mkfifo(folder / "records.jsonl")
    with pytest.raises(RunReadError, match="not a plain file"):
        list(take_over(folder, ASKED))


@pytest.mark.parametrize("name", ["../a.npy", "samples/../../a.npy", "/etc/passwd", "samples/", "samples/b.npy"])
def test_samples_stay_inside(folder: Path, name: str) -> None:
    (folder / "records.jsonl").write_bytes(line(samples=samples(name)))
    with pytest.raises(RunReadError):
        list(take_over(folder, ASKED))


def test_pickles_are_refused(folder: Path) -> None:
    np.save(folder / "samples" / "a.npy", np.array([object()]), allow_pickle=True)
    (folder / "records.jsonl").write_bytes(line(samples=samples()))
    with pytest.raises(RunReadError):
        list(take_over(folder, ASKED))


@pytest.mark.parametrize("twice", [False, True])
def test_only_what_was_asked_for_and_once(folder: Path, twice: bool) -> None:
    other = CASE.having(size=16)
    (folder / "records.jsonl").write_bytes(line() + line() if twice else line(case=other))
    with pytest.raises(RunReadError, match="not asked for"):
        list(take_over(folder, ASKED))
