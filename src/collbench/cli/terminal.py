"""Text for the terminal, and the files of `-o` and `-J`."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from collbench.errors import RequestError, RunWriteError, in_lines, in_one_line


def harmless(text: str) -> str:
    """The text with control characters, which the terminal would interpret, written out; newlines remain."""
    return in_lines(text)


def say(text: str, nl: bool = True) -> None:
    """Print it on standard output, harmless."""
    click.echo(harmless(text), nl=nl)


def note(text: str) -> None:
    """Print it on standard error, harmless."""
    click.echo(harmless(text), err=True)


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
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_bytes(path: Path, data: bytes) -> None:
    """As `write`.

    Raises:
        RunWriteError: it cannot be written.
    """
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(data)
        half.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise RunWriteError(f"-o {path}: {error.strerror}.") from error


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
