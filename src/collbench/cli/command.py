"""Flags by which a command of the user's own is measured, for `suite` and `launch`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from collbench.cli import options as flags
from collbench.errors import RequestError
from collbench.schema.command import benchmark_of


class MetricOptions(flags.Options):
    """What of a command is measured, and what it needs."""

    metric: str | None = flags.option("--metric", "Of a command: a regular expression with the number that it prints in parentheses.  [default: the time that it takes]", "REGEX", type=flags.text)  # fmt: skip
    unit: str | None = flags.option("--unit", "Of --metric: a time (s, ms, us), a rate such as MB/s, or a word.", "UNIT", type=flags.text)  # fmt: skip
    better: str | None = flags.option("--better", "Whether a lower or a higher number is better.  [default: lower of times, else higher]", type=click.Choice(["lower", "higher"]))  # fmt: skip
    files: tuple[str, ...] = flags.several("--files", "A file or folder that a command needs.", "PATH", type=flags.text)
    check: str | None = flags.option("--check", "Shell command that must succeed after the last execution.", "COMMAND", type=flags.text)  # fmt: skip


_PARAMETERS = ("metric", "unit", "better", "files", "check")


def command_benchmark(command: str | Sequence[str] | None, options: MetricOptions) -> dict[str, Any] | None:
    """The benchmark of a plan; None: there is no command. Raises RequestError: flags of one, and there is none."""
    typed = {name: value for name in _PARAMETERS if (value := getattr(options, name))}
    if not command:
        if typed:
            raise RequestError(f"--{next(iter(typed))}: needs a command, after -- or in launch --command.")
        return None
    words = command if isinstance(command, str) else list(command)
    return benchmark_of({"command": words, **{name: list(value) if name == "files" else value
                                              for name, value in typed.items()}}, Path.cwd())  # fmt: skip


COMMAND = "collbench.command"  #: The key of `click.Context.meta`.


class WithCommand(click.Command):
    """What stands after `--` is a command with its flags, for `click.Context.meta[COMMAND]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = tuple(args[place + 1 :])
            if not ctx.meta[COMMAND]:
                raise RequestError("--: a command stands behind it, such as: collbench suite -- ./app --steps 100")
            args = args[:place]
        return super().parse_args(ctx, args)


#: Flags of `launch` that are keys of the plan of a command; all that make one, which a run that is resumed has.
OF_LAUNCH = ("policies", "images", "iters", "warmup", "timeout")
OF_COMMAND = ("command", *OF_LAUNCH, *_PARAMETERS)
