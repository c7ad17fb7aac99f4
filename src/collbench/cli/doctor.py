"""`collbench doctor`: what would spoil a measurement on this machine, why, and what to do about it."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from collbench.cli.engine_option import docker_host, engine
from collbench.errors import RequestError

if TYPE_CHECKING:
    from collbench.doctor.parts.finding import Finding

_COLOURS = {"ok": "green", "unknown": "cyan", "warn": "yellow", "fail": "red"}
_NARROWEST, _WIDEST = 60, 120


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON document.")
@click.option("--image", default=None, metavar="NAME", help="Look inside a container of this image instead.")
@click.option(
    "--policy", default="single", show_default=True, metavar="NAME", help="With --image: a policy of launch plans."
)
@click.option(
    "--isolation", default="strict", show_default=True, metavar="STEP", help="With --image: the step of the ladder."
)
@click.option(
    "--without", multiple=True, default=None, metavar="CHECK", help="Leave a check out; may be given several times."
)
@engine
@docker_host
def command(
    as_json: bool,
    image: str | None,
    policy: str,
    isolation: str,
    without: tuple[str, ...],
    engine: str | None,
    docker_host: str | None,
) -> None:
    """Look for what would spoil a measurement on this machine: cause, effect, and the command that mends it.

    Under mpirun it also sees ranks and binding. Exit code 1 when a check failed; warnings do not count.
    """
    if image is None and (policy, isolation) != ("single", "strict"):
        raise RequestError("doctor: --policy and --isolation say which container to look into; add --image NAME.")
    if image is not None:
        where = (image, policy, isolation, engine or "docker")
        raise click.exceptions.Exit(_inside(where, docker_host or "", without, as_json))
    from collbench.machine import launcher

    started_by = launcher.detect()
    if started_by.rank != 0:
        return
    from collbench import doctor
    from collbench.doctor.parts.machine import here

    # Open MPI gives its ranks a terminal even where its own output is a file, so only without a launcher is it known.
    colour = None if started_by.kind == "none" else False
    findings: dict[str, Finding] = {}
    name_width = max(map(len, doctor.names()))
    for name, finding in doctor.examine(here(), without):
        findings[name] = finding
        if not as_json:
            click.echo(describe(name.ljust(name_width), finding, _width()), color=colour)
    if as_json:
        click.echo(document(findings))
    else:
        click.echo(f"\n{verdict(findings)}")
    if any(finding.status == "fail" for finding in findings.values()):
        raise click.exceptions.Exit(1)


def _inside(where: tuple[str, str, str, str], address: str, without: tuple[str, ...], as_json: bool) -> int:
    """Doctor in a container, as a launch would make it: of (image, policy, step, engine)."""
    from collbench.launch import engines
    from collbench.launch.doctor_inside import examine, expanded_for
    from collbench.launch.stopping import Stopping

    left_out = [word for check in without for word in ("--without", check)]
    argv = ("collbench", "doctor", *(("--json",) if as_json else ()), *left_out)
    stopping = Stopping()
    with stopping.listening():
        expanded = expanded_for(*where)
        session = engines.get(expanded.plan.engine).connect(address, stopping.check)
        found = examine(expanded, session, argv, stopping.check)
    if not as_json:
        click.echo(f"image {found.title}")
        for note in found.notes:
            click.echo(f"note: {note}")
    click.echo("\n".join(found.lines))
    return found.code


def _width() -> int:
    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))


def describe(name: str, finding: Finding, width: int) -> str:
    """A line for the check, and under it every problem. The fix is not wrapped, so that it can be copied."""
    status = click.style(finding.status.ljust(7), fg=_COLOURS[finding.status])
    lines = [f"{status}  {name}  {finding.seen}"]
    for problem in finding.problems:
        lines += textwrap.wrap(f"cause   {problem.cause}", width, initial_indent=" " * 9, subsequent_indent=" " * 17)
        lines += textwrap.wrap(f"effect  {problem.effect}", width, initial_indent=" " * 9, subsequent_indent=" " * 17)
        lines.append(f"         fix     {problem.fix}")
    return "\n".join(lines)


def verdict(findings: dict[str, Finding]) -> str:
    """One line: what of it stands in the way."""
    status = {name: finding.status for name, finding in findings.items()}
    count = Counter(status.values())
    if count["fail"]:
        return f"Not ready: {_those(status, 'fail')} failed. Mend that before you measure."
    if count["warn"]:
        return f"Ready, with care: measuring works, but mind {_those(status, 'warn')}."
    if count["unknown"]:
        return f"Ready, as far as could be seen: {_those(status, 'unknown')} could not be looked at."
    return "Ready: nothing found that would spoil a measurement."


def _those(status: Mapping[str, str], wanted: str) -> str:
    return ", ".join(name for name, found in status.items() if found == wanted)


def document(findings: dict[str, Finding]) -> str:
    """`{"verdict": ..., "findings": [{"check", "status", "seen", "problems": [...]}]}`."""
    rows = [{"check": name, "status": finding.status, **asdict(finding)} for name, finding in findings.items()]
    return json.dumps({"verdict": verdict(findings), "findings": rows}, indent=2)
