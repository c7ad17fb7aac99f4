"""The command that continues what this command began: with all that was typed, so that it can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

#: Options that say where, in place of which the command has `--resume`.
_PLACES = ("out", "resume")


def resuming(folder: Path, **changed: Any) -> str:
    """`collbench launch 'my plan.toml' --resume 'k 9' --site n.toml`; options that are `changed` have these values."""
    context = click.get_current_context()
    options = [option for option in context.command.params if isinstance(option, click.Option)]
    words = [word for option in options if option.name not in _PLACES for word in _typed(context, option, changed)]
    plan = str(context.params["plan"])
    return shlex.join(["collbench", str(context.command.name), plan, "--resume", str(folder), *words])


def _typed(context: click.Context, option: click.Option, changed: Mapping[str, Any]) -> Iterator[str]:
    """The words of an option; none where it was left out, on the command line and in what is changed."""
    name = option.name or ""
    if name not in changed and context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return
    value = changed.get(name, context.params[name])
    for one in value if option.multiple else (value,):
        yield next(form for form in option.opts if form.startswith("--"))
        if not option.is_flag:
            yield _written(one)


def _written(value: Any) -> str:
    """A value as it can be typed: a share, of a margin, as a percentage without an exponent."""
    return f"{value * 100:.10f}".rstrip("0").rstrip(".") + "%" if isinstance(value, float) else str(value)
