"""torch, as software that a workload loads."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from collbench.schema.manifest import Library


@dataclass(frozen=True)
class Torch:
    """The installed package, asked without importing it."""

    def missing(self) -> str | None:
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed; pip install 'collbench[torch]'"
        return None

    def library(self) -> Library | None:
        try:
            return None if self.missing() else Library(name="torch", version=version("torch"))
        except PackageNotFoundError:  # on the path, and installed by no package
            return Library(name="torch", version="")
