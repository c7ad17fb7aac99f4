"""A command of the user's own as a benchmark of a plan: its words, and the files that it needs from here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench.errors import PlanError

#: The workload that starts it.
NAME = "command"

LONGEST = 512  #: Letters that a case stores of a text.

#: In the path of a file, before the part of it that the command finds in its folder.
MARK = "/./"


def benchmark_of(table: Mapping[str, Any], here: Path) -> dict[str, Any]:
    """The benchmark that a table with `command` stands for. Relative files are in the folder `here`.

    Files that its words name, as `script.py` or `data/in.csv`, are needed too. Each is copied to the same relative
    path in the folder of the command. Raises PlanError: no command, words that are none, or a file that does not exist.
    """
    command, files = table.get("command", ""), _listed(table.get("files", ()), "files")
    try:
        words = shlex.split(command) if isinstance(command, str) else _listed(command, "command")
    except ValueError as error:
        raise PlanError(f"command {command!r}: {error}.") from error
    if not words or not words[0]:
        raise PlanError('command: it is empty. Name a program, such as ["./app", "--steps", "100"].')
    of_folder = [words[0]] if not isinstance(command, str) and "/" in words[0] and _is_below(words[0]) else []
    if missing := next((file for file in (*files, *of_folder) if not _exists(here / file)), None):
        raise PlanError(f"{missing}: no such file, in {here.absolute()}.")
    named = [word for word in words if _is_below(word) and _exists(here / word) and not (here / word).is_dir()]
    paths = dict.fromkeys(_marked(here, file) for file in (*files, *named))
    places = [path.partition(MARK)[2] for path in paths]
    if twice := next((place for place in places if places.count(place) > 1), None):
        raise PlanError(f"files: two would be {twice} in the folder of the command. Rename one.")
    given = {"command": shlex.join(["sh", "-c", command] if isinstance(command, str) else words),
             "files": shlex.join(paths)}  # fmt: skip
    texts = {key: text for key, text in {**table, **given}.items() if isinstance(text, str)}
    if odd := next((key for key, text in texts.items() if "\0" in text or not _is_unicode(text)), None):
        raise PlanError(f"{odd} {texts[odd]!r}: has bytes that are no UTF-8, which no record can hold.")
    if long := next((key for key, text in texts.items() if len(text) > LONGEST), None):
        raise PlanError(f"{long}: longer than {LONGEST} letters. Put it into a script, or name a folder.")
    return {**table, "name": NAME, **given}


def _is_unicode(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - which is False of a name that is too long


def _is_below(word: str) -> bool:
    """Whether it may name a file in this folder or below it."""
    return bool(word) and not word.startswith(("/", "~", "-")) and ".." not in Path(word).parts


def _marked(here: Path, file: str) -> str:
    """The path of a file, with the mark: a link keeps its name."""
    path, below = here.resolve() / file, _is_below(file)
    if not below:  # a container has no folder that `..` could leave
        path = path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name
    place = Path(file) if below else Path(path.name)
    return f"{str(path).removesuffix(str(place)).rstrip('/')}{MARK}{place}"


def _listed(value: Any, key: str) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(isinstance(word, str) for word in values):
        raise PlanError(f"{key} {value!r}: not a text or a list of texts.")
    return list(values)


def files_of(benchmarks: Iterable[Any]) -> tuple[str, ...]:
    """The paths that the commands among benchmarks need, each once, without the mark."""
    tables = (table for table in benchmarks if isinstance(table, dict) and table.get("name") == NAME)
    paths = (path for table in tables for path in shlex.split(str(table.get("files", ""))))
    return tuple(dict.fromkeys(path.replace(MARK, "/", 1) for path in paths))


def use_of(command: str, files: Sequence[str]) -> str:
    """What a manifest calls the user of its program and files: `command files=PROGRAM FILE...`."""
    return f"{NAME} files={shlex.join([*shlex.split(command)[:1], *files])}"


def with_commands(document: dict[str, Any], here: Path) -> dict[str, Any]:
    """A plan whose benchmarks with a command are complete. Raises PlanError as `benchmark_of`."""
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list):
        return document
    made = [benchmark_of(table, here) if isinstance(table, dict) and _is_command(table) else table
            for table in benchmarks]  # fmt: skip
    return {**document, "benchmarks": made}


def _is_command(table: Mapping[str, Any]) -> bool:
    return bool(table.get("name", NAME if "command" in table else "") == NAME)
