"""`collbench completion SHELL`: the script that makes Tab complete commands and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from collbench.errors import RequestError

SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False, metavar="SHELL")
def command(shell: str | None) -> None:
    """Print the completion script for SHELL: bash, zsh or fish. For bash: eval "$(collbench completion bash)"."""
    if shell is None:
        raise RequestError(f"completion: choose one of {', '.join(SHELLS)}.")
    from collbench.cli import cli

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(cli, {}, "collbench", "_COLLBENCH_COMPLETE").source())
