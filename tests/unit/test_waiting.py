"""Waiting for a world: how long, and what it prints, which is no progress.

What it prints is kept within bounds, cannot steer a terminal, and ends up in messages by its last lines.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.unit.made_worlds import PLAN, carried_out, made

from collbench.bindings.mpi import error_text
from collbench.errors import EngineError
from collbench.launch.engines.docker import killed_for_memory
from collbench.launch.engines.docker.client import Docker, Execution, OnLine
from collbench.launch.waiting import (
    GRACE,
    LONGEST_LINE,
    LONGEST_MESSAGE,
    LONGEST_PASS,
    MESSAGE_LINES,
    MOST_LINES,
    STARTING,
    TAIL,
    Limits,
    Log,
    Timeouts,
    limits_of,
    whole_words,
    written_to,
)

ROOT = Path(__file__).parents[2]
SHORT = msgspec.structs.replace(PLAN, timeout="1s", budget="0.1s", launches=1)

# What it prints ------------------------------------------------------------------------------------------------------


def log_of(*lines: str, errors: tuple[str, ...] = ()) -> Log:
    log = Log()
    for line in lines:
        log.add(False, line)
    for line in errors:
        log.add(True, line)
    return log


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("\x1b[2J\x1b[31mred\x07", "[2J[31mred"),
        ("a\x9b31mb\x7f", "a31mb"),
        ("over\rwritten\x08", "overwritten"),
        ("\x00\x0b\x0c\x0e\x1f\x80", ""),
        ("a\tb ä €", "a\tb ä €"),
    ],
)
def test_control_characters_are_taken_out(line: str, kept: str) -> None:
    assert log_of(line).lines == (kept,)


def test_lines_are_cut_and_the_oldest_are_dropped() -> None:
    log = log_of("x" * (LONGEST_LINE + 1))
    assert log.lines == ("x" * LONGEST_LINE,)
    for number in range(MOST_LINES):
        log.add(False, str(number))
    assert (len(log.lines), log.lines[0], log.lines[-1]) == (MOST_LINES, "0", str(MOST_LINES - 1))


def test_the_tail_is_of_standard_error_where_something_was_said_there() -> None:
    said = tuple(map(str, range(TAIL + 3)))
    assert log_of(*said).tail() == said[3:]
    assert log_of(*said, errors=("bad", "  ", "worse")).tail() == ("bad", "worse")
    assert log_of("fine", "", errors=(" ",)).tail() == ("fine",)


def test_what_is_known_as_harmless_is_not_in_the_tail() -> None:
    log = log_of(errors=("noise 1", "bad", "noise 2"))
    assert log.tail(lambda line: line.startswith("noise")) == ("bad",)


RULE = "-" * 74
ELASTIC = "torch/distributed/elastic/multiprocessing/api.py:1002] failed"


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (
            ("*** An error occurred in MPI_Init", "***    and that is fatal"),
            "An error occurred in MPI_Init and that is fatal",
        ),
        ((RULE, "No component.", "Host:      vm", RULE, "No component.", "noise"), "No component. Host: vm"),
        (("a crash", RULE, "prterun noticed that process rank 0", "exited.", RULE), "a crash"),
        ((RULE, "prterun noticed that process rank 0", "exited.", RULE), "prterun noticed that process rank 0 exited."),
        (("no memory", f"W1123 12:50:00.1 17 {ELASTIC}", "Traceback"), "no memory"),
        ((f"E1123 12:50:00.1 17 {ELASTIC}", "Traceback"), f"E1123 12:50:00.1 17 {ELASTIC} Traceback"),
        (("x" * LONGEST_MESSAGE,), "x" * LONGEST_MESSAGE),
        (("x" * (LONGEST_MESSAGE + 1),), "x" * LONGEST_MESSAGE + " ..."),
        (("old", *map(str, range(MESSAGE_LINES))), " ".join(map(str, range(MESSAGE_LINES)))),
    ],
)
def test_the_librarys_own_message_is_one_line_of_standard_error(errors: tuple[str, ...], message: str) -> None:
    said = log_of("output", errors=errors).library_message(lambda line: line == "noise")
    assert said == f": {message}"


def test_without_standard_error_there_is_no_message() -> None:
    assert log_of("output", errors=(" ", RULE)).library_message() == ""


def test_the_ranks_own_last_message_is_found() -> None:
    log = log_of("collbench: first", "mpirun: something", "collbench: rank 1: no memory", "told by collbench: not this")
    assert log.message == ": no memory"
    assert log_of("mpirun: something").message == ""


def test_one_cause_is_one_text_whatever_rank_and_folder_it_met() -> None:
    """A folder of a launch is gone when the text is read."""
    said = "collbench: rank {}: the library returned an error (sbuf={} failed). {} in {}: collbench show {}"
    first = log_of(said.format(1, "0x7f12ab", "1 record is", "/lustre/a", "/lustre/a"))
    other = log_of(said.format(3, "0x7fff00", "12 records are", "/lustre/b", "/lustre/b"))
    assert first.message == other.message
    assert "/lustre" not in first.message and "sbuf" in first.message
    refused = (log_of(f"collbench: plan /tmp/collbench-{name}/plan.json: backend mpi: none") for name in ("a", "b"))
    assert {log.message for log in refused} == {": backend mpi: none"}


@pytest.mark.parametrize(("most", "left"), [(20, "one two three"), (13, "one two three"), (12, "one two"), (2, "on")])
def test_a_text_is_not_cut_within_a_word(most: int, left: str) -> None:
    assert whole_words("one two three", most) == left


def test_what_an_mpi_has_cut_off_ends_with_a_whole_word() -> None:
    """It returns at most MPI_MAX_ERROR_STRING characters, with the zero at their end."""
    mpi = SimpleNamespace(MAX_ERROR_STRING=20, Get_error_string={1: "short", 2: "MPI_Allgather MPIR_"}.__getitem__)
    assert error_text(mpi, 1) == "short"
    assert error_text(mpi, 2) == "MPI_Allgather ..."


# How long ------------------------------------------------------------------------------------------------------------


class Clock:
    """Time that a test lets pass."""

    def __init__(self, limits: Limits) -> None:
        self.now = 1000.0
        self.patience = Timeouts(limits, lambda: self.now)

    def waited(self, seconds: float, written: int = 0) -> str | None:
        """What is said after so long, in passes of half a second."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            if (said := self.patience.ended(written)) is not None:
                return said
        return None


