"""The styles in which records are printed as they are measured: what a style is, and each by its name."""

from __future__ import annotations

import importlib
from typing import Protocol

from collbench.schema.manifest import Manifest
from collbench.schema.record import Record

#: Name that the user types, and the class that prints it.
STYLES = {"table": "TableStyle", "nccl-tests": "NcclTestsStyle", "osu": "OsuStyle", "csv": "CsvStyle",
          "json": "JsonStyle"}  # fmt: skip


class Style(Protocol):
    """All three return text to print, with its newlines; empty when there is nothing yet."""

    def begin(self, manifest: Manifest) -> str:
        """Before the first record."""

    def add(self, record: Record) -> str:
        """A record, in the order of measurement."""

    def end(self) -> str:
        """After the last record, also when the run was cut short."""


def new_style(name: str) -> Style:
    """The style of this name, imported only now: ranks that print nothing need none."""
    printer: Style = getattr(importlib.import_module(f"{__name__}.styles"), STYLES[name])()
    return printer
