"""Every command with every flag: how it is spelled, what it takes, its default and its line of help."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from collbench.cli import cli


def commands(group: click.Group, above: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Each command and those within it, by the words that call it."""
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, parent=above, info_name=name)
        yield context.command_path.strip(), command, context
        if isinstance(command, click.Group):
            yield from commands(command, context)


def described(command: click.Command, context: click.Context) -> str:
    """The usage, what the command does, and a line for each flag in the order of --help."""
    lines = [f"  usage: {' '.join(command.collect_usage_pieces(context))}"]
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        takes = "" if option.is_flag else f" {option.make_metavar(context)}"
        kind = repr(option.type) if isinstance(option.type, click.IntRange | click.FloatRange) else option.type.name
        kind = f"one of {', '.join(option.type.choices)}" if isinstance(option.type, click.Choice) else kind
        alone = () if option.is_flag or not option._flag_needs_value else (f"alone {option.flag_value!r}",)
        several = ("can be repeated",) if option.multiple else ()
        words = (kind, f"default {option.get_default(context)!r}", *alone, *several)
        _, text = option.get_help_record(context) or ("", "not listed")
        lines += [f"  {', '.join(option.opts)}{takes}: {text}", f"      {', '.join(words)}"]
    return "\n".join((*lines, ""))


def test_all_commands_and_flags(golden: Callable[[str, str], None]) -> None:
    alike: dict[str, list[str]] = {}
    text = ""
    for path, command, context in commands(cli, click.Context(cli)):
        text += f"{path}: {(command.help or '').strip()}\n" + (f"    {command.epilog}\n" if command.epilog else "")
        alike.setdefault(described(command, context), []).append(path)
    text += "".join(f"\n{', '.join(names)}\n{flags}" for flags, names in alike.items())
    golden("commands.txt", text)
