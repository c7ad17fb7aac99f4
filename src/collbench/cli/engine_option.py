"""`--docker-host`, the same wherever an engine is asked."""

from __future__ import annotations

import click

docker_host = click.option(
    "--docker-host",
    default=None,
    metavar="URL",
    help="The engine.  [default: the plan's, DOCKER_HOST, or its usual socket]",
)
