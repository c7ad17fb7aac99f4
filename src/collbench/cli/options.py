"""What commands share: how each declares its flags, flags of several, and text for the terminal.

The options of a command are a class whose attributes are flags and arguments, in the order of `--help`; the command
gets an instance of it, whose attributes are what was typed. Nothing here is slow to import.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from collbench.errors import RequestError, in_lines, in_one_line
from collbench.registry import plans
from collbench.units import parse_size

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from collbench.schema.store import Margins


class Declared(NamedTuple):
    """A flag or an argument, and what click is told of it."""

    kind: type[click.Parameter]
    names: tuple[str, ...]
    settings: dict[str, Any]

    def made(self, attribute: str) -> click.Parameter:
        """As click has it; what is typed becomes this attribute of the command's options."""
        return self.kind([*self.names, attribute], **self.settings)


def option(names: str, text: str, metavar: str | None = None, **settings: Any) -> Any:
    """A flag with a value: `-b --minbytes`, its line of help, and what stands for its value there."""
    settings = {"help": text, "metavar": metavar, "default": None, "show_default": True, **settings}
    return Declared(click.Option, tuple(names.split()), settings)


def several(names: str, text: str, metavar: str | None = None, **settings: Any) -> Any:
    """A flag that can be repeated: a tuple of what was typed."""
    return option(names, f"{text} Can be repeated.", metavar, multiple=True, **settings)


def switch(names: str, text: str) -> Any:
    """A flag without a value."""
    return Declared(click.Option, tuple(names.split()), {"help": text, "is_flag": True, "default": False})


def argument(**settings: Any) -> Any:
    """What has no flag."""
    return Declared(click.Argument, (), settings)


class Options:
    """What was typed of a command's flags and arguments."""

    def __init__(self, **typed: Any) -> None:
        vars(self).update(typed)

    @classmethod
    def parameters(cls) -> list[click.Parameter]:
        """Those of the classes that it inherits from, one after the other, then its own."""
        of_bases = [parameter for base in cls.__bases__ if issubclass(base, Options) for parameter in base.parameters()]
        declared = {name: value for name, value in vars(cls).items() if isinstance(value, Declared)}
        return of_bases + [option.made(name) for name, option in declared.items()]


Typed = TypeVar("Typed", bound=Options)


def command(
    name: str, options: type[Typed], **settings: Any
) -> Callable[[Callable[[Typed], int | None]], click.Command]:  # fmt: skip
    """A decorator: the command of a function that gets these options. Its docstring is the help, else `help`."""

    def decorate(run: Callable[[Typed], int | None]) -> click.Command:
        settings.setdefault("help", run.__doc__)
        parameters = options.parameters()
        made: type[click.Command] = settings.pop("cls", click.Command)
        return made(name, callback=lambda **typed: run(options(**typed)), params=parameters, **settings)

    return decorate


# Types ---------------------------------------------------------------------------------------------------------------


class Converted(click.ParamType[Any]):
    """A type by its name in usages, and what converts a value or raises click.BadParameter."""

    def __init__(self, name: str, convert: Callable[[Any], Any]) -> None:
        self.name, self._convert = name, convert

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._convert(value)


def text(value: str) -> str:
    """One that is not empty."""
    if not value:
        raise click.BadParameter("it is empty. Give it a value, or leave it out.")
    return value


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


_PERCENT = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,10})?)\s*(%?)")


def share(value: str | float) -> float:
    """`2%` or `0.02`: a share, from 0 to below 100 %."""
    if isinstance(value, float):
        return value
    match = _PERCENT.fullmatch(value.strip())
    number = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    if number >= 1:
        raise click.BadParameter(f"{value!r} is not a percentage from 0 to below 100. Write 2% or 0.02.")
    return number


def margins(value: str | Margins) -> Margins:
    """`2%`, or by size `20%:1M,10%:64M,5%`; the last one is for all other sizes."""
    from collbench.schema.store import Margin, has_all_sizes

    if isinstance(value, tuple):
        return value
    converted = []
    for part in value.split(","):
        percentage, _, size = part.partition(":")
        try:
            largest = parse_size(size) if size else None
        except RequestError as error:
            raise click.BadParameter(str(error)) from error
        converted.append(Margin(share(percentage), largest))
    if not has_all_sizes(tuple(converted)):
        raise click.BadParameter(f"{value!r} is not in the order of sizes, or its last part has one. Write 20%:1M,5%.")
    return tuple(converted)


MARGINS = Converted("PERCENT[:SIZE,...]", margins)


def typed_share(number: float) -> str:
    """As it can be typed: a percentage without an exponent."""
    return f"{number * 100:.10f}".rstrip("0").rstrip(".") + "%"


def typed_margins(typed: Margins) -> str:
    return ",".join(
        typed_share(margin.share) + (f":{margin.largest}" if margin.largest is not None else "") for margin in typed
    )


# Flags and arguments of several commands -----------------------------------------------------------------------------

PATH = NamedPath()

ALL_CELLS = "Every cell in tables, not only those that "
EXIT_1 = "Exit code 1 where --fail-on found what it looks for, or something was not measured."


def _plan_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of plans that come with collbench; files where no name begins like this."""
    from click.shell_completion import CompletionItem

    names = [CompletionItem(name) for name in plans() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


#: The path of a file, or the name of a plan that comes with collbench (`registry.find_plan`), or of a paper.
PLAN = argument(type=text, shell_complete=_plan_names)
OPTIONAL_PLAN = argument(type=text, required=False, shell_complete=_plan_names)

RUN = argument(type=PATH)
RUNS = argument(nargs=-1, type=PATH, required=True)

ENGINE = option(
    "--on --engine",
    "The engine that starts the ranks: docker, podman, slurm or k8s.  [default: the plan's, or docker]",
    "NAME",
)
SITE = option("--site", "With slurm and k8s: the file that describes the cluster (docs/cluster.md).  [default: the plan's]", "FILE", type=text)  # fmt: skip
DOCKER_HOST = option("--docker-host", "Address of the engine.  [default: the plan's, DOCKER_HOST, or its usual socket]", "URL", type=text)  # fmt: skip

GIVEN = several("--given", "Only cells with this value, such as policy=multi.", "FACTOR=VALUE")
IN_BLOCKS = switch("--in-blocks", "The runs were measured alternately: launches of equal number form a block.")


def margin(default: str, meaning: str) -> Any:
    """`--margin`, with what it means for a command."""
    return option("--margin", meaning, "PERCENT", type=Converted("PERCENT", share), default=default)


MARGIN = margin("5%", "Sides whose whole interval lies within it are the same.")


# Text for the terminal, in which control characters are written out ---------------------------------------------------


def say(text: str, nl: bool = True) -> None:
    """Print it on standard output."""
    click.echo(in_lines(text), nl=nl)


def note(text: str) -> None:
    """Print it on standard error."""
    click.echo(in_lines(text), err=True)


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
