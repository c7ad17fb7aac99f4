"""The styles in which records are printed as they are measured: what a style is, and each by its name."""

from __future__ import annotations

import importlib
from typing import Protocol

from collbench.schema.manifest import Manifest
from collbench.schema.record import Record

#: Name that the user types, and the class that prints it.
STYLES = {"table": "TableStyle", "nccl-tests": "NcclTestsStyle", "osu": "OsuStyle", "csv": "CsvStyle",
          "json": "JsonStyle", "bencher": "BencherStyle"}  # fmt: skip


class Style(Protocol):
    """Text to print, with its newlines: before the first record, of each in the order of measurement, after the last.

    Empty when there is nothing yet; the last also when the run was cut short.
    """

    def begin(self, manifest: Manifest) -> str: ...
    def add(self, record: Record) -> str: ...
    def end(self) -> str: ...


def new_style(name: str) -> Style:
    """The style of this name, imported only now: ranks that print nothing need none."""
    printer: Style = getattr(importlib.import_module(f"{__name__}.styles"), STYLES[name])()
    return printer
