"""What a workload starts or loads: where it is, how it is installed, its version and its file."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from typing import Protocol

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
    """A program by the name that starts it. `package` is Debian's and Ubuntu's, which brings it.

    `version` are the arguments that make it print its version, and `pattern` finds that in what it prints. `oldest` is
    the first version whose output is understood.
    """

    name: str
    package: str
    version: tuple[str, ...] = ("--version",)
    pattern: str = r"(\d+(?:\.\d+)+)"
    oldest: tuple[int, ...] = ()

    def missing(self) -> str | None:
        path = shutil.which(self.name)
        if path is None:
            return f"{self.name} was not found; on Debian and Ubuntu: apt-get install {self.package}"
        found = _version(self, path) if self.oldest else ""
        if found and tuple(map(int, found.split("."))) < self.oldest:
            needed = ".".join(map(str, self.oldest))
            return f"{self.name} {found} ({path}) is too old; install {needed} or later"
        return None

    def library(self) -> Library | None:
        path = shutil.which(self.name)
        return None if path is None else Library(name=self.name, version=_version(self, path), path=path)


@cache
def _version(software: Software, path: str) -> str:
    argv = (path, *software.version)
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=LIMIT, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(software.pattern, done.stdout + done.stderr)
    return match[1] if match is not None else ""
