"""`collbench doctor`: what can be measured here, what would spoil it, and what to do about that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import click

from collbench.cli.launch_options import docker_host, engine, site
from collbench.cli.terminal import harmless, waiting_for
from collbench.errors import RequestError
from collbench.report.tables import Table, terminal
from collbench.schema.plan import MOST_LAUNCHES
from collbench.units import counted

if TYPE_CHECKING:
    from collbench.analysis.planning import Cost
    from collbench.doctor import BackendHere
    from collbench.doctor.parts.finding import Finding, Problem

#: Engines whose cluster is examined, each by the module of its name.
_CLUSTERS = ("slurm", "k8s")

#: Problems of the first screen, which then has some 25 lines.
MOST_ROWS = 7


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print everything as a JSON document.")
@click.option("--all", "every", is_flag=True, help="Every check, what problems spoil, and why backends are missing.")
@click.option("--image", default=None, metavar="NAME", help="Examine a container of this image instead.")
@click.option("--policy", default="single", show_default=True, metavar="NAME", help="With --image: a launch policy.")
@click.option("--isolation", default="strict", show_default=True, metavar="STEP", help="With --image: a ladder's step.")
@click.option("--without", multiple=True, default=None, metavar="CHECK", help="Omit a check; can be repeated.")
@engine
@site
@docker_host
def command(
    as_json: bool, every: bool, image: str | None, policy: str, isolation: str, without: tuple[str, ...],
    engine: str | None, site: str | None, docker_host: str | None,
) -> None:  # fmt: skip
    """Say what can be measured on this machine, what would spoil it, and the command that fixes that.

    Under mpirun ranks and binding are examined too; with --on slurm or --on k8s the cluster of a site file, instead of this machine. Exit code 1 when a check failed; warnings do not count.
    """
    if image is None and (policy, isolation) != ("single", "strict"):
        raise RequestError("doctor: --policy and --isolation describe a container; add --image NAME.")
    if image is not None:
        flags = [word for check in without for word in ("--without", check)]
        flags += [flag for flag, given in (("--json", as_json), ("--all", every)) if given]
        where = (image, policy, isolation, engine or "docker")
        raise click.exceptions.Exit(_inside(where, docker_host or "", flags, as_json))
    if engine in _CLUSTERS:
        examined = _cluster(engine, site or "", without)
    elif site is not None:
        raise RequestError(f"doctor: --site describes a cluster; add --on {' or --on '.join(_CLUSTERS)}.")
    else:
        from collbench.machine import launcher

        if launcher.detect().rank != 0:
            return
        examined = _here(without)
    click.echo(document(examined) if as_json else harmless(terminal(tables(examined, every))), nl=as_json)
    if examined.named("fail"):
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class Examined:
    """What was found, by check. Of a machine: backends, number of GPUs; of a cluster: its engine and the site file.

    `alone`: no launcher started this process.
    """

    findings: dict[str, Finding]
    backends: tuple[BackendHere, ...] = ()
    gpus: int = 0
    alone: bool = False
    cluster: tuple[str, str] | None = None

    def named(self, status: str) -> list[str]:
        """The checks with this status."""
        return [name for name, finding in self.findings.items() if finding.status == status]

    @property
    def problems(self) -> list[tuple[str, Problem]]:
        """By check, the worst first."""
        found = [(name, one) for name, finding in self.findings.items() for one in finding.problems]
        return sorted(found, key=lambda row: ("fail", "warn", "unknown").index(row[1].severity))


def _here(without: tuple[str, ...]) -> Examined:
    from collbench import doctor
    from collbench.doctor.parts.processors import here
    from collbench.machine import nvml

    machine = here()
    with waiting_for("examining this machine"):
        findings = dict(doctor.examine(machine, without))
        return Examined(findings, doctor.backends_here(), len(nvml.gpus()[0]), machine.ranks is None)


def _cluster(engine: str, site: str, without: tuple[str, ...]) -> Examined:
    examine = import_module(f"collbench.doctor.cluster.{engine}").examine
    with waiting_for(f"asking {engine}"):
        findings = {name: finding for name, finding in examine(site) if name not in without}
    return Examined(findings, cluster=(engine, site))


def _inside(where: tuple[str, str, str, str], address: str, flags: list[str], as_json: bool) -> int:
    """Doctor in a container as a launch would make it, of (image, policy, step, engine): its exit code."""
    from collbench.launch import engines
    from collbench.launch.stacks import examine, expanded_for
    from collbench.launch.waiting import Stopping

    stopping = Stopping()
    with stopping.listening():
        expanded = expanded_for(*where, address)
        session = engines.get(expanded.plan.engine).connect(expanded.plan, stopping.check)
        examined = examine(expanded, session, ("collbench", "doctor", *flags), stopping.check)
    if not as_json:
        click.echo("\n".join((f"image {examined.title}", *(f"note: {note}" for note in examined.notes))))
    # What it proposes next is for somebody in the container.
    click.echo("\n".join(line for line in examined.lines if as_json or not line.startswith("* next: ")))
    return examined.code


def sentence(examined: Examined) -> str:
    """`ready: mpi (Open MPI 5.0.11), torch-gloo (torch 2.13.0); no GPU for mpi-cuda, mpi-staged, nccl, torch-nccl`."""
    failed, warned = examined.named("fail"), len(examined.named("warn"))
    standing = "ready, as far as is known" if examined.named("unknown") else "ready"
    standing = f"ready, with {counted(warned, 'warning')}" if warned else standing
    standing = f"not ready, {' and '.join(failed)} failed" if failed else standing
    if examined.cluster:
        return f"{standing}: launches on {examined.cluster[0]}"
    usable: dict[str, list[str]] = {}
    for one in examined.backends:
        if not one.missing:
            usable.setdefault(one.libraries[0].replace(" (gloo)", ""), []).append(one.name)
    parts = [", ".join(f"{', '.join(names)} ({library})" for library, names in usable.items()) or "no backend"]
    missing = [one for one in examined.backends if one.missing]
    no_gpu = [one.name for one in missing if one.needs_gpu and not examined.gpus]
    others = [one.name for one in missing if one.name not in no_gpu]
    parts += [f"{why} {', '.join(names)}" for why, names in (("no GPU for", no_gpu), ("without", others)) if names]
    return f"{standing}: {'; '.join(parts)}"


def tables(examined: Examined, every: bool = False) -> list[Table]:
    """The sentence, what is wrong and how to fix it, what noise costs, the next step; `every`: all that was seen."""
    problems = examined.problems
    cells = tuple((name, f"{one.cause}\nfix: {one.fix}") for name, one in problems[:MOST_ROWS])
    left = f", {len(problems) - MOST_ROWS} more problems" if len(problems) > MOST_ROWS else ""
    rest = () if every else (f"{counted(len(examined.named('ok')), 'check')} fine{left}: --all",)
    costs = (cost_line(finding.cost) for finding in examined.findings.values() if finding.cost)
    notes = (*costs, *rest, f"next: {next_step(examined)}")
    columns = ("check", "what is wrong, and what to do")
    if not every:
        return [Table(sentence(examined), columns, cells, notes)]
    backends = tuple((one.name, one.missing or ", ".join(one.libraries)) for one in examined.backends)
    seen = tuple((f"{name}\n{finding.status}" if finding.problems else name,
                  "\n".join((finding.seen, *(f"{word}: {getattr(one, word)}" for one in finding.problems
                                             for word in ("cause", "effect", "fix")))))
                 for name, finding in examined.findings.items())  # fmt: skip
    return [
        Table(sentence(examined), ("backend", "library, or why it is missing"), backends),
        Table("what the checks saw", ("check", "seen"), seen, notes),
    ]


def cost_line(cost: Cost) -> str:
    """What launches would cost that spread as readings of the cores do."""
    number = f"about {float(f'{cost.launches:.2g}'):g}" if cost.launches < MOST_LAUNCHES else f"over {MOST_LAUNCHES}"
    return (f"if launches spread as the cores do now, by {cost.spread * 100:.0f} %, a difference of "
            f"{cost.difference * 100:g} % takes {number} launches a side")  # fmt: skip


def next_step(examined: Examined) -> str:
    """What to do after a fix, else what to measure first."""
    failed = examined.named("fail")
    if failed:
        return f"fix {failed[0]}, then run collbench doctor again"
    if examined.cluster:
        return "collbench launch PLAN --on {} --site {} --dry-run".format(*examined.cluster)
    if examined.alone and any(one.name == "mpi" and not one.missing for one in examined.backends):
        return "collbench selftest, which measures how many launches a difference takes here"
    return "collbench demo"


def document(examined: Examined) -> str:
    """`{"verdict": ..., "backends": [...], "findings": [{"check", "status", "seen", "problems": [...], "cost"}]}`."""
    rows = [{"check": name, "status": finding.status, **asdict(finding)} for name, finding in examined.findings.items()]
    found = {"verdict": sentence(examined), "backends": list(map(asdict, examined.backends)), "findings": rows}
    return json.dumps(found, indent=2)
