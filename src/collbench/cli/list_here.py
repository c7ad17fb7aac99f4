"""`collbench list`: what exists, what of it works here, and why not the rest."""

from __future__ import annotations

import click

from collbench.cli.terminal import harmless


@click.command(name="list")
def command() -> None:
    """Backends, drivers, collectives, workloads and policies, with the reason where one is not usable here."""
    from collbench import backends, collectives, workloads
    from collbench.errors import RequestError
    from collbench.launch import placement
    from collbench.timing.loop import native_loop

    click.echo("backends")
    for name in backends.names():
        summary = detail = ""
        try:
            backend = backends.get(name)
            summary, reason = backend.summary, backend.missing()
            if reason is None:
                libraries = ", ".join(f"{library.name} {library.version}" for library in backend.libraries())
                detail = f"{libraries}; dtypes {', '.join(backend.dtypes())}"
        except RequestError as error:  # a library is found to be missing only when it is loaded
            reason = str(error)
        click.echo(harmless(f"  {'yes' if reason is None else 'no '} {name:<12} {summary}".rstrip()))
        click.echo(harmless(f"      {'':<12} {reason or detail}"))
    click.echo("drivers")
    built = native_loop() is not None
    hint = "" if built else " (not built: no C compiler or no Python.h at installation; reinstall with them)"
    click.echo(f"  {'yes' if built else 'no '} native       the C loop calls the library's function{hint}")
    click.echo("  yes python       the call as a Python program makes it")
    click.echo("collectives")
    for name in collectives.names():
        row = collectives.get(name)
        click.echo(f"      {name:<15} {row.summary}")
    click.echo("workloads of plans")
    for name in workloads.names():
        program = workloads.get(name)
        reason = program.needs()
        click.echo(f"  {'yes' if reason is None else 'no '} {name:<12} {program.summary}")
        if reason is not None:
            click.echo(f"      {'':<12} {reason}")
    click.echo("policies of launch plans")
    for name in placement.names():
        try:
            policy = placement.named(name)
            click.echo(harmless(f"      {policy.spelling:<15} {policy.summary}"))
        except RequestError as error:  # another package's, which does not work
            click.echo(harmless(f"  no  {name:<15} {error}"))
