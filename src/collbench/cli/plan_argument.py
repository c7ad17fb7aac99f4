"""The argument PLAN: the path of a file, or the name of a plan that comes with collbench (`shipped.find_plan`)."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from collbench.cli.terminal import NAME
from collbench.launch.shipped import plans


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names; files where no name begins like this."""
    names = [CompletionItem(name) for name in plans() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


plan = click.argument("plan", type=NAME, shell_complete=_complete)
optional_plan = click.argument("plan", type=NAME, required=False, shell_complete=_complete)
