"""Packages of others, with an entry point of collbench: beside the installed ones, as pip would put them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXTENDING = Path(__file__).parents[2].joinpath("docs", "extending.md").read_text(encoding="utf-8")


def example(heading: str) -> tuple[str, str]:
    """Of a chapter of extending.md: a module, and the entry point in its package's pyproject.toml."""
    chapter = EXTENDING.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    module, points = re.findall(r"^```(?:python|toml)\n(.*?)^```", chapter, re.MULTILINE | re.DOTALL)
    return module, points


def install(folder: Path, module: str, code: str, group: str, **points: str) -> None:
    """The distribution of that module, version 1.0, in a folder of sys.path."""
    distribution = module.replace("_", "-")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    for path, text in (
        (folder / f"{module}.py", code),
        (about / "METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"),
        (about / "entry_points.txt", f"[{group}]\n{lines}"),
    ):
        path.write_text(text, encoding="utf-8")


@contextmanager
def shown(folder: Path, module: str, code: str, registry: Any) -> Iterator[Callable[..., None]]:
    """`show(**points)` installs the module for this process, with these entry points of a registry."""
    with pytest.MonkeyPatch.context() as patch:

        def show(**points: str) -> None:
            install(folder, module, code, registry.ENTRY_POINTS, **points)
            patch.syspath_prepend(folder)
            registry._added.cache_clear()

        yield show
    sys.modules.pop(module, None)
    registry._added.cache_clear()
