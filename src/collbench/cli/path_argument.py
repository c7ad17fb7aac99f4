"""Arguments and options that name something. The empty text that scripts have for an unset variable names nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class Name(click.types.StringParamType):
    """A text that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("it is empty. Give it a value, or leave it out.", param, ctx)
        return super().convert(value, param, ctx)


class NamedPath(click.Path):
    """A path; the empty one would be this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("it is empty. For the folder that you are in write a dot.", param, ctx)
        try:
            Path(os.fsdecode(value)).resolve()
        except RuntimeError:  # until Python 3.13
            self.fail(f"{os.fsdecode(value)}: a link that leads to itself.", param, ctx)
        return super().convert(value, param, ctx)


NAME = Name()
PATH = NamedPath()
