"""What several tests of commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from collbench.cli import run_command


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Collbench = Callable[..., Answer]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Collbench:
    """`here("advise", ...)`: a command in this process."""

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["collbench", *map(str, arguments)])
        code = run_command(speaks=True)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def compare(here: Collbench) -> Collbench:
    """`compare(*arguments)`: the command in this process."""
    return lambda *arguments: here("compare", *arguments)


@pytest.fixture(autouse=True)
def whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is not broken into lines, which golden files test."""
    monkeypatch.setattr("collbench.report.tables.LONGEST_LINE", 100_000)
