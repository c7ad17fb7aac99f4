"""`collbench doctor`: what would spoil a measurement on this machine, why, and how to fix it."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING

import click

from collbench.cli.launch_options import docker_host, engine, site
from collbench.errors import RequestError

if TYPE_CHECKING:
    from collbench.doctor.parts.finding import Finding

#: By status, from harmless to worst.
_COLOURS = {"ok": "green", "unknown": "cyan", "warn": "yellow", "fail": "red"}
_NARROWEST, _WIDEST = 60, 120

#: Engines whose cluster is examined, each by the module of its name.
_CLUSTERS = ("slurm", "k8s")


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON document.")
@click.option("--image", default=None, metavar="NAME", help="Examine a container of this image instead.")
@click.option(
    "--policy", default="single", show_default=True, metavar="NAME", help="With --image: a policy of launch plans."
)
@click.option(
    "--isolation", default="strict", show_default=True, metavar="STEP", help="With --image: the step of the ladder."
)
@click.option(
    "--without", multiple=True, default=None, metavar="CHECK", help="Omit a check; may be given several times."
)
@engine
@site
@docker_host
def command(
    as_json: bool,
    image: str | None,
    policy: str,
    isolation: str,
    without: tuple[str, ...],
    engine: str | None,
    site: str | None,
    docker_host: str | None,
) -> None:
    """Look for what would spoil a measurement on this machine: cause, effect, and the command that fixes it.

    Under mpirun ranks and binding are examined too; with --on slurm or --on k8s the cluster of a site file, instead of this machine. Exit code 1 when a check failed; warnings do not count.
    """
    if image is None and (policy, isolation) != ("single", "strict"):
        raise RequestError("doctor: --policy and --isolation describe a container; add --image NAME.")
    if image is not None:
        where = (image, policy, isolation, engine or "docker")
        raise click.exceptions.Exit(_inside(where, docker_host or "", without, as_json))
    if engine in _CLUSTERS:
        examine = import_module(f"collbench.doctor.cluster.{engine}").examine
        _show(((name, finding) for name, finding in examine(site or "") if name not in without), 9, as_json, None)
        return
    if site is not None:
        raise RequestError(f"doctor: --site describes a cluster; add --on {' or --on '.join(_CLUSTERS)}.")
    from collbench.machine import launcher

    started_by = launcher.detect()
    if started_by.rank == 0:
        # Open MPI gives its ranks a terminal even where its own output is a file: only without a launcher is it known.
        _here(without, as_json, None if started_by.kind == "none" else False)


def _here(without: tuple[str, ...], as_json: bool, colour: bool | None) -> None:
    from collbench import doctor
    from collbench.doctor.parts.processors import here

    _show(doctor.examine(here(), without), max(map(len, doctor.names())), as_json, colour)


def _show(found: Iterable[tuple[str, Finding]], name_width: int, as_json: bool, colour: bool | None) -> None:
    findings: dict[str, Finding] = {}
    for name, finding in found:
        findings[name] = finding
        if not as_json:
            click.echo(describe(name.ljust(name_width), finding, _width()), color=colour)
    click.echo(document(findings) if as_json else f"\n{verdict(findings)}")
    if any(finding.status == "fail" for finding in findings.values()):
        raise click.exceptions.Exit(1)


def _inside(where: tuple[str, str, str, str], address: str, without: tuple[str, ...], as_json: bool) -> int:
    """Doctor in a container as a launch would make it, of (image, policy, step, engine): its exit code."""
    from collbench.launch import engines
    from collbench.launch.patience import Stopping
    from collbench.launch.stacks import examine, expanded_for

    omitted = [word for check in without for word in ("--without", check)]
    argv = ("collbench", "doctor", *(("--json",) if as_json else ()), *omitted)
    stopping = Stopping()
    with stopping.listening():
        expanded = expanded_for(*where)
        session = engines.get(expanded.plan.engine).connect(address, stopping.check)
        examined = examine(expanded, session, argv, stopping.check)
    if not as_json:
        click.echo(f"image {examined.title}")
        for note in examined.notes:
            click.echo(f"note: {note}")
    click.echo("\n".join(examined.lines))
    return examined.code


def _width() -> int:
    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))


def describe(name: str, finding: Finding, width: int) -> str:
    """A line for the check, and below it every problem. The fix is not wrapped, so that it can be copied."""
    status = click.style(finding.status.ljust(7), fg=_COLOURS[finding.status])
    lines = [f"{status}  {name}  {finding.seen}"]
    for problem in finding.problems:
        for text in (f"cause   {problem.cause}", f"effect  {problem.effect}"):
            lines += textwrap.wrap(text, width, initial_indent=" " * 9, subsequent_indent=" " * 17)
        lines.append(f"         fix     {problem.fix}")
    return "\n".join(lines)


def verdict(findings: dict[str, Finding]) -> str:
    """One line on all checks, which names those of the worst status."""
    worst = max((finding.status for finding in findings.values()), key=list(_COLOURS).index, default="ok")
    names = ", ".join(name for name, finding in findings.items() if finding.status == worst)
    return {
        "fail": f"Not ready: {names} failed. Fix that before you measure.",
        "warn": f"Ready, with warnings: measuring works, but see {names}.",
        "unknown": f"Ready, as far as is known: {names} could not be examined.",
        "ok": "Ready: nothing found that would spoil a measurement.",
    }[worst]


def document(findings: dict[str, Finding]) -> str:
    """`{"verdict": ..., "findings": [{"check", "status", "seen", "problems": [...]}]}`."""
    rows = [{"check": name, "status": finding.status, **asdict(finding)} for name, finding in findings.items()]
    return json.dumps({"verdict": verdict(findings), "findings": rows}, indent=2)
