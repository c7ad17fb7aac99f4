"""The styles in which records are printed: one file each, found by name."""

from __future__ import annotations

import importlib

from collbench.report.style import Style

#: Name that the user types, and the module that defines `STYLE`.
STYLES = {"table": "table", "nccl-tests": "nccl_tests", "osu": "osu", "csv": "csv_rows", "json": "json_document"}


def new_style(name: str) -> Style:
    style: Style = importlib.import_module(f"{__name__}.{STYLES[name]}").STYLE()
    return style
