"""`collbench image`: build the images that plans name, and list what they hold."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path

import click

from collbench.cli.launch_options import docker_host
from collbench.cli.terminal import PATH, harmless
from collbench.errors import RequestError
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import Recipe
from collbench.launch.engines.docker.look import inspect, reference_of
from collbench.launch.probe import sources
from collbench.launch.shipped import dockerfiles
from collbench.launch.waiting import Stopping

_COLUMNS = (
    ("image", "tag"), ("id", "id"), ("code", "code"), ("MPI", "collbench.mpi"), ("from", "collbench.mpi.origin"),
    ("CUDA", "collbench.mpi.cuda"), ("mpi4py", "collbench.package.mpi4py"), ("torch", "collbench.package.torch"),
    ("CuPy", "collbench.cupy"), ("NCCL", "collbench.nccl"), ("for CUDA", "collbench.cuda"), ("Python", "collbench.python"), ("native loop", "collbench.native"),
    ("base", "collbench.base"),
)  # fmt: skip


@click.group(name="image")
def command() -> None:
    """Build images, and list what they hold."""


@command.command(name="build")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--base", default=None, metavar="IMAGE", help="Base image, instead of the Dockerfile's.")
@click.option("--no-cache", is_flag=True, help="Build every step again.")
@click.option(
    "--ca-bundle",
    type=PATH,
    default=None,
    metavar="FILE",
    help="Certificates to trust while building.",
)
@click.option(
    "--wheelhouse",
    type=PATH,
    default=None,
    metavar="DIR",
    help="Wheels to use before the package index.",
)
@click.option("--no-index", is_flag=True, help="With --wheelhouse: no package index at all.")
@click.option(
    "--cuda",
    type=click.Choice(("12", "13")),
    default=None,
    help="With NCCL and CuPy (torch: a torch) for this CUDA.  [default: openmpi-cuda 12, others without]",
)
@click.option(
    "--build-arg",
    "arguments",
    multiple=True,
    default=None,
    metavar="NAME=VALUE",
    help="Another argument of the Dockerfile. Can be repeated.",
)
@click.option(
    "--with",
    "layer",
    default=None,
    metavar="LAYER",
    help="Build NAME-LAYER on the image NAME that is there; sshd: for MPIJobs of Kubernetes.",
)
@click.option("--dry-run", is_flag=True, help="Print the builder's input, and build nothing.")
@docker_host
def build(
    names: tuple[str, ...], base: str | None, no_cache: bool, ca_bundle: Path | None, wheelhouse: Path | None,
    no_index: bool, cuda: str | None, arguments: tuple[str, ...], layer: str | None, dry_run: bool,
    docker_host: str | None,
) -> None:  # fmt: skip
    """Build each NAME, an image that comes with collbench or the path of a NAME.Dockerfile, as collbench/NAME.

    Without a name, all of them are listed.
    """
    if not names:
        raise RequestError(f"image build: name one or more of {', '.join(dockerfiles())}, or the path of a Dockerfile.")
    recipe = Recipe(base, no_cache, ca_bundle, wheelhouse, no_index, cuda, arguments)
    prepare = images.prepare if layer is None else partial(images.prepare_with, layer)
    builds = [prepare(name, recipe) for name in dict.fromkeys(names)]
    if dry_run:
        for image in builds:
            _show(image)
        return
    stopping = Stopping()
    engine = Docker(docker_host or "", stopping.check)
    terminal = sys.stderr.isatty()
    for image in builds:

        def on_line(line: str, name: str = image.name) -> None:
            if terminal or line.startswith("Step "):
                click.echo(f"{name}: {line[:160]}", err=True)

        contents = images.build(engine, image, on_line, stopping)
        libraries = ", ".join(f"{library.name} {library.version}" for library in contents.libraries) or "no MPI"
        click.echo(f"{reference_of(image.name)}: {libraries}, Python {contents.python}, collbench {contents.collbench}")


def _show(build: images.ImageBuild) -> None:
    """The context and the command. A real build also asks the image what it holds, and labels it."""
    click.echo(f"# {reference_of(build.name)}: the context, file by file, and where each comes from")
    width = max(map(len, build.files))
    for name, path in build.files.items():
        click.echo(harmless(f"{name:<{width}}  {path}"))
    click.echo("# with these files as a tar on its standard input:")
    click.echo(harmless(shlex.join(images.command_of(build))))


@command.command(name="list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@docker_host
def list_images(names: tuple[str, ...], docker_host: str | None) -> None:
    """What each image holds, from its labels; with a NAME, every label of that image."""
    from tabulate import tabulate

    engine = Docker(docker_host or "")
    for name in names:
        labels = inspect(engine, reference_of(name))["Config"].get("Labels") or {}
        click.echo(harmless(tabulate(sorted(labels.items()), tablefmt="plain", disable_numparse=True)))
    if names:
        return
    rows = [
        row
        | {
            "code": "as here" if row.get("collbench.sources") == sources() else "other: build again",
            "collbench.base": _shortened(row.get("collbench.base", "")),
        }
        for row in images.listed(engine)
    ]
    if not rows:
        click.echo("no image of collbench on this engine; collbench image build NAME builds one")
        return
    shown = [(title, key) for title, key in _COLUMNS if any(row.get(key) for row in rows)]
    cells = [[row.get(key, "") for _, key in shown] for row in rows]
    click.echo(
        harmless(tabulate(cells, headers=[title for title, _ in shown], tablefmt="simple", disable_numparse=True))
    )


def _shortened(base: str) -> str:
    """A base with the first twelve digits of its digest."""
    name, _, digest = base.partition("sha256:")
    return f"{name}sha256:{digest[:12]}" if digest else base
