"""Writes what is made from the code: tables of flags, plan keys and functions in the manual, and JSON Schemas.

`make reference` runs it.

A table is known by its heading and its first row; what stands around it is written by hand.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from tools.plan_keys import LAUNCH, SIZES, WORLD

from collbench import advise, api, collectives, compare, load
from collbench.cli import cli
from collbench.schema.axes import Sizes
from collbench.schema.plan import Plan

DOCS = Path(__file__).parents[1] / "docs"
CONTEXT = click.Context(cli, **cli.context_settings)

#: A flag in a line of help, and the place where a line says what it is by default.
_FLAG = re.compile(r"(?<![\w`/-])(--?[a-zA-Z][-\w]*)(?![\w`/])")
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$", re.DOTALL)
_PAGE = re.compile(r"\bdocs/(\w+\.md)")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """In Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cells).replace("|  |", "| |") + " |\n" for cells in lines)


def command_of(words: str) -> click.Command:
    """`image build`, or nothing for collbench itself; COLLECTIVE is any, since all have the same flags."""
    found: click.Command = cli
    for word in words.split():
        assert isinstance(found, click.Group)
        below = found.get_command(CONTEXT, collectives.names()[0] if word == "COLLECTIVE" else word)
        assert below is not None, word
        found = below
    return found


def flag_row(option: click.Option) -> tuple[str, str, str]:
    """How it is written, its default, what it means."""
    text = " ".join((option.help or "").split())
    told = _DEFAULT.search(text)
    default = option.get_default(CONTEXT)
    shown = None if option.is_flag or option.multiple or default in (None, ()) else f"`{default}`"
    value = "" if option.is_flag else " " + option.make_metavar(CONTEXT).strip("<>")
    *short, longest = option.opts
    written = ", ".join([*(f"`{name}`" for name in short), f"`{longest}{value}`"])
    meaning = _PAGE.sub(r"[\1](\1)", _FLAG.sub(r"`\1`", _DEFAULT.sub("", text)))
    return written.replace("|", r"\|"), told[1] if told else shown or "", meaning.replace("|", r"\|")


def flags(words: str) -> str:
    """The table of a command. Every command has --help; it is named for collbench itself."""
    command = command_of(words)
    options = [option for option in command.params if isinstance(option, click.Option)]
    return table(("flag", "default", "meaning"), [flag_row(option) for option in options])


#: Defaults that are not the value of a field.
_USUAL = {"sizes": "`8` to `4M`, factor 2", "backends": "`mpi`; `torch-gloo` under torchrun", "images": ""}


def meaning(text: str) -> str:
    """Of a key, with what a flag means in place of its name."""
    named = re.match(r"As `(-[-\w]+)`", text)
    if named is None:
        return text
    found = next(option for option in command_of("COLLECTIVE").params if named[1] in option.opts)
    assert isinstance(found, click.Option)
    return f"{flag_row(found)[2].rstrip('.')} (`{named[1]}`){text[named.end() :]}"


def keys(kind: type[msgspec.Struct], meanings: Mapping[str, str]) -> str:
    """The table of keys of a plan, or of a table in it."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    rows = [(f"`{key}`", _default(fields[key]), meaning(text)) for key, text in meanings.items()]
    return table(("key", "default", "meaning"), rows)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.name in _USUAL:
        return _USUAL[field.name]
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return "" if value is None else f"`{json.dumps(msgspec.to_builtins(value))}`"


def commands_page(text: str) -> str:
    """commands.md with its tables of flags."""

    def section(match: re.Match[str]) -> str:
        words = " ".join(word for word in match[1].split() if word == "COLLECTIVE" or word.islower())
        return _replaced(match[0], ("flag", "default", "meaning"), flags(words))

    return re.sub(r"^## `collbench(.*)`\n(?:.*\n)*?(?=^## |\Z)", section, text, flags=re.MULTILINE)


def plans_page(text: str) -> str:
    """plans.md with its tables of keys."""
    for line, kind, meanings in (
        ("## Plan files", Plan, WORLD), ("Keys of `sizes`:", Sizes, SIZES), ("## Launch plans", Plan, LAUNCH)
    ):  # fmt: skip
        before, _, after = text.partition(f"\n{line}\n")
        text = f"{before}\n{line}\n" + _replaced(after, ("key", "default", "meaning"), keys(kind, meanings))
    return text


#: The Python interface: calls, and what is documented of them.
INTERFACE: dict[str, Callable[..., Any]] = {
    "load": load, "compare": compare, "advise": advise, "load(...).samples": api.RunTable.samples,
    "result.to_pandas": api.Columns.to_pandas, "result.to_polars": api.Columns.to_polars,
}  # fmt: skip


def python_page(text: str) -> str:
    """python.md with its table of calls: parameters and the docstring of each."""
    rows = []
    for name, function in INTERFACE.items():
        named = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
        parameters = [one.replace(annotation=inspect.Parameter.empty) for one in named]
        documented = " ".join((inspect.getdoc(function) or "").split())
        rows.append((f"`{name}{inspect.Signature(parameters)}`", _PAGE.sub(r"[\1](\1)", documented)))
    return _replaced(text, ("call", "meaning"), table(("call", "meaning"), rows))


def _replaced(text: str, head: tuple[str, ...], made: str) -> str:
    """The first table with this head anew; a text without one stays."""
    first = re.escape("| " + " | ".join(head) + " |\n")
    return re.sub(rf"^{first}(?:\|.*\n)+", lambda _: made, text, count=1, flags=re.MULTILINE)


#: What makes each page from itself.
PAGES = {"commands.md": commands_page, "plans.md": plans_page, "python.md": python_page}


def pages() -> dict[Path, str]:
    """Each page as it should be."""
    return {DOCS / name: made((DOCS / name).read_text(encoding="utf-8")) for name, made in PAGES.items()}


def main() -> None:
    """Write what differs."""
    from tools.schemas import schemas

    for path, text in (pages() | schemas()).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
