"""`collbench completion SHELL`: the script that makes Tab complete commands and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL. For bash: eval "$(collbench completion bash)"."""
    from collbench.cli import cli

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(cli, {}, "collbench", "_COLLBENCH_COMPLETE").source())
