"""Flags as data: how a command declares those that it has, and those that several commands share.

The options of a command are a class whose attributes are flags and arguments, in the order of `--help`; the command
gets an instance of it, whose attributes are what was typed. Nothing here is slow to import.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from collbench.errors import RequestError
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
    return Declared(
        click.Option,
        tuple(names.split()),
        {"help": text, "metavar": metavar, "default": None, "show_default": True, **settings},
    )


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
    """A decorator: the command of a function that gets these options. Its docstring is the help, unless one is given."""

    def decorate(run: Callable[[Typed], int | None]) -> click.Command:
        def callback(**typed: Any) -> int | None:
            return run(options(**typed))

        return click.Command(
            name, callback=callback, params=options.parameters(), **{"help": run.__doc__, **settings}
        )  # fmt: skip

    return decorate


# Types ---------------------------------------------------------------------------------------------------------------


class NonEmptyText(click.types.StringParamType):
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


_PERCENT = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,10})?)\s*(%?)")


class Share(click.ParamType[float]):
    """`2%` or `0.02`: a share, from 0 to below 100 %."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As a share."""
        if isinstance(value, float):
            return value
        match = _PERCENT.fullmatch(str(value).strip())
        share = float(match[1]) / (100 if match[2] else 1) if match else 1.0
        if share >= 1:
            self.fail(f"{value!r} is not a percentage from 0 to below 100. Write 2% or 0.02.", param, ctx)
        return share


class MarginsType(click.ParamType["Margins"]):
    """`2%`, or by size `20%:1M,10%:64M,5%`; the last one is for all other sizes."""

    name = "PERCENT[:SIZE,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Margins:
        """As the gate takes them."""
        from collbench.schema.store import Margin, has_all_sizes

        if isinstance(value, tuple):
            return value
        converted = []
        for part in str(value).split(","):
            share, _, size = part.partition(":")
            try:
                largest = parse_size(size) if size else None
            except RequestError as error:
                self.fail(str(error), param, ctx)
            converted.append(Margin(Share().convert(share, param, ctx), largest))
        if not has_all_sizes(tuple(converted)):
            self.fail(f"{value!r} is not in the order of sizes, or its last part has one. Write 20%:1M,5%.", param, ctx)
        return tuple(converted)


def typed_share(share: float) -> str:
    """As it can be typed: a percentage without an exponent."""
    return f"{share * 100:.10f}".rstrip("0").rstrip(".") + "%"


def typed_margins(margins: Margins) -> str:
    """As they can be typed."""
    return ",".join(typed_share(one.share) + (f":{one.largest}" if one.largest is not None else "") for one in margins)


# Flags and arguments of several commands -----------------------------------------------------------------------------

NAME = NonEmptyText()
PATH = NamedPath()

ALL_CELLS = "Every cell in tables, not only those that "
EXIT_1 = "Exit code 1 where --fail-on found what it looks for, or something was not measured."


def _plan_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of plans that come with collbench; files where no name begins like this."""
    from click.shell_completion import CompletionItem

    names = [CompletionItem(name) for name in plans() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


#: The path of a file, or the name of a plan that comes with collbench (`registry.find_plan`).
PLAN = argument(type=NAME, shell_complete=_plan_names)
OPTIONAL_PLAN = argument(type=NAME, required=False, shell_complete=_plan_names)

RUN = argument(type=PATH)
RUNS = argument(nargs=-1, type=PATH, required=True)

ENGINE = option("--on --engine", "The engine: docker, podman, slurm, k8s.  [default: the plan's, or docker]", "NAME")
SITE = option("--site", "What slurm or k8s is to know of the cluster (docs/cluster.md).  [default: the plan's]", "FILE", type=NAME)  # fmt: skip
DOCKER_HOST = option("--docker-host", "Address of the engine.  [default: the plan's, DOCKER_HOST, or its usual socket]", "URL", type=NAME)  # fmt: skip

GIVEN = several("--given", "Only cells with this value, such as policy=multi.", "FACTOR=VALUE")
IN_BLOCKS = switch("--in-blocks", "The runs were measured alternately: launches of equal number are paired.")


def margin(default: str, text: str) -> Any:
    """`--margin`, with what it means for a command."""
    return option("--margin", text, "PERCENT", type=Share(), default=default)


MARGIN = margin("5%", "Sides whose whole interval lies within it are the same.")