@pytest.mark.parametrize(
    ("limits", "waits", "last", "limit"),
    [
        (Limits(start=10.0, case=20.0, cases=3), [(29, 0), (19, 100), (19, 150)], (2, 150), " 20 s"),
        # until something is written, for as long as a start and a case
        (Limits(start=3.0, case=2.0, cases=9), [(5, 0)], (1, 0), " 5 s"),
        # a file that is written anew was as long before
        (Limits(start=0.0, case=2.0, cases=9), [(1, 100), (1, 50)], (1.5, 99), " 2 s"),
    ],
)
def test_a_record_is_progress_and_a_start_takes_longer(
    limits: Limits, waits: list[tuple[float, int]], last: tuple[float, int], limit: str
) -> None:
    """Seconds, and bytes that were written."""
    clock = Clock(limits)
    assert [clock.waited(*wait) for wait in waits] == [None] * len(waits)
    said = clock.waited(*last) or ""
    assert "no record" in said and said.endswith(limit)


def test_a_world_has_the_plans_limits_and_time_to_start_and_to_end() -> None:
    """Ranks end themselves at the time-out; a case may take its budget too, and a world as long as all its cases."""
    plan = msgspec.structs.replace(PLAN, timeout="7s", budget="2s").of_world()
    limits = limits_of(plan, 3)
    assert limits == Limits(start=7.0 + STARTING, case=2.0 + 7.0 + GRACE, cases=3)
    assert limits.all == limits.start + 3 * limits.case
    assert limits_of(plan, 0).all == limits_of(plan, 1).all == limits.start + limits.case


def test_a_limit_is_met_only_by_what_is_longer() -> None:
    clock = Clock(Limits(start=0.0, case=2.0, cases=1))
    for _ in range(2):
        clock.now += 1.0
        assert clock.patience.ended(5) is None, "nothing was written before: it counts from here"
    clock.now += 1.0
    said = clock.patience.ended(5) or ""
    assert " 2 s" in said and "1 case" in said


