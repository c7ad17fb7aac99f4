"""What a workload starts or loads: where it is, how it is installed, its version and its file."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import msgspec

from collbench.errors import to_install
from collbench.schema.manifest import Library

#: How long a program may take to print its version (s).
LIMIT = 20.0


class Required(Protocol):
    """A program, or a package with a library."""

    def missing(self) -> str | None:
        """Why it cannot be used, and what would help; None: it can."""

    def library(self) -> Library | None:
        """What a manifest says of it; None where it is missing. The version is empty where it does not tell."""


@dataclass(frozen=True)
class Software:
    """A program by the name that starts it. `package` of Debian and Ubuntu brings it, or `ways` say what does.

    `version` are the arguments that make it print its version, where `pattern` finds it; without any, its own file is
    searched, because it would begin to measure. `oldest` is the first version whose output is understood.
    """

    name: str
    package: str = ""
    version: tuple[str, ...] = ("--version",)
    pattern: str = r"(\d+(?:\.\d+)+)"
    oldest: tuple[int, ...] = ()
    ways: str = ""

    def missing(self) -> str | None:
        if (path := shutil.which(self.name)) is None:
            return f"{self.name} was not found; {self.ways or f'on Debian and Ubuntu: apt-get install {self.package}'}"
        installed = _version(self, path) if self.oldest else ""
        if installed and tuple(map(int, installed.split("."))) < self.oldest:
            needed = ".".join(map(str, self.oldest))
            return f"{self.name} {installed} ({path}) is too old; install {needed} or later"
        return None

    def library(self) -> Library | None:
        path = shutil.which(self.name)
        return None if path is None else Library(name=self.name, version=_version(self, path), path=path)


@cache
def version(package: str) -> str:
    """Of an installed package; empty where pip knows of none, as of one that was built by hand."""
    from importlib import metadata  # a rank imports this module, and rarely asks

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _version(software: Software, path: str) -> str:
    try:
        if software.version:
            done = run((path, *software.version))
            text = done.stdout + done.stderr
        else:
            text = Path(path).read_bytes().decode("latin-1")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return match[1] if (match := re.search(software.pattern, text)) is not None else ""


@dataclass(frozen=True)
class FirstOf:
    """The first of these programs that there is, by one name; where there is none, the last says what brings it."""

    name: str
    programs: tuple[Software, ...]

    def installed(self) -> Software | None:
        return next((program for program in self.programs if program.missing() is None), None)

    def missing(self) -> str | None:
        *others, last = self.programs
        why = f"there is no {', '.join(program.name for program in others)}, and {last.missing()}"
        return why if self.installed() is None else None

    def library(self) -> Library | None:
        program = self.installed()
        library = None if program is None else program.library()
        return None if library is None else msgspec.structs.replace(library, name=self.name)


@dataclass(frozen=True)
class Alternatives:
    """Software of which a case uses one: the value of a `parameter` says which. The first is that of its default."""

    parameter: str
    by_value: Mapping[str, Required]

    def chosen(self, benchmark: str | Mapping[str, Any]) -> tuple[str, ...]:
        """The values that a benchmark of a plan names, of those that there are."""
        usual = next(iter(self.by_value))
        named = usual if isinstance(benchmark, str) else benchmark.get(self.parameter, usual)
        values = named if isinstance(named, tuple | list) else (named,)
        return tuple(value for value in values if value in self.by_value)

    def use(self, name: str, value: str) -> str:
        """A workload of that name with a value: `linpack blas=mkl`."""
        return f"{name} {self.parameter}={value}"

    def missing(self) -> str | None:
        """Why there is none of them: the reason of the first."""
        reasons = tuple(takewhile(bool, (required.missing() for required in self.by_value.values())))
        return reasons[0] if len(reasons) == len(self.by_value) else None


@dataclass(frozen=True)
class Described:
    """A library that a `command` loads and describes, once by its name, for `read`; or it is `absent` for a reason."""

    name: str
    command: Callable[[], Sequence[str]] = field(compare=False)
    read: Callable[[str], Library] = field(compare=False)
    limit: float = LIMIT
    absent: Callable[[], str | None] = field(default=lambda: None, compare=False)

    def missing(self) -> str | None:
        return why if isinstance(why := describe(self), str) else None

    def library(self) -> Library | None:
        return None if isinstance(library := describe(self), str) else library


@cache
def describe(library: Described) -> Library | str:
    """The library, or why it cannot be used."""
    if (reason := library.absent()) is not None:
        return reason
    try:
        done = run(library.command(), library.limit)
        if done.returncode == 0:
            return library.read(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as error:
        return f"{library.name}: {error}"
    return (done.stderr.strip().splitlines() or [f"{library.name}: its exit code is {done.returncode}"])[-1]


@dataclass(frozen=True)
class Torch:
    """torch, which two sides of a comparison must have in one version and build. Asking imports none of it."""

    def missing(self) -> str | None:
        return f"torch is not installed; {to_install('torch')}" if self._folder() is None else None

    def library(self) -> Library | None:
        """Its file is the one with the kernels for processors."""
        if (folder := self._folder()) is None:
            return None
        return Library(name="torch", version=version("torch"), path=str(folder / "lib" / "libtorch_cpu.so"))

    def _folder(self) -> Path | None:
        spec = importlib.util.find_spec("torch")
        return Path(spec.origin).resolve().parent if spec is not None and spec.origin else None


def run(argv: Sequence[str], limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
    """A program and what it prints. OSError, TimeoutExpired: it cannot start, or takes longer than the limit (s)."""
    return subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=limit, check=False, stdin=subprocess.DEVNULL
    )
