"""An error that one rank meets while it measures a case: the case is named, and what the library's log says of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.unit.made_measurements import case, method

from collbench.errors import LibraryError
from collbench.run import experiment
from collbench.run.failures import Unwatched


def met(monkeypatch: pytest.MonkeyPatch, error: Exception, lost: bool = False) -> Exception:
    def fail(*_: object) -> NoReturn:
        raise error

    session: Any = SimpleNamespace(
        is_lost_rank=lambda error: lost, explained=lambda error: f"{error}; NCCL's log says more"
    )
    monkeypatch.setattr(experiment, "measure", fail)
    with pytest.raises(type(error) if lost else LibraryError) as raised:
        experiment._measured_collective(case(), session, method(), Unwatched())
    return raised.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LibraryError("error 1"), "error 1; NCCL's log says more"),
        (RuntimeError("NCCL_ERROR"), "RuntimeError: NCCL_ERROR; NCCL's log says more"),
        (MemoryError("7 GiB of the host"), "out of memory (7 GiB of the host)"),
    ],
)
def test_the_case_is_named(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    assert str(met(monkeypatch, error)) == f"bcast 16 B on fake: {said}"


def test_an_error_of_a_lost_rank_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend knows it by its kind and its words."""
    error = RuntimeError("Connection closed by peer")
    assert met(monkeypatch, error, lost=True) is error
