"""Small things: `collbench image` builds and lists images, `pack` packs samples, `completion` completes commands.

What a command alone needs is imported when it runs.
"""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from collbench.cli.options import DOCKER_HOST, PATH, RUNS, Options, argument, command, option, several, switch
from collbench.cli.terminal import say
from collbench.errors import RequestError
from collbench.units import counted

if TYPE_CHECKING:
    from collbench.launch.engines.docker.images import ImageBuild

_COLUMNS = (
    ("image", "tag"), ("id", "id"), ("code", "code"), ("MPI", "collbench.mpi"), ("from", "collbench.mpi.origin"),
    ("CUDA", "collbench.mpi.cuda"), ("mpi4py", "collbench.package.mpi4py"), ("torch", "collbench.package.torch"),
    ("CuPy", "collbench.cupy"), ("NCCL", "collbench.nccl"), ("for CUDA", "collbench.cuda"), ("Python", "collbench.python"), ("native loop", "collbench.native"),
    ("base", "collbench.base"),
)  # fmt: skip


class _BuildOptions(Options):
    # fmt: off
    names: tuple[str, ...] = argument(nargs=-1, metavar="NAME...")
    base: str | None = option("--base", "Base image, instead of the Dockerfile's.", "IMAGE")
    no_cache: bool = switch("--no-cache", "Build every step again.")
    ca_bundle: Path | None = option("--ca-bundle", "Certificates to trust while building.", "FILE", type=PATH)
    wheelhouse: Path | None = option("--wheelhouse", "Wheels to use before the package index.", "DIR", type=PATH)
    no_index: bool = switch("--no-index", "With --wheelhouse: no package index at all.")
    cuda: str | None = option("--cuda", "With NCCL and CuPy (torch: a torch) for this CUDA.  [default: openmpi-cuda 12, others without]", type=click.Choice(("12", "13")))
    arguments: tuple[str, ...] = several("--build-arg", "Another argument of the Dockerfile.", "NAME=VALUE")
    layer: str | None = option("--with", "Build NAME-LAYER on the image NAME that is there; sshd: for MPIJobs of Kubernetes.", "LAYER")
    dry_run: bool = switch("--dry-run", "Print the builder's input, and build nothing.")
    docker_host: str | None = DOCKER_HOST
    # fmt: on


@command("build", _BuildOptions)
def build_command(options: _BuildOptions) -> None:
    """Build each NAME, an image that comes with collbench or the path of a NAME.Dockerfile, as collbench/NAME.

    Without a name, all of them are listed.
    """
    from collbench.launch.engines.docker import images
    from collbench.launch.engines.docker.client import Docker
    from collbench.launch.engines.docker.look import reference_of
    from collbench.launch.waiting import Stopping
    from collbench.registry import dockerfiles

    if not options.names:
        raise RequestError(f"image build: name one or more of {', '.join(dockerfiles())}, or the path of a Dockerfile.")
    recipe = images.Recipe(
        options.base, options.no_cache, options.ca_bundle, options.wheelhouse, options.no_index, options.cuda,
        options.arguments,
    )  # fmt: skip
    prepare = images.prepare if options.layer is None else partial(images.prepare_with, options.layer)
    builds = [prepare(name, recipe) for name in dict.fromkeys(options.names)]
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
        libraries = ", ".join(f"{library.name} {library.version}" for library in contents.libraries) or "no MPI"
        click.echo(f"{reference_of(image.name)}: {libraries}, Python {contents.python}, collbench {contents.collbench}")


def _show_build(build: ImageBuild) -> None:
    """The context and the command. A real build also asks the image what it holds, and labels it."""
    from collbench.launch.engines.docker.images import command_of
    from collbench.launch.engines.docker.look import reference_of

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
    from collbench.launch.engines.docker.images import listed
    from collbench.launch.engines.docker.look import inspect, reference_of
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


image_command = click.Group(
    "image", help="Build images, and list what they hold.", commands=[build_command, images_command]
)


class _PackOptions(Options):
    runs: tuple[Path, ...] = RUNS


@command("pack", _PackOptions)
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
        say(f"{run}: {text}")


SHELLS = ("bash", "zsh", "fish")


class _CompletionOptions(Options):
    shell: str | None = argument(type=click.Choice(SHELLS), required=False, metavar="SHELL")


@command("completion", _CompletionOptions)
def completion_command(options: _CompletionOptions) -> None:
    """Print the completion script for SHELL: bash, zsh or fish. For bash: eval "$(collbench completion bash)"."""
    from collbench.cli import cli

    if options.shell is None:
        raise RequestError(f"completion: choose one of {', '.join(SHELLS)}.")
    script = get_completion_class(options.shell)
    assert script is not None
    click.echo(script(cli, {}, "collbench", "_COLLBENCH_COMPLETE").source())
