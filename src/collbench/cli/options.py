"""Flags and arguments that several commands share, files that they write, and the terminal."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, get_args

import click
import msgspec
from click.shell_completion import CompletionItem

from collbench.characters import in_lines, in_one_line
from collbench.errors import RequestError, RunWriteError
from collbench.launch import engines
from collbench.launch.shipped import plans
from collbench.report import STYLES
from collbench.schema.axes import AXES, choices_of
from collbench.schema.case import CADENCES, GATES
from collbench.schema.choices import Choice
from collbench.schema.launch_plan import MOST_LAUNCHES, LaunchPlan, check_launch_plan
from collbench.schema.manifest import Until


class Name(click.types.StringParamType):
    """A text that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("it is empty. Give it a value, or leave it out.", param, ctx)
        return super().convert(value, param, ctx)


class NamedPath(click.Path):
    """A path; the empty one would be this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("it is empty. For the folder that you are in write a dot.", param, ctx)
        try:
            Path(os.fsdecode(value)).resolve()
        except RuntimeError:  # until Python 3.13
            self.fail(f"{os.fsdecode(value)}: a link that leads to itself.", param, ctx)
        return super().convert(value, param, ctx)


NAME = Name()
PATH = NamedPath()


Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

SIZES = (
    click.option("-b", "--minbytes", default="8", show_default=True, metavar="SIZE", help="Smallest size (8, 64K, 1M, 1G: powers of 1024)."),
    click.option("-e", "--maxbytes", default=None, metavar="SIZE", help="Largest size.  [default: 4M, or -b if larger]"),
    click.option("-f", "--stepfactor", type=int, default=None, metavar="N", help="Multiply the size by N each step.  [default: 2]"),
    click.option("-i", "--stepbytes", default=None, metavar="SIZE", help="Add SIZE each step instead."),
)  # fmt: skip

SAMPLES = (
    click.option("-n", "--iters", type=int, default=None, metavar="N", help="Exactly N samples a size, instead of a time budget."),
    click.option("-w", "--warmup_iters", "warmup", type=int, default=5, show_default=True, metavar="N", help="Operations before the first sample."),
    click.option("-c", "--check", type=click.IntRange(0, 1), default=1, show_default=True, metavar="0|1", help="Compare results with the collective's meaning, before and after timing."),
    click.option("-z", "--blocking", type=click.IntRange(0, 1), default=None, metavar="0|1", help="1: cadence isolated; 0: streaming."),
    click.option("--gate", type=click.Choice(["auto", *GATES]), default="auto", show_default=True, help="How ranks are lined up before a sample."),
    click.option("--cadence", type=click.Choice(CADENCES), default=None, help="Each operation on its own, or back to back.  [default: isolated]"),
    click.option("--burst", type=int, default=20, show_default=True, metavar="N", help="Operations of a sample in cadence streaming."),
    click.option("--budget", default="0.25s", show_default=True, metavar="TIME", help="Time for the samples of one size."),
    click.option("--floor", type=int, default=20, show_default=True, metavar="N", help="Samples a size at least, whatever the budget."),
    click.option("--cap", type=int, default=10_000, show_default=True, metavar="N", help="Samples a size at most, within the budget."),
)  # fmt: skip

DEVICE = (
    click.option("--device", type=click.Choice(["cpu", "gpu"]), default=None, help="Where the data lives.  [default: where the backend has it, cpu without one]"),
    click.option("--share-gpu", is_flag=True, help="Let several ranks use one GPU: tests of function, no measurement."),
)  # fmt: skip

OUTPUT = (
    click.option("--style", type=click.Choice(list(STYLES)), default="table", show_default=True, help="How results are printed."),
    click.option("--out", type=PATH, default=None, metavar="DIR", help="Keep the run: manifest, records, every sample."),
    click.option("-J", "--output_file", type=PATH, default=None, metavar="FILE", help="Write the json document to FILE too."),
)  # fmt: skip

WORLD = (
    click.option("-T", "--timeout", default="300s", show_default=True, metavar="TIME", help="Longest time without progress; then every rank leaves with code 3."),
    click.option("--ranks", type=int, default=None, metavar="N", help="Ranks of the fake backend.  [default: 4]"),
    click.option("--fault", default=None, metavar="KIND:RANK[@N]", help="Fake backend only: corrupt, raise or hang in a rank's N-th operation."),
)  # fmt: skip


def of_axes() -> tuple[Option, ...]:
    """A flag for each axis that has one, in the order of the table; the parameter is named as the axis."""
    return tuple(_option(axis, choice) for axis, choice in choices_of("what", "how").items() if choice.flag is not None)


def _option(axis: str, choice: Choice) -> Option:
    flag = choice.flag
    assert flag is not None
    kind = click.Choice(list(flag.words)) if flag.words else choice.of or AXES[axis].of
    text = f"{flag.help}  [default: {flag.default}]" if flag.default else flag.help
    alone: dict[str, Any] = {} if flag.alone is None else {"is_flag": False, "flag_value": flag.alone}
    return click.option(*flag.spelled, axis, type=kind, default=choice.typed, show_default=True, metavar=flag.metavar,
                        help=text, **alone)  # fmt: skip


def flags(*groups: tuple[Option, ...]) -> Callable[[Command], Command]:
    """A decorator that adds groups of options, in reading order."""

    def decorate(command: Command) -> Command:
        for group in reversed(groups):
            for option in reversed(group):
                command = option(command)
        return command

    return decorate


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names; files where no name begins like this."""
    names = [CompletionItem(name) for name in plans() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


plan = click.argument("plan", type=NAME, shell_complete=_complete)
optional_plan = click.argument("plan", type=NAME, required=False, shell_complete=_complete)


until = click.option(
    "--until",
    type=click.Choice(get_args(Until)),
    default=None,
    help="End after all launches of the plan, or when its comparisons are decided.  [default: the plan's]",
)


launches = click.option(
    "--launches",
    type=click.IntRange(1, MOST_LAUNCHES),
    default=None,
    help="Launches of each cell; until decided the most.  [default: the plan's]",
)


def ending(plan: LaunchPlan, until: Until | None, launches: int | None) -> LaunchPlan:
    """The plan with what the flags say in place of its own keys.

    Raises:
        PlanError: it has too few launches to decide anything, or too many starts.
    """
    keys = {name: value for name, value in (("until", until), ("launches", launches)) if value is not None}
    return check_launch_plan(msgspec.structs.replace(plan, **keys)) if keys else plan


engine = click.option(
    "--on", "--engine", "engine", default=None, metavar="NAME",
    help="The engine: docker, podman, slurm, k8s.  [default: the plan's, or docker]",
)  # fmt: skip

site = click.option(
    "--site",
    type=NAME,
    default=None,
    metavar="FILE",
    help="What slurm or k8s is to know of the cluster (docs/cluster.md).  [default: the plan's]",
)

docker_host = click.option(
    "--docker-host",
    type=NAME,
    default=None,
    metavar="URL",
    help="Address of the engine.  [default: the plan's, DOCKER_HOST, or its usual socket]",
)


def placed_on(plan: LaunchPlan, engine: str | None, site: str | None, docker_host: str | None = None) -> LaunchPlan:
    """The plan with what the flags say in place of its own keys.

    Raises:
        PlanError: there is no such engine, which is not the plan's mistake.
        RequestError: a site file for an engine that reads none.
    """
    flags = {"engine": engine, "site": site, "docker_host": docker_host}
    if engine is not None:
        engines.get(engine)
    placed = msgspec.structs.replace(plan, **{name: text for name, text in flags.items() if text is not None})
    if site is not None and engines.get(placed.engine).address(placed) != site:
        raise RequestError(f"--site is for slurm and k8s; the engine is {placed.engine}.")
    return placed


def refuse_folder(output: Path) -> None:
    """Before anything is computed, which may take a minute.

    Raises:
        RequestError: the file could not be written.
    """
    folder = output.parent
    if not folder.is_dir():
        raise RequestError(f"-o {output}: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise RequestError(f"-o {output}: the folder {folder} cannot be written to. Name another.")
    if output.is_dir():
        raise RequestError(f"-o {output}: is a folder. Name a file.")


def amount(size: int) -> str:
    """`0.4 MB`, of less than a tenth of that `27 kB`."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{math.ceil(size / 1e3)} kB"


def opened(path: Path, mode: str) -> IO[str]:
    """A file to write to. Of a pipe that nobody reads the error comes at once, where open(2) would wait for a reader.

    Raises:
        OSError: it cannot be opened.
    """

    def at_once(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK, 0o666)
        os.set_blocking(descriptor, True)
        return descriptor

    return open(path, mode, encoding="utf-8", opener=at_once)  # pathlib takes no opener


def write(path: Path, text: str) -> None:
    """Completely or not at all: an existing file remains until the new one is complete."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8", errors="backslashreplace")
        half.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise RunWriteError(f"-o {path}: {error.strerror}.") from error


def harmless(text: str) -> str:
    """The text with control characters, which the terminal would interpret, written out; newlines remain."""
    return in_lines(text)


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Where standard error is a terminal, it shows `what` until the block ends; elsewhere nothing is written."""
    if not sys.stderr.isatty():
        yield
        return
    line = f"collbench: {in_one_line(what)} ..."
    sys.stderr.write(line[: shutil.get_terminal_size().columns - 1])
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
