"""The benchmarks of files, executed: what they measure, that nothing of them is left, and what they say in failing.

And the page cache: a file that is dropped from it or read into it, and the share of it that is then there.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.processes import LIMIT
from tests.unit.made_files import case_of, in_memory, measured, mounted, stored
from tests.unit.made_programs import script

from collbench import workloads
from collbench.run.child import ProgramFailed, execute
from collbench.schema.record import Status
from collbench.workloads.host import files
from collbench.workloads.host.storage import layout, verified

#: What a test asks of each benchmark: little.
SMALL: dict[str, dict[str, Any]] = {"dd": {"count": 16}, "ioping": {"mode": "cached", "seconds": 1},
                                    "fio": {"size": "1M", "runtime": 1, "ramp": 0},
                                    "loading": {"size": "1M", "example": "16k", "compute": 1, "readers": 1},
                                    "checkpoint": {"size": "1M"},
                                    "sysbench_fileio": {"size": "1M", "files": 4, "events": 100}}  # fmt: skip


def small(name: str, **parameters: Any) -> dict[str, Any]:
    """The table of a plan. Skips the test where the program is missing."""
    if (missing := workloads.get(name).missing()) is not None:
        pytest.skip(missing)
    return {"name": name, **SMALL[name], **parameters}


def printed(argv: Sequence[str], folder: Path) -> str:
    return execute(argv, LIMIT, lambda: None, folder).output


def outcome(table: dict[str, Any], folder: Path, **plan: Any) -> tuple[Status, str]:
    """Status and reason of the records, which have one; nothing is left in the folder."""
    ((status, reason),) = {(record.status, record.reason) for record in measured(table, folder, **plan)}
    assert list(folder.iterdir()) == []
    return status, str(reason)


OK = ("ok", "None")


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    if files.kind_of(tmp_path) == "tmpfs":
        pytest.skip("temporary files are on tmpfs here")
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for files, beside which other programs are."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


Put = Callable[[str, str], None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """`put(name, lines)`: a program of this name comes first in PATH, and is new enough."""

    def write(name: str, lines: str) -> None:
        script(tmp_path, name, lines)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr("collbench.workloads.software._version", lambda software, path: "9.9")

    return write


@pytest.mark.parametrize("name", ["dd", "sysbench_fileio"])
def test_a_benchmark_is_measured_and_leaves_no_file(name: str, tmp_path: Path) -> None:
    (record,) = measured(small(name), tmp_path, iters=3, warmup=1)
    assert (record.status, record.reason) == ("ok", None)
    assert record.samples is not None and record.samples.n == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), [
    ("ioping", {"mode": "cached"}), ("ioping", {"mode": "direct"}), ("ioping", {"mode": "latency", "count": 2}),
    ("fio", {"rw": "randwrite"}), ("fio", {"rw": "write", "ioengine": "libaio", "depth": 4}),
    ("fio", {"ioengine": "io_uring", "depth": 4}), ("fio", {"rw": "read", "direct": 0, "cache": "warm"}),
    ("fio", {"rw": "randrw", "jobs": 2}), ("fio", {"rw": "rw", "read_percent": 70, "direct": 0, "cache": "warm"}),
    ("fio", {"rw": "randwrite", "jobs": 2, "fsync": 8}),
])  # fmt: skip
def test_every_way_is_measured_and_leaves_no_file(name: str, parameters: dict[str, Any], tmp_path: Path) -> None:
    table = small(name, **parameters)
    if (lacks := workloads.get(name).lacks(case_of(**table), tmp_path)) is not None:
        pytest.skip(lacks)
    assert outcome(table, tmp_path) == OK


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "resident"), [("cold", 0.0), ("warm", 1.0)])
def test_what_was_in_the_page_cache_before_is_in_the_record(on_disk: Path, cache: str, resident: float) -> None:
    records = measured(small("fio", direct=0, cache=cache), on_disk)
    shares = {record.case["measure"]: record.check.figures["resident"] for record in records if record.check}
    assert shares == dict.fromkeys(("request", "p50", "p99", "p99.9"), resident)


def test_cold_is_skipped_where_files_are_in_memory() -> None:
    with in_memory() as memory:
        status, reason = outcome(small("fio", direct=0, cache="cold"), memory)
    assert status == "skipped" and reason.startswith("cache=cold: ") and "tmpfs" in reason


@pytest.mark.slow
@pytest.mark.parametrize(("rw", "jobs"), [("write", 1), ("randwrite", 2), ("randrw", 2)])
def test_the_pass_that_verifies_notices_what_was_spoilt_after_its_writes(rw: str, jobs: int, tmp_path: Path) -> None:
    case = case_of(**small("fio", rw=rw, jobs=jobs, direct=0))
    step = verified(case)
    printed(layout(case).argv, tmp_path)
    printed((*step.argv, "--do_verify=0"), tmp_path)
    assert step.figures(printed((*step.argv, "--verify_only=1"), tmp_path)) == {}
    spoilt = tmp_path / f"data.{case['jobs'] - 1}"
    data = bytearray(spoilt.read_bytes())
    data[len(data) // 2 + 100] ^= 1
    spoilt.write_bytes(data)
    with pytest.raises(ProgramFailed, match=rf" 1: crc32c: .* {len(data) // 2}"):
        printed((*step.argv, "--verify_only=1"), tmp_path)


@pytest.mark.parametrize(("size", "jobs"), [(1_000_001, 1), (3 << 20, 2)])
def test_files_of_fio_are_written_to_their_last_byte(size: int, jobs: int, tmp_path: Path) -> None:
    """What is only allocated is read as zeros, without a request to the device."""
    printed(layout(case_of(**small("fio", size=size, jobs=jobs))).argv, tmp_path)
    paths = sorted(tmp_path.iterdir())
    assert [path.stat().st_size for path in paths] == [size // jobs] * jobs
    assert all(any(path.read_bytes()[-100:]) for path in paths)


def test_every_sample_of_dd_writes_a_new_file_and_trying_direct_io_none(folder: Path, put: Put) -> None:
    put("dd", f'test ! -e zeros || exit 1; exec {shutil.which("dd")} "$@"')
    assert outcome(small("dd"), folder, iters=3) == OK
    files.no_direct(folder)
    assert list(folder.iterdir()) == []


def test_the_first_line_that_fits_says_why_a_command_failed(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match=r"^sh .* 1: dd: out$"):
        printed(files.explained("^dd: ", "sh", "-c", "echo dd: out; echo other; echo dd: later >&2; exit 9"), tmp_path)
    assert printed(files.explained("^dd: ", "sh", "-c", "echo out; echo error >&2"), tmp_path) == "out\nerror\n"


COPIED = "echo '1048576 bytes (1.0 MB, 1.0 MiB) copied, 1e-5 s, 104.9 GB/s' >&2"
FAILING = "echo left > data; echo something; echo '{}it broke' >&2; exit 3"

#: Of programs that do these lines, which say that it worked: a file without the bytes that dd says, shorter or only
#: truncated to its size; and programs that say that it did not. The reason.
BROKEN = [("dd", f"echo short > zeros; {COPIED}", " 1 wrong value$"),
          ("dd", f"truncate -s 1048576 zeros; {COPIED}", "\\b0 of 1048576 bytes"),
          ("dd", FAILING.format("dd: "), "^sh .* 1: dd: it broke$"),
          ("ioping", FAILING.format("ioping: "), "^ioping .* 3: ioping: it broke$"),
          ("fio", FAILING.format("fio: "), "^fio .* 3: fio: it broke$"),
          ("sysbench_fileio", FAILING.format("FATAL: "), "^sh .* 1: FATAL: it broke$")]  # fmt: skip


@pytest.mark.parametrize(("name", "lines", "named"), BROKEN)
def test_a_program_that_fails_leaves_no_file(name: str, lines: str, named: str, folder: Path, put: Put) -> None:
    table = small(name)
    put(name.removesuffix("_fileio"), lines)
    status, reason = outcome(table, folder)
    assert status == "failed" and re.search(named, reason)


@pytest.mark.parametrize(("name", "parameters", "output"), [
    ("fio", {}, stored("fio-3.33-psync.json")),
    ("fio", {"direct": 0, "cache": "warm", "runtime": 1}, stored("fio-3.33-psync.json")),
    ("ioping", {"mode": "latency", "count": 4}, stored("ioping-1.3-latency.txt")),
    ("ioping", {"mode": "cached"}, stored("ioping-1.3-cached.txt")),
    ("sysbench_fileio", {"size": "1M", "files": 4, "events": 200},
     stored("sysbench-1.0.20-fileio.txt").replace("0.0067s", "999.1234s")),
])  # fmt: skip
def test_a_time_that_is_longer_than_the_execution_fails(name: str, parameters: dict[str, Any], output: str,
                                                        folder: Path, put: Put) -> None:  # fmt: skip
    table = small(name, **parameters)
    (folder.parent / "output").write_text(output, encoding="utf-8")
    put(name.removesuffix("_fileio"), f"test -e data.0 || echo data > data.0; exec cat {folder.parent}/output")
    status, reason = outcome(table, folder)
    assert status == "failed" and " took " in reason


@pytest.mark.slow
@pytest.mark.parametrize("rw", ["read", "randread", "randrw"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cold_file_is_read_once_and_no_more(rw: str, jobs: int, on_disk: Path) -> None:
    """The pass ends before its second is over, in the rest of which requests would be to the page cache."""
    assert outcome(small("fio", rw=rw, jobs=jobs, direct=0, cache="cold", size="4M", bs="64k"), on_disk) == OK


@pytest.mark.parametrize(("name", "parameters"), [
    ("dd", {"bs": 1, "count": 1 << 30}), ("ioping", {"mode": "latency", "count": 1000}), ("fio", {"runtime": 3600}),
    ("sysbench_fileio", {"events": 100_000_000, "fsync_freq": 1}), ("loading", {"compute": 100_000}),
])  # fmt: skip
def test_a_program_that_takes_too_long_is_ended_and_leaves_no_file(name: str, parameters: dict[str, Any],
                                                                   tmp_path: Path) -> None:  # fmt: skip
    status, reason = outcome(small(name, **parameters), tmp_path, timeout="700ms")
    assert status == "failed" and " 700 ms (" in reason


@pytest.mark.parametrize(("name", "start"), [("dd", "sh .* 1: dd: .*'zeros': "), ("ioping", "ioping .* 2: "),
                                             ("fio", "fio .* 1: fio: "), ("loading", ".* 1: loading: "),
                                             ("checkpoint", ".* 1: checkpoint: "),
                                             ("sysbench_fileio", "sh .* 1: FATAL: ")])  # fmt: skip
def test_a_full_disk_and_a_read_only_folder(name: str, start: str, tmp_path: Path) -> None:
    table = small(name)
    with mounted(tmp_path, "tmpfs", "size=512k") as full:
        status, reason = outcome(table, full)
    assert status == "failed" and re.match(start, reason) and os.strerror(errno.ENOSPC) in reason
    with mounted(tmp_path, "tmpfs", "ro") as locked:
        status, reason = outcome(table, locked)
    assert status == "failed" and reason.startswith(f"folder {locked}: {os.strerror(errno.EROFS)}; ")


@pytest.mark.parametrize(("name", "parameters"), [("fio", {"direct": 1}), ("ioping", {"mode": "direct"})])
def test_without_direct_io_it_is_skipped(name: str, parameters: dict[str, Any], tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    opens = os.open

    def refuse(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opens(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    status, reason = outcome(small(name, **parameters), tmp_path)
    assert status == "skipped"
    assert all(word in reason for word in (files.kind_of(tmp_path), "O_DIRECT", os.strerror(errno.EINVAL)))


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_without_io_uring_it_is_skipped(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = [], ctypes.CDLL

    def syscall(*arguments: Any) -> int:
        calls.append(arguments[:2])
        ctypes.set_errno(number)
        return -1

    def library(name: str | None, use_errno: bool = False) -> Any:
        return SimpleNamespace(syscall=syscall) if use_errno else original(name)

    monkeypatch.setattr(ctypes, "CDLL", library)
    status, reason = outcome(small("fio", ioengine="io_uring"), tmp_path)
    assert (status, calls) == ("skipped", [(425, 1)])
    assert reason.startswith("io_uring ") and os.strerror(number) in reason and 'seccomp = "unconfined"' in reason
    calls.clear()
    assert workloads.get("fio").lacks(case_of("fio", direct=0), tmp_path) is None
    assert calls == [], "another engine does not need it"


@pytest.mark.parametrize(
    "arguments",
    [
        ("dd", "bs=1M", "count=4"),
        ("fio", "size=4M"),
        ("sysbench_fileio", "size=4M"),
        ("loading", "size=4M", "batch=1", "readers=1"),
        ("checkpoint", "size=4M"),
    ],
)
def test_a_folder_without_the_space_is_refused_before_it_is_filled(
    arguments: tuple[str, ...], tmp_path: Path, bare_environment: dict[str, str]
) -> None:
    small(arguments[0])
    with mounted(tmp_path, "tmpfs", "size=2M") as narrow:
        argv = (sys.executable, "-m", "collbench", "suite", *arguments, "-n", "1", "-w", "0")
        done = subprocess.run(argv, cwd=narrow, env=bare_environment, capture_output=True, text=True, timeout=LIMIT)
        assert list(narrow.iterdir()) == []
    assert done.returncode == 2 and "4.00 MiB" in done.stderr


# The page cache ------------------------------------------------------------------------------------------------------

PAGES = 512


@pytest.fixture
def file(on_disk: Path) -> Path:
    """Just written: its pages are in the cache, and not on the device yet."""
    (on_disk / "data").write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    return on_disk / "data"


def resident(path: Path) -> float:
    with path.open("r+b") as file:
        return files.resident(file.fileno())


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(state, file)`: the program, in this process: exit code, standard output and error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["page_cache", *map(str, arguments)])
        code = 0
        try:
            files.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return call


def test_a_file_is_cold_and_then_warm_and_its_share_that_of_its_pages(file: Path, run: Run) -> None:
    """Also of an empty file, and of one that ends within a page."""
    assert resident(file) == 1.0
    for state, share in (("cold", 0.0), ("warm", 1.0), ("cold", 0.0)):
        code, out, _ = run(state, file)
        assert (code, json.loads(out), resident(file)) == (0, {"resident": share}, share)
    with file.open("r+b") as opened:
        files.drop(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no more than what is asked for
        for page in range(0, PAGES, 4):
            os.pread(opened.fileno(), 1, page * mmap.PAGESIZE)
    assert resident(file) == 0.25
    for size, share in ((mmap.PAGESIZE + 1, 1.0), (0, 0.0)):
        file.write_bytes(bytes(size))
        assert resident(file) == share


@pytest.mark.parametrize(("state", "share", "undone"), [
    ("cold", "100.0%", (files, "drop")), ("warm", "0.0%", (files, "read")), ("cold", "", (os, "fsync")),
])  # fmt: skip
def test_a_state_that_is_not_reached_is_an_error(state: str, share: str, undone: tuple[Any, str], file: Path, run: Run,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Pages that are not on the device stay without fsync."""
    if state == "warm":
        run("cold", file)
    monkeypatch.setattr(*undone, lambda file: None)
    code, out, err = run(state, file)
    assert (code, out) == (1, "") and err.startswith(share) and f" of {file} " in err


