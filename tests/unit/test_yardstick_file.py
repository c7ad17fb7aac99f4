"""The file of readings: written line by line, and read as strictly as records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_runs import made_manifest

from collbench.errors import RunReadError, RunWriteError
from collbench.schema.case import Where
from collbench.schema.samples import pack
from collbench.schema.store import (
    LONGEST_READING,
    READINGS,
    RunWriter,
    YardstickReading,
    append_reading,
    read_readings,
    read_run,
)

READING = YardstickReading(
    launch=3, sequence=7, cells=(Where(ranks=2, image="openmpi"),), cores="0-1", moment="before", monotonic=12.5,
    wall=1.7e9, values={"copy": 20.0, "core_distance": 100.5, "core_speed": 900.0},
)  # fmt: skip
UNREAD = msgspec.structs.replace(READING, cores="", values={"copy": None}, reason="elsewhere")


def line(**changes: Any) -> bytes:
    """A line whose fields are replaced; `...` removes one."""
    fields = json.loads(msgspec.json.encode(READING)) | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode() + b"\n"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_readings(tmp_path) == ()
    after = msgspec.structs.replace(READING, moment="after", cells=READING.cells * 2)
    for one in (READING, after, UNREAD):
        append_reading(tmp_path, one)
    assert read_readings(tmp_path) == (READING, after, UNREAD)


def test_a_line_that_was_cut_off_is_left_out_and_taken_away_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / READINGS
    for whole in (b"", line()):
        path.write_bytes(whole + line()[:-30])
        assert len(read_readings(tmp_path)) == len(whole.splitlines())
        append_reading(tmp_path, UNREAD)
        assert read_readings(tmp_path) == (*(READING for _ in whole.splitlines()), UNREAD)


@pytest.mark.parametrize(
    "bad",
    [
        b"\n", b"[]\n", b"{}\n", b"\xff\n", b"nonsense\n", b"[" * 100_000 + b"\n",
        line(more=1), line(values=...), line(launch=-1), line(sequence=1 << 40), line(cells=[]), line(moment="during"),
        line(cells=[{"ranks": 0}]), line(cells=[{"ranks": 1, "more": 1}]), line(cells=[{}] * 65),
        line(cores="0" * 70_000), line(values={"copy": 0.0}), line(values={"copy": -1.0}), line(values={"copy": 1e19}),
        line(values={"copy": "1"}),
        line(values={"copy": None}), line(reason="elsewhere"), line(values={"copy": None}, reason="tired"),
        line(values={str(number): 1.0 for number in range(65)}), line(wall=-1.0), line(monotonic=None),
        line().replace(b"100.5", b"NaN"), line().replace(b"100.5", b"1e999"),
    ],
)  # fmt: skip
def test_garbage_is_refused_with_file_and_line(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / READINGS).write_bytes(line() + bad + line())
    with pytest.raises(RunReadError, match=rf"{READINGS} line 2: "):
        read_readings(tmp_path)


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    (tmp_path / READINGS).write_bytes(line(cores="0\x1b[31m"))
    assert read_readings(tmp_path)[0].cores == "0\\x1b[31m"


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / READINGS).write_bytes(b" " * (LONGEST_READING + 5))
    with pytest.raises(RunReadError, match=f"{READINGS} line 1: longer than 1 MiB"):
        read_readings(tmp_path)


def made_pipe(path: Path) -> None:
    os.mkfifo(path)


def made_link(path: Path) -> None:
    path.with_name("elsewhere").write_text("ours\n")
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("made", [Path.mkdir, made_pipe, made_link])
def test_only_a_regular_file_is_written(tmp_path: Path, made: Any) -> None:
    made(tmp_path / READINGS)
    with pytest.raises(RunWriteError, match=READINGS):
        append_reading(tmp_path, READING)
    if made is made_link:
        assert (tmp_path / "elsewhere").read_text() == "ours\n"
    else:
        with pytest.raises(RunReadError, match=f"{READINGS}: not a regular file"):
            read_readings(tmp_path)


def test_a_full_disk_leaves_the_lines_before(tmp_path: Path) -> None:
    append_reading(tmp_path, READING)
    size = (tmp_path / READINGS).stat().st_size
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 20}, {size + 20})); "
        "from pathlib import Path; from collbench.schema.store import append_reading, read_readings; "
        "from collbench.errors import RunWriteError; where = Path(sys.argv[1]); (one,) = read_readings(where)\n"
        "try: append_reading(where, one)\nexcept RunWriteError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"{tmp_path / READINGS}: File too large." in done.stdout
    assert (tmp_path / READINGS).stat().st_size == size


def test_a_run_with_the_file_is_read_resumed_and_packed_as_one_without(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunWriter(run, made_manifest()).close()
    append_reading(run, READING)
    with RunWriter.resume(run) as writer:
        append_reading(writer.directory, UNREAD)
    pack(run)
    assert read_run(run).records == ()
    assert read_readings(run) == (READING, UNREAD)
