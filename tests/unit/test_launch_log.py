"""What a world prints is kept within bounds, cannot steer a terminal, and ends up in messages by its last lines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from collbench.bindings.mpi import error_text
from collbench.launch.waiting import LONGEST_LINE, LONGEST_MESSAGE, MESSAGE_LINES, MOST_LINES, TAIL, Log, whole_words


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
    found = log_of("output", errors=errors).library_message(lambda line: line == "noise")
    assert found == f": {message}"


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


@pytest.mark.parametrize(("most", "left"), [(20, "one two three"), (13, "one two three"), (12, "one two"), (2, "on")])
def test_a_text_is_not_cut_within_a_word(most: int, left: str) -> None:
    assert whole_words("one two three", most) == left


def test_what_an_mpi_has_cut_off_ends_with_a_whole_word() -> None:
    """It returns at most MPI_MAX_ERROR_STRING characters, with the zero at their end."""
    mpi = SimpleNamespace(MAX_ERROR_STRING=20, Get_error_string={1: "short", 2: "MPI_Allgather MPIR_"}.__getitem__)
    assert error_text(mpi, 1) == "short"
    assert error_text(mpi, 2) == "MPI_Allgather ..."