def test_the_share_of_several_files_is_that_of_all_their_pages(file: Path, run: Run) -> None:
    """Also of all files in a folder. One that is missing is named."""
    other = file.parent / "other"
    other.write_bytes(os.urandom(3 * PAGES * mmap.PAGESIZE))
    for paths in ((file, other), (file.parent,)):
        for state, share in (("cold", 0.0), ("warm", 1.0)):
            assert run(state, *paths)[:2] == (0, json.dumps({"resident": share}) + "\n")
            assert resident(file) == resident(other) == share
    code, _, err = run("cold", file, file.parent / "none")
    assert code == 1 and f" {file.parent}/none: " in err


def test_files_in_memory_cannot_be_cold_but_warm(run: Run, tmp_path: Path) -> None:
    with in_memory() as memory:
        (memory / "data").write_bytes(bytes(mmap.PAGESIZE))
        code, out, err = run("cold", memory / "data")
        assert (code, out) == (77, "") and err.startswith("cache=cold: ") and "tmpfs" in err
        assert run("warm", memory / "data") == (0, '{"resident": 1.0}\n', "")
        code, out, err = run("warm", memory / "none")
        assert (code, out) == (1, "") and err.endswith(f" {memory}/none: {os.strerror(errno.ENOENT)}\n")
    assert files.kind_of(Path("/proc")) == "file system 0x9fa0"
    with pytest.raises(FileNotFoundError):
        files.kind_of(tmp_path / "none")
