"""The styles in which records are printed, found by name."""

from __future__ import annotations

import importlib

from collbench.report.style import Style

#: Name that the user types, and the module and class that print it.
STYLES = {
    "table": ("table", "TableStyle"),
    "nccl-tests": ("peers", "NcclTestsStyle"),
    "osu": ("peers", "OsuStyle"),
    "csv": ("for_programs", "CsvStyle"),
    "json": ("for_programs", "JsonStyle"),
}


def new_style(name: str) -> Style:
    module, style = STYLES[name]
    printer: Style = getattr(importlib.import_module(f"{__name__}.{module}"), style)()
    return printer
