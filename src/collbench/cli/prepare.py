"""Before measuring: `list`, what exists and works; `doctor`, what would spoil a measurement; `image`; `completion`.

What a command alone needs is imported when it runs.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from collbench.cli import options as flags
from collbench.cli.options import DOCKER_HOST, Options, argument, command, option, say, switch, waiting_for
from collbench.errors import RequestError
from collbench.units import counted

if TYPE_CHECKING:
    from collbench.analysis.planning import Cost
    from collbench.bindings.spec import Backend
    from collbench.doctor import BackendHere, Finding, Problem
    from collbench.launch.engines.docker.images import ImageBuild, Recipe
    from collbench.launch.probe import Contents
    from collbench.report.tables import Table

# list ----------------------------------------------------------------------------------------------------------------


@command("list", Options)
def list_command(options: Options) -> None:
    """Backends, drivers, collectives, benchmarks and policies, with the reason where one is not usable here."""
    from collbench import backends, collectives, workloads
    from collbench.launch import placement
    from collbench.timing.loop import native_loop

    _list_usable("backends", backends, _libraries)
    click.echo("drivers")
    built, why = "yes", ""
    if native_loop() is None:
        built, why = "no ", " (not built: no C compiler or no Python.h at installation; reinstall with them)"
    click.echo(f"  {built} native       the C loop calls the library's function{why}")
    click.echo("  yes python       the call as a Python program makes it")
    click.echo("collectives")
    for name in collectives.names():
        click.echo(f"      {name:<15} {collectives.get(name).summary}")
    _list_usable("benchmarks of plans", workloads, lambda program: "")
    click.echo("policies of launch plans")
    for name in placement.policy_names():
        try:
            policy = placement.named_policy(name)
            say(f"      {policy.spelling:<15} {policy.summary}")
        except RequestError as error:  # another package's, which does not work
            say(f"  no  {name:<15} {error}")


def _libraries(backend: Backend) -> str:
    libraries = ", ".join(f"{library.name} {library.version}" for library in backend.libraries())
    return f"{libraries}; dtypes {', '.join(backend.dtypes())}"


def _list_usable(title: str, registry: ModuleType, more: Callable[[Any], str]) -> None:
    """Entries in columns as wide as the longest name: whether usable, the summary; below, why not, or more of it."""
    click.echo(title)
    width = max(map(len, registry.names()))
    for name in registry.names():
        summary = ""
        try:
            entry = registry.get(name)
            summary, reason = entry.summary, entry.missing()
            below = more(entry) if reason is None else reason
        except RequestError as error:  # some libraries are missed only when they are loaded
            reason = below = str(error)
        say(f"  {'yes' if reason is None else 'no '} {name:<{width}} {summary}".rstrip())
        if below:
            say(f"      {'':<{width}} {below}")


# doctor --------------------------------------------------------------------------------------------------------------

MOST_ROWS = 7  #: Problems of the first screen, which then has some 25 lines.


class _DoctorOptions(Options):
    as_json: bool = switch("--json", "Print everything as a JSON document.")
    every: bool = switch(
        "--all", "Every check with what it saw, what each problem spoils, and why backends are missing."
    )
    image: str | None = option("--image", "Examine a container of this image, as a launch would create it.", "NAME")
    policy: str = option("--policy", "With --image: the policy.", "NAME", default="single")
    isolation: str = option("--isolation", "With --image: the step of isolation.", "STEP", default="strict")
    without: tuple[str, ...] = option("--without", "Leave out a check. Can be repeated.", "CHECK", multiple=True)
    engine: str | None = flags.ENGINE
    site: str | None = flags.SITE
    docker_host: str | None = DOCKER_HOST


@command("doctor", _DoctorOptions)
def doctor_command(options: _DoctorOptions) -> None:
    """Say what can be measured on this machine, what would spoil it, and the command that fixes that.

    Under mpirun ranks and binding are examined too; with --on slurm or --on k8s the cluster of a site file, instead of this machine. Exit code 1 when a check failed; warnings do not count.
    """
    from collbench.machine import launcher
    from collbench.report.tables import terminal
    from collbench.schema.plan import CLUSTERS

    if options.image is None and (options.policy, options.isolation) != ("single", "strict"):
        raise RequestError("doctor: --policy and --isolation describe a container; add --image NAME.")
    if options.image is not None:
        raise click.exceptions.Exit(_examine_image(options, options.image))
    if options.engine in CLUSTERS:
        from collbench.doctor import clusters

        examine = clusters.CLUSTERS[options.engine]
        with waiting_for(f"asking {options.engine}"):
            findings = {name: finding for name, finding in examine(options.site or "") if name not in options.without}
        examined = DoctorReport(findings, cluster=(options.engine, options.site or ""))
    elif options.site is not None:
        raise RequestError(f"doctor: --site describes a cluster; add --on {' or --on '.join(CLUSTERS)}.")
    else:
        if launcher.detect().rank != 0:
            return
        examined = _examine_machine(options.without)
    if options.as_json:
        click.echo(document(examined))
    else:
        say(terminal(tables(examined, options.every)), nl=False)
    if examined.named("fail"):
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class DoctorReport:
    """Findings by check. Of a machine backends, GPUs, is it `alone` (no launcher); of a cluster engine and site."""

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
        named = [(name, problem) for name, finding in self.findings.items() for problem in finding.problems]
        return sorted(named, key=lambda row: ("fail", "warn", "unknown").index(row[1].severity))


def _examine_machine(without: tuple[str, ...]) -> DoctorReport:
    from collbench import doctor
    from collbench.machine import nvml

    machine = doctor.here()
    with waiting_for("examining this machine"):
        findings = dict(doctor.examine(machine, without))
        return DoctorReport(findings, doctor.backends_here(), len(nvml.gpus()[0]), machine.ranks is None)


def _examine_image(options: _DoctorOptions, image: str) -> int:
    """Doctor in a container as a launch would make it: its exit code."""
    from collbench.launch import engines
    from collbench.launch.stacks import examine, expanded_for
    from collbench.launch.waiting import Stopping

    words = [word for check in options.without for word in ("--without", check)]
    words += [flag for flag, typed in (("--json", options.as_json), ("--all", options.every)) if typed]
    stopping = Stopping()
    engine, docker_host = options.engine or "docker", options.docker_host or ""
    with stopping.listening():
        expanded = expanded_for(image, options.policy, options.isolation, engine, docker_host)
        session = engines.get(expanded.plan.engine).connect(expanded.plan, stopping.check)
        examined = examine(expanded, session, ("collbench", "doctor", *words), stopping.check)
    if not options.as_json:
        click.echo("\n".join((f"image {examined.title}", *(f"note: {line}" for line in examined.notes))))
    # What it proposes next is for somebody in the container.
    click.echo("\n".join(line for line in examined.lines if options.as_json or not line.startswith("* next: ")))
    return examined.code


def sentence(examined: DoctorReport) -> str:
    """`ready: mpi (Open MPI 5.0.11), torch-gloo (torch 2.13.0); no GPU for mpi-cuda, mpi-staged, nccl, torch-nccl`."""
    failed, warned = examined.named("fail"), len(examined.named("warn"))
    standing = "ready, as far as is known" if examined.named("unknown") else "ready"
    standing = f"ready, with {counted(warned, 'warning')}" if warned else standing
    standing = f"not ready, {' and '.join(failed)} failed" if failed else standing
    if examined.cluster:
        return f"{standing}: launches on {examined.cluster[0]}"
    usable: dict[str, list[str]] = {}
    for backend in examined.backends:
        if not backend.missing:
            usable.setdefault(backend.libraries[0].replace(" (gloo)", ""), []).append(backend.name)
    parts = [", ".join(f"{', '.join(names)} ({library})" for library, names in usable.items()) or "no backend"]
    missing = [backend for backend in examined.backends if backend.missing]
    no_gpu = [backend.name for backend in missing if backend.needs_gpu and not examined.gpus]
    others = [backend.name for backend in missing if backend.name not in no_gpu]
    parts += [f"{why} {', '.join(names)}" for why, names in (("no GPU for", no_gpu), ("without", others)) if names]
    return f"{standing}: {'; '.join(parts)}"


def tables(examined: DoctorReport, every: bool = False) -> list[Table]:
    """The sentence, what is wrong and how to fix it, what noise costs, the next step; `every`: all that was seen."""
    from collbench.report.tables import Table

    problems = examined.problems
    cells = tuple((name, f"{problem.cause}\nfix: {problem.fix}") for name, problem in problems[:MOST_ROWS])
    left = f", {len(problems) - MOST_ROWS} more problems" if len(problems) > MOST_ROWS else ""
    rest = () if every else (f"{counted(len(examined.named('ok')), 'check')} fine{left}: --all",)
    costs = (cost_line(finding.cost) for finding in examined.findings.values() if finding.cost)
    notes = (*costs, *rest, f"next: {next_step(examined)}")
    columns = ("check", "what is wrong, and what to do")
    if not every:
        return [Table(sentence(examined), columns, cells, notes)]
    backends = tuple((backend.name, backend.missing or ", ".join(backend.libraries)) for backend in examined.backends)
    rows = tuple((f"{name}\n{finding.status}" if finding.problems else name,
                  "\n".join((finding.observed, *(f"{word}: {getattr(problem, word)}" for problem in finding.problems
                                                 for word in ("cause", "effect", "fix")))))
                 for name, finding in examined.findings.items())  # fmt: skip
    seen = Table("what the checks saw", ("check", "seen"), rows, notes)
    return [Table(sentence(examined), ("backend", "library, or why it is missing"), backends), seen]


def cost_line(cost: Cost) -> str:
    """What launches would cost that spread as readings of the cores do."""
    from collbench.schema.plan import MOST_LAUNCHES

    number = f"about {float(f'{cost.launches:.2g}'):g}" if cost.launches < MOST_LAUNCHES else f"over {MOST_LAUNCHES}"
    return (f"if launches spread as the cores do now, by {cost.spread * 100:.0f} %, a difference of "
            f"{cost.difference * 100:g} % takes {number} launches a side")  # fmt: skip


def next_step(examined: DoctorReport) -> str:
    """What to do after a fix, else what to measure first."""
    failed = examined.named("fail")
    if failed:
        return f"fix {failed[0]}, then run collbench doctor again"
    if examined.cluster:
        return "collbench launch PLAN --on {} --site {} --dry-run".format(*examined.cluster)
    if examined.alone and any(backend.name == "mpi" and not backend.missing for backend in examined.backends):
        return "collbench selftest, which measures how many launches a difference takes here"
    return "collbench demo"


def document(examined: DoctorReport) -> str:
    """`{"verdict": ..., "backends": [...], "findings": [{"check", "status", "seen", "problems": [...], "cost"}]}`."""
    rows = [{"check": name, "status": finding.status, "seen": finding.observed, "problems": list(map(asdict, finding.problems)),
             "cost": finding.cost and asdict(finding.cost)} for name, finding in examined.findings.items()]  # fmt: skip
    result = {"verdict": sentence(examined), "backends": list(map(asdict, examined.backends)), "findings": rows}
    return json.dumps(result, indent=2)


# image ---------------------------------------------------------------------------------------------------------------

_COLUMNS = (
    ("image", "tag"), ("id", "id"), ("code", "code"), ("MPI", "collbench.mpi"), ("from", "collbench.mpi.origin"),
    ("CUDA", "collbench.mpi.cuda"), ("mpi4py", "collbench.package.mpi4py"), ("torch", "collbench.package.torch"),
    ("CuPy", "collbench.cupy"), ("NCCL", "collbench.nccl"), ("for CUDA", "collbench.cuda"),
    ("Python", "collbench.python"), ("native loop", "collbench.native"), ("base", "collbench.base"),
)  # fmt: skip


class _BuildOptions(Options):
    names: tuple[str, ...] = argument(nargs=-1, metavar="NAME...")
    base: str | None = option("--base", "Base image, instead of the Dockerfile's.", "IMAGE")
    no_cache: bool = switch("--no-cache", "Repeat every build step.")
    ca_bundle: Path | None = option(
        "--ca-bundle",
        "Certificates to trust during the build; they are not kept in the image.",
        "FILE",
        type=flags.PATH,
    )
    wheelhouse: Path | None = option(
        "--wheelhouse", "Python wheels that take precedence over the package index.", "DIR", type=flags.PATH
    )
    no_index: bool = switch("--no-index", "With --wheelhouse: use no package index.")
    cuda: str | None = option("--cuda", "Add NCCL and CuPy for this CUDA; for the image torch, a torch built for it.  [default: 12 for openmpi-cuda, else none]", type=click.Choice(("12", "13")))  # fmt: skip
    arguments: tuple[str, ...] = flags.several("--build-arg", "Another argument of the Dockerfile.", "NAME=VALUE")
    other: str | None = option(
        "--as", "Build the one NAME as collbench/OTHER, beside collbench/NAME: for several builds of an MPI.", "OTHER"
    )
    environment: bool = switch("--with-environment", "Also make the environment .venvs/NAME with the packages of the image, for the policy host.")  # fmt: skip
    layer: str | None = option("--with", "Build collbench/NAME-LAYER on the image that is there; sshd: for MPIJobs of Kubernetes.", "LAYER")  # fmt: skip
    dry_run: bool = switch("--dry-run", "Print the files of the build context and the command, and build nothing.")
    docker_host: str | None = DOCKER_HOST


@command("build", _BuildOptions)
def build_command(options: _BuildOptions) -> None:
    """Build each NAME, an image that comes with collbench or the path of a NAME.Dockerfile, as collbench/NAME.

    Without a name, all of them are listed.
    """
    from collbench.launch.engines.docker import environment, images
    from collbench.launch.engines.docker.client import Docker
    from collbench.launch.engines.docker.images import reference_of
    from collbench.launch.stacks import differences_of
    from collbench.launch.waiting import Stopping

    recipe = images.Recipe(options.base, options.no_cache, options.ca_bundle, options.wheelhouse, options.no_index,
                           options.cuda, options.arguments)  # fmt: skip
    builds = _builds(options, recipe)
    if options.dry_run:
        for image in builds:
            _show_build(image)
        return
    stopping = Stopping()
    engine = Docker(options.docker_host or "", stopping.check)
    for image in builds:

        def on_line(line: str, name: str = image.name) -> None:
            if sys.stderr.isatty() or line.startswith("Step "):
                click.echo(f"{name}: {line[:160]}", err=True)

        contents = images.build(engine, image, on_line, stopping)
        click.echo(f"{reference_of(image.name)}: {_held(contents)}")
        if options.environment:
            here = environment.make(image, contents, recipe)
            click.echo(f"{environment.folder_of(image.name)}: {_held(here)}")
            for difference in differences_of(here, contents, communicate=bool(contents.vendor)):
                click.echo(f"* environment and image differ: {difference}")


def _builds(options: _BuildOptions, recipe: Recipe) -> list[ImageBuild]:
    from collbench.launch.engines.docker import environment, images
    from collbench.registry import dockerfiles

    if not options.names:
        raise RequestError(f"image build: name one or more of {', '.join(dockerfiles())}, or the path of a Dockerfile.")
    names = tuple(dict.fromkeys(options.names))
    if options.other is not None and len(names) > 1:
        raise RequestError(f"--as {options.other}: is the name of one image, and these are {len(names)}. Name one.")
    if options.layer is not None:
        if options.other is not None or options.environment:
            raise RequestError("--with: cannot be combined with --as or --with-environment. Use these without it.")
        return [images.prepare_with(options.layer, name, recipe) for name in names]
    builds = [images.prepare(name, recipe, options.other) for name in names]
    for image in builds if options.environment else ():
        environment.refuse_unmatched(image)
    return builds


def _held(contents: Contents) -> str:
    libraries = ", ".join(f"{library.name} {library.version}" for library in contents.libraries) or "no MPI"
    return f"{libraries}, Python {contents.python}, collbench {contents.collbench}"


def _show_build(build: ImageBuild) -> None:
    """A real build also asks the image what it holds, and labels it."""
    from collbench.launch.engines.docker.images import command_of, reference_of

    click.echo(f"# {reference_of(build.name)}: the context, file by file, and where each comes from")
    width = max(map(len, build.files))
    for name, path in build.files.items():
        say(f"{name:<{width}}  {path}")
    click.echo("# with these files as a tar on its standard input:")
    say(shlex.join(command_of(build)))


class _ImagesOptions(Options):
    names: tuple[str, ...] = argument(nargs=-1, metavar="[NAME]...")
    docker_host: str | None = DOCKER_HOST


@command("list", _ImagesOptions)
def images_command(options: _ImagesOptions) -> None:
    """What each image holds, from its labels; with a NAME, every label of that image."""
    from tabulate import tabulate

    from collbench.launch.engines.docker.client import Docker
    from collbench.launch.engines.docker.images import inspect, listed, reference_of
    from collbench.launch.probe import sources

    engine = Docker(options.docker_host or "")
    for name in options.names:
        labels = inspect(engine, reference_of(name))["Config"].get("Labels") or {}
        say(tabulate(sorted(labels.items()), tablefmt="plain", disable_numparse=True))
    if options.names:
        return
    rows = listed(engine)
    if not rows:
        click.echo("no image of collbench on this engine; collbench image build NAME builds one")
        return
    for row in rows:
        row["code"] = "as here" if row.get("collbench.sources") == sources() else "other: build again"
        name, digest, number = row.get("collbench.base", "").partition("sha256:")
        row["collbench.base"] = f"{name}{digest}{number[:12]}"
    columns = [(title, key) for title, key in _COLUMNS if any(row.get(key) for row in rows)]
    cells = [[row.get(key, "") for _, key in columns] for row in rows]
    say(tabulate(cells, headers=[title for title, _ in columns], tablefmt="simple", disable_numparse=True))


_GROUP = [build_command, images_command]
image_command = click.Group("image", help="Build images, and list what they hold.", commands=_GROUP)


# completion ----------------------------------------------------------------------------------------------------------

#: Where each shell looks for the completion of a command, below the home folder.
COMPLETIONS = {"bash": ".local/share/bash-completion/completions/collbench", "zsh": ".zfunc/_collbench",
               "fish": ".config/fish/completions/collbench.fish"}  # fmt: skip


class _CompletionOptions(Options):
    shell: str | None = argument(type=click.Choice(tuple(COMPLETIONS)), required=False, metavar="SHELL")
    install: bool = switch("--install", "Write the script to where the shell looks for it, instead of printing it.")


@command("completion", _CompletionOptions)
def completion_command(options: _CompletionOptions) -> None:
    """Print the completion script for SHELL: bash, zsh or fish. For bash: eval "$(collbench completion bash)"."""
    from collbench.cli import cli

    if options.shell is None:
        raise RequestError(f"completion: choose one of {', '.join(COMPLETIONS)}.")
    script = get_completion_class(options.shell)
    assert script is not None
    source = script(cli, {}, "collbench", "_COLLBENCH_COMPLETE").source()
    if not options.install:
        click.echo(source)
        return
    path = Path.home() / COMPLETIONS[options.shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source + "\n", encoding="utf-8")
    note = " zsh reads it if ~/.zshrc has, before compinit: fpath+=~/.zfunc" if options.shell == "zsh" else ""
    say(f"written: {path}. New shells complete collbench.{note}")


# pack ----------------------------------------------------------------------------------------------------------------


class _PackOptions(flags.Options):
    runs: tuple[Path, ...] = flags.RUNS


@flags.command("pack", _PackOptions)
def pack_command(options: _PackOptions) -> None:
    """Pack the samples files of each of RUNS into its samples.zip. Every command reads the run as before."""
    from collbench.schema.samples import ARCHIVE, pack

    for run in options.runs:
        packed = pack(run)
        if packed is None:
            text = "is packed already" if (run / ARCHIVE).exists() else "has no samples files"
        else:
            disk = f"{packed.before / 1e6:.2f} MB on disk before, {packed.after / 1e6:.2f} MB now"
            text = f"{counted(packed.files, 'samples file')} packed into samples.zip: {disk}"
        flags.say(f"{run}: {text}")
