"""A command of the user's own as a benchmark of a plan: its words, and the files that it needs from here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench.errors import PlanError

#: The workload that starts it, and its parameters here; `command` is a list of words, or text for a shell.
NAME = "command"

LONGEST = 512  #: Letters that a case stores of a text.


def benchmark_of(table: Mapping[str, Any], here: Path) -> dict[str, Any]:
    """The benchmark that a table with `command` stands for. Relative files are in the folder `here`.

    Files that its words name, as `script.py` or `./app`, are brought along too; its program from any folder. Raises
    PlanError: no command, words that are none, or a file that does not exist.
    """
    command, files = table["command"], _listed(table.get("files", ()), "files")
    try:
        words = shlex.split(command) if isinstance(command, str) else _listed(command, "command")
    except ValueError as error:
        raise PlanError(f"command {command!r}: {error}.") from error
    if not words or not words[0]:
        raise PlanError('command: it is empty. Name a program, such as ["./app", "--steps", "100"].')
    paths = dict.fromkeys(_existing(here / file, file) for file in files)
    for word in words:
        plain = word.removeprefix("./")
        if plain and "/" not in plain and plain not in (".", "..") and os.path.exists(here / plain):  # noqa: PTH110 - a long word
            paths[str((here / plain).resolve())] = None
    if isinstance(command, str):
        words = ["sh", "-c", command]
    elif "/" in words[0] and not words[0].startswith(("/", "~")):
        path = _existing(here / words[0], words[0])
        paths[path], words = None, [f"./{Path(path).name}", *words[1:]]
    names = [Path(path).name for path in paths]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise PlanError(f"files: two are called {twice}, and a command finds them in one folder. Rename one.")
    given = {"command": shlex.join(words), "files": shlex.join(paths)}
    if long := next((key for key, text in given.items() if len(text) > LONGEST), None):
        raise PlanError(f"{long}: longer than {LONGEST} letters. Put it into a script, or bring a folder along.")
    return {**table, "name": NAME, **given}


def _listed(value: Any, key: str) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(isinstance(word, str) for word in values):
        raise PlanError(f"{key} {value!r}: not a text or a list of texts.")
    return list(values)


def _existing(path: Path, named: str) -> str:
    if not os.path.exists(path):  # noqa: PTH110 - which is False of a name that is too long
        raise PlanError(f"{named}: no such file, in {path.parent}.")
    return str(path.resolve())


def files_of(benchmarks: Iterable[Any]) -> tuple[str, ...]:
    """The paths that the commands among benchmarks need, each once."""
    tables = (table for table in benchmarks if isinstance(table, dict) and table.get("name") == NAME)
    return tuple(dict.fromkeys(path for table in tables for path in shlex.split(str(table.get("files", "")))))


def use_of(command: str, files: Sequence[str]) -> str:
    """What a manifest calls the user of its program and files: `command files=PROGRAM FILE...`."""
    return f"{NAME} files={shlex.join([*shlex.split(command)[:1], *files])}"


def with_commands(document: dict[str, Any], here: Path) -> dict[str, Any]:
    """A plan whose benchmarks with a command are complete. Raises PlanError as `benchmark_of`."""
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list):
        return document
    made = [benchmark_of(table, here) if isinstance(table, dict) and "command" in table and
            table.get("name", NAME) == NAME else table for table in benchmarks]  # fmt: skip
    return {**document, "benchmarks": made}
