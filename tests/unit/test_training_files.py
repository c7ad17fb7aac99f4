"""What a training reads and writes: examples for an emulated trainer, and checkpoints."""

from __future__ import annotations

import argparse
import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.made_files import case_of, in_memory, measured, mounted

from collbench import workloads
from collbench.report.numbers import rate
from collbench.workloads.host import files, training_files
from collbench.workloads.host.training_files import checkpoint, loading, read_examples, write_examples

EXAMPLE, EXAMPLES = 4096, 10


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, on a disk."""
    if files.kind_of(tmp_path) == "tmpfs":
        pytest.skip("temporary files are on tmpfs here")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Loading -------------------------------------------------------------------------------------------------------------


def spoilt(numbers: Sequence[int] = range(1, EXAMPLES + 1)) -> int:
    return read_examples(numbers, EXAMPLE)


def test_an_example_that_changed_is_noticed(folder: Path) -> None:
    """A byte, another example in its place, its end, and one of zeros."""
    write_examples(EXAMPLE * EXAMPLES + 1, EXAMPLE)
    first, second, third, fourth = paths = [folder / "examples" / str(number) for number in range(1, 5)]
    assert len(list((folder / "examples").iterdir())) == EXAMPLES and spoilt() == 0
    assert len({path.read_bytes()[8:-8] for path in paths}) == len(paths), "none is like another"
    data = bytearray(first.read_bytes())
    data[2000] ^= 1
    first.write_bytes(data)
    assert (spoilt(), spoilt([1]), spoilt([2])) == (1, 1, 0)
    second.write_bytes((folder / "examples" / "9").read_bytes())
    assert (spoilt(), spoilt([2]), spoilt([9])) == (2, 1, 0)
    os.truncate(third, EXAMPLE - 1)
    fourth.write_bytes(bytes(EXAMPLE))
    assert spoilt() == 4


class Clock:
    """Advances by what is slept and loaded."""

    def __init__(self) -> None:
        self.ns = 0

    def pass_by(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


class Readers:
    """In place of processes: what each was given, and how many batches were ahead of the trainer. All are spoilt."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.given, self.taken, self.ahead = clock, list[list[int]](), 0, list[int]()

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, read: Callable[..., int], numbers: list[int], example: int) -> Any:
        assert read is read_examples and example == EXAMPLE
        self.given += [numbers] if numbers else []

        def result() -> int:
            if numbers:
                self.ahead.append(len(self.given) - self.taken)
                self.taken += 1
                self.clock.pass_by(0.1 if self.taken == 1 else 0.01)
            return len(numbers)

        return SimpleNamespace(result=result)


def test_an_epoch_has_every_example_once_and_its_trainer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 examples 3 batches of 3, of which 2 are ahead. Utilisation leaves the first loading out."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock.ns)
    monkeypatch.setattr(time, "sleep", clock.pass_by)
    orders = []
    for _ in range(8):
        readers = Readers(clock)
        monkeypatch.setattr(training_files, "ProcessPoolExecutor", lambda *_, made=readers: made)
        clock.ns = 1  # a clock at 0 has not begun
        flags = argparse.Namespace(size=EXAMPLE * EXAMPLES, example=EXAMPLE, batch=3, readers=1, compute=50)
        result = loading(flags)
        assert result["wrong"] == 9 and result["ns"] == {"epoch": [270_000_000]}
        assert result["utilisation"] == pytest.approx(150 / 170)
        assert readers.ahead == [2, 2, 1]
        orders.append([number for batch in readers.given for number in batch])
        assert len(set(orders[-1])) == 9 and set(orders[-1]) < set(range(1, EXAMPLES + 1))
    assert len(set(map(tuple, orders))) > 1


def test_an_output_of_loading_is_read_as_bytes_a_second_and_per_cent() -> None:
    row, case = workloads.get("loading"), case_of("loading", size="100M", example="1M", batch=16, readers=2)
    output = json.dumps({"ns": {"epoch": [2_000_000_000]}, "utilisation": 0.875, "wrong": 3})
    seconds, (epoch, utilisation) = row.parse(output), row.measures_of(case)
    assert (row.verify(case, output), row.elapsed(case, output)) == (3, 2.0)
    assert epoch.work(case).amount == 96 << 20, "whole batches"
    assert seconds["epoch"] == [2.0]
    assert rate(utilisation.work(case), seconds["utilisation"][0]) == pytest.approx(87.5)


def test_memory_of_warm_examples_is_counted() -> None:
    memory = workloads.get("loading").memory
    needed = [memory(case_of("loading", size="64M", readers=1, cache=cache)) for cache in ("cold", "warm")]
    assert needed[1] - needed[0] == 64 << 20


# Checkpoints ---------------------------------------------------------------------------------------------------------


def written(size: int, shards: int, cache: str) -> dict[str, Any]:
    return checkpoint(argparse.Namespace(size=size, shards=shards, cache=cache))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("cache", "share"), [("cold", 0.0), ("warm", 1.0)])
def test_a_checkpoint_is_read_as_it_was_written(folder: Path, shards: int, cache: str, share: float) -> None:
    result = written(3 << 18, shards, cache)
    assert (result["wrong"], result["figures"]) == (0, {"resident": share})
    assert set(result["ns"]) == {"write", "read"} and all(ns > 0 for (ns,) in result["ns"].values())
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("spoil", [
    lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0\0"), lambda path: os.truncate(path, 8192),
    lambda path: path.write_bytes(bytes(path.stat().st_size)), lambda path: path.with_name("shard0").replace(path),
])  # fmt: skip
def test_a_shard_that_changed_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], object]
) -> None:
    def bring(state: str, paths: Sequence[Path]) -> float:
        assert all(path.stat().st_size == 1 << 19 for path in paths)
        spoil(paths[1])
        if not paths[0].exists():
            paths[0].write_bytes(b"")
        return 0.0

    monkeypatch.setattr(training_files, "bring", bring)
    assert written(1 << 20, 2, "cold")["wrong"] >= 1


def test_what_has_no_space_is_an_error_and_never_a_short_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a part of the last request could be written."""
    (folder / "full").mkdir()
    with mounted(folder / "full", "tmpfs", f"size={(64 << 10) + 4096}") as full, monkeypatch.context() as there:
        there.chdir(full)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            written((64 << 10) + 8192, 1, "warm")


@pytest.mark.parametrize("table", [
    {"name": "loading", "size": "2M", "example": "16k", "compute": 1, "readers": 2},
    {"name": "checkpoint", "size": "1M", "shards": 2},
])  # fmt: skip
def test_both_are_measured_and_skipped_where_files_are_in_memory(table: dict[str, Any], folder: Path) -> None:
    records = measured(table, folder, iters=2)
    assert {(record.status, record.reason) for record in records} == {("ok", None)}
    assert [record.case["measure"] for record in records] == [
        measure.name for measure in workloads.get(table["name"]).measures
    ]
    assert all(record.check is not None and record.check.figures["resident"] == 0.0 for record in records)
    assert list(folder.iterdir()) == []
    with in_memory() as memory:
        ((status, reason),) = {(record.status, record.reason) for record in measured(table, memory)}
        assert status == "skipped" and "tmpfs" in str(reason)
        assert {record.status for record in measured(table | {"cache": "warm"}, memory)} == {"ok"}
        assert list(memory.iterdir()) == []
