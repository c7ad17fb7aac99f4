"""torch, as benchmarks need it: whether it is installed, and which. Asking imports none of it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from collbench.errors import to_install
from collbench.schema.manifest import Library

#: Core seconds until a process has imported torch, and what is imported with the first optimizer; seen on a core of an
#: AMD EPYC. A process that only meets others needs as long.
START = 2.6


@dataclass(frozen=True)
class Torch:
    """The package, which two sides of a comparison must have in one version and build."""

    def missing(self) -> str | None:
        return f"torch is not installed; {to_install('torch')}" if _folder() is None else None

    def library(self) -> Library | None:
        """Its file is the one with the kernels for processors."""
        folder = _folder()
        if folder is None:
            return None
        try:
            return Library(name="torch", version=version("torch"), path=str(folder / "lib" / "libtorch_cpu.so"))
        except PackageNotFoundError:  # built by hand, and not installed by pip
            return Library(name="torch", version="", path=str(folder / "lib" / "libtorch_cpu.so"))


def _folder() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
