"""Paths as arguments and options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class NamedPath(click.Path):
    """A path that names something: the empty text, which a script has for an unset variable, is not this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the name is empty. For the folder that you are in write a dot.", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath()