def test_records_without_end_are_no_progress() -> None:
    clock = Clock(Limits(start=10.0, case=20.0, cases=3))
    said = next(text for n in range(1, 1000) if (text := clock.waited(1, written=n)) is not None)
    assert "70 s" in said and "3 cases" in said
    assert 69 < clock.now - 1000 < 72


def test_a_driver_that_was_stopped_has_not_waited() -> None:
    clock = Clock(Limits(start=0.0, case=20.0, cases=1))
    for _ in range(15):
        clock.now += 3600.0
        assert clock.patience.ended(0) is None
    assert "no record" in (clock.waited(20 - 15 * LONGEST_PASS + 1) or "")


def test_what_is_written(tmp_path: Path) -> None:
    assert written_to(tmp_path) == 0
    (tmp_path / "records.jsonl").write_text("1234")
    assert written_to(tmp_path) == 4
    (tmp_path / "manifest.json").write_text("12")
    (tmp_path / "other").write_text("123")
    assert written_to(tmp_path) == 6
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").symlink_to("/proc/self/exe")
    assert written_to(tmp_path) == 4 + len("/proc/self/exe")  # a link is not followed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.launch.waiting.GRACE", 0.5)
    monkeypatch.setattr("collbench.launch.waiting.STARTING", 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_world_that_keeps_printing_is_ended(tmp_path: Path) -> None:
    heard = carried_out(made(tmp_path, "while :; do echo line; sleep 0.1; done", SHORT))
    assert heard.found == [(0, 8, "failed")]
    assert "no record" in (heard.records[0].reason or "")


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_the_ranks_own_words_stand_in_the_reason(tmp_path: Path) -> None:
    words = "rank 0: no progress for 1 s in bcast 8 B"
    heard = carried_out(made(tmp_path, f'echo "collbench: {words}" >&2; sleep 60', SHORT))
    assert (heard.records[0].reason or "").endswith(f": {words.removeprefix('rank 0: ')}")


STOPPED = """
import sys
from pathlib import Path
from tests.unit.made_worlds import carried_out, made
from tests.unit.test_waiting import SHORT
import collbench.launch.waiting
collbench.launch.waiting.GRACE = collbench.launch.waiting.STARTING = 0.5
heard = carried_out(made(Path(sys.argv[1]), sys.argv[2], SHORT))
print(heard.found, [record.notes for record in heard.records])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        "(sleep 8; kill -CONT $PPID) & kill -STOP $PPID; good",  # it ends while the driver is stopped
        "kill -STOP $PPID; sleep 8; kill -CONT $PPID; sleep 0.5; good",
    ],
)
def test_a_driver_that_was_stopped_records_no_false_failure(tmp_path: Path, world: str) -> None:
    """For longer than every limit."""
    command = [sys.executable, "-c", STOPPED, str(tmp_path), world]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert done.stdout == "[(0, 8, 'ok'), (0, 16, 'ok')] [(), ()]\n", done.stderr


class Answers(Docker):
    """An engine whose containers have these counters; without, they do not answer."""

    def __init__(self, counters: dict[str, str]) -> None:
        self._counters = counters

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], hear: OnLine) -> Execution:
        if container not in self._counters:
            raise EngineError(f"container {container} is paused")
        for line in self._counters[container].splitlines():
            hear(False, line)
        execution = Execution(container, 0)
        execution.finished.set()
        return execution


@pytest.mark.parametrize(
    ("counters", "named"),
    [
        ({"c0": "low 0\noom 0\noom_kill 0", "c1": "oom 2\noom_kill 1"}, ["c1"]),
        ({"c0": "under_oom 0\noom_kill 3", "c1": "oom_kill 1"}, ["c0", "c1"]),
        ({"c0": "oom_kill 1"}, ["c0"]),
        ({"c0": "oom_kill 0", "c1": "cat: no such file"}, []),
        ({}, []),
    ],
)
def test_what_the_kernel_ended_for_lack_of_memory_is_named(counters: dict[str, str], named: list[str]) -> None:
    said = killed_for_memory(Answers(counters), ("c0", "c1"))
    assert [container for container in ("c0", "c1") if container in said] == named
    assert ("memory" in said, bool(said)) == (bool(named), bool(named))
