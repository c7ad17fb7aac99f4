"""`--engine` and `--docker-host`, the same wherever an engine is asked."""

from __future__ import annotations

import click

engine = click.option(
    "--engine", default=None, metavar="NAME", help="The container engine.  [default: the plan's, or docker]"
)

docker_host = click.option(
    "--docker-host",
    default=None,
    metavar="URL",
    help="Address of the engine.  [default: the plan's, DOCKER_HOST, or its usual socket]",
)
