"""`collbench list`: what exists, what of it works here, and why the rest does not."""

from __future__ import annotations

import click

from collbench.cli.terminal import harmless
from collbench.errors import RequestError


@click.command(name="list")
def command() -> None:
    """Backends, drivers, collectives, benchmarks and policies, with the reason where one is not usable here."""
    for part in (_backends, _drivers, _collectives, _workloads, _policies):
        part()


def _backends() -> None:
    from collbench import backends

    click.echo("backends")
    for name in backends.names():
        summary = detail = ""
        try:
            backend = backends.get(name)
            summary, reason = backend.summary, backend.missing()
            if reason is None:
                libraries = ", ".join(f"{library.name} {library.version}" for library in backend.libraries())
                detail = f"{libraries}; dtypes {', '.join(backend.dtypes())}"
        except RequestError as error:  # some libraries are missed only when they are loaded
            reason = str(error)
        click.echo(harmless(f"  {_usable(reason)} {name:<12} {summary}".rstrip()))
        click.echo(harmless(f"      {'':<12} {reason or detail}"))


def _usable(reason: str | None) -> str:
    return "yes" if reason is None else "no "


def _drivers() -> None:
    from collbench.timing.loop import native_loop

    reason = " (not built: no C compiler or no Python.h at installation; reinstall with them)"
    missing = reason if native_loop() is None else None
    click.echo("drivers")
    click.echo(f"  {_usable(missing)} native       the C loop calls the library's function{missing or ''}")
    click.echo("  yes python       the call as a Python program makes it")


def _collectives() -> None:
    from collbench import collectives

    click.echo("collectives")
    for name in collectives.names():
        click.echo(f"      {name:<15} {collectives.get(name).summary}")


def _workloads() -> None:
    from collbench import workloads

    click.echo("benchmarks of plans")
    for name in workloads.names():
        summary = ""
        try:
            program = workloads.get(name)
            summary, reason = program.summary, program.missing()
        except RequestError as error:
            reason = str(error)
        click.echo(harmless(f"  {_usable(reason)} {name:<12} {summary}".rstrip()))
        if reason is not None:
            click.echo(harmless(f"      {'':<12} {reason}"))


def _policies() -> None:
    from collbench.launch import placement

    click.echo("policies of launch plans")
    for name in placement.names():
        try:
            policy = placement.named(name)
            click.echo(harmless(f"      {policy.spelling:<15} {policy.summary}"))
        except RequestError as error:  # another package's, which does not work
            click.echo(harmless(f"  no  {name:<15} {error}"))
