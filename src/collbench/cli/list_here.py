"""`collbench list`: what exists, what of it works here, and why the rest does not."""

from __future__ import annotations

from collections.abc import Sequence

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
        _entry(name, backends.names(), summary, reason, detail)


def _entry(name: str, names: Sequence[str], summary: str, reason: str | None, detail: str = "") -> None:
    """A name and what it is, in columns as wide as the longest of all names; below, why it is not usable, or more."""
    width = max(map(len, names))
    click.echo(harmless(f"  {_usable(reason)} {name:<{width}} {summary}".rstrip()))
    if reason or detail:
        click.echo(harmless(f"      {'':<{width}} {reason or detail}"))


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
        _entry(name, workloads.names(), summary, reason)


def _policies() -> None:
    from collbench.launch import placement

    click.echo("policies of launch plans")
    for name in placement.policy_names():
        try:
            policy = placement.named_policy(name)
            click.echo(harmless(f"      {policy.spelling:<15} {policy.summary}"))
        except RequestError as error:  # another package's, which does not work
            click.echo(harmless(f"  no  {name:<15} {error}"))
