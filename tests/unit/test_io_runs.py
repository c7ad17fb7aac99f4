"""The benchmarks of files, executed: what they measure, that nothing of them is left, and what they say in failing."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.processes import LIMIT
from tests.unit.made_files import case_of, in_memory, measured, mounted, stored

from collbench import workloads
from collbench.run.child import ProgramFailed, execute
from collbench.run.failures import Unwatched
from collbench.schema.record import Status
from collbench.workloads.host import files as _files
from collbench.workloads.host.fio import layout, verified

#: What a test asks of each benchmark: little.
SMALL: dict[str, dict[str, Any]] = {
    "dd": {"count": 16},
    "ioping": {"mode": "cached", "seconds": 1},
    "fio": {"size": "1M", "runtime": 1, "ramp": 0},
    "sysbench_fileio": {"size": "1M", "files": 4, "events": 100},
}


def small(name: str, **parameters: Any) -> dict[str, Any]:
    """The table of a plan. Skips the test where the program is missing."""
    if (missing := workloads.get(name).missing()) is not None:
        pytest.skip(missing)
    return {"name": name, **SMALL[name], **parameters}


def outcomes(table: dict[str, Any], folder: Path, **plan: Any) -> set[tuple[Status, str | None]]:
    """Status and reason of the records; nothing is left in the folder."""
    found = {(record.status, record.reason) for record in measured(table, folder, **plan)}
    assert list(folder.iterdir()) == []
    return found


def put(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of this name comes first in PATH."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize("name", ["dd", "sysbench_fileio"])
def test_a_benchmark_is_measured_and_leaves_no_file(name: str, tmp_path: Path) -> None:
    records = measured(small(name), tmp_path, iters=3, warmup=1)
    assert [(record.status, record.reason) for record in records] == [("ok", None)]
    assert [record.samples.n for record in records if record.samples is not None] == [3]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ioping", {"mode": "cached"}), ("ioping", {"mode": "direct"}), ("ioping", {"mode": "latency", "count": 2}),
        ("fio", {"rw": "randwrite"}), ("fio", {"rw": "write", "ioengine": "libaio", "depth": 4}),
        ("fio", {"ioengine": "io_uring", "depth": 4}), ("fio", {"rw": "read", "direct": 0, "cache": "warm"}),
    ],
)  # fmt: skip
def test_every_way_is_measured_and_leaves_no_file(name: str, parameters: dict[str, Any], tmp_path: Path) -> None:
    program, table = workloads.get(name), small(name, **parameters)
    if (lacks := program.lacks(case_of(**table), tmp_path)) is not None:
        pytest.skip(lacks)
    assert outcomes(table, tmp_path) == {("ok", None)}


@pytest.mark.slow
def test_what_was_in_the_page_cache_before_is_in_the_record(tmp_path: Path) -> None:
    if _files.kind_of(tmp_path) == "tmpfs":
        pytest.skip("temporary files are on tmpfs here")
    found = {}
    for cache in ("cold", "warm"):
        for record in measured(small("fio", direct=0, cache=cache), tmp_path):
            assert record.check is not None, record.reason
            found[cache, record.case["measure"]] = record.check.figures["resident"]
    assert found == {("cold", "request"): 0.0, ("cold", "p99"): 0.0, ("warm", "request"): 1.0, ("warm", "p99"): 1.0}


def test_cold_is_skipped_where_files_are_in_memory() -> None:
    with in_memory() as folder:
        said = outcomes(small("fio", direct=0, cache="cold"), folder)
    assert said == {("skipped", "cache=cold: a file on tmpfs is always in memory")}


@pytest.mark.slow
@pytest.mark.parametrize("rw", ["write", "randwrite"])
def test_the_pass_that_verifies_finds_what_was_spoilt_between_its_writes_and_its_reads(rw: str, tmp_path: Path) -> None:
    table = small("fio", rw=rw, direct=0)
    case = case_of(**table)
    step = verified(case)

    def run(*argv: str) -> str:
        return execute(argv, LIMIT, Unwatched(), "", tmp_path).output

    run(*layout(case).argv)
    run(*step.argv, "--do_verify=0")
    assert step.figures(run(*step.argv, "--verify_only=1")) == {}
    data = bytearray((tmp_path / "data").read_bytes())
    data[len(data) // 2 + 100] ^= 1
    (tmp_path / "data").write_bytes(data)
    with pytest.raises(ProgramFailed, match="exit code 1: crc32c: verify failed at file data offset 524288"):
        run(*step.argv, "--verify_only=1")


def test_every_sample_of_dd_writes_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    put(tmp_path, "dd", f'test ! -e zeros || exit 1; exec {shutil.which("dd")} "$@"', monkeypatch)
    assert outcomes(small("dd"), folder, iters=3) == {("ok", None)}


def test_the_first_line_that_fits_says_why_a_command_failed(tmp_path: Path) -> None:
    script = "echo dd: out; echo other; echo dd: later >&2; exit 9"
    with pytest.raises(ProgramFailed, match=r"^sh ended with exit code 1: dd: out$"):
        execute(_files.explained("^dd: ", "sh", "-c", script), LIMIT, Unwatched(), "", tmp_path)
    said = execute(_files.explained("^dd: ", "sh", "-c", "echo out; echo error >&2"), LIMIT, Unwatched(), "", tmp_path)
    assert said.output == "out\nerror\n"


def test_trying_direct_io_leaves_no_file(tmp_path: Path) -> None:
    _files.no_direct(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_shorter_than_dd_says_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    put(tmp_path, "dd", "echo short > zeros; echo '1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.1 s, 10 MB/s' >&2",
        monkeypatch)  # fmt: skip
    assert outcomes(small("dd"), folder) == {("failed", "wrong result: dd counted 1 wrong value")}


@pytest.mark.parametrize(
    ("name", "parameters", "output"),
    [
        ("fio", {}, stored("fio-3.33-psync.json")),
        ("fio", {"direct": 0, "cache": "warm", "runtime": 1}, stored("fio-3.33-psync.json")),
        ("ioping", {"mode": "latency", "count": 4}, stored("ioping-1.3-latency.txt")),
        ("ioping", {"mode": "cached"}, stored("ioping-1.3-cached.txt")),
        ("sysbench_fileio", {"size": "1M", "files": 4, "events": 200},
         stored("sysbench-1.0.20-fileio.txt").replace("0.0067s", "999.1234s")),
    ],
)  # fmt: skip
def test_a_time_that_is_longer_than_the_execution_fails(
    name: str, parameters: dict[str, Any], output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = tmp_path / "files", small(name, **parameters)
    folder.mkdir()
    (tmp_path / "output").write_text(output, encoding="utf-8")
    monkeypatch.setattr("collbench.workloads.software._version", lambda software, path: "9.9")
    script = f"test -e data || echo data > data; exec cat {tmp_path}/output"
    put(tmp_path, name.removesuffix("_fileio"), script, monkeypatch)
    ((status, reason),) = outcomes(table, folder)
    assert status == "failed" and reason is not None and "its execution took" in reason


def test_a_file_that_was_only_truncated_to_its_size_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    script = "truncate -s 1048576 zeros; echo '1048576 bytes (1.0 MB, 1.0 MiB) copied, 1e-5 s, 104.9 GB/s' >&2"
    put(tmp_path, "dd", script, monkeypatch)
    ((status, reason),) = outcomes(small("dd"), folder)
    assert status == "failed" and reason is not None and "0 of 1048576 bytes are stored" in reason


@pytest.mark.slow
@pytest.mark.parametrize("rw", ["read", "randread"])
def test_a_cold_file_is_read_once_and_no_more(rw: str, tmp_path: Path) -> None:
    """The pass ends before its second is over, in the rest of which requests would be to the page cache."""
    if _files.kind_of(tmp_path) == "tmpfs":
        pytest.skip("temporary files are on tmpfs here")
    table = small("fio", rw=rw, direct=0, cache="cold", size="4M", bs="64k")
    assert outcomes(table, tmp_path) == {("ok", None)}


@pytest.mark.parametrize(
    ("name", "said", "reason"),
    [
        ("dd", "dd: it broke", "sh ended with exit code 1: dd: it broke"),
        ("ioping", "ioping: it broke", "ioping ended with exit code 3: ioping: it broke"),
        ("fio", "fio: it broke", "fio ended with exit code 3: fio: it broke"),
        ("sysbench_fileio", "FATAL: it broke", "sh ended with exit code 1: FATAL: it broke"),
    ],
)
def test_a_program_that_fails_leaves_no_file(
    name: str, said: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = tmp_path / "files", small(name)
    folder.mkdir()
    monkeypatch.setattr("collbench.workloads.software._version", lambda software, path: "9.9")
    script = f"echo left > data; echo something; echo '{said}' >&2; exit 3"
    put(tmp_path, name.removesuffix("_fileio"), script, monkeypatch)
    assert outcomes(table, folder) == {("failed", reason)}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("dd", {"bs": 1, "count": 1 << 30}), ("ioping", {"mode": "latency", "count": 1000}),
     ("fio", {"runtime": 3600}), ("sysbench_fileio", {"events": 100_000_000, "fsync_freq": 1})],
)  # fmt: skip
def test_a_program_that_takes_too_long_is_ended_and_leaves_no_file(
    name: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    ((status, reason),) = outcomes(small(name, **parameters), tmp_path, timeout="700ms")
    assert status == "failed"
    assert reason is not None and reason.endswith(" did not end within 700 ms (the limit is -T, or timeout in a plan)")


@pytest.mark.parametrize(
    ("name", "ended"),
    [("dd", "sh ended with exit code 1: dd: error writing 'zeros': "), ("ioping", "ioping ended with exit code 2: "),
     ("fio", "fio ended with exit code 1: fio: "), ("sysbench_fileio", "sh ended with exit code 1: FATAL: ")],
)  # fmt: skip
def test_a_full_disk(name: str, ended: str, tmp_path: Path) -> None:
    table = small(name)
    with mounted(tmp_path, "tmpfs", "size=512k") as folder:
        ((status, reason),) = outcomes(table, folder)
    assert status == "failed"
    assert reason is not None and reason.startswith(ended) and "No space left on device" in reason


@pytest.mark.parametrize("name", SMALL)
def test_a_read_only_folder(name: str, tmp_path: Path) -> None:
    table = small(name)
    with mounted(tmp_path, "tmpfs", "ro") as folder:
        said = f"folder {folder}: Read-only file system; name one in which files can be made"
        assert outcomes(table, folder) == {("failed", said)}


@pytest.mark.parametrize(("name", "parameters"), [("fio", {"direct": 1}), ("ioping", {"mode": "direct"})])
def test_without_direct_io_it_is_skipped(
    name: str, parameters: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = os.open

    def refuse(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opens(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    said = f"direct I/O: {_files.kind_of(tmp_path)} refuses to open a file with O_DIRECT (Invalid argument)"
    assert outcomes(small(name, **parameters), tmp_path) == {("skipped", said)}


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_without_io_uring_it_is_skipped(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def syscall(*arguments: Any) -> int:
        asked.append(arguments[:2])
        ctypes.set_errno(number)
        return -1

    original = ctypes.CDLL

    def library(name: str | None, use_errno: bool = False) -> Any:
        return SimpleNamespace(syscall=syscall) if use_errno else original(name)

    monkeypatch.setattr(ctypes, "CDLL", library)
    ((status, reason),) = outcomes(small("fio", ioengine="io_uring"), tmp_path)
    assert (status, asked) == ("skipped", [(425, 1)])
    assert reason is not None and reason.startswith(f"io_uring is refused here ({os.strerror(number)}): ")
    assert 'seccomp = "unconfined"' in reason


def test_another_engine_does_not_ask_for_io_uring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.workloads.host.fio.no_io_uring", lambda: "refused")
    lacks = workloads.get("fio").lacks
    assert lacks(case_of("fio", direct=0), tmp_path) is None
    assert lacks(case_of("fio", direct=0, ioengine="io_uring"), tmp_path) == "refused"


@pytest.mark.parametrize("arguments", [("dd", "bs=1M", "count=4"), ("fio", "size=4M"), ("sysbench_fileio", "size=4M")])
def test_a_folder_without_the_space_is_refused_before_it_is_filled(
    arguments: tuple[str, ...], tmp_path: Path, bare_environment: dict[str, str]
) -> None:
    small(arguments[0])
    with mounted(tmp_path, "tmpfs", "size=2M") as folder:
        argv = (sys.executable, "-m", "collbench", "suite", *arguments, "-n", "1", "-w", "0")
        done = subprocess.run(argv, cwd=folder, env=bare_environment, capture_output=True, text=True, timeout=LIMIT)
        assert list(folder.iterdir()) == []
    assert done.returncode == 2 and "4.00 MiB" in done.stderr
